//! The credits of a rank: flow control, the counters by which mapped peers give back, and the file
//! that tells where they are.

use std::ops::Range;
use std::sync::atomic::Ordering::Acquire;

use credits::{CreditByte, Scale, System, Violation};

use crate::kernel::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::system::Message;
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
        kernel: &Kernel<N, M>,
        target: Rank,
        cost: u8,
    ) -> Result<Option<CreditByte>> {
        self.collect(kernel, target)?;
        Ok(self.flow.take_collected(target, cost))
    }

    /// Reads what `target` has given back by counter; all peers' counters if it is the budget that
    /// is spent.
    pub(crate) fn collect<N: Ni>(&self, kernel: &Kernel<N, M>, target: Rank) -> Result<()> {
        let peers = match self.flow.budget_is_spent() {
            true => 0..kernel.job.size,
            false => target..target + 1,
        };
        self.collect_of(kernel, peers)
    }

    /// Reads what each of the peers has given back by counter.
    pub(crate) fn collect_of<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        peers: Range<Rank>,
    ) -> Result<()> {
        for peer in peers {
            if let Some(word) = kernel.control.returned_by(peer) {
                // SYNC: Acquire, pairs with the Release in `Inbox::tell`.
                self.flow
                    .collect(peer, || Returned::from_bits(word.load(Acquire)))
                    .map_err(|violation| violated(kernel, peer, &violation))?;
            }
        }
        Ok(())
    }

    /// What goes back with the reply to a request that came with these credits.
    #[inline]
    pub(crate) fn grant<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        source: Rank,
        credit: u8,
    ) -> CreditByte {
        let (back, has_system) = self.flow.grant(source, CreditByte::from_bits(credit));
        if has_system {
            kernel.job.want_poll();
        }
        back
    }

    /// The same for several requests with plain bytes: whether one reply has to say that this rank
    /// has ended an epoch.
    #[inline]
    pub(crate) fn grant_plain<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        source: Rank,
        requests: u32,
    ) -> bool {
        let (end_of_epoch, has_system) = self.flow.grant_plain(source, requests);
        if has_system {
            kernel.job.want_poll();
        }
        end_of_epoch
    }

    /// The next message by which flow control asks a peer for credits, if it wants any now.
    fn next_message<N: Ni>(&self, kernel: &Kernel<N, M>) -> Option<(Rank, System)> {
        let next = self.flow.next_system();
        match &next {
            Some((_, message)) => self.count(*message, true),
            None if self.flow.has_system() => kernel.job.want_poll(),
            None => {}
        }
        next
    }

    /// The answer to a peer's message about credits, if it wants one.
    fn on_message<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        source: Rank,
        message: System,
    ) -> Result<Option<System>> {
        self.count(message, false);
        // What has come back by counter first: a revoke takes only what is not in use.
        self.collect(kernel, source)?;
        let answer = self
            .flow
            .on_system(source, message)
            .map_err(|violation| violated(kernel, source, &violation))?;
        if let Some(answer) = answer {
            self.count(answer, true);
        }
        Ok(answer)
    }

    /// A peer's message about credits has come.
    pub(crate) fn answer<N: Ni>(&self, kernel: &Kernel<N, M>, source: Rank, message: System) {
        match self.on_message(kernel, source, message) {
            Ok(Some(answer)) => kernel.send_system(source, Message::Credit(answer)),
            Ok(None) => {}
            Err(error) => kernel.job.fail(error),
        }
    }

    /// Whether something waits for [`Accounts::retry`]; exact, also while another thread is at it.
    pub(crate) fn has_retries<N: Ni>(&self, kernel: &Kernel<N, M>) -> bool {
        kernel.has_retries() || self.flow.has_system()
    }

    /// Tries again what could not be done before, as [`Kernel::retry`]; once that is through, asks
    /// peers for credits.
    pub(crate) fn retry<N: Ni>(&self, kernel: &Kernel<N, M>) {
        if kernel.retry() {
            self.ask(kernel);
        }
    }

    /// Asks peers for credits, as far as flow control wants any now. The next request that is short
    /// of credits asks again.
    fn ask<N: Ni>(&self, kernel: &Kernel<N, M>) {
        while let Some((peer, message)) = self.next_message(kernel) {
            kernel.send_system(peer, Message::Credit(message));
        }
    }

    fn count(&self, message: System, out: bool) {
        if let Some(statistics) = &self.statistics {
            statistics.lock().count(message, out);
        }
    }

    /// Writes the state of the credits, where that is asked for.
    #[inline]
    pub(crate) fn write_statistics<N: Ni>(&self, kernel: &Kernel<N, M>, when: When) {
        // Who has it is writing.
        if let Some(statistics) = &self.statistics
            && let Some(mut statistics) = statistics.try_lock()
        {
            statistics.write(&self.flow, kernel.job.rank, kernel.job.size, when);
        }
    }
}

/// A peer has broken the rules of flow control.
#[cold]
fn violated<N: Ni, M: Mode>(kernel: &Kernel<N, M>, peer: Rank, violation: &Violation) -> Error {
    Error::Protocol {
        rank: kernel.job.rank,
        peer,
        reason: violation.to_string(),
    }
}
