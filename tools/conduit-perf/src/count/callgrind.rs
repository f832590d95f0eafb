//! Counts of instructions by callgrind, which dumps the count of each section separately.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

/// The name of the function whose calls are the sections of a program, whether it is in Rust or in
/// C.
const SECTION: &str = "conduit_counted_section";

/// A program that prints the name of each operation and then repeats it in two sections.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The arguments, to which the numbers of repetitions in the sections are appended, separated
    /// by a comma.
    pub(super) arguments: Vec<String>,
    /// The program's whole environment. The caller's environment is not passed on, because it must
    /// not affect a count.
    pub(super) environment: Vec<(&'static str, &'static str)>,
}

impl Program {
    /// Runs the program. Returns the name of each operation and the numbers of instructions in its
    /// two sections.
    ///
    /// # Errors
    /// Fails if valgrind is missing, or if the program fails.
    pub(super) fn sections(&self, counts: &[u64; 2]) -> anyhow::Result<Vec<(String, [u64; 2])>> {
        let folder = tempfile::tempdir()?;
        let dumps = folder.path().join("dumps");
        let counts = counts.map(|count| count.to_string()).join(",");
        let output = Command::new(valgrind()?)
            .args(["--tool=callgrind", "--combine-dumps=yes", "--dump-line=no"])
            .arg(format!("--toggle-collect={SECTION}"))
            .arg(format!("--dump-after={SECTION}"))
            .arg(format!("--callgrind-out-file={}", dumps.display()))
            .arg(&self.path)
            .args(&self.arguments)
            .arg(counts)
            .env_clear()
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .context("valgrind")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {errors}", self.path.display());
        let names = String::from_utf8(output.stdout)?;
        let dumps = fs::read_to_string(&dumps).context("callgrind wrote no dump")?;
        pair(&names, &totals(&dumps))
            .with_context(|| format!("{} {}", self.path.display(), self.arguments.join(" ")))
    }
}

/// Finds valgrind in `PATH`, which is not passed to the counted program.
fn valgrind() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("valgrind"))
        .find(|file| file.is_file())
        .context(
            "valgrind is not in PATH; install the package `valgrind` (Debian, Fedora and others)",
        )
}

/// Returns the number of instructions in each section, in order. The dump at the program's end is
/// not a section.
fn totals(dumps: &str) -> Vec<u64> {
    let mut is_section = false;
    let mut found = Vec::new();
    for line in dumps.lines() {
        if let Some(trigger) = line.strip_prefix("desc: Trigger: ") {
            is_section = trigger.contains(SECTION);
        } else if let Some(total) = line.strip_prefix("totals: ") {
            found.extend(total.parse::<u64>().ok().filter(|_| is_section));
        }
    }
    found
}

fn pair(names: &str, totals: &[u64]) -> anyhow::Result<Vec<(String, [u64; 2])>> {
    let (pairs, rest) = totals.as_chunks();
    if names.lines().count() != pairs.len() || !rest.is_empty() {
        bail!(
            "{} operations have {} sections instead of two each",
            names.lines().count(),
            totals.len()
        );
    }
    let names = names.lines().map(str::to_owned);
    Ok(names.zip(pairs.iter().copied()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMPS: &str = "\
version: 1
part: 1
desc: Trigger: --dump-after=conduit_counted_section
events: Ir
summary: 779
fn=(1) put
0 779
totals: 779
part: 2
desc: Trigger: --dump-after=conduit_counted_section
totals: 3851
part: 3
desc: Trigger: Program termination
totals: 12
";

    #[test]
    fn each_operation_has_two_sections() {
        let found = totals(DUMPS);
        assert_eq!(found, [779, 3851]);
        let pairs = pair("put\n", &found).expect("two sections");
        assert_eq!(pairs, [("put".to_owned(), [779, 3851])]);
        assert!(pair("put\nget\n", &found).is_err());
        assert!(pair("put\n", &found[..1]).is_err());
    }
}
