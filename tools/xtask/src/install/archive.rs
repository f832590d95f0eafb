//! From cargo's static library to libraries that show C's symbols only.
//!
//! The static library that rustc writes holds the standard library and every dependency with all their symbols global: two
//! Rust libraries in one program then collide, and a client sees thousands of names that are none of its business. So all
//! that the C functions need is linked into one object beforehand (`ld -r`), whose other symbols become local
//! (`objcopy`). That object is the static library, and the shared one is linked from it: optimising the whole twice, as cargo
//! does for its own shared libraries, takes twice the time. The programs that are called are those by which any C
//! compiler links.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::settings::SYSTEM_LIBRARIES;
use crate::command;

/// How the names of the interface begin: GASNet's own, and those for its headers' use.
const PUBLIC: [&str; 4] = ["gex_", "gasnet", "_gasnet", "conduit_"];

/// What becomes of a shared library's debug information. A static one's is always left out: with the relocations that it
/// has there it is nine tenths of the library, and of each program's link. Function names stay, for backtraces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DebugInfo {
    /// Left out.
    Strip,
    /// Kept, compressed.
    Keep,
}

/// A library as one object, in a folder for files on the way.
#[derive(Debug)]
pub(super) struct Object {
    folder: PathBuf,
    linked: PathBuf,
    /// The interface's symbols, in order.
    pub(super) exports: Vec<String>,
}

impl Object {
    /// Links what the interface's functions in cargo's static library need into one object.
    pub(super) fn link(archive: &Path, folder: &Path) -> Result<Self> {
        let exports = exports(archive)?;
        ensure!(
            !exports.is_empty(),
            "{} has no symbols of the interface",
            archive.display()
        );
        // A file of options: each symbol is a root of what is kept.
        let mut roots = String::new();
        for name in &exports {
            writeln!(roots, "--undefined={name}")?;
        }
        let path = folder.join("roots");
        write(&path, &roots)?;
        let linked = folder.join("linked.o");
        // Groups (what C++ calls COMDAT) would be thrown away if another library has one of the same name, along with
        // symbols that are local by then.
        command::run(
            Command::new("ld")
                .args(["-r", "--gc-sections", "--force-group-allocation", "-o"])
                .arg(&linked)
                .arg(option("@", &path))
                .arg(archive),
        )?;
        let folder = folder.to_owned();
        Ok(Object {
            folder,
            linked,
            exports,
        })
    }

    /// Makes the static library. Symbols in `weak` give way to another library's.
    pub(super) fn make_static(&self, weak: &[String], to: &Path) -> Result<()> {
        let object = self.localised("static.o", weak, &["--strip-debug"])?;
        if to.exists() {
            fs::remove_file(to).with_context(|| format!("replacing {}", to.display()))?;
        }
        // D: no dates or users in it, so that equal libraries are equal files.
        command::run(Command::new("ar").arg("rcsD").arg(to).arg(&object))
    }

    /// Makes the shared library.
    pub(super) fn make_shared(
        &self,
        linker: &str,
        soname: &str,
        debug_info: DebugInfo,
        to: &Path,
    ) -> Result<()> {
        let (strip, link): (&[&str], _) = match debug_info {
            DebugInfo::Strip => (&["--strip-debug"], None),
            DebugInfo::Keep => (&[], Some("-Wl,--compress-debug-sections=zlib")),
        };
        let object = self.localised("shared.o", &[], strip)?;
        // The compiler may come with options of its own.
        let mut words = linker.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or("cc"));
        command
            .args(words)
            .args(["-shared", "-Wl,-z,relro,-z,now", "-Wl,--no-undefined"])
            .arg(format!("-Wl,-soname,{soname}"))
            .args(link)
            .arg("-o")
            .arg(to)
            .arg(&object)
            .args(SYSTEM_LIBRARIES.split_whitespace());
        command::run(&mut command)
    }

    /// The object with all but the interface's symbols local.
    fn localised(&self, name: &str, weak: &[String], options: &[&str]) -> Result<PathBuf> {
        let keep = self.folder.join("symbols");
        write(&keep, &lines(&self.exports))?;
        let object = self.folder.join(name);
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(option("--keep-global-symbols=", &keep));
        // A list without a name is an error to objcopy.
        if !weak.is_empty() {
            let path = self.folder.join("weak");
            write(&path, &lines(weak))?;
            objcopy.arg(option("--weaken-symbols=", &path));
        }
        // Bitcode is for rustc; linkers with a plugin for some other version of LLVM trip over it.
        objcopy.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
        command::run(objcopy.args(options).arg(&self.linked).arg(&object))?;
        Ok(object)
    }
}

/// Makes `to` of a program, without debug information.
pub(super) fn strip(program: &Path, to: &Path) -> Result<()> {
    command::run(
        Command::new("objcopy")
            .arg("--strip-debug")
            .arg(program)
            .arg(to),
    )
}

/// The interface's symbols among those that a static library defines, in order.
fn exports(archive: &Path) -> Result<Vec<String>> {
    let text = command::output(
        Command::new("readelf")
            .args(["--syms", "--wide"])
            .arg(archive),
    )?;
    let mut names: Vec<String> = text
        .lines()
        .filter_map(exported)
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The name in a line of readelf's, if it is one of the interface's.
fn exported(line: &str) -> Option<&str> {
    // Number, value, size, type, binding, visibility, section, name. Hidden symbols are among the files of one library.
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, _, _, "GLOBAL" | "WEAK", "DEFAULT", section, name] = words[..] else {
        return None;
    };
    (section != "UND" && PUBLIC.iter().any(|prefix| name.starts_with(prefix))).then_some(name)
}

fn lines(names: &[String]) -> String {
    names
        .iter()
        .fold(String::new(), |text, name| text + name + "\n")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn option(name: &str, path: &Path) -> OsString {
    let mut text = OsStr::new(name).to_owned();
    text.push(path);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_the_interface_are_told_from_others() {
        let line = |bind: &str, visibility: &str, section: &str, name: &str| {
            let line = format!(
                "    12: 0000000000000000   126 FUNC    {bind} {visibility}   {section} {name}"
            );
            exported(&line).map(str::to_owned)
        };
        assert_eq!(
            line("GLOBAL", "DEFAULT", "7", "gex_AM_MaxArgs").unwrap(),
            "gex_AM_MaxArgs"
        );
        assert_eq!(
            line("WEAK", "DEFAULT", "7", "_gasneti_x").unwrap(),
            "_gasneti_x"
        );
        for (bind, visibility, section, name) in [
            ("LOCAL", "DEFAULT", "7", "gex_x"),
            ("GLOBAL", "HIDDEN", "7", "gex_x"),
            ("GLOBAL", "DEFAULT", "UND", "gex_x"),
            ("GLOBAL", "DEFAULT", "7", "rust_eh_personality"),
        ] {
            assert_eq!(
                line(bind, visibility, section, name),
                None,
                "{bind} {visibility} {section} {name}"
            );
        }
        assert_eq!(exported("File: libgasnet.a(gasnet.o)"), None);
    }
}
