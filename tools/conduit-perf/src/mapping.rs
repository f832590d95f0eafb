//! A mapping of anonymous shared memory, for measurements whose sides have no segment in common.
//! Sides in other processes open it by its path; sides in other threads get a reference.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::Error;
use crate::area::SharedArea;

/// Shared memory, mapped until dropped. It has no name in any file system, so it leaves nothing
/// behind.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    memory: File,
}

// SAFETY: the mapping is memory that is not tied to a thread. It is accessed through `SharedArea`,
// whose users must order their accesses.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives access to the memory only through `SharedArea`, whose users must
// order their accesses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates `len` zero bytes and maps them.
    ///
    /// # Errors
    /// Fails if the system refuses the memory.
    pub fn anonymous(len: usize) -> Result<Self, Error> {
        let fd = rustix::fs::memfd_create("conduit-perf", MemfdFlags::CLOEXEC)
            .map_err(Error::system("memfd_create"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(Error::system("ftruncate"))?;
        Self::map(File::from(fd), len)
    }

    /// Maps the memory that another process created, by its [path](Self::path).
    ///
    /// # Errors
    /// Fails if the file does not exist, is empty, or cannot be mapped.
    pub fn open(path: &str) -> Result<Self, Error> {
        let memory = File::options().read(true).write(true).open(path);
        let memory = memory.map_err(Error::system("opening the shared memory"))?;
        let len = memory.metadata().map_err(Error::system("fstat"))?.len();
        Self::map(memory, len as usize)
    }

    fn map(memory: File, len: usize) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address that the system chooses affects no other memory.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory.as_fd(),
                0,
            )
        }
        .map_err(Error::system("mmap"))?;
        let base = NonNull::new(base.cast()).ok_or(Error::AreaMisaligned)?;
        Ok(Self { base, len, memory })
    }

    /// Returns the path by which other processes of this user can open the memory while this
    /// process has it.
    #[must_use]
    pub fn path(&self) -> String {
        let fd = self.memory.as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id())
    }

    /// Returns the address of the first byte in this process.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the whole mapping as an area.
    ///
    /// # Errors
    /// Fails if the mapping is too small for an area.
    pub fn area(&self) -> Result<SharedArea<'_>, Error> {
        // SAFETY: the bytes stay mapped for as long as `self` is borrowed. The system zeroed them,
        // and only the sides access them, because they can be reached only through this `Mapping`
        // or its file.
        unsafe { SharedArea::new(self.base, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping that `map` made. No area is left,
        // because areas borrow from `self`. An error can only mean that the mapping is already
        // gone, so it is ignored.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
