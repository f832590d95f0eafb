//! Completion of network operations.

use super::Kernel;
use super::error::Error;
use super::handle::OpId;
use super::token::{Role, Token};
use crate::ni::{Ni, Outcome};
use crate::threads::Mode;

impl<N: Ni, M: Mode> Kernel<N, M> {
    /// Completes a network operation: frees its resources and counts off one piece of the operation
    /// that it belongs to. `on_reply_sent` receives the chunk of a reply that has been sent. If an
    /// operation was refused because it accessed memory that does not exist, `no_memory` returns
    /// the error to report.
    pub(crate) fn complete(
        &self,
        token: u64,
        outcome: Outcome,
        value: u64,
        on_reply_sent: impl FnOnce(u32),
        no_memory: impl FnOnce(OpId) -> Option<Error>,
    ) {
        let rank = self.job.rank;
        let Some(token) = Token::from_bits(token) else {
            let reason = "completion with an unknown token".to_owned();
            return self.job.fail_by_message(rank, reason);
        };
        if outcome != Outcome::Done {
            let outcome = match outcome {
                Outcome::NoMatch => "no matching entry",
                _ => "out of range",
            };
            let refused = Error::Refused { rank, outcome };
            // The operation did not end as its caller expects, so the job fails, and the caller
            // gets the error from its wait.
            return self
                .job
                .fail(token.op.and_then(no_memory).unwrap_or(refused));
        }
        match token.role {
            Role::Ticket | Role::Direct => {}
            Role::Reply(chunk) => on_reply_sent(chunk),
            Role::BouncedPut(chunk) => self.give_chunk(chunk),
            Role::BouncedGet(chunk) => {
                let bounce = self.chunks.bounce(chunk);
                // SAFETY: this get held the chunk and has ended, so the first `length` bytes of the
                // chunk are initialised and nothing writes to them. `length` does not exceed a
                // chunk. The caller of the get keeps the destination valid until the get is
                // synchronised, which cannot happen before `finish` is called below.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        self.chunks.at(chunk),
                        bounce.destination,
                        bounce.length,
                    );
                }
                self.give_chunk(chunk);
            }
            Role::Atomic => {
                if let Some(op) = token.op {
                    self.operations.set_value(op, value);
                }
            }
        }
        self.job.tickets.give(1);
        if let Some(op) = token.op {
            self.finish(op);
        }
    }
}
