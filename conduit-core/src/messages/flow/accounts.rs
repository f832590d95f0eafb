//! The accounts of a rank: flow control, the counters by which mapped peers return credits, and the
//! statistics file.

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

/// The accounts described in the documentation of this module.
pub(crate) struct Accounts<M: Mode> {
    pub(crate) flow: Flow<M>,
    /// The cost of a message in credits, by its size.
    pub(crate) scale: Scale,
    pub(crate) statistics: Option<M::Lock<Statistics>>,
}

impl<M: Mode> Accounts<M> {
    /// Reads the number of credits that the target has returned by counter, and then takes credits
    /// as [`Flow::take`] does.
    pub(crate) fn take_collected<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        target: Rank,
        cost: u8,
    ) -> Result<Option<CreditByte>> {
        self.collect(kernel, target)?;
        Ok(self.flow.take_collected(target, cost))
    }

    /// Reads the number of credits that `target` has returned by counter. If the budget is
    /// exhausted, reads the counters of all peers.
    pub(crate) fn collect<N: Ni>(&self, kernel: &Kernel<N, M>, target: Rank) -> Result<()> {
        let peers = match self.flow.budget_is_spent() {
            true => 0..kernel.job.size,
            false => target..target + 1,
        };
        self.collect_of(kernel, peers)
    }

    /// Reads the number of credits that each of `peers` has returned by counter.
    pub(crate) fn collect_of<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        peers: Range<Rank>,
    ) -> Result<()> {
        for peer in peers {
            if let Some(word) = kernel.control.returned_by(peer) {
                // SYNC: Acquire pairs with the Release in `Inbox::tell`.
                self.flow
                    .collect(peer, || Returned::from_bits(word.load(Acquire)))
                    .map_err(|violation| violated(kernel, peer, &violation))?;
            }
        }
        Ok(())
    }

    /// Returns the credit byte for the reply to a request whose credit byte is `credit`.
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

    /// Grants several requests with plain credit bytes. Returns whether one of the replies must
    /// announce that this rank has ended an epoch.
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

    /// Returns the next message by which flow control asks a peer for credits, and that peer.
    /// Returns `None` if flow control needs no credits now.
    fn next_message<N: Ni>(&self, kernel: &Kernel<N, M>) -> Option<(Rank, System)> {
        let next = self.flow.next_system();
        match &next {
            Some((_, message)) => self.count(*message, true),
            None if self.flow.has_system() => kernel.job.want_poll(),
            None => {}
        }
        next
    }

    /// Handles a peer's message about credits. Returns the answer, if the message needs one.
    fn on_message<N: Ni>(
        &self,
        kernel: &Kernel<N, M>,
        source: Rank,
        message: System,
    ) -> Result<Option<System>> {
        self.count(message, false);
        // Credits returned by counter must be read first, because a revoke takes only unused
        // credits.
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

    /// Handles a peer's message about credits and sends the answer, if the message needs one.
    pub(crate) fn answer<N: Ni>(&self, kernel: &Kernel<N, M>, source: Rank, message: System) {
        match self.on_message(kernel, source, message) {
            Ok(Some(answer)) => kernel.send_system(source, Message::Credit(answer)),
            Ok(None) => {}
            Err(error) => kernel.job.fail(error),
        }
    }

    /// Returns whether work for [`Accounts::retry`] is pending. The result is exact even while
    /// another thread is performing that work.
    pub(crate) fn has_retries<N: Ni>(&self, kernel: &Kernel<N, M>) -> bool {
        kernel.has_retries() || self.flow.has_system()
    }

    /// Performs pending work as [`Kernel::retry`] does. Once all system messages have been sent,
    /// asks peers for credits.
    pub(crate) fn retry<N: Ni>(&self, kernel: &Kernel<N, M>) {
        if kernel.retry() {
            self.ask(kernel);
        }
    }

    /// Asks peers for credits if flow control needs credits now. If they do not suffice, the next
    /// request that lacks credits asks again.
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

    /// Writes the state of the credits to the statistics file, if statistics are enabled.
    #[inline]
    pub(crate) fn write_statistics<N: Ni>(&self, kernel: &Kernel<N, M>, when: When) {
        // If the lock is held, its holder is already writing.
        if let Some(statistics) = &self.statistics
            && let Some(mut statistics) = statistics.try_lock()
        {
            statistics.write(&self.flow, kernel.job.rank, kernel.job.size, when);
        }
    }
}

/// Returns the error for a peer that violated flow control.
#[cold]
fn violated<N: Ni, M: Mode>(kernel: &Kernel<N, M>, peer: Rank, violation: &Violation) -> Error {
    Error::Protocol {
        rank: kernel.job.rank,
        peer,
        reason: violation.to_string(),
    }
}
