//! Memory other than segments that ranks have published to this rank.

use std::collections::HashMap;

use am::select;
use parking_lot::RwLock;

use super::{Bound, Remote};
use crate::ni::Rank;

/// Memory that one rank has published to this rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) bound: Bound,
    /// Whether the system lets this process copy directly to and from the memory.
    pub(super) at_once: bool,
}

/// All memory published to this rank. Each entry takes 40 bytes.
#[derive(Debug, Default)]
pub(super) struct BoundMemory {
    pub(super) known: RwLock<HashMap<Rank, Vec<Known>>>,
}

pub(super) fn match_bits(index: u16) -> u64 {
    u64::from(select::BOUND) | u64::from(index) << select::BOUND_SHIFT
}

impl BoundMemory {
    pub(super) fn find(&self, rank: Rank, which: impl Fn(&Bound) -> bool) -> Option<Known> {
        let known = self.known.read();
        let found = known.get(&rank)?.iter().find(|known| which(&known.bound));
        found.copied()
    }

    fn known(&self, remote: Remote) -> Option<Known> {
        let index = (remote.match_bits >> select::BOUND_SHIFT) as u16;
        self.find(remote.target, |bound| bound.index == index)
    }

    /// Returns the address at which the memory starts in its owner's process.
    pub(super) fn start(&self, remote: Remote) -> u64 {
        self.known(remote).map_or(0, |known| known.bound.address)
    }

    /// Returns the address of a location in bound memory in its owner's process. Returns `None` if
    /// this process can't copy to and from it directly.
    pub(super) fn address_at_once(&self, remote: Remote) -> Option<usize> {
        let known = self.known(remote)?;
        let address = known.bound.address as usize;
        known.at_once.then(|| address.wrapping_add(remote.offset))
    }
}
