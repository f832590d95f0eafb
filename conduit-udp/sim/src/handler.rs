//! The fragment handler: the layer above an endpoint.

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Failure, FragmentHandler, Nanos};
use sim::random::{Rng, chance};

use crate::memory::outside;
use crate::oracle::{Oracle, Process, violation};
use crate::scenario;

/// The number of bits of a token for the fragment's number. The bits above them hold the sender.
const NUMBER: u32 = 40;

/// The state of a fragment handler.
#[derive(Debug)]
pub(crate) struct State {
    model: scenario::FragmentHandler,
    random: Rng,
    /// The number of bytes that the handler has not yet processed.
    held: usize,
    drained: Nanos,
    /// Whether the handler refuses everything.
    pub(crate) is_closed: bool,
    /// Whether the handler has refused a fragment since this field was last checked.
    pub(crate) has_refused: bool,
    /// For each sender, whether the handler refused the last fragment at random and will accept the
    /// repetition.
    refused: Vec<bool>,
    /// The number of calls that the handler received.
    pub(crate) calls: u64,
}

impl State {
    pub(crate) fn new(model: &scenario::FragmentHandler, ranks: u32, seed: u64) -> Self {
        Self {
            model: model.clone(),
            random: Rng::with_seed(seed),
            held: 0,
            drained: 0,
            is_closed: false,
            has_refused: false,
            refused: vec![false; ranks as usize],
            calls: 0,
        }
    }

    /// Advances the time. The handler processes its bytes during that time.
    pub(crate) fn pass(&mut self, now: Nanos) {
        let time = now.saturating_sub(self.drained);
        self.drained = now;
        if self.is_closed {
            return;
        }
        let done = match self.model.speed {
            0 => self.held,
            speed => (u128::from(time) * u128::from(speed) / 1_000_000_000) as usize,
        };
        self.held = self.held.saturating_sub(done.max(1));
    }

    /// Returns whether the handler will have more room later.
    pub(crate) fn is_waiting(&self) -> bool {
        self.held > 0 || self.has_refused
    }

    fn takes(&mut self, peer: Rank, bytes: usize) -> bool {
        let has_room = self.held == 0 || self.held + bytes <= self.model.room;
        if self.is_closed || !has_room {
            self.has_refused = true;
            return false;
        }
        let refused = &mut self.refused[peer as usize];
        if !*refused && chance(&mut self.random, self.model.refuse) {
            *refused = true;
            self.has_refused = true;
            return false;
        }
        *refused = false;
        if self.model.speed > 0 {
            self.held += bytes;
        }
        true
    }
}

/// The handler of a process during a call of its endpoint.
pub(crate) struct View<'a> {
    pub(crate) process: Process,
    /// The processes that this process has as its peers.
    pub(crate) peers: &'a [Process],
    pub(crate) state: &'a mut State,
    pub(crate) oracle: &'a mut Oracle,
}

impl View<'_> {
    fn peer(&mut self, peer: Rank) -> Option<Process> {
        self.state.calls += 1;
        let process = self.peers.get(peer as usize).copied();
        if process.is_none() {
            let own = self.process;
            violation!(
                self.oracle,
                "process {own} gets a call about rank {peer}, which doesn't exist"
            );
        }
        process
    }

    fn sender(&mut self, place: u64) -> Option<(Process, u64)> {
        let (peer, number) = ((place >> NUMBER) as Rank, place & ((1 << NUMBER) - 1));
        let from = self.peer(peer)?;
        self.hears(from, "bytes of a fragment")
            .then_some((from, number))
    }

    /// Returns whether this process may receive from `from`, which it must not have given up.
    fn hears(&mut self, from: Process, what: &str) -> bool {
        let is_dead = self
            .oracle
            .look(self.process, from)
            .is_some_and(|pair| pair.failed.is_some());
        if is_dead {
            let own = self.process;
            violation!(
                self.oracle,
                "process {own} gets {what} from {from} after its failure"
            );
        }
        !is_dead
    }
}

impl FragmentHandler for View<'_> {
    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        outside(|| {
            if let Some(to) = self.peer(peer) {
                self.oracle.read(self.process, to, token, offset, into);
            }
        });
    }

    fn sent(&mut self, peer: Rank, token: u64) {
        outside(|| {
            if let Some(to) = self.peer(peer) {
                self.oracle.on_sent(self.process, to, token);
            }
        });
    }

    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        outside(|| {
            let Some(from) = self.peer(peer) else {
                return true;
            };
            if !self.hears(from, "a fragment") {
                return true;
            }
            let takes = self.state.takes(peer, header.len() + payload.len());
            if takes {
                self.oracle.fragment(from, self.process, header, payload);
            }
            takes
        })
    }

    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        outside(|| {
            let from = self.peer(peer)?;
            if !self.hears(from, "the beginning of a fragment") || !self.state.takes(peer, length) {
                return None;
            }
            let number = self.oracle.begin(from, self.process, header, length)?;
            Some(u64::from(peer) << NUMBER | number)
        })
    }

    fn place(&mut self, place: u64, offset: usize, bytes: &[u8]) {
        outside(|| {
            if let Some((from, number)) = self.sender(place) {
                self.oracle.place(from, self.process, number, offset, bytes);
            }
        });
    }

    fn end(&mut self, place: u64) {
        outside(|| {
            if let Some((from, number)) = self.sender(place) {
                self.oracle.end(from, self.process, number);
            }
        });
    }

    fn failed(&mut self, peer: Rank, failure: Failure) {
        outside(|| {
            let Some(to) = self.peer(peer) else { return };
            let (own, now) = (self.process, self.oracle.now);
            let pair = self.oracle.pair(own, to);
            if let Some((at, before)) = pair.failed {
                violation!(
                    self.oracle,
                    "process {own} gives up {to} ({failure:?}) again, after {at} ({before:?})"
                );
            } else {
                pair.failed = Some((now, failure));
                self.oracle.progress += 1;
            }
        });
    }

    fn room(&self) -> usize {
        if self.state.is_closed {
            0
        } else {
            self.state.model.room.saturating_sub(self.state.held)
        }
    }
}
