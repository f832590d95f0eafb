//! Finds the program before any rank is started, so that a wrong name causes a single clear error.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::error::Error;

/// Returns the file for `name`: the name itself if it has a slash, otherwise the first executable
/// file of that name in the folders of `path`, which is the value of `PATH`.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    if name.as_bytes().contains(&b'/') {
        let program = PathBuf::from(name);
        return match executable(&program) {
            Ok(()) => Ok(program),
            Err(source) => Err(error(program, source)),
        };
    }
    let mut refused = None;
    let path = path.map_or_else(
        || OsString::from("/usr/local/bin:/usr/bin:/bin"),
        OsStr::to_owned,
    );
    for folder in std::env::split_paths(&path).filter(|_| !name.is_empty()) {
        let program = folder.join(name);
        match executable(&program) {
            Ok(()) => return Ok(program),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                refused.get_or_insert(Error::NotExecutable { program, source });
            }
            Err(_) => {}
        }
    }
    Err(refused.unwrap_or_else(|| Error::ProgramNotFound(name.into())))
}

/// Returns the error for a program that could not be executed.
pub(crate) fn error(program: PathBuf, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::ProgramNotFound(program),
        _ => Error::NotExecutable { program, source },
    }
}

fn executable(program: &Path) -> io::Result<()> {
    if program.metadata()?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is a directory",
        ));
    }
    Ok(access(program, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_by_a_shell() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let path = std::env::join_paths([folder.path(), Path::new("/bin")]).unwrap();
        let path = Some(path.as_os_str());

        assert_eq!(find(OsStr::new("sh"), path).unwrap(), Path::new("/bin/sh"));
        assert_eq!(
            find(OsStr::new("/bin/sh"), None).unwrap(),
            Path::new("/bin/sh")
        );
        for (name, code) in [
            ("no-such-program", 127),
            ("", 127),
            ("/no/such/program", 127),
            ("/bin/sh/x", 127),
            ("plain", 126),
            ("/", 126),
        ] {
            let error = find(OsStr::new(name), path).unwrap_err();
            assert_eq!(error.exit_code(), code, "{name}: {error}");
        }
        assert_eq!(find(plain.as_os_str(), path).unwrap_err().exit_code(), 126);
    }
}
