//! The unmodified Python package `dragonhpc`, in a virtual environment under `target`. The first
//! test that needs it installs it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that the binding to libdragon supports.
const VERSION: &str = "0.15.0";
/// The time limit of an installation, in seconds.
const LIMIT: &str = "300";

/// Returns the folder of a virtual environment with Dragon, whose `bin/python` can import it.
/// Returns `None`, and prints the reason, if it cannot be installed.
///
/// # Panics
/// Panics if it cannot be installed and `CONDUIT_TEST_DRAGON` is set.
pub(crate) fn environment() -> Option<PathBuf> {
    match install() {
        Ok(folder) => Some(folder),
        Err(error) if std::env::var_os("CONDUIT_TEST_DRAGON").is_some() => {
            panic!("dragonhpc {VERSION}: {error}")
        }
        Err(error) => {
            // Not by a macro, because the harness captures that output.
            let _ = writeln!(
                io::stderr(),
                "NOT TESTED with Dragon's clients: dragonhpc {VERSION} cannot be installed: {error}"
            );
            None
        }
    }
}

fn install() -> io::Result<PathBuf> {
    // This program is <target>/<profile>/deps/<name>.
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(3).ok_or(io::ErrorKind::NotFound)?;
    let folder = target.join("tmp").join(format!("dragonhpc-{VERSION}"));
    let complete = folder.join("complete");
    fs::create_dir_all(&folder)?;
    // Held until the end, so that others wait for this installation.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if complete.exists() {
        return Ok(folder);
    }
    run(
        Path::new("python3"),
        &["-m", "venv", "--clear"],
        Some(&folder),
    )?;
    let package = format!("dragonhpc=={VERSION}");
    let options = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--only-binary=:all:",
        "--retries=1",
        "--timeout=30",
        &package,
    ];
    run(&folder.join("bin/python"), &options, None)?;
    File::create(complete)?;
    Ok(folder)
}

/// Runs a program with the time limit. Errors contain its standard error.
fn run(program: &Path, arguments: &[&str], last: Option<&Path>) -> io::Result<()> {
    let output = Command::new("timeout")
        .args(["--kill-after=10", LIMIT])
        .arg(program)
        .args(arguments)
        .args(last)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "{} {}: {}: {}",
        program.display(),
        arguments.join(" "),
        output.status,
        said.trim()
    )))
}
