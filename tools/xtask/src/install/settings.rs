//! The values in the files that build systems read.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Conduit;
use super::variant::VariantKind;
use crate::build::Mode;

/// The release of GASNet-EX whose interface is installed, from `gasnet_config.h`.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// Conduit's own version, for the shared libraries' names.
    pub(super) own: Version,
}

/// A version of this package.
#[derive(Debug)]
pub(super) struct Version {
    major: &'static str,
    minor: &'static str,
    patch: &'static str,
}

impl Release {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join("gasnet/include/gasnet_config.h");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let part = |name: &str| {
            let name = format!("GASNET_RELEASE_VERSION_{name}");
            text.lines()
                .find_map(|line| {
                    line.strip_prefix("#define ")?
                        .strip_prefix(&*name)?
                        .trim()
                        .parse::<u32>()
                        .ok()
                })
                .with_context(|| format!("{} does not define the number {name}", path.display()))
        };
        Ok(Release {
            version: format!("{}.{}.{}", part("MAJOR")?, part("MINOR")?, part("PATCH")?),
            own: Version {
                major: env!("CARGO_PKG_VERSION_MAJOR"),
                minor: env!("CARGO_PKG_VERSION_MINOR"),
                patch: env!("CARGO_PKG_VERSION_PATCH"),
            },
        })
    }
}

impl Version {
    /// Returns the part of the version whose change may break programs. It consists of two numbers
    /// before 1.0, and of one number afterwards.
    pub(super) fn abi(&self) -> String {
        match self.major {
            "0" => format!("0.{}", self.minor),
            major => major.to_owned(),
        }
    }

    pub(super) fn full(&self) -> String {
        format!("{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The compilers for clients, each of which is a command with optional arguments. The commands
/// contain absolute paths, because build systems compare them with the compilers that they have
/// found.
#[derive(Debug)]
pub(super) struct Compilers {
    pub(super) c: String,
    pub(super) cxx: String,
}

impl Compilers {
    pub(super) fn new(c: Option<&str>, cxx: Option<&str>) -> Self {
        let choose = |given: Option<&str>, variable: &str, default: &str| {
            let variable = || {
                std::env::var(variable)
                    .ok()
                    .filter(|value| !value.trim().is_empty())
            };
            let command = given.map(str::to_owned).or_else(variable);
            let command = command.unwrap_or_else(|| default.to_owned());
            absolute(&command, std::env::var_os("PATH").as_deref())
        };
        Compilers {
            c: choose(c, "CC", "cc"),
            cxx: choose(cxx, "CXX", "c++"),
        }
    }
}

/// Returns the command with its program replaced by the program's absolute path, which is found in
/// the way that shells find it. If the program is not found, or makefiles cannot handle its path,
/// the command is unchanged.
fn absolute(command: &str, path: Option<&OsStr>) -> String {
    let command = command.trim();
    let (program, options) = match command.find(char::is_whitespace) {
        Some(end) => command.split_at(end),
        None => (command, ""),
    };
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    // A name that contains a slash is not looked up in PATH.
    let folders: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::new()]
    } else {
        path.map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default()
    };
    let found = folders.into_iter().find_map(|folder| {
        let path = std::path::absolute(folder.join(program)).ok()?;
        is_program(&path).then_some(path)
    });
    match found.as_deref().and_then(Path::to_str) {
        Some(found) if odd_character(found).is_none() => format!("{found}{options}"),
        _ => command.to_owned(),
    }
}

/// Returns the first character of a path that the variables' values must not contain. Clients pass
/// the values through make, pkg-config and shells: make splits them at blanks and interprets `#`
/// and `$`, and pkg-config and shells interpret quotes.
pub(super) fn odd_character(path: &str) -> Option<char> {
    path.chars()
        .find(|c| c.is_whitespace() || "#$%&\"'`\\;|<>()*?[]{}~:".contains(*c))
}

/// A list of names and values. A value may refer to other variables as `${NAME}`, which make and
/// pkg-config both understand.
pub(super) type Variables = Vec<(&'static str, String)>;

/// The system libraries that Rust's standard library needs on systems where they are not part of
/// the C library.
pub(super) const SYSTEM_LIBRARIES: &str = "-lpthread -lrt -ldl -lm";

/// Returns the variables that GASNet's README documents, and others that existing build systems
/// read. `CONDUIT_INCLUDEDIR`, `CONDUIT_LIBDIR` and `CONDUIT_RPATH` must be defined before them.
pub(super) fn gasnet(
    kind: VariantKind,
    mode: Mode,
    conduit: Conduit,
    compilers: &Compilers,
) -> Variables {
    let thread = mode.to_string().to_uppercase();
    let network = conduit.to_string().to_uppercase();
    let threads = if mode == Mode::Seq {
        ""
    } else {
        " -D_REENTRANT"
    };
    let pthread = if mode == Mode::Seq { "" } else { "-pthread" }.to_owned();
    let spawner = if conduit == Conduit::Smp {
        "fork"
    } else {
        "pmi"
    }
    .to_owned();
    vec![
        (
            "GASNET_INCLUDES",
            format!("-I${{CONDUIT_INCLUDEDIR}} -I${{CONDUIT_INCLUDEDIR}}/{conduit}-conduit"),
        ),
        (
            "GASNET_DEFINES",
            format!(
                "-D_GNU_SOURCE=1 -DGASNET_{thread}{threads} -DGASNET_CONDUIT_{network} {}",
                kind.define()
            ),
        ),
        ("GASNET_CC", compilers.c.clone()),
        ("GASNET_OPT_CFLAGS", kind.optimisation()),
        ("GASNET_MISC_CFLAGS", pthread.clone()),
        ("GASNET_MISC_CPPFLAGS", String::new()),
        (
            "GASNET_CFLAGS",
            "${GASNET_OPT_CFLAGS} ${GASNET_MISC_CFLAGS}".to_owned(),
        ),
        (
            "GASNET_CPPFLAGS",
            "${GASNET_MISC_CPPFLAGS} ${GASNET_DEFINES} ${GASNET_INCLUDES}".to_owned(),
        ),
        ("GASNET_CXX", compilers.cxx.clone()),
        ("GASNET_OPT_CXXFLAGS", kind.optimisation()),
        ("GASNET_MISC_CXXFLAGS", pthread.clone()),
        ("GASNET_MISC_CXXCPPFLAGS", String::new()),
        (
            "GASNET_CXXFLAGS",
            "${GASNET_OPT_CXXFLAGS} ${GASNET_MISC_CXXFLAGS}".to_owned(),
        ),
        (
            "GASNET_CXXCPPFLAGS",
            "${GASNET_MISC_CXXCPPFLAGS} ${GASNET_DEFINES} ${GASNET_INCLUDES}".to_owned(),
        ),
        ("GASNET_LD", "${GASNET_CC}".to_owned()),
        (
            "GASNET_LDFLAGS",
            format!("{pthread} ${{CONDUIT_RPATH}}").trim().to_owned(),
        ),
        // Makefiles test whether the variable is defined. An empty variable counts as undefined.
        ("GASNET_LD_REQUIRES_MPI", String::new()),
        ("GASNET_LD_REQUIRES_CXX", String::new()),
        ("GASNET_LIBDIRS", "-L${CONDUIT_LIBDIR}".to_owned()),
        (
            "GASNET_LIBS",
            format!("${{GASNET_LIBDIRS}} -lgasnet-{conduit}-{mode} {SYSTEM_LIBRARIES}"),
        ),
        ("GASNET_SPAWNER_DEFAULT", spawner),
        ("GASNET_SPAWNER_PMI", "1".to_owned()),
        ("GASNET_SPAWNER_MPI", "0".to_owned()),
        ("GASNET_SPAWNER_SSH", "0".to_owned()),
    ]
}

/// Returns the variables of the portable tools.
pub(super) fn tools(kind: VariantKind, mode: Mode, compilers: &Compilers) -> Variables {
    let (define, pthread) = match mode {
        Mode::Seq => ("-DGASNETT_THREAD_SINGLE", ""),
        Mode::Parsync | Mode::Par => ("-DGASNETT_THREAD_SAFE -D_REENTRANT", "-pthread"),
    };
    let flags = format!("{} {pthread}", kind.optimisation())
        .trim()
        .to_owned();
    vec![
        ("GASNETTOOLS_INCLUDES", "-I${CONDUIT_INCLUDEDIR}".to_owned()),
        (
            "GASNETTOOLS_DEFINES",
            format!("-D_GNU_SOURCE=1 {define} {}", kind.define()),
        ),
        ("GASNETTOOLS_CC", compilers.c.clone()),
        ("GASNETTOOLS_CFLAGS", flags.clone()),
        (
            "GASNETTOOLS_CPPFLAGS",
            "${GASNETTOOLS_DEFINES} ${GASNETTOOLS_INCLUDES}".to_owned(),
        ),
        ("GASNETTOOLS_CXX", compilers.cxx.clone()),
        ("GASNETTOOLS_CXXFLAGS", flags),
        (
            "GASNETTOOLS_CXXCPPFLAGS",
            "${GASNETTOOLS_CPPFLAGS}".to_owned(),
        ),
        ("GASNETTOOLS_LD", "${GASNETTOOLS_CC}".to_owned()),
        (
            "GASNETTOOLS_LDFLAGS",
            format!("{pthread} ${{CONDUIT_RPATH}}").trim().to_owned(),
        ),
        (
            "GASNETTOOLS_LIBS",
            format!("-L${{CONDUIT_LIBDIR}} -lgasnet_tools-{mode} {SYSTEM_LIBRARIES}"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_1_0_programs_are_bound_to_two_numbers() {
        let version = |major, minor| Version {
            major,
            minor,
            patch: "7",
        };
        assert_eq!(
            (version("0", "3").abi(), version("0", "3").full()),
            ("0.3".to_owned(), "0.3.7".to_owned())
        );
        assert_eq!(version("2", "3").abi(), "2");
    }

    #[test]
    fn compilers_are_absolute_and_keep_their_options() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str, mode| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (_, first, second) = (
            place("none/cc", 0o644),
            place("first/cc", 0o755),
            place("second/cc", 0o755),
        );
        let odd = place("a folder/odd", 0o755);
        let folders = ["missing", "none", "a folder", "first", "second"];
        let path = std::env::join_paths(folders.map(|name| folder.path().join(name))).unwrap();
        let absolute = |command: &str| absolute(command, Some(&path));
        assert_eq!(absolute("cc"), first);
        assert_eq!(absolute(" cc -m64  -O1 "), format!("{first} -m64  -O1"));
        assert_eq!(absolute(&format!("{second} -g")), format!("{second} -g"));
        assert!(absolute("./Cargo.toml").starts_with("./"), "no program");
        // A program that does not exist, and one whose path cannot be written into a makefile.
        assert_eq!(absolute("no-such-cc -g"), "no-such-cc -g");
        assert_eq!(absolute("odd"), "odd");
        assert!(odd.contains(' '));
    }

    #[test]
    fn the_release_is_that_of_the_header() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let release = Release::read(&root).unwrap();
        assert_eq!(release.version.split('.').count(), 3);
        assert!(
            release
                .version
                .split('.')
                .next()
                .unwrap()
                .parse::<u32>()
                .unwrap()
                >= 2000,
            "UPC++ asks for it"
        );
    }
}
