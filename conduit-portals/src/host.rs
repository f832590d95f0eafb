//! Which processes are on the same host.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Tells hosts apart: the boot, and the network namespace in which names of sockets are known.
///
/// # Errors
/// The system's.
pub fn host() -> io::Result<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // The number of the namespace is the file's own, not that of the link to it.
    let namespace = fs::metadata("/proc/self/ns/net")?;
    let numbers = [namespace.dev(), namespace.ino()].map(u64::to_le_bytes);
    let bytes = boot.trim().bytes().chain(numbers.into_iter().flatten());
    // FNV-1a.
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}
