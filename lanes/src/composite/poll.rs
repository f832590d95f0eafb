//! Polling both networks: their events by the job's ranks and the owner's names.

use conduit_core::ni::{EqId, Event, Ni, PutEvent, Rank, Ready, Sink};
use conduit_core::threads::{Lock, Mode};

use super::{Composite, MultiHost, Side};

/// Events of the queue of indices without one that are taken at once.
const INTERNAL_LIMIT: u32 = 64;

/// Hands one network's events on.
struct Forward<'a, S, Intra: Ni, Inter: Ni, M: Mode> {
    sink: &'a mut S,
    intra: &'a Intra,
    multi_host: &'a MultiHost<Inter, M>,
    side: Side,
    /// Events handed on: some are not told.
    told: u32,
}

impl<S, Intra: Ni, Inter: Ni, M: Mode> Forward<'_, S, Intra, Inter, M> {
    #[inline(always)]
    fn source(&self, source: Rank) -> Rank {
        match self.side {
            Side::IntraHost => self.multi_host.rank_of(source),
            Side::InterHost => source,
        }
    }
}

impl<S: Sink, Intra: Ni, Inter: Ni, M: Mode> Sink for Forward<'_, S, Intra, Inter, M> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        let tag = |inner| self.multi_host.entries.tag(inner);
        let event = match event {
            Event::Put(put) => return self.put(put),
            Event::Get {
                tag: inner,
                source,
                match_bits,
                offset,
                length,
            } => Event::Get {
                tag: tag(inner),
                source: self.source(source),
                match_bits,
                offset,
                length,
            },
            Event::Atomic {
                tag: inner,
                source,
                match_bits,
                offset,
            } => Event::Atomic {
                tag: tag(inner),
                source: self.source(source),
                match_bits,
                offset,
            },
            Event::Unlinked { tag } => match self.multi_host.unlinked(self.intra, self.side, tag) {
                Some(told) => told,
                None => return,
            },
            Event::Free { tag } => match self.multi_host.freed(self.side, tag) {
                Some(told) => told,
                None => return,
            },
            Event::Send { .. } | Event::Ack { .. } | Event::Reply { .. } => event,
        };
        self.told += 1;
        self.sink.event(event);
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.sink.is_ready()
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        self.told += 1;
        self.sink.put(PutEvent {
            tag: self.multi_host.entries.tag(put.tag),
            source: self.source(put.source),
            ..put
        });
    }
}

/// The networks that a poll looks at, one behind the other, and which of two is first the next time. A quick look at the intra-host one is
/// worth it, as a poll of it is the latency of what has come by the other. What the inter-host one has is known, and a poll of it may be a
/// system call: while the intra-host one says that it has something nothing else is looked for, also where it turns out to be nothing.
fn order(turn: Side, intra_has_some: bool, inter_has_some: bool) -> ([Option<Side>; 2], Side) {
    match (intra_has_some, inter_has_some, turn) {
        (true, false, _) => ([Some(Side::IntraHost), None], Side::InterHost),
        (false, _, _) => ([Some(Side::InterHost), None], Side::IntraHost),
        (true, true, Side::IntraHost) => (
            [Some(Side::IntraHost), Some(Side::InterHost)],
            Side::InterHost,
        ),
        (true, true, Side::InterHost) => (
            [Some(Side::InterHost), Some(Side::IntraHost)],
            Side::IntraHost,
        ),
    }
}

/// Takes everything and tells nobody.
struct Discard;

impl Sink for Discard {
    fn event(&mut self, _event: Event<'_>) {}
}

impl<Intra: Ni, Inter: Ni, M: Mode> Composite<Intra, Inter, M> {
    /// A poll of both networks, in turn first.
    #[inline(never)]
    pub(super) fn poll_both<S: Sink>(
        &self,
        multi_host: &MultiHost<Inter, M>,
        eq: EqId,
        limit: u32,
        sink: &mut S,
    ) -> u32 {
        let Some(queue) = multi_host.queues.get(eq) else {
            return 0;
        };
        // Held while events are delivered, as the networks hold theirs: a call from within a sink finds nothing.
        let Some(mut turn) = queue.turn.try_lock() else {
            return 0;
        };
        let mut told = 0;
        while multi_host.entries.any_pending()
            && told < limit
            && let Some(event) = multi_host.settle(&self.intra, eq.0)
        {
            sink.event(event);
            told += 1;
        }
        let intra_has_some = self.intra.ready().intersects(Ready::queue(eq));
        let inter_has_some = multi_host
            .throttle
            .inter()
            .intersects(Ready::queue(queue.inter));
        let (order, next) = order(*turn, intra_has_some, inter_has_some);
        *turn = next;
        for side in order.into_iter().flatten() {
            if told >= limit || !sink.is_ready() {
                break;
            }
            let mut forward = Forward {
                sink: &mut *sink,
                intra: &self.intra,
                multi_host,
                side,
                told: 0,
            };
            match side {
                Side::IntraHost => self.intra.poll_into(eq, limit - told, &mut forward),
                Side::InterHost => {
                    multi_host
                        .inter
                        .poll_into(queue.inter, limit - told, &mut forward)
                }
            };
            told += forward.told;
            if side == Side::InterHost && told < limit {
                multi_host.throttle.note_empty(queue.inter);
            }
        }
        told
    }

    #[cold]
    pub(super) fn progress_both(&self, multi_host: &MultiHost<Inter, M>) {
        self.intra.progress();
        multi_host.inter.progress();
        if let Some(internal) = multi_host.queues.internal() {
            self.poll_both(multi_host, internal, INTERNAL_LIMIT, &mut Discard);
        }
    }

    /// Whether a poll would find something, as far as the networks tell.
    pub(super) fn is_anything_ready(&self, multi_host: &MultiHost<Inter, M>) -> bool {
        multi_host.ready(self.intra.ready()) != Ready::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of shared memory is polled once more after what was taken from it, in each round trip.
    #[test]
    fn the_far_network_is_not_polled_where_the_near_one_asks_for_a_poll() {
        for turn in [Side::IntraHost, Side::InterHost] {
            assert_eq!(order(turn, true, false).0, [Some(Side::IntraHost), None]);
        }
    }

    #[test]
    fn what_both_have_is_taken_in_turn() {
        let (first, turn) = order(Side::IntraHost, true, true);
        assert_eq!(first, [Some(Side::IntraHost), Some(Side::InterHost)]);
        let (second, turn) = order(turn, true, true);
        assert_eq!(second, [Some(Side::InterHost), Some(Side::IntraHost)]);
        assert_eq!(turn, Side::IntraHost);
    }

    /// Who polls without a look before finds what has come.
    #[test]
    fn the_far_network_is_polled_where_the_near_one_has_nothing() {
        for (turn, known) in [Side::IntraHost, Side::InterHost]
            .map(|turn| [(turn, false), (turn, true)])
            .concat()
        {
            assert_eq!(order(turn, false, known).0, [Some(Side::InterHost), None]);
        }
    }
}
