//! Writes files under the prefix. Reinstalling the same contents changes nothing, and other
//! processes never see an incomplete file.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Creates a folder and its parents.
pub(super) fn folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))
}

/// Writes a file that all users may read. If the contents are unchanged, the file's date is
/// unchanged too, so that clients' makefiles rebuild nothing.
pub(super) fn text(path: &Path, contents: &str) -> Result<()> {
    bytes(path, contents.as_bytes(), 0o644)
}

/// Copies a file. The copy is executable if the original is.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let contents = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    let mode = fs::metadata(from)
        .with_context(|| format!("reading {}", from.display()))?
        .permissions()
        .mode();
    bytes(to, &contents, if mode & 0o100 == 0 { 0o644 } else { 0o755 })
}

/// Copies the headers of a folder and its subfolders.
pub(super) fn copy_headers(from: &Path, to: &Path) -> Result<()> {
    folder(to)?;
    let reading = || format!("reading {}", from.display());
    for entry in fs::read_dir(from).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_headers(&path, &target)?;
        } else if path.extension().is_some_and(|extension| extension == "h") {
            copy(&path, &target)?;
        }
    }
    Ok(())
}

/// Makes `path` a symbolic link to `target`, which is relative so that the prefix may be moved.
pub(super) fn link(path: &Path, target: &str) -> Result<()> {
    let making = || format!("linking {} to {target}", path.display());
    if fs::read_link(path).is_ok_and(|old| old == Path::new(target)) {
        return Ok(());
    }
    let new = beside(path);
    // An interrupted installation may have left a file of this name.
    let _ = fs::remove_file(&new);
    symlink(target, &new).with_context(making)?;
    fs::rename(&new, path).with_context(making)
}

fn bytes(path: &Path, contents: &[u8], mode: u32) -> Result<()> {
    let writing = || format!("writing {}", path.display());
    let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file && fs::read(path).is_ok_and(|old| old == contents) {
        return Ok(());
    }
    let new = beside(path);
    let _ = fs::remove_file(&new);
    fs::write(&new, contents).with_context(writing)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(mode)).with_context(writing)?;
    fs::rename(&new, path).with_context(writing)
}

/// Returns a temporary name beside `path`, to be renamed to it.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_keeps_its_date() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        text(&path, "a").unwrap();
        let long_ago = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
        let date = || fs::metadata(&path).unwrap().modified().unwrap();
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(long_ago)
            .unwrap();
        text(&path, "a").unwrap();
        assert_eq!(date(), std::time::SystemTime::UNIX_EPOCH);
        text(&path, "b").unwrap();
        assert_ne!(date(), std::time::SystemTime::UNIX_EPOCH);
        assert_eq!(fs::read_to_string(&path).unwrap(), "b");
    }

    #[test]
    fn a_link_gives_way_to_a_file_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("path"), folder.path().join("other"));
        text(&other, "other").unwrap();
        link(&path, "other").unwrap();
        link(&path, "other").unwrap();
        text(&path, "mine").unwrap();
        assert_eq!(
            fs::read_to_string(&other).unwrap(),
            "other",
            "the link's target is not written to"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        link(&path, "other").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            2,
            "nothing is left behind"
        );
    }

    #[test]
    fn headers_and_nothing_else_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        for name in ["a.h", "notes.md", "sub/b.h"] {
            fs::write(from.join(name), name).unwrap();
        }
        copy_headers(&from, &to).unwrap();
        assert!(
            to.join("a.h").exists() && to.join("sub/b.h").exists() && !to.join("notes.md").exists()
        );
    }
}
