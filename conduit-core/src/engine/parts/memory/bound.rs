//! Memory of ranks besides their segments, which is theirs and not the network's: bound to a number, and known to those to whom it
//! was published.

use std::collections::HashMap;

use am::select;
use parking_lot::RwLock;

use super::description::Bound;
use super::process::can_copy;
use super::{Memory, Remote};
use crate::engine::error::{Error, Result};
use crate::engine::parts::job::Job;
use crate::engine::parts::table::{index, tag};
use crate::ni::{MatchEntry, MeEvents, MeMemory, MeOptions, Ni, Rank};

/// Memory of a rank that was published here.
#[derive(Debug, Clone, Copy)]
struct Known {
    bound: Bound,
    /// The system lets this process copy to and from it.
    at_once: bool,
}

/// 40 bytes for each that was published here.
#[derive(Debug, Default)]
pub(super) struct BoundMemory {
    known: RwLock<HashMap<Rank, Vec<Known>>>,
}

fn match_bits(index: u16) -> u64 {
    u64::from(select::BOUND) | u64::from(index) << select::BOUND_SHIFT
}

impl BoundMemory {
    fn find(&self, rank: Rank, which: impl Fn(&Bound) -> bool) -> Option<Known> {
        let known = self.known.read();
        let found = known.get(&rank)?.iter().find(|known| which(&known.bound));
        found.copied()
    }

    fn known(&self, remote: Remote) -> Option<Known> {
        let index = (remote.match_bits >> select::BOUND_SHIFT) as u16;
        self.find(remote.target, |bound| bound.index == index)
    }

    /// Where the memory of a place begins at its owner.
    pub(super) fn start(&self, remote: Remote) -> u64 {
        self.known(remote).map_or(0, |known| known.bound.address)
    }

    /// The address of a place in bound memory, if it can be copied to and from at once.
    pub(super) fn address_at_once(&self, remote: Remote) -> Option<usize> {
        let known = self.known(remote)?;
        let address = known.bound.address as usize;
        known.at_once.then(|| address.wrapping_add(remote.offset))
    }
}

impl Memory {
    /// Lets peers reach memory of this process; what is bound to the number 0 is its segment.
    pub(in crate::engine) fn bind<N: Ni>(&self, job: &Job<N>, bound: Bound) -> Result<()> {
        if bound.index == 0 {
            return self.bind_segment(job, bound);
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
        job.ni.me_append(index::RAR, entry)?;
        Ok(())
    }

    /// Keeps what a rank has published.
    pub(in crate::engine) fn know<N: Ni>(&self, job: &Job<N>, rank: Rank, bound: Bound) {
        if bound.index == 0 {
            return self.know_segment(job, rank, bound);
        }
        let at_once = rank == job.rank || bound.len > 0 && can_copy(job, rank, bound.address);
        let mut all = self.bound.known.write();
        let of_rank = all.entry(rank).or_default();
        of_rank.retain(|known| known.bound.index != bound.index);
        of_rank.push(Known { bound, at_once });
    }

    /// What a rank has published to this one.
    pub(in crate::engine) fn bound(&self, rank: Rank, index: u16) -> Option<Bound> {
        let found = self.bound.find(rank, |bound| bound.index == index);
        found.map(|known| known.bound)
    }

    /// What a rank has published to this one that holds all of a range.
    pub(in crate::engine) fn bound_at(
        &self,
        rank: Rank,
        address: u64,
        len: usize,
    ) -> Option<Bound> {
        let found = self.bound.find(rank, |bound| bound.holds(address, len));
        found.map(|known| known.bound)
    }

    /// Finds a range of bound memory by its address.
    pub(in crate::engine) fn remote_bound<N: Ni>(
        &self,
        job: &Job<N>,
        operation: &'static str,
        (rank, index): (Rank, u16),
        address: u64,
        length: usize,
    ) -> Result<Remote> {
        job.check_context(operation, am::Operation::Request)?;
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
