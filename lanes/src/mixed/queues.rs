//! Event queues that both networks have. Their name is the near network's, so that its events need no translation.

use std::sync::OnceLock;

use conduit_core::ni::{EqId, Ni, NiError, Ready};
use conduit_core::threads::{Lock, Mode};

use super::{Beyond, Side};

/// Room for the events that entries of indices without a queue raise here: that they have left their list.
const QUIET_SLOTS: usize = 1024;

pub(super) struct Queue<M: Mode> {
    pub(super) far: EqId,
    /// Held during a poll; which network the next one begins with.
    pub(super) turn: M::Lock<Side>,
}

pub(super) struct Queues<M: Mode> {
    /// By the near network's number.
    table: Box<[OnceLock<Queue<M>>]>,
    /// The queue of indices that were opened without one: it tells when their entries leave their list.
    quiet: OnceLock<EqId>,
    /// Queues that its user may still make. Held while one is made.
    left: M::Lock<u8>,
}

impl<M: Mode> Queues<M> {
    /// Numbers of the near network's go to `numbers`; its user makes `most`.
    pub(super) fn new(numbers: u8, most: u8) -> Self {
        Self {
            table: (0..numbers).map(|_| OnceLock::new()).collect(),
            quiet: OnceLock::new(),
            left: M::Lock::new(most),
        }
    }

    #[inline]
    pub(super) fn get(&self, eq: EqId) -> Option<&Queue<M>> {
        self.table.get(usize::from(eq.0))?.get()
    }

    /// A queue's name in the far network.
    pub(super) fn far(&self, operation: &'static str, eq: EqId) -> Result<EqId, NiError> {
        let queue = self.get(eq).filter(|_| self.quiet() != Some(eq));
        match queue {
            Some(queue) => Ok(queue.far),
            None => Err(NiError::NoSuchObject {
                operation,
                what: "event queue",
                value: u64::from(eq.0),
            }),
        }
    }

    #[inline]
    pub(super) fn quiet(&self) -> Option<EqId> {
        self.quiet.get().copied()
    }
}

impl<Far: Ni, M: Mode> Beyond<Far, M> {
    pub(super) fn create_queue<Near: Ni>(
        &self,
        near: &Near,
        slots: usize,
    ) -> Result<EqId, NiError> {
        let mut left = self.queues.left.lock();
        if *left == 0 {
            return Err(NiError::Exhausted {
                operation: "eq_create",
                what: "event queues",
                limit: u64::from(self.limits.event_queues),
                setting: "fixed",
            });
        }
        let eq = self.make_queue(near, slots)?;
        *left -= 1;
        Ok(eq)
    }

    fn make_queue<Near: Ni>(&self, near: &Near, slots: usize) -> Result<EqId, NiError> {
        let eq = near.eq_create(slots).map_err(|error| self.of_near(error))?;
        let Some(place) = self.queues.table.get(usize::from(eq.0)) else {
            return Err(NiError::System {
                operation: "eq_create",
                rank: self.far.rank(),
                reason: format!(
                    "the near network numbers a queue {}, beyond its limit",
                    eq.0
                ),
            });
        };
        let queue = Queue {
            far: self.far.eq_create(slots)?,
            turn: M::Lock::new(Side::Near),
        };
        place.get_or_init(|| queue);
        Ok(eq)
    }

    /// The queue of indices that are opened without one.
    pub(super) fn quiet_queue<Near: Ni>(&self, near: &Near) -> Result<EqId, NiError> {
        let _making = self.queues.left.lock();
        if let Some(eq) = self.queues.quiet() {
            return Ok(eq);
        }
        let eq = self.make_queue(near, QUIET_SLOTS)?;
        Ok(*self.queues.quiet.get_or_init(|| eq))
    }

    /// The same, but that the far network need not be looked at each time.
    #[inline]
    pub(super) fn look(&self, near: Ready) -> Ready {
        match self.pace.is_far_due(near) {
            true => self.ready(near),
            false => self.ready_beside(near, self.pace.far()),
        }
    }

    /// Where a poll would find something, the near network being ready so.
    pub(super) fn ready(&self, near: Ready) -> Ready {
        let far = self.far.ready();
        self.pace.note_far(far);
        self.ready_beside(near, far)
    }

    /// The same, the far network being ready so.
    #[inline]
    fn ready_beside(&self, near: Ready, far: Ready) -> Ready {
        if self.entries.any_pending() {
            return Ready::ALL;
        }
        let mut ready = near;
        if let Some(quiet) = self.queues.quiet()
            && near.intersects(Ready::queue(quiet))
        {
            ready = ready.union(Ready::PROGRESS);
        }
        if far.is_empty() {
            return ready;
        }
        if far.intersects(Ready::PROGRESS) {
            ready = ready.union(Ready::PROGRESS);
        }
        for (number, place) in (0..).zip(&self.queues.table) {
            let Some(queue) = place.get() else { continue };
            let eq = EqId(number);
            if far.intersects(Ready::queue(queue.far)) {
                ready = ready.union(match self.queues.quiet() == Some(eq) {
                    true => Ready::PROGRESS,
                    false => Ready::queue(eq),
                });
            }
        }
        ready
    }
}
