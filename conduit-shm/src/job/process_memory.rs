//! Access to any memory of a peer's process by cross-memory attach. Each access takes one copy and
//! one system call.

use std::io;

use conduit_core::ni::{NiError, Rank};
use conduit_core::process_memory;
use conduit_core::threads::Mode;

use super::Shm;
use super::failure::Process;

impl<M: Mode> Shm<M> {
    /// # Safety
    /// `source` must be valid for reads of `len` bytes.
    pub(super) unsafe fn write_memory(
        &self,
        target: Rank,
        address: u64,
        source: *const u8,
        len: usize,
    ) -> Result<(), NiError> {
        const OPERATION: &str = "memory_write";
        let process = self.process(OPERATION, target)?;
        // Unlike a read, a write cannot be undone. Between this check and the write, the process
        // could still end and its id could be reused. However, the system assigns ids cyclically,
        // so as many processes as there are ids would have to be created in the meantime. There is
        // no system call that writes by process descriptor under the same rules.
        still_runs(OPERATION, target, process)?;
        // SAFETY: the caller guarantees that `source` is valid for reads of `len` bytes.
        let written = unsafe { process_memory::write(process.number, address, source, len) };
        still_runs(OPERATION, target, process)?;
        written.map_err(|error| self.refused(OPERATION, &error))
    }

    /// # Safety
    /// `destination` must be valid for writes of `len` bytes.
    pub(super) unsafe fn read_memory(
        &self,
        destination: *mut u8,
        target: Rank,
        address: u64,
        len: usize,
    ) -> Result<(), NiError> {
        const OPERATION: &str = "memory_read";
        let process = self.process(OPERATION, target)?;
        // SAFETY: the caller guarantees that `destination` is valid for writes of `len` bytes.
        let read = unsafe { process_memory::read(destination, process.number, address, len) };
        still_runs(OPERATION, target, process)?;
        read.map_err(|error| self.refused(OPERATION, &error))
    }

    fn process(&self, operation: &'static str, target: Rank) -> Result<&Process, NiError> {
        let process = self.processes.get(target as usize);
        process.ok_or(NiError::NoSuchRank {
            operation,
            rank: target,
            size: self.size,
        })
    }

    fn refused(&self, operation: &'static str, error: &io::Error) -> NiError {
        NiError::System {
            operation,
            rank: self.rank,
            reason: error.to_string(),
        }
    }
}

/// Checks that a peer's process still runs. As long as it runs, its process id cannot have been
/// reused. Once the process has ended, any other process may get the id.
fn still_runs(operation: &'static str, target: Rank, process: &Process) -> Result<(), NiError> {
    match process.has_ended() {
        false => Ok(()),
        true => Err(NiError::PeerFailed {
            operation,
            rank: target,
            reason: "has ended".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use conduit_core::ni::Ni;
    use conduit_core::threads::Seq;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

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
        // SAFETY: `ours` is valid for reads of `ours.len()` bytes.
        unsafe { world[0].memory_write(1, address, ours.as_ptr(), ours.len()) }.unwrap();
        assert_eq!(theirs, ours);
        let mut back = vec![0u8; 100_000];
        // SAFETY: `back` is valid for writes of `back.len()` bytes.
        unsafe { world[0].memory_read(back.as_mut_ptr(), 1, address, back.len()) }.unwrap();
        assert_eq!(back, ours);
        // SAFETY: the length is 0, so no memory is accessed.
        unsafe { world[0].memory_write(1, 16, ours.as_ptr(), 0) }.unwrap();
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let world = world();
        let byte = 1u8;
        // SAFETY: `byte` is valid for reads of one byte.
        let wrong = unsafe { world[0].memory_write(1, 16, &raw const byte, 1) };
        assert!(matches!(wrong, Err(NiError::System { rank: 0, .. })));
        // SAFETY: `byte` is valid for reads of one byte.
        let nobody = unsafe { world[0].memory_write(2, 16, &raw const byte, 1) };
        assert!(matches!(nobody, Err(NiError::NoSuchRank { rank: 2, .. })));
    }

    #[test]
    fn a_number_that_somebody_else_has_by_now_is_not_used() {
        let mut world = world();
        let mut child = Command::new("true").spawn().unwrap();
        let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        // Simulates that rank 1 was that child, whose process id has been reused by this process.
        world[0].processes[1].descriptor = Some(descriptor);
        let mut byte = 1u8;
        let mut theirs = 2u8;
        let address = (&raw mut theirs).expose_provenance() as u64;
        // SAFETY: `byte` is valid for reads of one byte.
        let written = unsafe { world[0].memory_write(1, address, &raw const byte, 1) };
        assert!(matches!(written, Err(NiError::PeerFailed { rank: 1, .. })));
        // SAFETY: `byte` is valid for writes of one byte.
        let read = unsafe { world[0].memory_read(&raw mut byte, 1, address, 1) };
        let error = read.unwrap_err().to_string();
        assert_eq!(error, "memory_read: rank 1 has ended");
        assert_eq!(std::hint::black_box(theirs), 2);
    }
}
