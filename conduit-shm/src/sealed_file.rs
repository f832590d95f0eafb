//! Anonymous files, whose memory several processes share.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_get_seals, fstat};
use rustix::io;

use crate::memory::largest_file;

/// Creates a file of `bytes` bytes, which are all zero. The file vanishes with the last process
/// that holds or maps it. A holder can change the file's contents, but neither its size nor its
/// seals, and cannot execute the file.
pub(crate) fn create(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    if bytes as u64 > largest_file() {
        return Err(io::Errno::FBIG);
    }
    let create = |flags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | flags;
        rustix::fs::memfd_create(name, flags)
    };
    let fd = match create(MemfdFlags::NOEXEC_SEAL) {
        // Linux before 6.3 does not know this flag.
        Err(io::Errno::INVAL) => create(MemfdFlags::empty())?,
        created => created?,
    };
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

/// Returns the size of a file that another process created, and whether it is sealed against
/// shrinking. Without the seal, accessing a truncated part would raise SIGBUS.
pub(crate) fn examine(fd: impl AsFd) -> io::Result<(u64, bool)> {
    let bytes = fstat(&fd)?.st_size;
    let seals = fcntl_get_seals(fd)?;
    Ok((bytes.cast_unsigned(), seals.contains(SealFlags::SHRINK)))
}
