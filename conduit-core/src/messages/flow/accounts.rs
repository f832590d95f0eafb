//! The credits of a rank: flow control, the counters by which mapped peers give back, and the file
//! that tells where they are.

use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use credits::{CreditByte, Scale, System, Violation};

use crate::kernel::control::Control;
use crate::kernel::error::{Error, Result};
use crate::kernel::job::Job;
use crate::messages::flow::statistics::{Statistics, When};
use crate::messages::flow::{Flow, Returned};
use crate::ni::{Ni, Rank};
use crate::threads::{Lock, Mode};

/// See the module.
pub(crate) struct Accounts<M: Mode> {
    pub(crate) flow: Flow<M>,
    /// What a message of some size costs.
    pub(crate) scale: Scale,
    pub(crate) statistics: Option<M::Lock<Statistics>>,
}

impl<M: Mode> Accounts<M> {
    /// As [`Flow::take`], after a look at what the target has given back by counter.
    pub(crate) fn take_collected<N: Ni>(
        &self,
        job: &Job<N>,
        control: &Control,
        target: Rank,
        cost: u8,
    ) -> Result<Option<CreditByte>> {
        self.collect(job, control, target)?;
        Ok(self.flow.take_collected(target, cost))
    }

    /// Reads what `target` has given back by counter; all peers' counters if it is the budget that
    /// is spent.
    pub(crate) fn collect<N: Ni>(
        &self,
        job: &Job<N>,
        control: &Control,
        target: Rank,
    ) -> Result<()> {
        let peers = match self.flow.budget_is_spent() {
            true => 0..job.size,
            false => target..target + 1,
        };
        self.collect_of(job, control, peers)
    }

    /// Reads what each of the peers has given back by counter.
    pub(crate) fn collect_of<N: Ni>(
        &self,
        job: &Job<N>,
        control: &Control,
        peers: Range<Rank>,
    ) -> Result<()> {
        for peer in peers {
            if let Some(word) = control.returned_by(peer) {
                // SYNC: Acquire, pairs with the Release in `Inbox::tell`.
                self.flow
                    .collect(peer, || Returned::from_bits(word.load(Acquire)))
                    .map_err(|violation| violated(job, peer, &violation))?;
            }
        }
        Ok(())
    }

    /// What goes back with the reply to a request that came with these credits.
    #[inline]
    pub(crate) fn grant<N: Ni>(&self, job: &Job<N>, source: Rank, credit: u8) -> CreditByte {
        let (back, has_system) = self.flow.grant(source, CreditByte::from_bits(credit));
        if has_system {
            job.want_poll();
        }
        back
    }

    /// The same for several requests with plain bytes: whether one reply has to say that this rank
    /// has ended an epoch.
    #[inline]
    pub(crate) fn grant_plain<N: Ni>(&self, job: &Job<N>, source: Rank, requests: u32) -> bool {
        let (end_of_epoch, has_system) = self.flow.grant_plain(source, requests);
        if has_system {
            job.want_poll();
        }
        end_of_epoch
    }

    /// The next message by which flow control asks a peer for credits, if it wants any now.
    pub(crate) fn next_message<N: Ni>(&self, job: &Job<N>) -> Option<(Rank, System)> {
        let next = self.flow.next_system();
        match &next {
            Some((_, message)) => self.count(*message, true),
            None if self.flow.has_system() => job.want_poll(),
            None => {}
        }
        next
    }

    /// The answer to a peer's message about credits, if it wants one.
    pub(crate) fn on_message<N: Ni>(
        &self,
        job: &Job<N>,
        control: &Control,
        source: Rank,
        message: System,
    ) -> Result<Option<System>> {
        self.count(message, false);
        // What has come back by counter first: a revoke takes only what is not in use.
        self.collect(job, control, source)?;
        let answer = self
            .flow
            .on_system(source, message)
            .map_err(|violation| violated(job, source, &violation))?;
        if let Some(answer) = answer {
            self.count(answer, true);
        }
        Ok(answer)
    }

    fn count(&self, message: System, out: bool) {
        if let Some(statistics) = &self.statistics {
            statistics.lock().count(message, out);
        }
    }

    /// Writes the state of the credits, where that is asked for.
    #[inline]
    pub(crate) fn write_statistics<N: Ni>(&self, job: &Job<N>, when: When) {
        // Who has it is writing.
        if let Some(statistics) = &self.statistics
            && let Some(mut statistics) = statistics.try_lock()
        {
            statistics.write(&self.flow, job.rank, job.size, when);
        }
    }
}

/// A peer has broken the rules of flow control.
#[cold]
fn violated<N: Ni>(job: &Job<N>, peer: Rank, violation: &Violation) -> Error {
    Error::Protocol {
        rank: job.rank,
        peer,
        reason: violation.to_string(),
    }
}
