//! The matching of messages with receives.

use std::collections::{BTreeMap, HashMap, VecDeque};

use conduit_core::ni::Rank;

use super::operation::{Match, OperationId};

/// An unexpected message that arrived before a receive for it.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) peer: Rank,
    /// The number of the peer's session in which the message arrived.
    pub(crate) session: u32,
    pub(crate) tag: u32,
    pub(crate) bytes: Box<[u8]>,
}

/// The unexpected messages of a context.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    pub(crate) receives: VecDeque<OperationId>,
    /// Messages without a receive. The window granted to each peer bounds their number.
    pub(crate) early: VecDeque<Early>,
}

/// The number of bytes for which each early expected message counts in addition to its content.
const OVERHEAD: usize = 128;

/// The expected messages of a process. Early messages are kept up to a number of bytes. Beyond this
/// number, the oldest messages of a peer that exceeds its share are dropped. Some early messages
/// would never be received, because a message may arrive after its receive was canceled.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// The posted receives, by their [keys](key).
    receives: BTreeMap<u128, OperationId>,
    /// The early messages, by their [keys](key).
    early: BTreeMap<u128, Box<[u8]>>,
    /// The peers with early messages.
    peers: HashMap<Rank, Kept>,
    /// The number that was given last to a receive or message.
    next: u64,
    bytes: usize,
    /// The number of early messages that were dropped so far.
    pub(crate) dropped: u64,
}

/// The early messages of a peer.
#[derive(Debug, Default)]
struct Kept {
    /// The keys of the messages, by the messages' numbers.
    order: BTreeMap<u64, u128>,
    bytes: usize,
}

/// The number of bits of a receive's or message's number. They suffice for almost nine years with a
/// million messages per second.
const NUMBER: u32 = 48;
const LAST: u64 = (1 << NUMBER) - 1;

/// Returns the sort key of a receive or message. Receives or messages with the same match are
/// ordered by their numbers.
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

    /// Removes and returns the first receive for a message.
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

    /// Removes and returns the first message for a receive.
    pub(crate) fn take_early(&mut self, of: Match) -> Option<Box<[u8]>> {
        let key = first(&self.early, of)?;
        self.remove(of.peer, key)
    }

    fn remove(&mut self, peer: Rank, key: u128) -> Option<Box<[u8]>> {
        let bytes = self.early.remove(&key)?;
        let taken = bytes.len() + OVERHEAD;
        self.bytes -= taken;
        if let Some(kept) = self.peers.get_mut(&peer) {
            // The key's lower bits are the number.
            kept.order.remove(&(key as u64 & LAST));
            kept.bytes -= taken;
            if kept.order.is_empty() {
                self.peers.remove(&peer);
            }
        }
        Some(bytes)
    }

    pub(crate) fn keep(&mut self, of: Match, bytes: &[u8], limit: usize) {
        let number = self.number();
        let taken = bytes.len() + OVERHEAD;
        self.bytes += taken;
        self.early.insert(key(of, number), bytes.into());
        let kept = self.peers.entry(of.peer).or_default();
        kept.bytes += taken;
        kept.order.insert(number, key(of, number));
        while self.bytes > limit
            && let Some((peer, key)) = self.excess(of.peer, limit)
        {
            self.remove(peer, key);
            self.dropped += 1;
        }
    }

    /// Returns the oldest message of a peer that exceeds its share. The peer is `sender`, which has
    /// sent the last message, if `sender` exceeds its share. Otherwise it is the peer with the most
    /// bytes.
    fn excess(&self, sender: Rank, limit: usize) -> Option<(Rank, u128)> {
        let share = limit / self.peers.len().max(1);
        let is_greedy = |peer: &Rank| self.peers.get(peer).is_some_and(|kept| kept.bytes > share);
        let peer = Some(sender).filter(is_greedy).or_else(|| {
            let most = self.peers.iter().max_by_key(|(_, kept)| kept.bytes);
            most.map(|(peer, _)| *peer)
        })?;
        let (_, key) = self.peers.get(&peer)?.order.first_key_value()?;
        Some((peer, *key))
    }

    /// Drops the early messages of a peer.
    pub(crate) fn forget(&mut self, peer: Rank) {
        let kept = self.peers.get(&peer);
        let keys: Vec<u128> =
            kept.map_or(Vec::new(), |kept| kept.order.values().copied().collect());
        for key in keys {
            self.remove(peer, key);
        }
    }
}

fn first<T>(all: &BTreeMap<u128, T>, of: Match) -> Option<u128> {
    // The search has only a lower bound, because a search with two bounds takes twice the time.
    let (&first, _) = all.range(key(of, 0)..).next()?;
    (first <= key(of, LAST)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(peer: Rank, tag: u32) -> Match {
        Match {
            peer,
            from: 0,
            context: 0,
            tag,
        }
    }

    #[test]
    fn a_peer_that_floods_drops_its_own_messages() {
        let message = [7; 1000];
        let each = message.len() + OVERHEAD;
        let limit = 20 * each;
        let mut expected = Expected::default();
        for peer in 1..4 {
            expected.keep(of(peer, 0), &message, limit);
        }
        for tag in 0..100 {
            expected.keep(of(0, tag), &message, limit);
        }
        assert_eq!(expected.dropped, 83);
        for peer in 1..4 {
            assert!(expected.take_early(of(peer, 0)).is_some(), "{peer}");
        }
        // The oldest messages were dropped, and the last ones were kept in order.
        assert!(expected.take_early(of(0, 82)).is_none());
        assert!(expected.take_early(of(0, 83)).is_some());
        expected.forget(0);
        assert!(expected.early.is_empty() && expected.peers.is_empty());
        assert_eq!(expected.bytes, 0);
    }

    #[test]
    fn a_newcomer_takes_room_from_the_greediest() {
        let message = [7; 1000];
        let limit = 10 * (message.len() + OVERHEAD);
        let mut expected = Expected::default();
        for (peer, tag) in (0..10).map(|tag| (tag % 3 / 2, tag)) {
            expected.keep(of(peer, tag), &message, limit);
        }
        expected.keep(of(2, 50), &message, limit);
        assert!(
            expected.take_early(of(0, 0)).is_none(),
            "the oldest of peer 0"
        );
        assert!(expected.take_early(of(1, 2)).is_some());
        assert!(expected.take_early(of(2, 50)).is_some());
    }
}
