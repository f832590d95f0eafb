//! Segments that are process memory, rather than memory of the network. Such a segment is either
//! everything, which all ranks attach together, or the memory that a rank has bound to its first
//! endpoint. No other process maps these segments.
//!
//! Where the network can access a peer's memory ([`Capabilities::MEMORY`]) and the system permits
//! it, a put or get is complete when its call returns. Otherwise the put or get travels in messages
//! to a match entry over that memory ([`MeMemory::Process`]), as with any segment, and completes
//! later.
//!
//! "Everything" is GASNet's term. It means that each rank's segment is the whole memory of its
//! process, so that offsets are addresses.

use am::select;

use super::process_segments::{ALL, Asked, ProcessSegments};
use crate::fork::Wiped;
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::OpId;
use crate::kernel::portal_table::{IGNORE, index, tag};
use crate::memory::{Bound, Local, Memory, Remote, Segment, Segments};
use crate::ni::{Capabilities, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, NiError, Rank};
use crate::process_memory;
use crate::shared;
use crate::threads::Mode;
use pmi::bootstrap::Bootstrap;

/// The reason given if the system does not let an operation access memory.
const NOT_USABLE: &str = "not all of it is accessible memory";

/// A byte that peers read to find out whether the system lets them read this process's memory.
static PROBE: u8 = 0;

impl Segments {
    fn of_processes<N: Ni, M: Mode>(kernel: &Kernel<N, M>, is_everything: bool) -> Self {
        Self {
            of: Wiped::EMPTY,
            own: SharedPtr(std::ptr::null_mut()),
            md: None,
            process: Some(ProcessSegments::new(kernel.job.size, is_everything)),
        }
    }
}

impl Memory {
    pub(super) fn process(&self) -> Option<&ProcessSegments> {
        self.segments.get()?.process.as_ref()
    }

    /// Returns whether segments are process memory.
    pub(crate) fn is_process(&self) -> bool {
        self.process().is_some()
    }

    /// Returns whether segments are everything.
    pub(crate) fn is_everything(&self) -> bool {
        self.process().is_some_and(|process| process.is_everything)
    }

    /// Makes all memory of each rank's process its segment. Offsets are then addresses in the
    /// target's process, and nothing is allocated. Collective; may be called once.
    ///
    /// # Errors
    /// If the network does not support this, the system does not let a process copy its own memory
    /// (in which case the call fails on all ranks), or a segment is already attached.
    ///
    /// # Safety
    /// Every call of any rank that writes to this rank's segment must write only to memory of this
    /// process that is meant to be written by it.
    pub(crate) unsafe fn attach_everything<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        bootstrap: &mut dyn Bootstrap,
    ) -> Result<()> {
        let probe = (&raw const PROBE).expose_provenance() as u64;
        let made = offer_memory(kernel, probe);
        // Announcing address 0 reports failure, because no rank's probe has that address.
        let announced = if made.is_ok() { probe } else { 0 };
        let all = bootstrap.allgather(&announced.to_le_bytes())?;
        made?;
        let segments = Segments::of_processes(kernel, true);
        for (peer, bytes) in (0..).zip(&all) {
            let announced = <[u8; 8]>::try_from(&bytes[..]).map_or(0, u64::from_le_bytes);
            if announced == 0 {
                return Err(Error::Bootstrap(format!(
                    "attach: rank {peer} could not offer its memory"
                )));
            }
            if let Some(process) = &segments.process {
                process.set(kernel, peer, ALL, can_copy(kernel, peer, announced));
            }
        }
        self.set(kernel, segments)?;
        bootstrap.fence()?;
        Ok(())
    }

    /// Makes memory of this process the segment of this rank.
    ///
    /// # Errors
    /// If segments are attached, this rank already has a segment, or the network does not support
    /// this.
    pub(super) fn bind_segment<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        bound: Bound,
    ) -> Result<()> {
        let is_free = match self.segments.get() {
            None => true,
            Some(segments) => segments.process.as_ref().is_some_and(|process| {
                !process.is_everything && process.of[kernel.job.rank as usize].get().is_none()
            }),
        };
        if !is_free {
            return Err(Error::AlreadyAttached {
                rank: kernel.job.rank,
            });
        }
        let last = bound
            .address
            .wrapping_add((bound.len as u64).wrapping_sub(1));
        // The check is needed because this process itself places the data of arriving messages
        // there.
        if bound.len == 0
            || ![bound.address, last]
                .map(|at| at & !3)
                .into_iter()
                .all(process_memory::is_writable)
        {
            return Err(Error::NoMemory {
                rank: kernel.job.rank,
                address: bound.address as usize,
                length: bound.len,
                reason: NOT_USABLE.to_owned(),
            });
        }
        offer(
            kernel,
            MeMemory::Process {
                base: bound.address,
                len: bound.len as u64,
            },
        )?;
        self.know_segment(kernel, kernel.job.rank, bound);
        Ok(())
    }

    /// Records the segment that a rank has bound. Does nothing if segments have been attached,
    /// because these are known already.
    pub(super) fn know_segment<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        rank: Rank,
        bound: Bound,
    ) {
        let segments = self
            .segments
            .get_or_init(|| Segments::of_processes(kernel, false));
        let Some(process) = segments.process.as_ref().filter(|all| !all.is_everything) else {
            return;
        };
        let window = match rank == kernel.job.rank {
            true => std::ptr::with_exposed_provenance_mut(bound.address as usize),
            false => std::ptr::null_mut(),
        };
        let segment = Segment {
            window: SharedPtr(window),
            len: bound.len,
            address: bound.address,
        };
        process.set(kernel, rank, segment, can_copy(kernel, rank, bound.address));
    }

    /// Returns the address, in the target's process, of a location in a segment that is process
    /// memory or in bound memory. Returns `None` if this process can't access the target's memory
    /// directly. Transfers to and from such an address are complete when they return.
    pub(crate) fn address_at_once(&self, remote: Remote) -> Option<usize> {
        if select::of(remote.match_bits) == select::BOUND {
            return self.bound.address_at_once(remote);
        }
        let known = self.process()?.of.get(remote.target as usize)?.get()?;
        let address = known.segment.address as usize;
        known.at_once.then(|| address.wrapping_add(remote.offset))
    }

    /// Records the target range of an operation that travels in messages: `length` bytes at
    /// `remote`.
    pub(crate) fn note_asked(&self, op: OpId, remote: Remote, length: usize) {
        if let Some(process) = self.process() {
            let rank = remote.target;
            let start = match select::of(remote.match_bits) {
                select::BOUND => self.bound.start(remote),
                _ => process.of(rank).map_or(0, |segment| segment.address),
            };
            let asked = Asked {
                rank,
                address: (start as usize).wrapping_add(remote.offset),
                length,
            };
            process.asked.lock().insert(op.index(), asked);
        }
    }

    /// Returns the error for an operation that its target refused as out of range. Returns `None`
    /// if segments are not process memory.
    #[cold]
    pub(crate) fn no_memory_asked(&self, op: OpId) -> Option<Error> {
        let process = self.process()?;
        let asked = process.asked.lock().get(&op.index()).copied()?;
        Some(Error::NoMemory {
            rank: asked.rank,
            address: asked.address,
            length: asked.length,
            reason: NOT_USABLE.to_owned(),
        })
    }

    /// Performs a transfer to or from an [address](Memory::address_at_once). The transfer is
    /// complete on return.
    ///
    /// # Safety
    /// The local memory must be valid as [`Local`] describes. If the target is this process, the
    /// range at `address` must be valid memory.
    pub(crate) unsafe fn transfer_anywhere<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        address: usize,
        local: Local,
    ) -> Result<()> {
        match local {
            // SAFETY: the caller guarantees that the source is valid and, if the target is this
            // process, that the range at `address` is too.
            Local::Source(source) => unsafe {
                self.store_anywhere(kernel, target, address, source.base, source.len)
            },
            // SAFETY: the caller guarantees that the destination is valid and, if the target is
            // this process, that the range at `address` is too.
            Local::Destination { base, len } => unsafe {
                self.load_anywhere(kernel, base, target, address, len)
            },
            Local::Fill { byte, len } => {
                let bytes = [byte; 4096];
                for start in (0..len).step_by(bytes.len()) {
                    let piece = bytes.len().min(len - start);
                    // SAFETY: `bytes` has at least `piece` bytes. If the target is this process,
                    // the caller guarantees that the range at `address` is valid.
                    unsafe {
                        self.store_anywhere(
                            kernel,
                            target,
                            address + start,
                            bytes.as_ptr(),
                            piece,
                        )?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Copies bytes to an [address](Memory::address_at_once) of a rank.
    ///
    /// # Safety
    /// `source` must be valid for reads of `len` bytes. If the target is this process, `address`
    /// must be valid for writes of `len` bytes.
    pub(crate) unsafe fn store_anywhere<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        address: usize,
        source: *const u8,
        len: usize,
    ) -> Result<()> {
        if target == kernel.job.rank {
            let to = std::ptr::with_exposed_provenance_mut(address);
            // SAFETY: the caller guarantees that both addresses are valid for `len` bytes.
            // `shared::copy` permits overlap.
            unsafe { shared::copy(source, to, len) };
            return Ok(());
        }
        // SAFETY: the caller guarantees that `source` is valid for reads of `len` bytes.
        let written = unsafe {
            kernel
                .job
                .ni
                .memory_write(target, address as u64, source, len)
        };
        written.map_err(|reason| no_memory(target, address, len, reason))
    }

    /// Copies bytes from an [address](Memory::address_at_once) of a rank.
    ///
    /// # Safety
    /// `destination` must be valid for writes of `len` bytes. If the target is this process,
    /// `address` must be valid for reads of `len` bytes.
    unsafe fn load_anywhere<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        destination: *mut u8,
        target: Rank,
        address: usize,
        len: usize,
    ) -> Result<()> {
        if target == kernel.job.rank {
            let from: *const u8 = std::ptr::with_exposed_provenance(address);
            // SAFETY: the caller guarantees that both addresses are valid for `len` bytes.
            // `shared::copy` permits overlap.
            unsafe { shared::copy(from, destination, len) };
            return Ok(());
        }
        // SAFETY: the caller guarantees that `destination` is valid for writes of `len` bytes.
        let read = unsafe {
            kernel
                .job
                .ni
                .memory_read(destination, target, address as u64, len)
        };
        read.map_err(|reason| no_memory(target, address, len, reason))
    }
}

/// Lets peers access all memory of this process by messages.
fn offer_memory<N: Ni, M: Mode>(kernel: &Kernel<N, M>, probe: u64) -> Result<()> {
    if !process_memory::is_readable(probe, 1) {
        return Err(NiError::System {
            operation: "attach",
            rank: kernel.job.rank,
            reason: "the system does not let a process copy its own memory (process_vm_readv), which a segment of \
                     everything needs"
                .to_owned(),
        }
        .into());
    }
    offer(kernel, MeMemory::EVERYTHING)
}

/// Lets peers access memory of this process as its segment.
fn offer<N: Ni, M: Mode>(kernel: &Kernel<N, M>, memory: MeMemory) -> Result<()> {
    let entry = MatchEntry {
        memory,
        match_bits: select::RAR.into(),
        ignore_bits: IGNORE,
        source: None,
        options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC,
        events: MeEvents::empty(),
        tag: tag::RAR,
    };
    kernel.job.ni.me_append(index::RAR, entry)?;
    Ok(())
}

/// Returns whether this process may copy memory of a peer directly, which the network must support
/// and the system must permit. `probe` is an address in the peer's memory.
pub(super) fn can_copy<N: Ni, M: Mode>(kernel: &Kernel<N, M>, peer: Rank, probe: u64) -> bool {
    let mut byte = 0;
    let reach = kernel.job.ni.reach(peer);
    reach.capabilities.contains(Capabilities::MEMORY)
        // SAFETY: the destination is a local variable of one byte, which is valid for the write.
        && unsafe { kernel.job.ni.memory_read(&raw mut byte, peer, probe, 1) }.is_ok()
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
