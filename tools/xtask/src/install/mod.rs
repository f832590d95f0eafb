//! `cargo xtask install`: installs the C library, its headers, the files for build systems, the
//! launchers, and the plugin for Mercury under one prefix.
//!
//! - [`archive`] turns cargo's static library into libraries that export only C symbols;
//! - [`variant`] installs the files of one build (optimised or debug);
//! - [`fragment`], [`package`], [`cmake`] and [`header`] make the texts that build systems and the
//!   compiler read, and [`settings`] the values in them;
//! - [`files`] writes files under the prefix such that reinstalling changes nothing.

mod archive;
mod cmake;
mod files;
mod fragment;
mod header;
mod package;
mod settings;
mod variant;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use settings::{Compilers, Release};
use variant::{Variant, VariantKind};

use crate::build::{Cargo, Mode};

/// Build the C library and install it under a prefix
///
/// The optimised build is in PREFIX/include, PREFIX/lib and PREFIX/bin. A build with checks is in
/// the same folders below PREFIX/debug. PREFIX/lib/mercury is a folder for Mercury's
/// NA_PLUGIN_PATH. Reinstalling replaces only files that have changed, and does not remove other
/// modes and conduits.
#[derive(Debug, Clone, Args)]
pub struct Install {
    /// The prefix. It may be moved afterwards, because no installed file contains its path
    #[arg(long, value_name = "DIR")]
    pub prefix: PathBuf,

    /// Threading modes, comma-separated
    #[arg(long = "mode", value_name = "MODE", value_enum, value_delimiter = ',', default_values_t = [Mode::Seq, Mode::Parsync, Mode::Par])]
    pub modes: Vec<Mode>,

    /// Conduit names, comma-separated
    #[arg(long = "conduit", value_name = "NAME", value_enum, value_delimiter = ',', default_values_t = [Conduit::Smp, Conduit::Udp, Conduit::Ofi, Conduit::Conduit])]
    pub conduits: Vec<Conduit>,

    /// Only the debug build
    #[arg(long, conflicts_with = "no_debug")]
    pub debug_only: bool,

    /// Only the optimised build
    #[arg(long)]
    pub no_debug: bool,

    /// Cargo's profile for the optimised build
    #[arg(long, value_name = "NAME", default_value = "release")]
    pub profile: String,

    /// Cargo's profile for the debug build; it must enable debug assertions
    #[arg(long, value_name = "NAME", default_value = "dev")]
    pub debug_profile: String,

    /// The C compiler, which make fragments, pkg-config and CMake files name by its absolute path
    /// [default: $CC, or cc]
    #[arg(long, value_name = "PROGRAM")]
    pub cc: Option<String>,

    /// The C++ compiler, which the same files name [default: $CXX, or c++]
    #[arg(long, value_name = "PROGRAM")]
    pub cxx: Option<String>,
}

/// A conduit name known to build systems. All conduits are the same library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Conduit {
    /// Shared memory.
    Smp,
    /// Datagrams.
    Udp,
    /// Libfabric.
    Ofi,
    /// All networks; the program's settings choose one at run time.
    Conduit,
}

impl fmt::Display for Conduit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Conduit::Smp => "smp",
            Conduit::Udp => "udp",
            Conduit::Ofi => "ofi",
            Conduit::Conduit => "conduit",
        })
    }
}

/// Returns the command of the C compiler that installed files name by default.
pub(crate) fn c_compiler() -> String {
    Compilers::new(None, None).c
}

impl Install {
    /// Returns the same options as a command line with only `--prefix`.
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Install {
            prefix: prefix.into(),
            modes: vec![Mode::Seq, Mode::Parsync, Mode::Par],
            conduits: vec![Conduit::Smp, Conduit::Udp, Conduit::Ofi, Conduit::Conduit],
            debug_only: false,
            no_debug: false,
            profile: "release".to_owned(),
            debug_profile: "dev".to_owned(),
            cc: None,
            cxx: None,
        }
    }

    /// Builds and installs.
    ///
    /// # Errors
    /// The prefix contains characters that make or pkg-config cannot handle, a program fails (the
    /// error contains its command line), or a file cannot be written.
    pub fn run(&self) -> Result<()> {
        let prefix = std::path::absolute(&self.prefix)
            .with_context(|| format!("--prefix {}", self.prefix.display()))?;
        check(&prefix)?;
        let cargo = Cargo::new();
        let release = Release::read(cargo.root())?;
        let compilers = Compilers::new(self.cc.as_deref(), self.cxx.as_deref());

        let optimised =
            (!self.debug_only).then_some((VariantKind::Optimised, self.profile.as_str()));
        let debug = (!self.no_debug).then_some((VariantKind::Debug, self.debug_profile.as_str()));
        let builds: Vec<_> = optimised.into_iter().chain(debug).collect();

        let launchers = cargo.launchers(builds[0].1)?;
        variant::install_launchers(&prefix, &launchers, &self.conduits, !self.no_debug)?;
        variant::install_documents(&prefix, cargo.root())?;
        for (kind, profile) in builds {
            let prefix = match kind {
                VariantKind::Optimised => prefix.clone(),
                VariantKind::Debug => prefix.join("debug"),
            };
            Variant {
                kind,
                profile,
                prefix: &prefix,
                modes: &self.modes,
                conduits: &self.conduits,
                release: &release,
                compilers: &compilers,
            }
            .install(&cargo)?;
        }
        Ok(())
    }
}

fn check(prefix: &Path) -> Result<()> {
    let text = prefix
        .to_str()
        .with_context(|| format!("--prefix {} is not UTF-8", prefix.display()))?;
    let odd = settings::odd_character(text);
    ensure!(
        odd.is_none(),
        "--prefix {text:?} has the character {:?}, which make, pkg-config or the makefiles that use them cannot handle",
        odd.unwrap_or_default()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        install: Install,
    }

    fn parse(args: &[&str]) -> Result<Install, clap::Error> {
        Line::try_parse_from(std::iter::once(&"install").chain(args)).map(|line| line.install)
    }

    #[test]
    fn the_command_lines_defaults_are_those_of_the_library() {
        let (line, library) = (parse(&["--prefix", "/p"]).unwrap(), Install::new("/p"));
        assert_eq!(format!("{line:?}"), format!("{library:?}"));
    }

    #[test]
    fn modes_and_conduits_are_lists() {
        let install = parse(&["--prefix", "p", "--mode", "seq,par", "--conduit", "smp"]).unwrap();
        assert_eq!(install.modes, [Mode::Seq, Mode::Par]);
        assert_eq!(install.conduits, [Conduit::Smp]);
    }

    #[test]
    fn bad_input_is_refused() {
        for args in [
            &[][..],
            &["--prefix", "p", "--mode", "fast"],
            &["--prefix", "p", "--conduit", "mpi"],
            &["--prefix", "p", "--mode", ""],
            &["--prefix", "p", "--debug-only", "--no-debug"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
        for prefix in ["/a b", "/a$b", "/a#b", "/a\"b", "/a:b", "/a%b"] {
            assert!(check(Path::new(prefix)).is_err(), "{prefix}");
        }
        assert!(check(Path::new("/opt/conduit-0.1_x+y")).is_ok());
    }
}
