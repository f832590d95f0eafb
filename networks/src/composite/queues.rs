//! Event queues. Each consists of one queue in each network and has the id of its intra-host queue,
//! so the ready queues that the intra-host network reports need no translation.

use std::sync::OnceLock;

use conduit_core::ni::{EqId, Ni, NiError, Ready};
use conduit_core::threads::{Lock, Mode};

use super::{MultiHost, Side};

/// The number of slots of the internal queue ([`Queues::internal`]).
const INTERNAL_SLOTS: usize = 1024;

pub(super) struct Queue<M: Mode> {
    pub(super) inter: EqId,
    /// The network that the next poll polls first. Locked during a poll.
    pub(super) turn: M::Lock<Side>,
}

pub(super) struct Queues<M: Mode> {
    /// The queues by id.
    table: Box<[OnceLock<Queue<M>>]>,
    /// The queue of portal table indices that were opened without a queue. It receives the unlink
    /// events of their entries.
    internal: OnceLock<EqId>,
    /// The number of queues that the user may still create. Locked while one is created.
    left: M::Lock<u8>,
}

impl<M: Mode> Queues<M> {
    /// Creates an empty table. The ids of the intra-host network's queues are below `numbers`, and
    /// the user may create `most` queues.
    pub(super) fn new(numbers: u8, most: u8) -> Self {
        Self {
            table: (0..numbers).map(|_| OnceLock::new()).collect(),
            internal: OnceLock::new(),
            left: M::Lock::new(most),
        }
    }

    #[inline]
    pub(super) fn get(&self, eq: EqId) -> Option<&Queue<M>> {
        self.table.get(usize::from(eq.0))?.get()
    }

    /// Returns a queue's id in the inter-host network.
    pub(super) fn inter(&self, operation: &'static str, eq: EqId) -> Result<EqId, NiError> {
        let queue = self.get(eq).filter(|_| self.internal() != Some(eq));
        match queue {
            Some(queue) => Ok(queue.inter),
            None => Err(NiError::NoSuchObject {
                operation,
                what: "event queue",
                value: u64::from(eq.0),
            }),
        }
    }

    #[inline]
    pub(super) fn internal(&self) -> Option<EqId> {
        self.internal.get().copied()
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    pub(super) fn create_queue<Intra: Ni>(
        &self,
        intra: &Intra,
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
        let eq = self.make_queue(intra, slots)?;
        *left -= 1;
        Ok(eq)
    }

    fn make_queue<Intra: Ni>(&self, intra: &Intra, slots: usize) -> Result<EqId, NiError> {
        let eq = intra
            .eq_create(slots)
            .map_err(|error| self.with_job_rank(error))?;
        let Some(place) = self.queues.table.get(usize::from(eq.0)) else {
            return Err(NiError::System {
                operation: "eq_create",
                rank: self.inter.rank(),
                reason: format!(
                    "queue number {} of the intra-host network exceeds its limit",
                    eq.0
                ),
            });
        };
        let queue = Queue {
            inter: self.inter.eq_create(slots)?,
            turn: M::Lock::new(Side::IntraHost),
        };
        place.get_or_init(|| queue);
        Ok(eq)
    }

    /// Returns the internal queue. The first call creates the queue.
    pub(super) fn internal_queue<Intra: Ni>(&self, intra: &Intra) -> Result<EqId, NiError> {
        let _making = self.queues.left.lock();
        if let Some(eq) = self.queues.internal() {
            return Ok(eq);
        }
        let eq = self.make_queue(intra, INTERNAL_SLOTS)?;
        Ok(*self.queues.internal.get_or_init(|| eq))
    }

    /// Returns what is ready in the two networks, without querying the inter-host one every time.
    #[inline]
    pub(super) fn ready_throttled(&self, intra: Ready) -> Ready {
        match self.throttle.is_inter_due(intra) {
            true => self.ready(intra),
            false => self.ready_beside(intra, self.throttle.inter()),
        }
    }

    /// Returns what is ready in the two networks, given what is ready in the intra-host one.
    pub(super) fn ready(&self, intra: Ready) -> Ready {
        let inter = self.inter.ready();
        self.throttle.note_inter(inter);
        self.ready_beside(intra, inter)
    }

    /// Returns what is ready in the composite, given what is ready in each network.
    #[inline]
    fn ready_beside(&self, intra: Ready, inter: Ready) -> Ready {
        if self.entries.any_pending() {
            return Ready::ALL;
        }
        let mut ready = intra;
        if let Some(internal) = self.queues.internal()
            && intra.intersects(Ready::queue(internal))
        {
            ready = ready.union(Ready::PROGRESS);
        }
        if inter.is_empty() {
            return ready;
        }
        if inter.intersects(Ready::PROGRESS) {
            ready = ready.union(Ready::PROGRESS);
        }
        for (number, place) in (0..).zip(&self.queues.table) {
            let Some(queue) = place.get() else { continue };
            let eq = EqId(number);
            if inter.intersects(Ready::queue(queue.inter)) {
                ready = ready.union(match self.queues.internal() == Some(eq) {
                    true => Ready::PROGRESS,
                    false => Ready::queue(eq),
                });
            }
        }
        ready
    }
}
