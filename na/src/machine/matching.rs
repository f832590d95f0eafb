//! Messages and receives that wait for each other.

use std::collections::{BTreeMap, VecDeque};

use conduit_core::ni::Rank;

use super::operation::{Match, OperationId};

/// An unexpected message that came before a receive.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) peer: Rank,
    /// The peer's session that it came in.
    pub(crate) session: u32,
    pub(crate) tag: u32,
    pub(crate) bytes: Box<[u8]>,
}

/// The unexpected messages of a context.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    pub(crate) receives: VecDeque<OperationId>,
    /// Bounded by the windows of the peers.
    pub(crate) early: VecDeque<Early>,
}

/// Bytes that an early expected message takes besides its own.
const OVERHEAD: usize = 128;

/// The expected messages of a process. Those that come before their receive are kept within a
/// number of bytes; beyond that the oldest are dropped, since a message may also come after its
/// receive was canceled, and is never received then.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Receives and early messages have their [keys](key).
    receives: BTreeMap<u128, OperationId>,
    early: BTreeMap<u128, Box<[u8]>>,
    /// The keys of early messages, by number.
    order: BTreeMap<u64, u128>,
    next: u64,
    bytes: usize,
    pub(crate) dropped: u64,
}

/// Bits of a number: nine years of a million messages a second.
const NUMBER: u32 = 48;
const LAST: u64 = (1 << NUMBER) - 1;

/// What has one match is in the order of its numbers.
fn key(of: Match, number: u64) -> u128 {
    let of = u128::from(of.peer) << 48
        | u128::from(of.from) << 40
        | u128::from(of.context) << 32
        | u128::from(of.tag);
    of << NUMBER | u128::from(number)
}

impl Expected {
    fn number(&mut self) -> u64 {
        self.next = (self.next + 1) & LAST;
        self.next
    }

    pub(crate) fn post(&mut self, of: Match, id: OperationId) {
        let number = self.number();
        self.receives.insert(key(of, number), id);
    }

    /// The receive for a message.
    pub(crate) fn take_receive(&mut self, of: Match) -> Option<OperationId> {
        let key = first(&self.receives, of)?;
        self.receives.remove(&key)
    }

    pub(crate) fn cancel(&mut self, of: Match, id: OperationId) {
        let all = self.receives.range(key(of, 0)..=key(of, LAST));
        let found = all.into_iter().find(|(_, other)| **other == id);
        if let Some(key) = found.map(|(key, _)| *key) {
            self.receives.remove(&key);
        }
    }

    /// The message for a receive.
    pub(crate) fn take_early(&mut self, of: Match) -> Option<Box<[u8]>> {
        let key = first(&self.early, of)?;
        self.remove(key)
    }

    fn remove(&mut self, key: u128) -> Option<Box<[u8]>> {
        let bytes = self.early.remove(&key)?;
        // The lower bits.
        self.order.remove(&(key as u64 & LAST));
        self.bytes -= bytes.len() + OVERHEAD;
        Some(bytes)
    }

    pub(crate) fn keep(&mut self, of: Match, bytes: &[u8], limit: usize) {
        let number = self.number();
        self.bytes += bytes.len() + OVERHEAD;
        self.early.insert(key(of, number), bytes.into());
        self.order.insert(number, key(of, number));
        while self.bytes > limit
            && let Some((_, &key)) = self.order.first_key_value()
        {
            self.remove(key);
            self.dropped += 1;
        }
    }

    /// Drops what came from a peer.
    pub(crate) fn forget(&mut self, peer: Rank) {
        let of = |context, tag| Match {
            peer,
            from: context,
            context,
            tag,
        };
        let (first, last) = (of(0, 0), of(u8::MAX, u32::MAX));
        let from = self.early.range(key(first, 0)..=key(last, LAST));
        for key in from.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }
}

fn first<T>(all: &BTreeMap<u128, T>, of: Match) -> Option<u128> {
    // One bound is found in half of the time of two.
    let (&first, _) = all.range(key(of, 0)..).next()?;
    (first <= key(of, LAST)).then_some(first)
}
