//! Memory other than the ranks' attached segments. It belongs to the process and not to the
//! network, is bound to a number, and is known only to the ranks to which it was published.

use super::bound_memory::{Known, match_bits};
use crate::kernel::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::portal_table::{index, tag};
use crate::memory::description::Bound;
use crate::memory::process::can_copy;
use crate::memory::{Memory, Remote};
use crate::ni::{MatchEntry, MeEvents, MeMemory, MeOptions, Ni, Rank};
use crate::threads::Mode;

impl Memory {
    /// Lets peers access memory of this process. Memory bound to the number 0 becomes this rank's
    /// segment.
    pub(crate) fn bind<N: Ni, M: Mode>(&self, kernel: &Kernel<N, M>, bound: Bound) -> Result<()> {
        if bound.index == 0 {
            return self.bind_segment(kernel, bound);
        }
        let entry = MatchEntry {
            memory: MeMemory::Process {
                base: bound.address,
                len: bound.len as u64,
            },
            match_bits: match_bits(bound.index),
            ignore_bits: 0,
            source: None,
            options: MeOptions::PUT | MeOptions::GET,
            events: MeEvents::empty(),
            tag: tag::RAR,
        };
        kernel.job.ni.me_append(index::RAR, entry)?;
        Ok(())
    }

    /// Records memory that a rank has published.
    pub(crate) fn know<N: Ni, M: Mode>(&self, kernel: &Kernel<N, M>, rank: Rank, bound: Bound) {
        if bound.index == 0 {
            return self.know_segment(kernel, rank, bound);
        }
        let at_once =
            rank == kernel.job.rank || bound.len > 0 && can_copy(kernel, rank, bound.address);
        let mut all = self.bound.known.write();
        let of_rank = all.entry(rank).or_default();
        of_rank.retain(|known| known.bound.index != bound.index);
        of_rank.push(Known { bound, at_once });
    }

    /// Returns the memory that a rank has bound to this number and published to this rank.
    pub(crate) fn bound(&self, rank: Rank, index: u16) -> Option<Bound> {
        let found = self.bound.find(rank, |bound| bound.index == index);
        found.map(|known| known.bound)
    }

    /// Returns the memory that a rank has published to this rank and that contains the whole range.
    pub(crate) fn bound_at(&self, rank: Rank, address: u64, len: usize) -> Option<Bound> {
        let found = self.bound.find(rank, |bound| bound.holds(address, len));
        found.map(|known| known.bound)
    }

    /// Finds a range of bound memory by its address in the process of `rank`.
    pub(crate) fn remote_bound<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        operation: &'static str,
        (rank, index): (Rank, u16),
        address: u64,
        length: usize,
    ) -> Result<Remote> {
        kernel
            .job
            .check_context(operation, am::Operation::Request)?;
        let unbound = || Error::Unbound {
            operation,
            rank,
            index,
        };
        let bound = self.bound(rank, index).ok_or_else(unbound)?;
        if !bound.holds(address, length) {
            return Err(Error::OutOfBound {
                operation,
                rank,
                address,
                length,
                bound,
            });
        }
        Ok(Remote {
            target: rank,
            match_bits: match_bits(index),
            offset: (address - bound.address) as usize,
        })
    }
}
