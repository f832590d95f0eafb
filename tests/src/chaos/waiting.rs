//! Events that the inner network has delivered and [`Chaos`](super::Chaos) has not yet passed on.

use conduit_core::ni::{EqId, Event};

use super::State;
use crate::held::Held;

/// The maximum number of events kept per queue. Once it is reached, the inner network keeps further
/// events and holds their senders back.
const KEPT: usize = 64;

/// A queue's withheld events, in the order in which the inner network delivered them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    events: Vec<Withheld>,
    polling: bool,
}

#[derive(Debug)]
struct Withheld {
    held: Held,
    /// The number of further polls for which the event is withheld.
    polls: u32,
}

impl Waiting {
    /// Starts a poll and returns how many events may be fetched. Returns `None` if the caller is a
    /// sink of this queue.
    pub(super) fn begin(&mut self) -> Option<u32> {
        if std::mem::replace(&mut self.polling, true) {
            return None;
        }
        for withheld in &mut self.events {
            withheld.polls = withheld.polls.saturating_sub(1);
        }
        Some(KEPT.saturating_sub(self.events.len()) as u32)
    }

    pub(super) fn end(&mut self) {
        self.polling = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns whether an event may overtake the events before it. Every event may, except that a
    /// Free must not overtake its entry's messages.
    fn is_free_to_go(&self, at: usize) -> bool {
        let Event::Free { tag } = self.events[at].held.event() else {
            return true;
        };
        !self.events[..at].iter().any(|earlier| {
            matches!(earlier.held.event(), Event::Put(put) if put.tag == tag)
                || matches!(earlier.held.event(), Event::Unlinked { tag: t } if t == tag)
        })
    }
}

impl State {
    /// Keeps the events that a poll of the inner network returned, each for a number of polls.
    pub(super) fn keep(&mut self, eq: EqId, fresh: Vec<Held>, withhold: u32) {
        let Some(waiting) = self.queues.get_mut(&eq.0) else {
            return;
        };
        for held in fresh {
            let polls = self.random.u32(0..=withhold);
            waiting.events.push(Withheld { held, polls });
        }
    }

    /// Takes one event whose wait has ended, drawn at random.
    pub(super) fn take(&mut self, eq: EqId) -> Option<Held> {
        let waiting = self.queues.get_mut(&eq.0)?;
        let ready: Vec<_> = (0..waiting.events.len())
            .filter(|at| waiting.events[*at].polls == 0 && waiting.is_free_to_go(*at))
            .collect();
        let at = *self.random.choice(&ready)?;
        Some(waiting.events.remove(at).held)
    }
}
