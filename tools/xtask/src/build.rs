//! Builds programs and libraries with cargo.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;

use crate::command;

/// A threading mode of GASNet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The program has one thread.
    Seq,
    /// The program has several threads, of which one at a time calls the library.
    Parsync,
    /// The program has several threads, which may call the library at the same time.
    Par,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Seq => "seq",
            Mode::Parsync => "parsync",
            Mode::Par => "par",
        })
    }
}

/// The kinds of libraries that C programs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// An archive.
    Static,
    /// A shared library, which is loaded when a program starts or later.
    Shared,
}

/// Builds the library of one of this workspace's packages in cargo's profile `dev`, and returns its
/// path. Each library is built only once per process.
///
/// # Errors
/// Returns an error if cargo fails or builds no such library.
pub fn library(package: &'static str, kind: Library) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<(&str, bool), PathBuf>> = Mutex::new(BTreeMap::new());
    // Hold the lock during the build, so that a second thread waits for the first one's library.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (package, kind == Library::Shared);
    if let Some(library) = built.get(&key) {
        return Ok(library.clone());
    }
    let library = Cargo::new().library(package, kind, &[], "dev")?;
    built.insert(key, library.clone());
    Ok(library)
}

/// Runs cargo in this workspace.
#[derive(Debug)]
pub(crate) struct Cargo {
    program: OsString,
    root: PathBuf,
}

/// The programs that start jobs.
#[derive(Debug)]
pub(crate) struct Launchers {
    pub(crate) conduit_run: PathBuf,
    pub(crate) gasnetrun: PathBuf,
}

/// One of cargo's messages. All fields except `reason` are those of messages that report a built
/// artifact.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    reason: String,
    pub(crate) manifest_path: Option<PathBuf>,
    pub(crate) target: Option<Target>,
    profile: Option<Profile>,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    pub(crate) executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Cargo {
    pub(crate) fn new() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        Cargo {
            // Cargo sets this variable for programs that it runs.
            program: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            root: root.ancestors().nth(2).unwrap_or(root).to_owned(),
        }
    }

    /// Returns the workspace's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Builds GASNet's static library for a threading mode.
    pub(crate) fn gasnet(&self, mode: Mode, profile: &str) -> Result<PathBuf> {
        let features: &[&str] = match mode {
            Mode::Seq => &[],
            Mode::Parsync => &["--features", "parsync"],
            Mode::Par => &["--features", "par"],
        };
        self.library("pgas-gasnet", Library::Static, features, profile)
    }

    /// Builds the static library of GASNet's portable tools.
    pub(crate) fn tools(&self, profile: &str) -> Result<PathBuf> {
        self.library("pgas-gasnet-tools", Library::Static, &[], profile)
    }

    fn library(
        &self,
        package: &str,
        kind: Library,
        features: &[&str],
        profile: &str,
    ) -> Result<PathBuf> {
        let (name, extension) = match kind {
            Library::Static => ("staticlib", "a"),
            Library::Shared => ("cdylib", "so"),
        };
        let mut command = self.command("rustc", profile);
        command
            .args(["--package", package, "--lib", "--crate-type", name])
            .args(features);
        built(&mut command, package, extension)
    }

    /// Builds the plugin for Mercury.
    pub(crate) fn plugin(&self, profile: &str) -> Result<PathBuf> {
        self.library("pgas-na-plugin-conduit", Library::Shared, &[], profile)
    }

    /// Builds the launchers.
    pub(crate) fn launchers(&self, profile: &str) -> Result<Launchers> {
        let mut command = self.command("build", profile);
        command.args(["--package", "pgas-conduit-run", "--bin", "conduit-run"]);
        command.args(["--package", "pgas-gasnetrun", "--bin", "gasnetrun"]);
        let messages = messages(&mut command)?;
        Ok(Launchers {
            conduit_run: executable(&messages, "conduit-run")?,
            gasnetrun: executable(&messages, "gasnetrun")?,
        })
    }

    /// Builds the program that has the package's name.
    pub(crate) fn program(&self, package: &str, profile: &str) -> Result<PathBuf> {
        let mut command = self.command("build", profile);
        command.args(["--package", package, "--bin", package]);
        executable(&messages(&mut command)?, package)
    }

    /// Builds the test programs that `cargo test` with these arguments would run.
    pub(crate) fn tests(&self, arguments: &[&str]) -> Result<Vec<Message>> {
        let mut command = self.task("test");
        let json = ["--no-run", "--message-format", "json-render-diagnostics"];
        let mut messages = messages(command.args(json).args(arguments))?;
        messages.retain(|message| message.profile.as_ref().is_some_and(|profile| profile.test));
        Ok(messages)
    }

    /// Returns a cargo command in this workspace.
    pub(crate) fn task(&self, task: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.root).arg(task);
        // `cargo fmt` is another program and has no option `--locked`.
        if task != "fmt" {
            command.arg("--locked");
        }
        command
    }

    fn command(&self, task: &str, profile: &str) -> Command {
        let mut command = self.task(task);
        command.args([
            "--message-format",
            "json-render-diagnostics",
            "--profile",
            profile,
        ]);
        command
    }
}

impl Message {
    fn is_target(&self, name: &str) -> bool {
        self.reason == "compiler-artifact"
            && self
                .target
                .as_ref()
                .is_some_and(|target| target.name == name)
    }
}

/// The prefix of the names of packages for use outside the workspace. The names of their libraries
/// and programs lack the prefix.
const PREFIX: &str = "pgas-";

/// Runs a command that builds a package's library and returns the library, found by its file
/// extension.
fn built(command: &mut Command, package: &str, extension: &str) -> Result<PathBuf> {
    let name = package.strip_prefix(PREFIX).unwrap_or(package);
    let name = name.replace('-', "_");
    messages(command)?
        .into_iter()
        .filter(|message| message.is_target(&name))
        .flat_map(|message| message.filenames)
        .find(|file| file.extension().is_some_and(|found| found == extension))
        .with_context(|| format!("cargo built no library of {package}"))
}

fn executable(messages: &[Message], name: &str) -> Result<PathBuf> {
    messages
        .iter()
        .filter(|message| message.is_target(name))
        .find_map(|message| message.executable.clone())
        .with_context(|| format!("cargo built no program {name}"))
}

fn messages(command: &mut Command) -> Result<Vec<Message>> {
    let lines = command::output(command)?;
    lines
        .lines()
        .map(|line| {
            serde_json::from_str(line)
                .with_context(|| format!("cannot parse a message from cargo: {line}"))
        })
        .collect()
}
