//! Detection of the conduit that a program was compiled for.
//!
//! GASNet's headers embed strings of the form `$GASNetConduitName: SMP $` in the program, and so do
//! this library's headers. Launchers and build systems use them to distinguish programs.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the file of a program: the name itself if it contains a slash, otherwise the first file
/// of this name in `path`, the value of `PATH`.
pub(crate) fn find(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if Path::new(program).components().count() != 1 || program.as_encoded_bytes().contains(&b'/') {
        return Some(program.into());
    }
    std::env::split_paths(path?)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Returns the conduits named in a program, in lower case. The list is empty if the program names
/// none or cannot be read.
pub(crate) fn conduits(file: &Path) -> Vec<String> {
    fs::read(file)
        .map(|bytes| names(&bytes))
        .unwrap_or_default()
}

fn names(bytes: &[u8]) -> Vec<String> {
    bytes
        .split(|byte| *byte == b'$')
        .filter_map(|piece| {
            piece
                .strip_prefix(b"GASNetConduitName: ")?
                .strip_suffix(b" ")
        })
        .filter(|name| (1..=32).contains(&name.len()) && name.iter().all(u8::is_ascii_alphanumeric))
        .map(|name| String::from_utf8_lossy(name).to_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_found_among_other_bytes() {
        let found = |text: &str| names(text.as_bytes());
        assert_eq!(found("\u{7f}ELF\0$GASNetConduitName: SMP $\0rest"), ["smp"]);
        assert_eq!(
            found("$$GASNetConduitName: UDP $x$GASNetConduitName: OFI $"),
            ["udp", "ofi"]
        );
        for none in [
            "",
            "$",
            "$GASNetConduitName: $",
            "$GASNetConduitName:  $",
            "$GASNetConduitName: %s $",
            "$GASNetConduitName: SMP",
        ] {
            assert!(found(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn programs_without_a_slash_are_looked_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prog");
        fs::write(&file, "$GASNetConduitName: SMP $").unwrap();
        let path = Some(folder.path().as_os_str());
        assert_eq!(find(OsStr::new("prog"), path), Some(file.clone()));
        assert_eq!(conduits(&file), ["smp"]);
        assert_eq!(find(OsStr::new("other"), path), None);
        assert_eq!(find(OsStr::new("./prog"), path), Some("./prog".into()));
        assert!(conduits(&folder.path().join("other")).is_empty());
    }
}
