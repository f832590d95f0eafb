//! The C library as `cargo xtask install` installs it. Tests use it to build programs as users do,
//! with pkg-config or with make fragments.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use xtask::{Install, Mode};

use crate::job::{Finished, Job};

/// Installs the debug build of all threading modes under a prefix in `folder`, once per process. If
/// the folder holds files of an earlier process, only outdated files are replaced, which takes only
/// a moment.
///
/// # Panics
/// If the library can't be built or installed.
pub fn debug(folder: &str) -> &'static Prefix {
    static PREFIX: OnceLock<Prefix> = OnceLock::new();
    PREFIX.get_or_init(|| {
        Prefix::install(Path::new(folder)).unwrap_or_else(|error| panic!("{error:#}"))
    })
}

/// An installation of the C library.
#[derive(Debug, Clone)]
pub struct Prefix {
    root: PathBuf,
    debug: PathBuf,
}

/// The flags for warnings in programs. Every warning is an error.
pub const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wundef", "-pedantic", "-Werror"];

/// The kind of library with which a program is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The static library.
    Static,
    /// The shared library.
    Shared,
}

impl Prefix {
    fn install(folder: &Path) -> Result<Self> {
        let root = folder.join("prefix");
        // The lock is needed because test programs that run at the same time share the prefix.
        let lock = File::create(folder.join("prefix.lock"))?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Self::options(&root).run()?;
        Ok(Self::at(root))
    }

    /// Returns an existing installation. Calls that compile and link use its debug build.
    pub fn at(root: PathBuf) -> Self {
        let debug = root.join("debug");
        Prefix { root, debug }
    }

    /// Returns an existing installation. Calls that compile and link use its optimised build. The
    /// launchers are the same as those of [`at`](Self::at).
    pub fn optimised(root: PathBuf) -> Self {
        Prefix {
            debug: root.clone(),
            root,
        }
    }

    /// Returns the options with which the library is installed under `root`.
    pub fn options(root: &Path) -> Install {
        Install {
            modes: vec![Mode::Seq, Mode::Parsync, Mode::Par],
            debug_only: true,
            ..Install::new(root)
        }
    }

    /// Returns the prefix of the installation.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the prefix of the build that calls compile and link with.
    pub fn debug(&self) -> &Path {
        &self.debug
    }

    /// Returns the path of the launcher `name`.
    pub fn launcher(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// Runs pkg-config and returns the words that it prints.
    ///
    /// # Errors
    /// pkg-config failed, for example because there is no such package.
    pub fn pkg_config(&self, link: Link, arguments: &[&str]) -> Result<Vec<String>> {
        let folder = match link {
            Link::Static => "lib/pkgconfig",
            Link::Shared => "lib/shared/pkgconfig",
        };
        let folder = self.debug.join(folder);
        let finished = Job::alone("pkg-config", arguments)
            .env(
                "PKG_CONFIG_LIBDIR",
                folder.to_str().context("a path in UTF-8")?,
            )
            .run()
            .context("pkg-config")?;
        ensure!(
            finished.code == Some(0),
            "pkg-config {arguments:?}: {finished:#?}"
        );
        Ok(finished
            .stdout
            .split_whitespace()
            .map(str::to_owned)
            .collect())
    }

    /// Builds `source` into `to` with the flags that pkg-config prints for `package`. `compiler`
    /// holds the compiler's name and the caller's own flags.
    ///
    /// # Errors
    /// The compiler or the linker failed. The error holds the text that it printed.
    pub fn build(
        &self,
        link: Link,
        package: &str,
        compiler: &[&str],
        source: &Path,
        to: &Path,
    ) -> Result<()> {
        let (program, flags) = compiler.split_first().context("a compiler")?;
        let mut words: Vec<OsString> = flags.iter().map(OsString::from).collect();
        words.extend(
            self.pkg_config(link, &["--cflags", package])?
                .into_iter()
                .map(OsString::from),
        );
        words.extend([
            source.into(),
            "-o".into(),
            to.into(),
            "-x".into(),
            "none".into(),
        ]);
        words.extend(
            self.pkg_config(link, &["--libs", package])?
                .into_iter()
                .map(OsString::from),
        );
        succeeds(Job::alone(program, words))
            .with_context(|| format!("{compiler:?}"))
            .map(drop)
    }

    /// Compiles `source` only to find errors and warnings, without writing any output.
    ///
    /// # Errors
    /// The error holds the text of an error or a warning that the compiler reported.
    pub fn check(&self, package: &str, compiler: &[&str], source: &Path) -> Result<()> {
        self.compile(
            package,
            compiler,
            &["-fsyntax-only".as_ref(), source.as_ref()],
        )
        .map(drop)
    }

    /// Compiles `source` to an object file.
    ///
    /// # Errors
    /// The compiler failed. The error holds the text that it printed.
    pub fn object(&self, package: &str, compiler: &[&str], source: &Path, to: &Path) -> Result<()> {
        let words = ["-c".as_ref(), source.as_ref(), "-o".as_ref(), to.as_ref()];
        self.compile(package, compiler, &words).map(drop)
    }

    /// Returns the preprocessed text of `source`.
    ///
    /// # Errors
    /// The preprocessor failed. The error holds the text that it printed.
    pub fn preprocess(&self, package: &str, compiler: &[&str], source: &Path) -> Result<String> {
        let finished = self.compile(package, compiler, &["-E".as_ref(), source.as_ref()])?;
        Ok(finished.stdout)
    }

    /// Calls the compiler with the package's flags, the caller's own flags, which take precedence,
    /// and `words`.
    fn compile(&self, package: &str, compiler: &[&str], words: &[&OsStr]) -> Result<Finished> {
        let (program, flags) = compiler.split_first().context("a compiler")?;
        let mut all: Vec<OsString> = self
            .pkg_config(Link::Shared, &["--cflags", package])?
            .into_iter()
            .map(OsString::from)
            .collect();
        all.extend(flags.iter().map(OsString::from));
        all.extend(words.iter().map(OsString::from));
        succeeds(Job::alone(program, all))
    }

    /// Runs make in `folder`. Its makefile includes the fragment and continues with the given text.
    ///
    /// # Errors
    /// Make failed. The error holds the text that it printed.
    pub fn make(
        &self,
        fragment: &str,
        folder: &Path,
        rules: &str,
        arguments: &[&str],
    ) -> Result<String> {
        let fragment = self.debug.join("include").join(fragment);
        let text = format!("all: program\n\ninclude {}\n\n{rules}", fragment.display());
        std::fs::write(folder.join("Makefile"), text)?;
        let words = [
            OsStr::new("-C"),
            folder.as_os_str(),
            OsStr::new("--no-print-directory"),
        ];
        let words = words.into_iter().chain(arguments.iter().map(OsStr::new));
        Ok(succeeds(Job::alone("make", words)).context("make")?.stdout)
    }
}

/// Runs a command and requires that it succeeds.
fn succeeds(job: Job) -> Result<Finished> {
    let finished = job.run()?;
    ensure!(finished.code == Some(0), "{finished:#?}");
    Ok(finished)
}
