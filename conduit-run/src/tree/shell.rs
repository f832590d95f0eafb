//! The command that starts a daemon on another host.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The default remote shell.
pub(crate) const DEFAULT: &str = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}";
/// The option that makes this program a daemon.
pub(crate) const DAEMON: &str = "--daemon";
const HOST: &str = "{host}";

/// A remote shell and the command that it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shell {
    /// The words of the remote shell's command, in which `{host}` stands for the host.
    words: Vec<String>,
    /// The path of this program on the other hosts.
    program: String,
    /// The program that is the daemon of the launcher's host.
    own: OsString,
    /// The time in which a daemon has to start, and a host its ranks.
    pub(crate) limit: Duration,
}

/// A remote shell that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShellError {
    /// The template is not a command.
    #[error("the remote shell {0:?} is not a command: it has an open quotation or no word")]
    Words(String),
    /// The path of this program cannot be passed on.
    #[error("the path {0:?} of conduit-run contains a character that no shell can carry")]
    Path(OsString),
}

impl Shell {
    /// Parses a template. Its words are split as a POSIX shell does; if `{host}` occurs in none of
    /// them, the host is appended.
    pub(crate) fn parse(
        template: &str,
        program: &OsStr,
        own: &OsStr,
        limit: Duration,
    ) -> Result<Self, ShellError> {
        let words = shlex::split(template).filter(|words| !words.is_empty());
        let mut words = words.ok_or_else(|| ShellError::Words(template.to_owned()))?;
        if !words.iter().any(|word| word.contains(HOST)) {
            words.push(HOST.to_owned());
        }
        let quoted = program
            .to_str()
            .and_then(|path| shlex::try_quote(path).ok());
        let program = quoted.ok_or_else(|| ShellError::Path(program.to_owned()))?;
        Ok(Shell {
            words,
            program: program.into_owned(),
            own: own.to_owned(),
            limit,
        })
    }

    /// Returns the words of the command that starts the daemon of the launcher's host.
    pub(crate) fn own_command(&self) -> Vec<OsString> {
        vec![self.own.clone(), DAEMON.into()]
    }

    /// Returns the words of the command that starts the daemon of a host.
    pub(crate) fn command(&self, host: &str) -> Vec<OsString> {
        let words = self.words.iter().map(|word| word.replace(HOST, host));
        let daemon = [self.program.clone(), DAEMON.to_owned()];
        words.chain(daemon).map(OsString::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn command(template: &str, program: &str) -> Result<Vec<String>, ShellError> {
        let program = OsStr::new(program);
        let shell = Shell::parse(template, program, program, Duration::ZERO)?;
        let words = shell.command("n1").into_iter();
        Ok(words.map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn the_host_takes_its_place_or_the_end() {
        assert_eq!(
            command(DEFAULT, "/bin/run").unwrap().join(" "),
            "ssh -o BatchMode=yes -o ConnectTimeout=10 n1 /bin/run --daemon"
        );
        assert_eq!(
            command("rsh -l me", "/bin/run").unwrap().join(" "),
            "rsh -l me n1 /bin/run --daemon"
        );
        assert_eq!(
            command("sh -c 'X={host} exec \"$0\"'", "/a b/run").unwrap(),
            ["sh", "-c", "X=n1 exec \"$0\"", "'/a b/run'", "--daemon"]
        );
    }

    #[test]
    fn templates_that_are_not_commands_are_refused() {
        for template in ["", "  ", "ssh 'x"] {
            assert_eq!(
                command(template, "run"),
                Err(ShellError::Words(template.to_owned()))
            );
        }
        let program = OsStr::from_bytes(b"\xff");
        assert!(Shell::parse("ssh", program, program, Duration::ZERO).is_err());
    }
}
