//! The state that arriving requests change: the reserve for their replies, the longs of which one
//! half has arrived, and the credits that are still to be returned to the senders.

use std::sync::atomic::Ordering::Release;

use am::lid::LidCache;

use crate::kernel::Kernel;
use crate::messages::flow::{Accounts, Returned};
use crate::messages::kind::MessageKind;
use crate::messages::payload::PendingLong;
use crate::messages::reserve::ReplyReserve;
use crate::messages::shuffle::Shuffle;
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// The factor by which a rank that waits takes more requests per poll before it polls the other
/// queues and checks its condition.
pub(crate) const WAITING: u32 = 4;

/// The state of the request queue. Only one thread at a time uses it.
#[derive(Debug)]
pub(crate) struct AmSide {
    /// The kind of the last request.
    pub(crate) last: MessageKind,
    pub(crate) reserve: ReplyReserve,
    pub(crate) inbox: Inbox,
    /// Requests that are held back (`CONDUIT_SHUFFLE`).
    pub(crate) shuffle: Option<Box<Shuffle>>,
}

/// The longs and the credits of arriving requests.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The longs of which one half is still in flight.
    pub(crate) longs: LidCache<PendingLong>,
    /// The counter of returned credits and requests for each peer.
    returned: Box<[Returned]>,
    /// Requests that need no reply message and have not been granted yet.
    pending: PendingReturns,
    /// The peers whose counters have changed but have not been written to their control regions
    /// yet.
    pub(crate) untold: Vec<Rank>,
    pub(crate) buffer_bytes: usize,
}

impl AmSide {
    /// Creates the state with an empty inbox. `longs` is the maximum number of longs of which one
    /// half may be in flight, and `buffer_bytes` is the size of a request buffer.
    pub(crate) fn new(
        size: u32,
        longs: usize,
        buffer_bytes: usize,
        am_limit: u32,
        shuffle: Option<Box<Shuffle>>,
    ) -> Self {
        let inbox = Inbox {
            longs: LidCache::new(longs),
            returned: vec![Returned::default(); size as usize].into(),
            pending: PendingReturns::default(),
            untold: Vec::with_capacity(size.min(am_limit.saturating_mul(WAITING)) as usize),
            buffer_bytes,
        };
        Self {
            reserve: ReplyReserve::new(),
            inbox,
            last: MessageKind::none(),
            shuffle,
        }
    }

    /// Returns the number of tickets and the number of chunks reserved for the next replies, and
    /// the number of longs of which one half has arrived.
    pub(crate) fn held(&self) -> (u32, u32, u32) {
        (
            self.reserve.tickets.get(),
            self.reserve.count.get(),
            self.inbox.longs.len() as u32,
        )
    }
}

impl Inbox {
    /// Coalesces implied replies. If `end_of_epoch` is true, one of them announces that this rank
    /// has ended an epoch. The counters are written at the end of the poll.
    #[inline]
    pub(crate) fn give_back(&mut self, peer: Rank, ended: Returned, end_of_epoch: bool) {
        let counter = &mut self.returned[peer as usize];
        *counter = counter.and(ended);
        if end_of_epoch {
            *counter = counter.add_epoch();
        }
        if self.untold.last() != Some(&peer) && !self.untold.contains(&peer) {
            self.untold.push(peer);
        }
    }

    /// Counts a completed request with a plain byte of `given` credits. The request is granted
    /// later, together with others from the same peer.
    #[inline(always)]
    pub(crate) fn count<N: Ni, M: Mode>(
        &mut self,
        kernel: &Kernel<N, M>,
        credits: &Accounts<M>,
        source: Rank,
        given: u8,
    ) {
        if self.pending.source != source {
            self.grant_counted(kernel, credits);
            self.pending.source = source;
        }
        self.pending.ended = self.pending.ended.add(1, given.into());
    }

    /// Grants the requests that have been counted.
    #[inline(never)]
    pub(crate) fn grant_counted<N: Ni, M: Mode>(
        &mut self,
        kernel: &Kernel<N, M>,
        credits: &Accounts<M>,
    ) {
        if !self.pending.is_empty() {
            let ended = std::mem::take(&mut self.pending.ended);
            let source = self.pending.source;
            let end_of_epoch =
                credits.grant_plain(kernel, source, ended.since(Returned::default()).requests);
            self.give_back(source, ended, end_of_epoch);
        }
    }

    /// Writes the counters of coalesced returns to the control regions of the peers.
    #[inline(always)]
    pub(crate) fn tell<N: Ni, M: Mode>(&mut self, kernel: &Kernel<N, M>) {
        while let Some(peer) = self.untold.pop() {
            if let Some(word) = kernel.control.returned_to(peer) {
                // SYNC: Release lets a peer that sees its credits returned rely on its request
                // having been handled.
                word.store(self.returned[peer as usize].bits(), Release);
                kernel.job.ni.notify(peer);
            }
        }
    }
}

/// Requests from one mapped peer whose handlers have run without a reply and which have not been
/// granted yet. All of them have plain credit bytes.
#[derive(Debug, Default)]
struct PendingReturns {
    source: Rank,
    ended: Returned,
}

impl PendingReturns {
    #[inline]
    fn is_empty(&self) -> bool {
        self.ended == Returned::default()
    }
}
