//! Access to the workspace's files, its history, and the lists of exceptions.

use std::fs;
use std::process::Command;

/// The workspace's folder.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules");

/// The command that rewrites a list of exceptions. It never adds rows or raises numbers.
pub(crate) const REWRITE: &str = "CONDUIT_TEST_WRITE=1 cargo test -p xtask --test rules";

/// Returns the text of a file, named relative to the workspace's folder, if it can be read.
pub(crate) fn read(path: &str) -> Option<String> {
    fs::read_to_string(format!("{ROOT}/{path}")).ok()
}

/// Returns the output of a git command, or `None` if the command fails, for example because there
/// is no git or no repository.
pub(crate) fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(ROOT)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(text)
}

/// Returns the rows of a list of exceptions, each of which has two columns.
pub(crate) fn exceptions(list: &str) -> Vec<(String, String)> {
    let path = format!("{LISTS}/{list}");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let columns = |row: &str| row.split_once('\t').map(|(a, b)| (a.into(), b.into()));
    text.lines()
        .map(|row| columns(row).unwrap_or_else(|| panic!("{path}: no tab in {row:?}")))
        .collect()
}

/// Writes a list of exceptions if the environment requests it.
pub(crate) fn rewrite(list: &str, rows: impl IntoIterator<Item = (String, String)>) {
    if std::env::var_os("CONDUIT_TEST_WRITE").is_some() {
        let rows: Vec<_> = rows
            .into_iter()
            .map(|(a, b)| format!("{a}\t{b}\n"))
            .collect();
        fs::write(format!("{LISTS}/{list}"), rows.concat()).expect("the list can be written");
    }
}
