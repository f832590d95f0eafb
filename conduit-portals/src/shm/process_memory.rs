//! Any memory of a peer's process, by the system's cross-memory attach: one copy, one system call.

use std::io;

use conduit_core::ni::{NiError, Rank};
use conduit_core::threads::Mode;

use super::Shm;

/// One of the system's two calls.
type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

impl<M: Mode> Shm<M> {
    /// # Safety
    /// `source` is valid for reads of `len` bytes.
    pub(super) unsafe fn write_memory(
        &self,
        target: Rank,
        address: u64,
        source: *const u8,
        len: usize,
    ) -> Result<(), NiError> {
        // SAFETY: the call only reads the local memory: the caller's promise.
        unsafe {
            self.move_memory(
                "memory_write",
                libc::process_vm_writev,
                target,
                address,
                source.cast_mut(),
                len,
            )
        }
    }

    /// # Safety
    /// `destination` is valid for writes of `len` bytes.
    pub(super) unsafe fn read_memory(
        &self,
        destination: *mut u8,
        target: Rank,
        address: u64,
        len: usize,
    ) -> Result<(), NiError> {
        // SAFETY: the caller's promise.
        unsafe {
            self.move_memory(
                "memory_read",
                libc::process_vm_readv,
                target,
                address,
                destination,
                len,
            )
        }
    }

    /// # Safety
    /// `local` is valid for what `call` does with `len` bytes of it.
    unsafe fn move_memory(
        &self,
        operation: &'static str,
        call: Call,
        target: Rank,
        address: u64,
        local: *mut u8,
        len: usize,
    ) -> Result<(), NiError> {
        let Some(&process) = self.processes.get(target as usize) else {
            return Err(NiError::NoSuchRank {
                operation,
                rank: target,
                size: self.size,
            });
        };
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
            // SAFETY: both vectors have one element and live during the call; the local memory is the caller's promise;
            // the system checks the remote range.
            let result = unsafe { call(process, &raw const here, 1, &raw const there, 1, 0) };
            match usize::try_from(result) {
                Ok(0) | Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    let reason = error.to_string();
                    return Err(NiError::System {
                        operation,
                        rank: self.rank,
                        reason,
                    });
                }
                Ok(some) => moved += some,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use conduit_core::ni::Ni;
    use conduit_core::threads::Seq;

    use super::super::{ShmConfig, in_process};
    use super::*;

    fn world() -> Vec<Shm<Seq>> {
        in_process(2, &ShmConfig::default()).unwrap()
    }

    #[test]
    fn memory_outside_of_regions_is_written_and_read() {
        let world = world();
        let mut theirs = vec![0u8; 100_000];
        let ours: Vec<u8> = (0..100_000u32).map(|byte| (byte % 251) as u8).collect();
        let address = theirs.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: valid for as many bytes; so below.
        unsafe { world[0].memory_write(1, address, ours.as_ptr(), ours.len()) }.unwrap();
        assert_eq!(theirs, ours);
        let mut back = vec![0u8; 100_000];
        // SAFETY: as above.
        unsafe { world[0].memory_read(back.as_mut_ptr(), 1, address, back.len()) }.unwrap();
        assert_eq!(back, ours);
        // SAFETY: no bytes.
        unsafe { world[0].memory_write(1, 16, ours.as_ptr(), 0) }.unwrap();
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let world = world();
        let byte = 1u8;
        // SAFETY: valid for one byte.
        let wrong = unsafe { world[0].memory_write(1, 16, &raw const byte, 1) };
        assert!(matches!(wrong, Err(NiError::System { rank: 0, .. })));
        // SAFETY: as above.
        let nobody = unsafe { world[0].memory_write(2, 16, &raw const byte, 1) };
        assert!(matches!(nobody, Err(NiError::NoSuchRank { rank: 2, .. })));
    }
}
