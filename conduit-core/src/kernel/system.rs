//! System messages, by which the engines of two ranks communicate.
//!
//! A system message has no body: its match bits and header data hold everything. The match bits
//! contain the selector (bits 0..4), the kind of message (bits 8..16) and an argument (bits
//! 32..64). A poll handles system messages before anything else. Handling them needs no resources
//! for replies.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use am::select;
use credits::System as CreditMessage;

use crate::kernel::error::Error;
use crate::kernel::job::Job;
use crate::kernel::portal_table::index;
use crate::kernel::token::{Role, Token};
use crate::ni::{Ack, Exchange, Inject, MdId, Ni, Put, Rank, Submit};
use crate::threads::{Lock, Mode};

/// A system message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    /// The sender ends the job with this code.
    Exit { code: i32 },
    /// The answer to [`Message::Exit`].
    ExitSeen,
    /// A word to be stored in a barrier cell.
    BarrierCell { cell: u32, word: u64 },
    /// A revoke (SYS_CREDIT_REVOKE) or a return (SYS_CREDIT_RETURN) of credits.
    Credit(CreditMessage),
}

impl Message {
    fn encode(self) -> (u64, u64) {
        let (message, argument, data) = match self {
            Self::Exit { code } => (1, code as u32, 0),
            Self::ExitSeen => (2, 0, 0),
            Self::BarrierCell { cell, word } => (3, cell, word),
            Self::Credit(CreditMessage::Revoke { end_of_epoch }) => (4, 0, end_of_epoch.into()),
            Self::Credit(CreditMessage::Return {
                credits,
                end_of_epoch,
            }) => (5, credits.into(), end_of_epoch.into()),
        };
        (
            u64::from(select::SYS) | message << 8 | u64::from(argument) << 32,
            data,
        )
    }

    pub(crate) fn decode(match_bits: u64, hdr_data: u64) -> Option<Self> {
        let argument = (match_bits >> 32) as u32;
        match (match_bits >> 8) as u8 {
            1 => Some(Self::Exit {
                code: argument as i32,
            }),
            2 => Some(Self::ExitSeen),
            3 => Some(Self::BarrierCell {
                cell: argument,
                word: hdr_data,
            }),
            4 => Some(Self::Credit(CreditMessage::Revoke {
                end_of_epoch: hdr_data != 0,
            })),
            5 => Some(Self::Credit(CreditMessage::Return {
                credits: argument.try_into().ok()?,
                end_of_epoch: hdr_data != 0,
            })),
            _ => None,
        }
    }
}

/// The outgoing system messages, and the number of answers to an exit.
pub(crate) struct System<M: Mode> {
    outbox: M::Lock<Outbox>,
    /// The number of ranks that have answered [`Message::Exit`].
    exit_answers: AtomicU64,
    /// The descriptor from which messages are put if the network cannot inject. The puts are empty.
    md: MdId,
}

/// Messages that could not be sent yet. Every poll tries to send them.
#[derive(Debug)]
struct Outbox {
    messages: VecDeque<(Rank, Message)>,
    limit: usize,
}

impl<M: Mode> System<M> {
    /// Creates an empty outbox for `size` ranks and `cells` barrier cells. It has room for four
    /// messages per rank (an exit message, its answer, a revoke and a return of credits) and for
    /// two words per barrier cell.
    pub(crate) fn new(size: u32, cells: usize, md: MdId) -> Self {
        Self {
            outbox: Lock::new(Outbox {
                messages: VecDeque::new(),
                limit: 4 * size as usize + 2 * cells + 16,
            }),
            exit_answers: AtomicU64::new(0),
            md,
        }
    }

    /// Sends a message now, or queues it in the outbox if there is no room for it.
    pub(crate) fn send<N: Ni>(&self, job: &Job<N>, target: Rank, message: Message) {
        let mut outbox = self.outbox.lock();
        if outbox.messages.is_empty() && self.post(job, target, message) {
            return;
        }
        if outbox.messages.len() == outbox.limit {
            let reason = format!("more than {} system messages wait to be sent", outbox.limit);
            job.fail(Error::Protocol {
                rank: job.rank,
                peer: target,
                reason,
            });
        } else {
            outbox.messages.push_back((target, message));
            job.want_poll();
        }
    }

    /// Tries to send the messages in the outbox. Returns whether it is empty now.
    pub(crate) fn flush<N: Ni>(&self, job: &Job<N>) -> bool {
        // The thread that holds the lock may be queuing a message, and the caller of this function
        // may have cleared that thread's request for a poll. This thread therefore repeats the
        // request.
        let Some(mut outbox) = self.outbox.try_lock() else {
            job.want_poll();
            return false;
        };
        while let Some(&(target, message)) = outbox.messages.front() {
            if !self.post(job, target, message) {
                job.want_poll();
                return false;
            }
            outbox.messages.pop_front();
        }
        true
    }

    /// Posts a message. Returns false if the network has no room for the message now. Any other
    /// failure ends the job, and the message then counts as posted.
    fn post<N: Ni>(&self, job: &Job<N>, target: Rank, message: Message) -> bool {
        let (match_bits, hdr_data) = message.encode();
        let submitted = if job.ni.reach(target).inject_size > 0 {
            job.ni.inject(&Inject {
                target,
                index: index::SYS,
                exchange: Exchange::OneWay,
                match_bits,
                hdr_data,
                head: &[],
                body: &[],
            })
        } else {
            if !job.tickets.take(1) {
                return false;
            }
            let put = Put {
                md: self.md,
                local_offset: 0,
                length: 0,
                ack: Ack::Local,
                target,
                index: index::SYS,
                match_bits,
                remote_offset: 0,
                hdr_data,
                token: Token::new(Role::Ticket, None).bits(),
            };
            // SAFETY: the put has no bytes, so no memory needs to be valid.
            let submitted = unsafe { job.ni.put(&put) };
            if submitted != Ok(Submit::Posted) {
                job.tickets.give(1);
            }
            submitted
        };
        match submitted {
            Ok(submit) => submit == Submit::Posted,
            Err(error) => {
                job.fail(error.into());
                true
            }
        }
    }

    /// Returns whether the outbox is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox.lock().messages.is_empty()
    }

    /// Counts a rank's answer to [`Message::Exit`].
    pub(crate) fn count_exit_answer(&self) {
        self.exit_answers.fetch_add(1, Relaxed);
    }

    /// Returns the number of ranks that have answered [`Message::Exit`].
    pub(crate) fn exit_answers(&self) -> u64 {
        self.exit_answers.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive(
            code in any::<i32>(), cell in any::<u32>(), word in any::<u64>(), credits in any::<u16>(), end_of_epoch: bool,
        ) {
            for message in [
                Message::Exit { code }, Message::ExitSeen, Message::BarrierCell { cell, word },
                Message::Credit(CreditMessage::Revoke { end_of_epoch }), Message::Credit(CreditMessage::Return { credits, end_of_epoch }),
            ] {
                let (match_bits, hdr_data) = message.encode();
                prop_assert_eq!(am::select::of(match_bits), select::SYS);
                prop_assert_eq!(Message::decode(match_bits, hdr_data), Some(message));
            }
        }

        #[test]
        fn no_bits_panic(match_bits in any::<u64>(), hdr_data in any::<u64>()) {
            let _ = Message::decode(match_bits, hdr_data);
        }
    }
}
