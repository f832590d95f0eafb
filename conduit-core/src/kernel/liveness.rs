//! Liveness checks and reports during a wait.

use super::Kernel;
use super::backoff::Waiter;
use super::error::Error;
use crate::ni::Ni;
use crate::threads::Mode;

impl<N: Ni, M: Mode> Kernel<N, M> {
    /// Ends the job if a peer has died or has sent malformed messages.
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
            let reason = "it has sent malformed messages".to_owned();
            self.job.fail(Error::Protocol { rank, peer, reason });
        }
    }

    /// Ends the tracking of a wait.
    #[cold]
    pub(crate) fn forget_wait(&self, waiter: &Waiter) {
        if let Some(reports) = &self.reports {
            reports.forget(waiter);
        }
    }
}
