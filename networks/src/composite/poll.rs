//! Polls both networks and delivers their events with the ranks of the job and the owner's tags.

use conduit_core::ni::{EqId, Event, Ni, PutEvent, Rank, Ready, Sink};
use conduit_core::threads::{Lock, Mode};

use super::{Composite, MultiHost, Side};

/// The maximum number of events taken from the internal queue in one call.
const INTERNAL_LIMIT: u32 = 64;

/// A sink that translates the events of one network and passes them on.
struct Forward<'a, S, Intra: Ni, Inter: Ni, M: Mode> {
    sink: &'a mut S,
    intra: &'a Intra,
    multi_host: &'a MultiHost<Inter, M>,
    side: Side,
    /// The number of events passed on to `sink`. Not all events are passed on.
    delivered: u32,
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
                Some(delivered) => delivered,
                None => return,
            },
            Event::Free { tag } => match self.multi_host.freed(self.side, tag) {
                Some(delivered) => delivered,
                None => return,
            },
            Event::Send { .. } | Event::Ack { .. } | Event::Reply { .. } => event,
        };
        self.delivered += 1;
        self.sink.event(event);
    }

    #[inline]
    fn is_ready(&self) -> bool {
        self.sink.is_ready()
    }

    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        self.delivered += 1;
        self.sink.put(PutEvent {
            tag: self.multi_host.entries.tag(put.tag),
            source: self.source(put.source),
            ..put
        });
    }
}

/// Returns the networks to poll now, in this order, and the network whose turn is next. If only the
/// intra-host network reports something ready, only that network is polled, even if its poll turns
/// out empty, because polling the inter-host network may be a system call. If the intra-host
/// network reports nothing ready, it is not polled, because its poll would delay what has arrived
/// on the inter-host network.
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

/// A sink that discards all events.
struct Discard;

impl Sink for Discard {
    fn event(&mut self, _event: Event<'_>) {}
}

impl<Intra: Ni, Inter: Ni, M: Mode> Composite<Intra, Inter, M> {
    /// Polls both networks, which take turns to go first.
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
        // As in the networks themselves, the lock is held while events are delivered, so a nested
        // call from a sink returns 0.
        let Some(mut turn) = queue.turn.try_lock() else {
            return 0;
        };
        let mut delivered = 0;
        while multi_host.entries.any_pending()
            && delivered < limit
            && let Some(event) = multi_host.settle(&self.intra, eq.0)
        {
            sink.event(event);
            delivered += 1;
        }
        let intra_has_some = self.intra.ready().intersects(Ready::queue(eq));
        let inter_has_some = multi_host
            .throttle
            .inter()
            .intersects(Ready::queue(queue.inter));
        let (order, next) = order(*turn, intra_has_some, inter_has_some);
        *turn = next;
        for side in order.into_iter().flatten() {
            if delivered >= limit || !sink.is_ready() {
                break;
            }
            let mut forward = Forward {
                sink: &mut *sink,
                intra: &self.intra,
                multi_host,
                side,
                delivered: 0,
            };
            match side {
                Side::IntraHost => self.intra.poll_into(eq, limit - delivered, &mut forward),
                Side::InterHost => {
                    multi_host
                        .inter
                        .poll_into(queue.inter, limit - delivered, &mut forward)
                }
            };
            delivered += forward.delivered;
            if side == Side::InterHost && delivered < limit {
                multi_host.throttle.note_empty(queue.inter);
            }
        }
        delivered
    }

    #[cold]
    pub(super) fn progress_both(&self, multi_host: &MultiHost<Inter, M>) {
        self.intra.progress();
        multi_host.inter.progress();
        // A caller that polls after this must find what has arrived, even in a handler, during
        // which the intra-host network keeps reporting the message that is being handled.
        multi_host.throttle.note_inter(multi_host.inter.ready());
        if let Some(internal) = multi_host.queues.internal() {
            self.poll_both(multi_host, internal, INTERNAL_LIMIT, &mut Discard);
        }
    }

    /// Returns whether a poll would find something, as far as the networks know.
    pub(super) fn is_anything_ready(&self, multi_host: &MultiHost<Inter, M>) -> bool {
        multi_host.ready(self.intra.ready()) != Ready::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In each round trip, a shared-memory ring is polled once more after its message has been
    /// taken. That poll must not cost a system call.
    #[test]
    fn the_inter_host_network_is_not_polled_where_only_the_other_is_ready() {
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

    /// A caller that polls without checking readiness must find what has arrived.
    #[test]
    fn the_inter_host_network_is_polled_where_the_other_has_nothing() {
        for (turn, known) in [Side::IntraHost, Side::InterHost]
            .map(|turn| [(turn, false), (turn, true)])
            .concat()
        {
            assert_eq!(order(turn, false, known).0, [Some(Side::InterHost), None]);
        }
    }
}
