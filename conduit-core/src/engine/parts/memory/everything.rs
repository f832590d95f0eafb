//! GASNet's segment of everything: each rank's segment is all memory of its process, offsets are addresses.
//!
//! Where the network reaches a peer's memory ([`Capabilities::MEMORY`]), and the system lets it, a put or get is over when it
//! returns. Elsewhere it goes by messages to an entry over all of the peer's memory ([`MeMemory::EVERYTHING`]), as to any segment,
//! and ends later.

use std::collections::HashMap;

use am::select;
use parking_lot::Mutex;

use super::{Local, Memory, Remote, Segment, Segments};
use crate::bootstrap::Bootstrap;
use crate::engine::error::{Error, Result};
use crate::engine::parts::handle::OpId;
use crate::engine::parts::job::Job;
use crate::engine::parts::shared::SharedPtr;
use crate::engine::parts::table::{IGNORE, index, tag};
use crate::fork::Wiped;
use crate::ni::{Capabilities, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, NiError, Rank};
use crate::process_memory;
use crate::shared;

/// A segment that is all of a process's memory.
const ALL: Segment = Segment {
    window: SharedPtr(std::ptr::null_mut()),
    len: usize::MAX,
    address: 0,
};

/// What an operation asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    rank: Rank,
    address: usize,
    length: usize,
}

/// What peers read to find out whether the system lets them.
static PROBE: u8 = 0;

/// Segments that are everything.
#[derive(Debug)]
pub(super) struct Everything {
    /// Memory of peers whose network says that it can be reached can.
    attaches: bool,
    /// What operations by messages have asked for, for the error if there is no such memory: the completion names the operation
    /// only. By place in the table of operations, so no more than were ever under way at once. 24 bytes each.
    asked: Mutex<HashMap<usize, Asked>>,
}

impl Memory {
    /// The segments that are everything, where they are.
    pub(super) fn everything(&self) -> Option<&Everything> {
        self.segments.get()?.everything.as_ref()
    }

    /// Makes all of every rank's memory its segment: offsets are then addresses of the target's process, and nothing is
    /// allocated. Collective, once.
    ///
    /// # Errors
    /// The network can't, the system does not let a process copy its own memory (then on all ranks), or there is a segment.
    ///
    /// # Safety
    /// All calls of all ranks that write to this rank's segment write to memory of its process that is meant for it.
    pub(in crate::engine) unsafe fn attach_everything<N: Ni>(
        &self,
        job: &Job<N>,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<()> {
        let probe = (&raw const PROBE).expose_provenance() as u64;
        let made = offer_memory(job, probe);
        // No rank's is at 0.
        let announced = if made.is_ok() { probe } else { 0 };
        let all = bootstrap.allgather(&announced.to_le_bytes())?;
        made?;
        let mut attaches = true;
        for (peer, bytes) in (0..).zip(&all) {
            let announced = <[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_le_bytes);
            if announced == 0 {
                return Err(Error::Bootstrap(format!(
                    "attach: rank {peer} could not offer its memory"
                )));
            }
            attaches &= peer == job.rank || can_read(job, peer, announced);
        }
        let segments = Segments {
            // SAFETY: zeros are a segment that is empty and not mapped.
            of: unsafe { Wiped::new(vec![ALL; job.size as usize]) },
            own: ALL.window,
            md: None,
            everything: Some(Everything {
                attaches,
                asked: Mutex::default(),
            }),
        };
        self.set(job, segments)?;
        bootstrap.barrier()?;
        Ok(())
    }

    /// Whether any memory of a rank can be written and read at once.
    pub(in crate::engine) fn reaches<N: Ni>(&self, job: &Job<N>, target: Rank) -> bool {
        let everything = self.everything();
        target == job.rank
            || everything.is_some_and(|everything| everything.attaches)
                && job
                    .ni
                    .reach(target)
                    .capabilities
                    .contains(Capabilities::MEMORY)
    }

    /// The address of a place, where a transfer is over when it returns: segments are everything, or it is in memory that was bound,
    /// and the target's memory can be reached.
    pub(in crate::engine) fn address_at_once<N: Ni>(
        &self,
        job: &Job<N>,
        remote: Remote,
    ) -> Option<usize> {
        if select::of(remote.match_bits) == select::BOUND {
            return self.bound.address_at_once(remote);
        }
        self.is_anywhere_at_once(job, remote.target)
            .then_some(remote.offset)
    }

    /// Whether a transfer to this rank's segment is over when it returns, because that is everything and can be reached.
    pub(in crate::engine) fn is_anywhere_at_once<N: Ni>(&self, job: &Job<N>, target: Rank) -> bool {
        self.is_everything() && self.reaches(job, target)
    }

    /// Keeps what an operation by messages asks for.
    pub(in crate::engine) fn note_asked(
        &self,
        op: OpId,
        rank: Rank,
        address: usize,
        length: usize,
    ) {
        if let Some(everything) = self.everything() {
            let asked = Asked {
                rank,
                address,
                length,
            };
            everything.asked.lock().insert(op.index(), asked);
        }
    }

    /// Why an operation was answered that it is out of range, where segments are everything.
    #[cold]
    pub(in crate::engine) fn no_memory_asked(&self, op: OpId) -> Option<Error> {
        let everything = self.everything()?;
        let asked = everything.asked.lock().get(&op.index()).copied()?;
        Some(Error::NoMemory {
            rank: asked.rank,
            address: asked.address,
            length: asked.length,
            reason: "not all of it is memory that can be used so".to_owned(),
        })
    }

    /// A transfer that is over when it returns, to or from a rank whose memory can be [reached](Memory::reaches).
    ///
    /// # Safety
    /// The local memory is valid as [`Local`] says; a range of this process is memory.
    pub(in crate::engine) unsafe fn transfer_anywhere<N: Ni>(
        &self,
        job: &Job<N>,
        target: Rank,
        address: usize,
        local: Local,
    ) -> Result<()> {
        match local {
            // SAFETY: the caller's promise.
            Local::Source(source) => unsafe {
                self.store_anywhere(job, target, address, source.base, source.len)
            },
            // SAFETY: as above.
            Local::Destination { base, len } => unsafe {
                self.load_anywhere(job, base, target, address, len)
            },
            Local::Fill { byte, len } => {
                let bytes = [byte; 4096];
                for start in (0..len).step_by(bytes.len()) {
                    let piece = bytes.len().min(len - start);
                    // SAFETY: as above.
                    unsafe {
                        self.store_anywhere(job, target, address + start, bytes.as_ptr(), piece)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Copies to memory of a rank that can be [reached](Memory::reaches).
    ///
    /// # Safety
    /// `source` is valid for reads of `len` bytes. In this process, `address` is valid for writes of as many.
    pub(in crate::engine) unsafe fn store_anywhere<N: Ni>(
        &self,
        job: &Job<N>,
        target: Rank,
        address: usize,
        source: *const u8,
        len: usize,
    ) -> Result<()> {
        if target == job.rank {
            let to = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: the caller's promise. The two may overlap.
            unsafe { shared::copy(source, to, len) };
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let written = unsafe { job.ni.memory_write(target, address as u64, source, len) };
        written.map_err(|reason| no_memory(target, address, len, reason))
    }

    /// The opposite of [`Memory::store_anywhere`].
    ///
    /// # Safety
    /// `destination` is valid for writes of `len` bytes. In this process, `address` is valid for reads of as many.
    unsafe fn load_anywhere<N: Ni>(
        &self,
        job: &Job<N>,
        destination: *mut u8,
        target: Rank,
        address: usize,
        len: usize,
    ) -> Result<()> {
        if target == job.rank {
            let from: *const u8 = std::ptr::with_exposed_provenance(address);
            // SAFETY: the caller's promise. The two may overlap.
            unsafe { shared::copy(from, destination, len) };
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let read = unsafe { job.ni.memory_read(destination, target, address as u64, len) };
        read.map_err(|reason| no_memory(target, address, len, reason))
    }
}

/// Lets peers reach all memory of this process by messages.
fn offer_memory<N: Ni>(job: &Job<N>, probe: u64) -> Result<()> {
    if !process_memory::is_readable(probe, 1) {
        return Err(NiError::System {
            operation: "attach",
            rank: job.rank,
            reason: "the system does not let a process copy its own memory (process_vm_readv), which a segment of \
                     everything needs"
                .to_owned(),
        }
        .into());
    }
    let all = MatchEntry {
        memory: MeMemory::EVERYTHING,
        match_bits: select::RAR.into(),
        ignore_bits: IGNORE,
        source: None,
        options: MeOptions::PUT | MeOptions::GET,
        events: MeEvents::empty(),
        tag: tag::RAR,
    };
    job.ni.me_append(index::RAR, all)?;
    Ok(())
}

/// Whether a peer's memory is read as its network says that it can be, if it does: the system may have rules against it.
pub(super) fn can_read<N: Ni>(job: &Job<N>, peer: Rank, probe: u64) -> bool {
    let mut byte = 0;
    let reach = job.ni.reach(peer);
    !reach.capabilities.contains(Capabilities::MEMORY)
        // SAFETY: one byte of our own.
        || unsafe { job.ni.memory_read(&raw mut byte, peer, probe, 1) }.is_ok()
}

/// Puts a message's bytes at an address of this process; false if that is no memory.
pub(super) fn place(address: usize, bytes: &[u8]) -> bool {
    let this = process_memory::this();
    // SAFETY: the bytes of a slice; what is at the address is the word of whoever has attached everything.
    unsafe { process_memory::write(this, address as u64, bytes.as_ptr(), bytes.len()) }.is_ok()
}

fn no_memory(rank: Rank, address: usize, length: usize, reason: NiError) -> Error {
    let reason = match reason {
        NiError::System { reason, .. } => reason,
        other => other.to_string(),
    };
    Error::NoMemory {
        rank,
        address,
        length,
        reason,
    }
}
