//! The state that all peers of a rank share, which consists of the credits in the bank, the epoch,
//! and the number of peers being asked for credits.

#[cfg(all(test, loom))]
mod loom;

use std::fmt::Debug;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

// Under the model checker, loom's atomic types replace those of the standard library.
#[cfg(loom)]
use ::loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use Ordering::Relaxed;

/// A rank's bank and its epoch.
///
/// This is a trait because the state machine is the same whether one thread owns all of it or
/// several threads each lock a [part](crate::Part) of the peers and share the bank.
pub trait Bank: Debug + Sized {
    /// The maximum number of parts that can share a bank.
    const MOST_PARTS: u32;

    /// Opens a bank with `credits` credits. Returns one handle for each of `parts` parts.
    ///
    /// # Panics
    /// Panics if `parts` is 0 or exceeds [`MOST_PARTS`](Self::MOST_PARTS).
    fn open(credits: u32, parts: u32) -> Vec<Self>;

    /// Returns the number of credits in the bank.
    fn credits(&self) -> u32;

    /// Takes out up to `most` credits. Returns how many were taken out.
    fn withdraw(&mut self, most: u32) -> u32;

    /// Puts credits into the bank.
    fn deposit(&mut self, credits: u32);

    /// Returns the number of epochs ended so far. The number wraps around.
    fn epoch(&self) -> u32;

    /// Returns the number of requests received since the start. `length` is the number of requests
    /// per epoch.
    fn received(&self, length: u32) -> u64;

    /// Counts `requests` received requests. `length` is the number of requests per epoch.
    fn note_requests(&mut self, requests: u32, length: u32);

    /// Counts requests like [`note_requests`](Self::note_requests), but may refuse if they would
    /// end an epoch. Returns `false` if the requests were not counted.
    #[inline]
    fn note_within_epoch(&mut self, requests: u32, length: u32) -> bool {
        self.note_requests(requests, length);
        true
    }

    /// Notes that the bank is low, so that up to `peers` peers should be asked for credits at a
    /// time. `empty` says whether the bank had nothing to give.
    fn want(&mut self, peers: u32, empty: bool);

    /// Returns whether the bank had nothing to give in at least one of the calls of
    /// [`want`](Self::want) that are still being acted on.
    fn was_empty(&self) -> bool;

    /// Returns whether another peer should be asked now. `length` is the number of requests per
    /// epoch.
    fn is_wanting(&self, length: u32) -> bool;

    /// Begins to ask one more peer, which may be followed by the next one after `apart` more
    /// requests. Returns `false` if no peer should be asked now. `length` is the number of requests
    /// per epoch.
    fn begin_revoke(&mut self, apart: u32, length: u32) -> bool;

    /// Notes that a peer has answered.
    fn end_revoke(&mut self);

    /// Returns the number of peers that have been asked and have not answered.
    fn revokes(&self) -> u32;
}

/// The counts of the peers that are to be asked for credits or have been asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Asking {
    /// The number of peers still to ask, which is at most [`Self::MOST`].
    wanted: u16,
    /// The result of [`Bank::was_empty`].
    empty: bool,
    /// The number of peers that were asked and have not answered.
    under_way: u16,
    /// The count of received requests from which on the next peer may be asked. Only its low bits
    /// are stored.
    next: u32,
}

impl Asking {
    /// The maximum value of `wanted`, which has one bit less than its field.
    const MOST: u16 = u16::MAX >> 1;

    fn want(&mut self, peers: u32, empty: bool) {
        let peers = u16::try_from(peers).unwrap_or(Self::MOST).min(Self::MOST);
        self.empty = empty || self.empty && self.wanted > 0;
        self.wanted = peers.saturating_sub(self.under_way);
    }

    /// Returns how many more requests must arrive before the next peer may be asked. `received`
    /// contains the low bits of the count of received requests.
    const fn to_wait(self, received: u32) -> u32 {
        match self.next.wrapping_sub(received) {
            wait if wait <= i32::MAX as u32 => wait,
            _past => 0,
        }
    }

    const fn is_due(self, received: u32) -> bool {
        self.wanted > 0 && self.to_wait(received) == 0
    }

    fn begin(&mut self, received: u32, apart: u32) -> bool {
        if !self.is_due(received) {
            return false;
        }
        self.wanted -= 1;
        if apart > 0 {
            self.next = received.wrapping_add(apart);
        }
        self.under_way += 1;
        true
    }

    fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Moves `next` forward if it lies in the past. Otherwise, a `next` far in the past would be
    /// mistaken for one in the future.
    fn end_epoch(&mut self, received: u32) {
        self.next = received.wrapping_add(self.to_wait(received));
    }

    /// Packs the fields into a single word, so that they can change atomically.
    const fn pack(self) -> u64 {
        let wanted = (self.empty as u64) << 15 | self.wanted as u64;
        (self.next as u64) << 32 | (self.under_way as u64) << 16 | wanted
    }

    /// Unpacks a word.
    const fn unpack(word: u64) -> Asking {
        Asking {
            wanted: word as u16 & Self::MOST,
            empty: word & (1 << 15) != 0,
            under_way: (word >> 16) as u16,
            next: (word >> 32) as u32,
        }
    }
}

/// The bank of a state machine that does not share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnBank {
    credits: u32,
    epoch: u32,
    received: u32,
    asking: Asking,
}

impl Bank for OwnBank {
    const MOST_PARTS: u32 = 1;

    fn open(credits: u32, parts: u32) -> Vec<Self> {
        assert_eq!(parts, 1, "the bank is not shared");
        vec![OwnBank {
            credits,
            ..OwnBank::default()
        }]
    }

    #[inline]
    fn credits(&self) -> u32 {
        self.credits
    }

    #[inline]
    fn withdraw(&mut self, most: u32) -> u32 {
        let taken = most.min(self.credits);
        self.credits -= taken;
        taken
    }

    #[inline]
    fn deposit(&mut self, credits: u32) {
        self.credits += credits;
    }

    #[inline]
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn received(&self, length: u32) -> u64 {
        u64::from(self.epoch) * u64::from(length) + u64::from(self.received)
    }

    #[inline]
    fn note_within_epoch(&mut self, requests: u32, length: u32) -> bool {
        let received = self.received + requests;
        let is_within = received < length;
        if is_within {
            self.received = received;
        }
        is_within
    }

    #[inline]
    fn note_requests(&mut self, requests: u32, length: u32) {
        self.received += requests;
        while self.received >= length {
            self.received -= length;
            self.epoch = self.epoch.wrapping_add(1);
            self.asking.end_epoch(self.epoch.wrapping_mul(length));
        }
    }

    #[inline]
    fn want(&mut self, peers: u32, empty: bool) {
        self.asking.want(peers, empty);
    }

    #[inline]
    fn was_empty(&self) -> bool {
        self.asking.empty
    }

    #[inline]
    fn is_wanting(&self, length: u32) -> bool {
        // The count is truncated to its low bits.
        self.asking.is_due(self.received(length) as u32)
    }

    fn begin_revoke(&mut self, apart: u32, length: u32) -> bool {
        // The count is truncated to its low bits.
        let received = self.received(length) as u32;
        self.asking.begin(received, apart)
    }

    #[inline]
    fn end_revoke(&mut self) {
        self.asking.end();
    }

    fn revokes(&self) -> u32 {
        self.asking.under_way.into()
    }
}

/// A bank shared by several parts, each under its own lock.
///
/// No part waits for another, because every method consists of a few atomic operations. Each word
/// is consistent by itself, and nothing depends on the order in which changes of different words
/// become visible, so relaxed operations are enough. A part may notice late that an epoch has
/// ended. In that case, the state of its peers decays a little later.
#[derive(Debug, Default)]
pub struct SharedBank {
    credits: AtomicU32,
    epoch: AtomicU32,
    received: AtomicU64,
    /// A packed [`Asking`].
    asking: AtomicU64,
}

impl SharedBank {
    fn asking(&self) -> Asking {
        Asking::unpack(self.asking.load(Relaxed))
    }

    /// Changes the packed state atomically.
    fn change<T>(&self, mut change: impl FnMut(&mut Asking) -> T) -> T {
        let mut before = self.asking.load(Relaxed);
        loop {
            let mut asking = Asking::unpack(before);
            let result = change(&mut asking);
            match self
                .asking
                .compare_exchange_weak(before, asking.pack(), Relaxed, Relaxed)
            {
                Ok(_) => return result,
                Err(now) => before = now,
            }
        }
    }
}

impl Bank for Arc<SharedBank> {
    const MOST_PARTS: u32 = 64;

    fn open(credits: u32, parts: u32) -> Vec<Self> {
        assert!(
            (1..=Self::MOST_PARTS).contains(&parts),
            "{parts} parts share a bank"
        );
        let bank = Arc::new(SharedBank {
            credits: credits.into(),
            ..SharedBank::default()
        });
        vec![bank; parts as usize]
    }

    #[inline]
    fn credits(&self) -> u32 {
        self.credits.load(Relaxed)
    }

    #[inline]
    fn withdraw(&mut self, most: u32) -> u32 {
        let before = self.credits.fetch_update(Relaxed, Relaxed, |credits| {
            Some(credits - most.min(credits))
        });
        before.map_or(0, |before| most.min(before))
    }

    #[inline]
    fn deposit(&mut self, credits: u32) {
        self.credits.fetch_add(credits, Relaxed);
    }

    #[inline]
    fn epoch(&self) -> u32 {
        self.epoch.load(Relaxed)
    }

    fn received(&self, _length: u32) -> u64 {
        self.received.load(Relaxed)
    }

    #[inline]
    fn note_requests(&mut self, requests: u32, length: u32) {
        let requests = u64::from(requests);
        let before = self.received.fetch_add(requests, Relaxed);
        let (left, length) = (before % u64::from(length), u64::from(length));
        if left + requests >= length {
            // The cast is lossless, because at most `requests` epochs end, and `requests` was a
            // `u32`.
            let epochs = ((left + requests) / length) as u32;
            let ended = (before + requests) / length * length;
            self.change(|asking| asking.end_epoch(ended as u32));
            self.epoch.fetch_add(epochs, Relaxed);
        }
    }

    fn want(&mut self, peers: u32, empty: bool) {
        self.change(|asking| asking.want(peers, empty));
    }

    fn was_empty(&self) -> bool {
        self.asking().empty
    }

    #[inline]
    fn is_wanting(&self, _length: u32) -> bool {
        // The count is truncated to its low bits.
        self.asking().is_due(self.received.load(Relaxed) as u32)
    }

    fn begin_revoke(&mut self, apart: u32, _length: u32) -> bool {
        // The count is truncated to its low bits.
        let received = self.received.load(Relaxed) as u32;
        self.change(|asking| asking.begin(received, apart))
    }

    fn end_revoke(&mut self) {
        self.change(Asking::end);
    }

    fn revokes(&self) -> u32 {
        self.asking().under_way.into()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Withdraw(u32),
        Deposit(u32),
        Requests(u32),
        Want(u32, bool),
        Begin,
        End,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u32..50).prop_map(Step::Withdraw),
            (0u32..50).prop_map(Step::Deposit),
            (1u32..20).prop_map(Step::Requests),
            (0u32..5, any::<bool>()).prop_map(|(peers, empty)| Step::Want(peers, empty)),
            Just(Step::Begin),
            Just(Step::End),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn a_shared_bank_does_what_an_own_one_does(credits in 0u32..100, length in 1u32..9, apart in 0u32..9, steps in steps()) {
            let mut own = OwnBank::open(credits, 1).remove(0);
            let mut shared = <Arc<SharedBank>>::open(credits, 2);
            for (at, step) in steps.into_iter().enumerate() {
                let part = &mut shared[at % 2];
                match step {
                    Step::Withdraw(most) => prop_assert_eq!(own.withdraw(most), part.withdraw(most)),
                    Step::Deposit(credits) => {
                        own.deposit(credits);
                        part.deposit(credits);
                    }
                    Step::Requests(requests) => {
                        // Every third step tries `note_within_epoch` first, so that both methods of
                        // counting are tested.
                        if at % 3 > 0 || !own.note_within_epoch(requests, length) {
                            own.note_requests(requests, length);
                        }
                        if at % 3 > 0 || !part.note_within_epoch(requests, length) {
                            part.note_requests(requests, length);
                        }
                    }
                    Step::Want(peers, empty) => {
                        own.want(peers, empty);
                        part.want(peers, empty);
                    }
                    Step::Begin => prop_assert_eq!(own.begin_revoke(apart, length), part.begin_revoke(apart, length)),
                    Step::End => {
                        own.end_revoke();
                        part.end_revoke();
                    }
                }
                let other = &shared[(at + 1) % 2];
                prop_assert_eq!(own.credits(), other.credits());
                prop_assert_eq!(own.received(length), other.received(length));
                prop_assert_eq!(own.epoch(), other.epoch());
                prop_assert_eq!(own.is_wanting(length), other.is_wanting(length));
                prop_assert_eq!(own.was_empty(), other.was_empty());
            }
        }
    }

    #[test]
    fn threads_neither_make_nor_lose_credits() {
        let bank = <Arc<SharedBank>>::open(1000, 4);
        let held: u32 = std::thread::scope(|scope| {
            let threads: Vec<_> = bank
                .iter()
                .cloned()
                .map(|mut part| {
                    scope.spawn(move || {
                        let mut held = 0;
                        for round in 0..10_000 {
                            held += part.withdraw(round % 7);
                            let back = held.min(round % 5);
                            held -= back;
                            part.deposit(back);
                            part.note_requests(1, 100);
                        }
                        held
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(held + bank[0].credits(), 1000);
        assert_eq!(bank[0].epoch(), 400);
    }
}
