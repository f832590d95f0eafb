//! Runs programs. Errors name the command line.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Returns the command line without quotes: a shell accepts it if no word needs them.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Runs a command and returns its standard output. The command shares this process's standard
/// error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, .. } = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("`{}` cannot be started", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    String::from_utf8(stdout).with_context(|| format!("`{}` wrote invalid UTF-8", line(command)))
}

/// Runs a command and discards its standard output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "`sh -c exit 3` failed: exit status: 3"
        );
        let error = run(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("`/no/such/program` cannot be started: "),
            "{error:#}"
        );
        assert_eq!(output(Command::new("echo").arg("x")).unwrap(), "x\n");
    }
}
