//! The end of a job: a rank announces the end to all other ranks and, before it exits, sends the
//! messages that they still wait for.

use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::kernel::error::Error;
use crate::kernel::system::Message;
use crate::messages::flow::When;
use crate::ni::Ni;
use crate::threads::Mode;

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Announces to all other ranks that the job ends with `code`, and waits up to `timeout` until
    /// they have answered. Their calls then fail with [`Error::Exited`], after a grace period
    /// (`CONDUIT_EXIT_GRACE`) if the code is 0. May be called at any time, even in handlers.
    /// Returns false if the timeout elapsed first.
    pub fn announce_exit(&self, code: i32, timeout: Duration) -> bool {
        self.messages
            .credits
            .write_statistics(&self.kernel, When::End);
        let end = Instant::now() + timeout;
        let others = u64::from(self.kernel.job.size - 1);
        for peer in (0..self.kernel.job.size).filter(|&peer| peer != self.kernel.job.rank) {
            self.kernel.send_system(peer, Message::Exit { code });
        }
        while self.kernel.system.exit_answers() < others {
            if Instant::now() >= end {
                return false;
            }
            if self.kernel.job.exit_code().is_some()
                || matches!(self.kernel.job.fault(), Some(Error::PeerFailed { .. }))
            {
                // Another rank ends the job too, or has died, so its answer may never come.
                break;
            }
            self.kernel.job.ni.progress();
            let events = self.poll_system(u32::MAX);
            self.messages.credits.retry(&self.kernel);
            if events == 0 {
                std::thread::yield_now();
            }
        }
        true
    }

    /// Sends the messages that are still pending, for at most `timeout`. They are the last answers
    /// of a rank that is about to exit.
    pub fn drain(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        while self.messages.credits.has_retries(&self.kernel) && Instant::now() < end {
            // Flushing the outbox is not enough: if messages need send tickets, only completions,
            // which a poll handles, free them.
            if self.poll_for(1) == 0 {
                std::thread::yield_now();
            }
        }
    }
}
