//! Care during a wait besides the poll: dead peers, and reports.

use super::Kernel;
use super::backoff::Waiter;
use super::error::Error;
use crate::ni::Ni;
use crate::threads::Mode;

impl<N: Ni, M: Mode> Kernel<N, M> {
    /// Is there a peer that has died, or that writes what makes no sense? Either ends the job.
    #[cold]
    pub(crate) fn check_liveness(&self, operation: &'static str) {
        let rank = self.job.rank;
        if let Some(peer) = self.job.ni.failed_peer()
            && self.job.exit_code().is_none()
        {
            self.job.fail(Error::PeerFailed {
                operation,
                rank,
                peer,
                reason: self.job.ni.failure(peer),
            });
        }
        if let Some(peer) = self.job.ni.bad_peer() {
            let reason = "it has written messages that make no sense".to_owned();
            self.job.fail(Error::Protocol { rank, peer, reason });
        }
    }

    /// A wait that was looked at has ended.
    #[cold]
    pub(crate) fn forget_wait(&self, waiter: &Waiter) {
        if let Some(reports) = &self.reports {
            reports.forget(waiter);
        }
    }
}
