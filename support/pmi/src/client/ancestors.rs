//! Distinguishes a rank from a program that a rank has started.
//!
//! Both find the launcher's variables. But a rank marks its descriptor close-on-exec when it
//! connects, so programs that the rank starts later find the variables but not the connection.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The variables that together identify a rank of a launcher.
const NAMES: [&str; 3] = ["PMI_FD", "PMI_RANK", "CONDUIT_JOB_ID"];

/// Returns whether the environment's `PMI_FD` is the connection of an ancestor of this process. An
/// unreadable `/proc` entry counts as "no".
pub fn descends_from_rank() -> bool {
    let own = NAMES.map(|name| std::env::var_os(name).map(|value| value.into_encoded_bytes()));
    let Some(descriptor) = own[0].as_deref().and_then(|text| str::from_utf8(text).ok()) else {
        return false;
    };
    let mut process = PathBuf::from("/proc/self");
    while let Some(parent) = parent(&process) {
        // An ancestor with other values belongs to another job or to none.
        if variables(&parent) != Some(own.clone()) {
            return false;
        }
        if is_taken(&parent, descriptor) {
            return true;
        }
        process = parent;
    }
    false
}

fn parent(process: &Path) -> Option<PathBuf> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    let parent: u32 = parent.trim().parse().ok()?;
    (parent > 0).then(|| PathBuf::from(format!("/proc/{parent}")))
}

/// Returns the variables that a process was started with.
fn variables(process: &Path) -> Option<[Option<Vec<u8>>; 3]> {
    let environment = fs::read(process.join("environ")).ok()?;
    Some(NAMES.map(|name| {
        let mut pairs = environment.split(|byte| *byte == 0);
        let value = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(<[u8]>::to_vec)
    }))
}

/// Returns whether this descriptor of a process is a socket that its children do not inherit.
fn is_taken(process: &Path, descriptor: &str) -> bool {
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
