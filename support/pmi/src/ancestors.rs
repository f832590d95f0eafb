//! Distinguishes a rank from a program that a rank has started.
//!
//! Both find the launcher's variables. But a rank that has joined its job shows that in its
//! process: it has marked PMI-1's descriptor close-on-exec, loaded libpmix, or left a mark.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, OFlags, memfd_create};

/// The variables that together identify a rank of a launcher with PMI-1.
const PMI1: [&str; 3] = ["PMI_FD", "PMI_RANK", "CONDUIT_JOB_ID"];
/// The same for PMIx.
const PMIX: [&str; 2] = ["PMIX_NAMESPACE", "PMIX_RANK"];
/// The same for PALS.
const PALS: [&str; 2] = ["PALS_APID", "PALS_RANKID"];
/// The same for torchrun.
const TORCH: [&str; 3] = ["RANK", "MASTER_ADDR", "MASTER_PORT"];
/// The name of the file in memory by which a rank shows that it has joined its job.
const MARK: &str = "conduit-rank";
/// The beginning of the name of PMIx's library.
const LIBPMIX: &str = "libpmix.so";

/// Returns whether the variables of PMI-1 describe an ancestor that has joined the job. An
/// unreadable `/proc` entry counts as "no", here and below.
pub(crate) fn is_pmi1_taken() -> bool {
    let descriptor = std::env::var("PMI_FD").unwrap_or_default();
    has_ancestor(PMI1, |process| has_socket(process, &descriptor))
}

/// Does the same as [`is_pmi1_taken`] for PMIx.
pub(crate) fn is_pmix_taken() -> bool {
    has_ancestor(PMIX, |process| {
        has_mark(process) || loaded(process, LIBPMIX).is_some()
    })
}

/// Does the same as [`is_pmi1_taken`] for PMI-2.
pub(crate) fn is_pmi2_taken() -> bool {
    has_ancestor(PALS, has_mark)
}

/// Does the same as [`is_pmi1_taken`] for torchrun.
pub(crate) fn is_torch_taken() -> bool {
    has_ancestor(TORCH, has_mark)
}

/// Leaves the mark of a rank in this process.
pub(crate) fn mark() {
    // Without the mark, programs that this rank starts are taken for ranks.
    if let Ok(file) = memfd_create(MARK, MemfdFlags::CLOEXEC) {
        std::mem::forget(file);
    }
}

/// Returns whether there is an ancestor with the same values of these variables that has joined.
/// At least one of them must be set.
fn has_ancestor<const N: usize>(names: [&str; N], joined: impl Fn(&Path) -> bool) -> bool {
    let own = names.map(|name| std::env::var_os(name).map(|value| value.into_encoded_bytes()));
    if own.iter().all(Option::is_none) {
        return false;
    }
    // An ancestor with other values belongs to another job or to none.
    let mut same = ancestors()
        .skip(1)
        .take_while(|process| variables(process, names).as_ref() == Some(&own));
    same.any(|process| joined(&process))
}

/// Returns this process and its ancestors, each as a folder of `/proc`.
fn ancestors() -> impl Iterator<Item = PathBuf> {
    std::iter::successors(Some(PathBuf::from("/proc/self")), |process| parent(process))
}

/// Returns the file of libpmix that this process or its nearest ancestor with such a library has
/// loaded: the library of MPI in this process, or that of the launcher.
pub(crate) fn loaded_pmix() -> Option<PathBuf> {
    let file = ancestors().find_map(|process| loaded(&process, LIBPMIX));
    file.filter(|file| file.exists())
}

fn parent(process: &Path) -> Option<PathBuf> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    let parent: u32 = parent.trim().parse().ok()?;
    (parent > 0).then(|| PathBuf::from(format!("/proc/{parent}")))
}

/// Returns the variables that a process was started with.
fn variables<const N: usize>(process: &Path, names: [&str; N]) -> Option<[Option<Vec<u8>>; N]> {
    let environment = fs::read(process.join("environ")).ok()?;
    Some(names.map(|name| {
        let mut pairs = environment.split(|byte| *byte == 0);
        let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(<[u8]>::to_vec)
    }))
}

/// Returns whether this descriptor of a process is a socket that its children do not inherit.
fn has_socket(process: &Path, descriptor: &str) -> bool {
    let is_socket = fs::read_link(process.join("fd").join(descriptor)).is_ok_and(|target| {
        target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"socket:")
    });
    let Ok(info) = fs::File::open(process.join("fdinfo").join(descriptor)) else {
        return false;
    };
    let flags = BufReader::new(info)
        .lines()
        .map_while(Result::ok)
        .find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    is_socket
        && flags.is_some_and(|flags| OFlags::from_bits_retain(flags).contains(OFlags::CLOEXEC))
}

/// Returns whether a process has the mark of a rank.
fn has_mark(process: &Path) -> bool {
    let mark = format!("/memfd:{MARK}");
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else {
        return false;
    };
    let mut targets = descriptors
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target.to_string_lossy().starts_with(&mark))
}

/// Returns the file of a library that a process has loaded, by the beginning of its name.
fn loaded(process: &Path, library: &str) -> Option<PathBuf> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let mut files = maps
        .lines()
        .filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
    let is_library = |file: &&Path| {
        file.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(library))
    };
    files.find(is_library).map(Path::to_owned)
}
