//! Turns cargo's static library into libraries that export only C symbols.
//!
//! The static library that rustc writes contains the standard library and every dependency with all
//! their symbols global: two Rust libraries in one program would collide, and a client would see
//! thousands of irrelevant names. Therefore everything that the C functions need is first linked
//! into one object (`ld -r`), and `objcopy` makes all symbols local except those of the C
//! functions. The static library consists of that object, and the shared library is linked from it.
//! Letting cargo build the shared library instead would optimise everything a second time and take
//! twice as long. The only programs called are those that any C compiler uses for linking.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::settings::SYSTEM_LIBRARIES;
use crate::command;

/// The prefixes of the interface's names, which are GASNet's own and those that only its headers
/// use.
const PUBLIC: [&str; 4] = ["gex_", "gasnet", "_gasnet", "conduit_"];

/// The treatment of a shared library's debug information. A static library's debug information is
/// always removed: with its relocations it would be nine tenths of the library, and would have to
/// be read for the linking of each program. Function names are kept for backtraces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DebugInfo {
    /// Removed.
    Strip,
    /// Kept, compressed.
    Keep,
}

/// A library linked into a single object, in a folder for temporary files.
#[derive(Debug)]
pub(super) struct Object {
    folder: PathBuf,
    linked: PathBuf,
    /// The interface's symbols, sorted by name.
    pub(super) exports: Vec<String>,
}

impl Object {
    /// Links everything that the interface's functions in cargo's static library need into one
    /// object.
    pub(super) fn link(archive: &Path, folder: &Path) -> Result<Self> {
        let exports = exports(archive)?;
        ensure!(
            !exports.is_empty(),
            "{} has no symbols of the interface",
            archive.display()
        );
        // Write a file of linker options that make each symbol a root for garbage collection.
        let mut roots = String::new();
        for name in &exports {
            writeln!(roots, "--undefined={name}")?;
        }
        let path = folder.join("roots");
        write(&path, &roots)?;
        let linked = folder.join("linked.o");
        // Without --force-group-allocation, the linker of a client would discard a section group
        // (COMDAT in C++) if another library has a group of the same name, together with symbols
        // that are local by then.
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

    /// Creates the static library. Its symbols in `weak` give way to those of other libraries.
    pub(super) fn make_static(&self, weak: &[String], to: &Path) -> Result<()> {
        let object = self.localised("static.o", weak, &["--strip-debug"])?;
        if to.exists() {
            fs::remove_file(to).with_context(|| format!("replacing {}", to.display()))?;
        }
        // With D, the archive contains neither dates nor users, so that equal libraries are equal
        // files.
        command::run(Command::new("ar").arg("rcsD").arg(to).arg(&object))
    }

    /// Creates the shared library.
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
        // The compiler's command may include options.
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

    /// Creates the object in which all symbols except the interface's are local.
    fn localised(&self, name: &str, weak: &[String], options: &[&str]) -> Result<PathBuf> {
        let keep = self.folder.join("symbols");
        write(&keep, &lines(&self.exports))?;
        let object = self.folder.join(name);
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(option("--keep-global-symbols=", &keep));
        // An empty list is an error for objcopy.
        if !weak.is_empty() {
            let path = self.folder.join("weak");
            write(&path, &lines(weak))?;
            objcopy.arg(option("--weaken-symbols=", &path));
        }
        // Remove the bitcode, which only rustc uses: linkers with a plugin for another version of
        // LLVM fail on it.
        objcopy.args(["--remove-section=.llvmbc", "--remove-section=.llvmcmd"]);
        command::run(objcopy.args(options).arg(&self.linked).arg(&object))?;
        Ok(object)
    }
}

/// Copies a program to `to` without debug information.
pub(super) fn strip(program: &Path, to: &Path) -> Result<()> {
    command::run(
        Command::new("objcopy")
            .arg("--strip-debug")
            .arg(program)
            .arg(to),
    )
}

/// Returns the interface's symbols among those that a static library defines, sorted by name.
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

/// Returns the symbol in a line of readelf's output if it belongs to the interface.
fn exported(line: &str) -> Option<&str> {
    // The columns are number, value, size, type, binding, visibility, section and name. Hidden
    // symbols are not part of the interface, because only the files of one library share them.
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
