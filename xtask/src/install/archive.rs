//! From cargo's static library to one that shows C's symbols only.
//!
//! The static library that rustc writes holds the standard library and every dependency with all their symbols global: two
//! Rust libraries in one program then collide, and a client sees thousands of names that are none of its business. So all
//! that the C functions need is linked into one object beforehand (`ld -r`), whose other symbols become local
//! (`objcopy`). What is C's is what the shared library exports. Both programs are part of binutils, without which no
//! C compiler links here.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::Library;
use super::command;

/// What becomes of a shared library's debug information. A static one's is always left out: with the relocations that it
/// has there it is nine tenths of the library, and of each program's link. Function names stay, for backtraces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DebugInfo {
    /// Left out.
    Strip,
    /// Kept, compressed.
    Keep,
}

/// The symbols that a shared library exports, in order.
pub(super) fn exports(shared: &Path) -> Result<Vec<String>> {
    let lines = command::output(
        Command::new("nm")
            .args([
                "--dynamic",
                "--defined-only",
                "--extern-only",
                "--format=posix",
            ])
            .arg(shared),
    )?;
    // A line is the name, its type, value and size.
    let mut names: Vec<String> = lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Makes `to`, an archive of one object that has the symbols `exports` and no others, of `library`'s static library. Those in
/// `weak` give way to another library's.
pub(super) fn make(
    library: &Library,
    exports: &[String],
    weak: &[String],
    to: &Path,
) -> Result<()> {
    ensure!(
        !exports.is_empty(),
        "{} exports nothing",
        library.shared.display()
    );
    let linked = to.with_extension("linked.o");
    let object = to.with_extension("o");
    // The linker's file of options: each symbol is a root of what is kept.
    let roots = to.with_extension("roots");
    let keep = to.with_extension("symbols");
    let mut text = String::new();
    for name in exports {
        writeln!(text, "--undefined={name}")?;
    }
    write(&roots, &text)?;
    write(&keep, &lines(exports))?;

    // Groups (what C++ calls COMDAT) would be thrown away if another library has one of the same name, along with symbols
    // that are local by then.
    command::run(
        Command::new("ld")
            .args(["-r", "--gc-sections", "--force-group-allocation", "-o"])
            .arg(&linked)
            .arg(at(&roots))
            .arg(&library.archive),
    )?;
    let mut objcopy = Command::new("objcopy");
    objcopy.arg(option("--keep-global-symbols=", &keep));
    // A list without a name is an error to objcopy.
    if !weak.is_empty() {
        let path = to.with_extension("weak");
        write(&path, &lines(weak))?;
        objcopy.arg(option("--weaken-symbols=", &path));
    }
    // Bitcode is for rustc; linkers with a plugin for some other version of LLVM trip over it.
    objcopy.args([
        "--remove-section=.llvmbc",
        "--remove-section=.llvmcmd",
        "--strip-debug",
    ]);
    objcopy.arg(&linked).arg(&object);
    command::run(&mut objcopy)?;
    if to.exists() {
        fs::remove_file(to).with_context(|| format!("replacing {}", to.display()))?;
    }
    // D: no dates or users in it, so that equal libraries are equal files.
    command::run(Command::new("ar").arg("rcsD").arg(to).arg(&object))
}

/// Makes `to` of the shared library.
pub(super) fn make_shared(library: &Library, debug_info: DebugInfo, to: &Path) -> Result<()> {
    let option = match debug_info {
        DebugInfo::Strip => "--strip-debug",
        DebugInfo::Keep => "--compress-debug-sections=zlib",
    };
    command::run(
        Command::new("objcopy")
            .arg(option)
            .arg(&library.shared)
            .arg(to),
    )
}

fn lines(names: &[String]) -> String {
    names
        .iter()
        .fold(String::new(), |text, name| text + name + "\n")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn at(path: &Path) -> std::ffi::OsString {
    option("@", path)
}

fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut text = OsStr::new(name).to_owned();
    text.push(path);
    text
}
