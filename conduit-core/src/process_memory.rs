//! Access to the memory of a process by address, through the system (cross-memory attach). An
//! invalid address causes an error rather than a fault. An access costs one copy and one system
//! call.
//!
//! A process may always access its own memory. For access to other processes, the system's rules
//! for debuggers apply.

use std::io;
use std::sync::atomic::AtomicU32;

/// A process id.
pub type Pid = libc::pid_t;

/// The type of the system's calls for reading and writing.
type Call = unsafe extern "C" fn(
    Pid,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Returns the id of this process.
pub fn this() -> Pid {
    // The cast is lossless: the system's process ids have this type.
    std::process::id().cast_signed()
}

/// Copies `len` bytes to an address of a process.
///
/// # Errors
/// The system's error if the range is not writable memory, no such process exists, or access to the
/// process is not permitted. Some of the bytes may have been written.
///
/// # Safety
/// `source` must be valid for reads of `len` bytes. The provider of the address must guarantee that
/// nothing in that process relies on the contents of the range.
pub unsafe fn write(process: Pid, address: u64, source: *const u8, len: usize) -> io::Result<()> {
    // SAFETY: the call only reads the local memory, which the caller guarantees to be valid for
    // reads.
    unsafe {
        copy(
            libc::process_vm_writev,
            process,
            address,
            source.cast_mut(),
            len,
        )
    }
}

/// Copies `len` bytes from an address of a process.
///
/// # Errors
/// Same as [`write()`].
///
/// # Safety
/// `destination` must be valid for writes of `len` bytes.
pub unsafe fn read(destination: *mut u8, process: Pid, address: u64, len: usize) -> io::Result<()> {
    // SAFETY: the caller guarantees that `destination` is valid for writes of `len` bytes.
    unsafe { copy(libc::process_vm_readv, process, address, destination, len) }
}

/// Returns whether all of `[address, address + len)` is readable in this process now.
pub fn is_readable(address: u64, len: usize) -> bool {
    // A page is either readable as a whole or not at all, so one byte per page is tested.
    const PAGE: u64 = 4096;
    let Some(last) = (len as u64)
        .checked_sub(1)
        .and_then(|last| address.checked_add(last))
    else {
        return len == 0;
    };
    let pages = (address / PAGE..=last / PAGE).map(|page| libc::iovec {
        // The cast is lossless for an address of this process. The system refuses any other
        // address.
        iov_base: std::ptr::without_provenance_mut(address.max(page * PAGE) as usize),
        iov_len: 1,
    });
    let mut bytes = [0; MOST_VECTORS];
    let mut vectors = Vec::with_capacity(pages.size_hint().0.min(MOST_VECTORS));
    let mut pages = pages.peekable();
    while pages.peek().is_some() {
        vectors.clear();
        vectors.extend(pages.by_ref().take(MOST_VECTORS));
        let here = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: vectors.len(),
        };
        // SAFETY: `here` describes as many bytes of a local array as there are vectors, and the
        // array and the vectors live during the call.
        let read = unsafe {
            libc::process_vm_readv(
                this(),
                &raw const here,
                1,
                vectors.as_ptr(),
                vectors.len() as libc::c_ulong,
                0,
            )
        };
        if usize::try_from(read) != Ok(vectors.len()) {
            return false;
        }
    }
    true
}

/// Returns whether the 4 bytes at an address are writable in this process now. The address must be
/// a multiple of 4.
pub fn is_writable(address: u64) -> bool {
    // The system atomically adds 0 to these bytes and fails if it can't. A futex waiter on the word
    // may be woken spuriously, which the futex interface permits.
    const ADD_NOTHING: libc::c_int = libc::FUTEX_OP_ADD << 28 | libc::FUTEX_OP_CMP_EQ << 24 | 0x7ff;
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    // The cast is lossless for an address of this process. The system refuses any other address.
    let word: *mut u32 = std::ptr::without_provenance_mut(address as usize);
    // SAFETY: the system checks the address, and adding 0 does not change the value of the word.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            NOBODY.as_ptr(),
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0_usize,
            word,
            ADD_NOTHING,
        )
    };
    done >= 0
}

/// Maximum number of vectors per call.
const MOST_VECTORS: usize = 256;

/// # Safety
/// `local` must be valid for the access of `call` to `len` bytes.
unsafe fn copy(
    call: Call,
    process: Pid,
    address: u64,
    local: *mut u8,
    len: usize,
) -> io::Result<()> {
    let mut moved = 0;
    while moved < len {
        let here = libc::iovec {
            iov_base: local.wrapping_add(moved).cast(),
            iov_len: len - moved,
        };
        let there = libc::iovec {
            iov_base: std::ptr::without_provenance_mut((address as usize).wrapping_add(moved)),
            iov_len: len - moved,
        };
        // SAFETY: each pointer refers to one vector, which lives during the call. The caller
        // guarantees that the local memory is valid, and the system checks the remote range.
        let result = unsafe { call(process, &raw const here, 1, &raw const there, 1, 0) };
        match usize::try_from(result) {
            Ok(some) if some > 0 => moved += some,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Copies the bytes of a message to an address of this process. Returns false if the range is not
/// writable memory.
pub(crate) fn place(address: usize, bytes: &[u8]) -> bool {
    // SAFETY: the source is a slice, so it is valid for reads. The caller of `attach_everything`
    // guarantees that peers write only to memory that is meant to be written by them.
    unsafe { write(this(), address as u64, bytes.as_ptr(), bytes.len()) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mapping of two pages, the second of which is inaccessible.
    struct Pages(*mut u8);

    const PAGE: usize = 4096;

    impl Pages {
        fn new() -> Self {
            let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: this creates a new mapping at an address of the system's choice, so it
            // affects no other memory.
            let base = unsafe {
                let base = libc::mmap(std::ptr::null_mut(), 2 * PAGE, read | write, flags, -1, 0);
                assert_ne!(base, libc::MAP_FAILED);
                assert_eq!(
                    libc::mprotect(base.byte_add(PAGE), PAGE, libc::PROT_NONE),
                    0
                );
                base
            };
            Self(base.cast())
        }

        fn at(&self, offset: usize) -> u64 {
            (self.0.expose_provenance() + offset) as u64
        }

        fn protect(&self, protection: i32) {
            // SAFETY: the page belongs to the mapping that `new` created, which only this test
            // uses.
            let done = unsafe { libc::mprotect(self.0.cast(), PAGE, protection) };
            assert_eq!(done, 0);
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the mapping was created by `new` and is no longer used.
            unsafe { libc::munmap(self.0.cast(), 2 * PAGE) };
        }
    }

    #[test]
    fn own_memory_is_copied_and_what_is_none_is_an_error() {
        let pages = Pages::new();
        let ours = [7u8; 100];
        let mut back = [0u8; 100];
        // SAFETY: both arrays have 100 bytes, and only this test uses the mapping. The same holds
        // for the calls below.
        unsafe {
            write(this(), pages.at(PAGE - 100), ours.as_ptr(), 100).unwrap();
            read(back.as_mut_ptr(), this(), pages.at(PAGE - 100), 100).unwrap();
            assert_eq!(back, ours);
            assert!(write(this(), pages.at(PAGE - 99), ours.as_ptr(), 100).is_err());
            assert!(read(back.as_mut_ptr(), this(), pages.at(PAGE - 99), 100).is_err());
            write(this(), 16, ours.as_ptr(), 0).unwrap();
            pages.protect(libc::PROT_READ);
            assert!(write(this(), pages.at(0), ours.as_ptr(), 1).is_err());
            read(back.as_mut_ptr(), this(), pages.at(0), 1).unwrap();
        }
    }

    #[test]
    fn what_can_be_written_is_known_before() {
        let pages = Pages::new();
        assert!(is_writable(pages.at(0)) && is_writable(pages.at(PAGE - 4)));
        let ones = [0xff_u8; 8];
        // SAFETY: `ones` has 8 bytes, and only this test uses the mapping.
        unsafe { write(this(), pages.at(0), ones.as_ptr(), 8).unwrap() };
        assert!(is_writable(pages.at(4)));
        let mut back = [0; 8];
        // SAFETY: `back` has 8 bytes, so it is valid for the write.
        unsafe { read(back.as_mut_ptr(), this(), pages.at(0), 8).unwrap() };
        assert_eq!(back, ones, "the bytes are unchanged");
        for address in [0, 16, pages.at(PAGE), 1 << 63, u64::MAX - 3] {
            assert!(!is_writable(address), "{address:#x}");
        }
        pages.protect(libc::PROT_READ);
        assert!(!is_writable(pages.at(0)));
    }

    #[test]
    fn what_can_be_read_is_known_before() {
        let pages = Pages::new();
        assert!(is_readable(pages.at(0), PAGE));
        assert!(is_readable(pages.at(PAGE - 1), 1));
        assert!(!is_readable(pages.at(PAGE - 1), 2));
        assert!(!is_readable(pages.at(0), PAGE + 1));
        assert!(!is_readable(pages.at(PAGE), 1));
        assert!(is_readable(0, 0));
        assert!(!is_readable(0, 1));
        assert!(!is_readable(u64::MAX, 2));
        pages.protect(libc::PROT_NONE);
        assert!(!is_readable(pages.at(0), 1));
        // This range needs more than one system call.
        let many = vec![1u8; 3 * MOST_VECTORS * PAGE];
        assert!(is_readable(
            many.as_ptr().expose_provenance() as u64,
            many.len()
        ));
    }
}
