//! Polling both networks: their events by the job's ranks and the owner's names.

use conduit_core::ni::{EqId, Event, Ni, PutEvent, Rank, Ready, Sink};
use conduit_core::threads::{Lock, Mode};

use super::{Beyond, Mixed, Side};

/// Events of the queue of indices without one that are taken at once.
const QUIET_LIMIT: u32 = 64;

/// Hands one network's events on.
struct Through<'a, S, Near: Ni, Far: Ni, M: Mode> {
    sink: &'a mut S,
    near: &'a Near,
    beyond: &'a Beyond<Far, M>,
    side: Side,
    /// Events handed on: some are not told.
    told: u32,
}

impl<S, Near: Ni, Far: Ni, M: Mode> Through<'_, S, Near, Far, M> {
    #[inline(always)]
    fn source(&self, source: Rank) -> Rank {
        match self.side {
            Side::Near => self.beyond.rank_of(source),
            Side::Far => source,
        }
    }
}

impl<S: Sink, Near: Ni, Far: Ni, M: Mode> Sink for Through<'_, S, Near, Far, M> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        let tag = |inner| self.beyond.entries.tag(inner);
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
            Event::Unlinked { tag } => match self.beyond.unlinked(self.near, self.side, tag) {
                Some(told) => told,
                None => return,
            },
            Event::Free { tag } => match self.beyond.freed(self.side, tag) {
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
            tag: self.beyond.entries.tag(put.tag),
            source: self.source(put.source),
            ..put
        });
    }
}

/// The networks that a poll looks at, one behind the other, and which of two is first the next time. A quick look at the near one is
/// worth it, as a poll of it is the latency of what has come by the other. What the far one has is known, and a poll of it may be a
/// system call: while the near one says that it has something nothing else is looked for, also where it turns out to be nothing.
fn order(turn: Side, near_has_some: bool, far_has_some: bool) -> ([Option<Side>; 2], Side) {
    match (near_has_some, far_has_some, turn) {
        (true, false, _) => ([Some(Side::Near), None], Side::Far),
        (false, _, _) => ([Some(Side::Far), None], Side::Near),
        (true, true, Side::Near) => ([Some(Side::Near), Some(Side::Far)], Side::Far),
        (true, true, Side::Far) => ([Some(Side::Far), Some(Side::Near)], Side::Near),
    }
}

/// Takes everything and tells nobody.
struct Nobody;

impl Sink for Nobody {
    fn event(&mut self, _event: Event<'_>) {}
}

impl<Near: Ni, Far: Ni, M: Mode> Mixed<Near, Far, M> {
    /// A poll of both networks, in turn first.
    #[inline(never)]
    pub(super) fn poll_both<S: Sink>(
        &self,
        beyond: &Beyond<Far, M>,
        eq: EqId,
        limit: u32,
        sink: &mut S,
    ) -> u32 {
        let Some(queue) = beyond.queues.get(eq) else {
            return 0;
        };
        // Held while events are delivered, as the networks hold theirs: a call from within a sink finds nothing.
        let Some(mut turn) = queue.turn.try_lock() else {
            return 0;
        };
        let mut told = 0;
        while beyond.entries.any_pending()
            && told < limit
            && let Some(event) = beyond.settle(&self.near, eq.0)
        {
            sink.event(event);
            told += 1;
        }
        let near_has_some = self.near.ready().intersects(Ready::queue(eq));
        let far_has_some = beyond.pace.far().intersects(Ready::queue(queue.far));
        let (order, next) = order(*turn, near_has_some, far_has_some);
        *turn = next;
        for side in order.into_iter().flatten() {
            if told >= limit || !sink.is_ready() {
                break;
            }
            let mut through = Through {
                sink: &mut *sink,
                near: &self.near,
                beyond,
                side,
                told: 0,
            };
            match side {
                Side::Near => self.near.poll_into(eq, limit - told, &mut through),
                Side::Far => beyond.far.poll_into(queue.far, limit - told, &mut through),
            };
            told += through.told;
            if side == Side::Far && told < limit {
                beyond.pace.note_empty(queue.far);
            }
        }
        told
    }

    #[cold]
    pub(super) fn progress_both(&self, beyond: &Beyond<Far, M>) {
        self.near.progress();
        beyond.far.progress();
        if let Some(quiet) = beyond.queues.quiet() {
            self.poll_both(beyond, quiet, QUIET_LIMIT, &mut Nobody);
        }
    }

    /// Whether a poll would find something, as far as the networks tell.
    pub(super) fn is_anything_ready(&self, beyond: &Beyond<Far, M>) -> bool {
        beyond.ready(self.near.ready()) != Ready::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring of shared memory is polled once more after what was taken from it, in each round trip.
    #[test]
    fn the_far_network_is_not_polled_where_the_near_one_asks_for_a_poll() {
        for turn in [Side::Near, Side::Far] {
            assert_eq!(order(turn, true, false).0, [Some(Side::Near), None]);
        }
    }

    #[test]
    fn what_both_have_is_taken_in_turn() {
        let (first, turn) = order(Side::Near, true, true);
        assert_eq!(first, [Some(Side::Near), Some(Side::Far)]);
        let (second, turn) = order(turn, true, true);
        assert_eq!(second, [Some(Side::Far), Some(Side::Near)]);
        assert_eq!(turn, Side::Near);
    }

    /// Who polls without a look before finds what has come.
    #[test]
    fn the_far_network_is_polled_where_the_near_one_has_nothing() {
        for (turn, known) in [Side::Near, Side::Far]
            .map(|turn| [(turn, false), (turn, true)])
            .concat()
        {
            assert_eq!(order(turn, false, known).0, [Some(Side::Far), None]);
        }
    }
}
