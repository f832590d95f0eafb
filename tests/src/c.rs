//! C and C++ programs, which are compiled against the headers of `gasnet/include` and linked with
//! this workspace's C libraries.
//!
//! ```no_run
//! use conduit_tests::c::{Build, Standard};
//!
//! let library = xtask::library("pgas-gasnet-tools", xtask::Library::Static)?;
//! let built = Build::new(Standard::C99).source("hello.c").library(library).executable()?;
//! assert_eq!(built.job(["an argument"]).run()?.code, Some(0));
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! Compilers and programs run as jobs with time limits. An executable is in a temporary folder,
//! which is removed with the [`Executable`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::job::{Finished, Job};

/// A language and the version of its standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standard {
    /// Strict C99, compiled by gcc.
    C99,
    /// C11 with GNU extensions, which older versions of gcc use by default.
    Gnu11,
    /// Strict C++11, compiled by g++.
    Cxx11,
    /// Strict C23, as far as gcc supports it.
    C23,
    /// Strict C++17, compiled by g++.
    Cxx17,
    /// Strict C++20, compiled by g++.
    Cxx20,
}

impl Standard {
    /// The standards in which the headers must compile without warnings.
    pub const ALL: [Standard; 6] = [
        Self::C99,
        Self::Gnu11,
        Self::C23,
        Self::Cxx11,
        Self::Cxx17,
        Self::Cxx20,
    ];

    fn compiler(self) -> &'static str {
        match self {
            Self::C99 | Self::Gnu11 | Self::C23 => "gcc",
            Self::Cxx11 | Self::Cxx17 | Self::Cxx20 => "g++",
        }
    }

    /// Returns the flags that select the standard and the language. The language overrides the one
    /// that a source's file extension implies.
    fn flags(self) -> [&'static str; 3] {
        match self {
            Self::C99 => ["-std=c99", "-x", "c"],
            Self::Gnu11 => ["-std=gnu11", "-x", "c"],
            Self::Cxx11 => ["-std=c++11", "-x", "c++"],
            Self::C23 => ["-std=c2x", "-x", "c"],
            Self::Cxx17 => ["-std=c++17", "-x", "c++"],
            Self::Cxx20 => ["-std=c++20", "-x", "c++"],
        }
    }
}

/// The flags for warnings in headers and programs. Every warning is an error.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-pedantic", "-Werror"];

/// The time limit for a compiler, which shares the processors with other tests.
const COMPILER_LIMIT: Duration = Duration::from_secs(1800);

/// The system libraries that a static Rust library needs.
const SYSTEM_LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lrt", "-lm"];

/// Returns the folder that holds the headers.
pub fn include() -> PathBuf {
    root().join("gasnet/include")
}

/// Returns the path of a file in `tests/c`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name)
}

fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests)
}

/// Returns the words of a C text, which are names, keywords and numbers.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

/// Reads a table that lists the headers' names and, for each name, the programs that use it.
/// `0..16` in a name stands for each of these numbers in turn.
///
/// # Panics
/// If the file isn't such a table.
pub fn names(file: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(file).expect("the table of names");
    let mut table = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, program) = line.split_once('\t').unwrap_or_else(|| panic!("{line:?}"));
        let counts = if name.contains("0..16") {
            0..=16
        } else {
            0..=0
        };
        for count in counts {
            let name = name.replace("0..16", &count.to_string());
            let before = table.insert(name, program.to_owned());
            assert_eq!(before, None, "{line:?} is listed twice");
        }
    }
    table
}

/// Checks that `table` lists exactly the names in `there`.
///
/// # Panics
/// If a name is missing from the table, or the table lists a name that doesn't exist.
#[track_caller]
pub fn all_listed(table: &BTreeMap<String, String>, there: &BTreeSet<String>) {
    let listed: BTreeSet<String> = table.keys().cloned().collect();
    let missing: Vec<_> = there.difference(&listed).collect();
    assert!(missing.is_empty(), "not in names.tsv: {missing:#?}");
    let gone: Vec<_> = listed.difference(there).collect();
    assert!(
        gone.is_empty(),
        "in names.tsv and not in the headers: {gone:#?}"
    );
}

/// The options for building a program.
#[derive(Clone, Debug)]
pub struct Build {
    standard: Standard,
    flags: Vec<OsString>,
    sources: Vec<PathBuf>,
    libraries: Vec<OsString>,
}

impl Build {
    /// Creates a build that has only the language, the headers' folder and the warnings.
    pub fn new(standard: Standard) -> Self {
        let mut include_flag = OsString::from("-I");
        include_flag.push(include());
        let flags = WARNINGS
            .map(OsString::from)
            .into_iter()
            .chain([include_flag])
            .collect();
        Self {
            standard,
            flags,
            sources: Vec::new(),
            libraries: Vec::new(),
        }
    }

    /// Adds a flag for the compiler.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<OsString>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Adds several flags for the compiler, such as `-DNAME`.
    #[must_use]
    pub fn flags<F: Into<OsString>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Adds a source file.
    #[must_use]
    pub fn source(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(path.into());
        self
    }

    /// Adds a library to link, which is either the path of an archive or `-lname`.
    #[must_use]
    pub fn library(mut self, library: impl Into<OsString>) -> Self {
        self.libraries.push(library.into());
        self
    }

    fn compiler_arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> =
            self.standard.flags().iter().map(OsString::from).collect();
        arguments.extend(self.flags.iter().cloned());
        arguments.extend(
            self.sources
                .iter()
                .map(|source| source.clone().into_os_string()),
        );
        arguments
    }

    fn compile(&self, arguments: Vec<OsString>) -> Result<Finished> {
        let finished = Job::alone(self.standard.compiler(), arguments)
            .limit(COMPILER_LIMIT)
            .run()?;
        match finished.code {
            Some(0) => Ok(finished),
            Some(_) => bail!(
                "{:?} {:?}:\n{}",
                self.standard,
                self.sources,
                finished.stderr
            ),
            None => bail!(
                "{:?} {:?}: the compiler exceeded its time limit",
                self.standard,
                self.sources
            ),
        }
    }

    /// Compiles the sources only to find errors and warnings, without writing any output.
    ///
    /// # Errors
    /// The error holds the text of an error or a warning that the compiler reported.
    pub fn check(&self) -> Result<()> {
        let mut arguments = self.compiler_arguments();
        arguments.push("-fsyntax-only".into());
        self.compile(arguments).map(drop)
    }

    /// Returns the preprocessed text, or all macro definitions if `-dM` is among the flags.
    ///
    /// # Errors
    /// The preprocessor failed.
    pub fn preprocess(&self) -> Result<String> {
        let mut arguments = self.compiler_arguments();
        arguments.push("-E".into());
        Ok(self.compile(arguments)?.stdout)
    }

    /// Compiles and links the program.
    ///
    /// # Errors
    /// The error holds the text of an error or a warning that the compiler or the linker reported.
    pub fn executable(&self) -> Result<Executable> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("program");
        let mut arguments = self.compiler_arguments();
        // The libraries that follow aren't sources, so `-x none` makes gcc derive the language from
        // file names again.
        arguments.extend(["-x", "none"].map(OsString::from));
        arguments.extend(self.libraries.iter().cloned());
        arguments.extend(SYSTEM_LIBRARIES.map(OsString::from));
        arguments.extend([OsString::from("-o"), path.clone().into_os_string()]);
        self.compile(arguments)?;
        Ok(Executable {
            path,
            _folder: folder,
        })
    }
}

/// A program that was built. Dropping an `Executable` removes the program.
#[derive(Debug)]
pub struct Executable {
    path: PathBuf,
    _folder: TempDir,
}

impl Executable {
    /// Returns the path of the program's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a job that runs this program without a launcher, with these arguments. For a job of
    /// several ranks, pass [`Executable::path`] to [`Job::new`].
    pub fn job<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Job {
        Job::alone(&self.path, arguments)
    }
}
