//! System messages, and how a job ends.
//!
//! They have no body: everything is in the match bits and the header data. Match bits: selector (bits 0..4), message
//! (bits 8..16), argument (bits 32..64). They are handled before anything else in a poll, and never need what isn't there.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use am::select;
use credits::{CreditByte, System};

use super::token::{Role, Token};
use super::{Engine, Error, index};
use crate::ni::{Ack, Event, Exchange, Inject, MdId, Ni, Put, Rank, Submit, Unlink};
use crate::threads::{Lock, Mode};

/// A system message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// The sender ends the job with this code.
    Exit { code: i32 },
    /// Answer to [`Message::Exit`].
    ExitSeen,
    /// A word for a barrier cell.
    BarrierCell { cell: u32, word: u64 },
    /// SYS_CREDIT_REVOKE or SYS_CREDIT_RETURN.
    Credit(System),
}

impl Message {
    fn encode(self) -> (u64, u64) {
        let (message, argument, data) = match self {
            Self::Exit { code } => (1, code as u32, 0),
            Self::ExitSeen => (2, 0, 0),
            Self::BarrierCell { cell, word } => (3, cell, word),
            Self::Credit(System::Revoke { end_of_epoch }) => (4, 0, end_of_epoch.into()),
            Self::Credit(System::Return {
                credits,
                end_of_epoch,
            }) => (5, credits.into(), end_of_epoch.into()),
        };
        (
            u64::from(select::SYS) | message << 8 | u64::from(argument) << 32,
            data,
        )
    }

    fn decode(match_bits: u64, hdr_data: u64) -> Option<Self> {
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
            4 => Some(Self::Credit(System::Revoke {
                end_of_epoch: hdr_data != 0,
            })),
            5 => Some(Self::Credit(System::Return {
                credits: argument.try_into().ok()?,
                end_of_epoch: hdr_data != 0,
            })),
            _ => None,
        }
    }
}

/// What could not be sent or released yet; every poll tries again.
#[derive(Debug)]
pub(super) struct Outbox {
    messages: VecDeque<(Rank, Message)>,
    limit: usize,
    /// Descriptors whose release the network delays. At most as many as there are TMPMD tickets.
    unreleased: Vec<MdId>,
}

impl Outbox {
    /// `limit`: the barriers' messages; for each rank an exit message and its answer, a revoke of credits and a return.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            messages: VecDeque::new(),
            limit,
            unreleased: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.unreleased.is_empty()
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    pub(super) fn system_waits(&self) -> bool {
        self.system_waiting.load(Relaxed)
    }

    /// Sends a message now, or puts it into the outbox.
    pub(super) fn send_system(&self, target: Rank, message: Message) {
        let mut outbox = self.system.lock();
        if outbox.messages.is_empty() && self.post_system(target, message) {
            return;
        }
        if outbox.messages.len() == outbox.limit {
            let reason = format!("more than {} system messages wait to be sent", outbox.limit);
            self.fail(Error::Protocol {
                rank: self.rank,
                peer: target,
                reason,
            });
        } else {
            outbox.messages.push_back((target, message));
            self.system_waiting.store(true, Relaxed);
        }
    }

    /// Releases a descriptor that the network still holds, with the next polls.
    pub(super) fn release_later(&self, md: MdId) {
        self.system.lock().unreleased.push(md);
        self.system_waiting.store(true, Relaxed);
    }

    /// Tries again what waits in the outbox.
    pub(super) fn flush_system(&self) {
        if self.is_child() {
            return;
        }
        let Some(mut outbox) = self.system.try_lock() else {
            return;
        };
        while let Some(&(target, message)) = outbox.messages.front() {
            if !self.post_system(target, message) {
                break;
            }
            outbox.messages.pop_front();
        }
        outbox
            .unreleased
            .retain(|&md| match self.ni.md_release(md) {
                Ok(Unlink::InUse) => true,
                Ok(Unlink::Done) => {
                    self.tmpmd.give(1);
                    false
                }
                Err(error) => {
                    self.fail(error.into());
                    false
                }
            });
        // A flag that is set after this by a thread which has put something in costs one more look.
        self.system_waiting.store(!outbox.is_empty(), Relaxed);
        let is_free = outbox.messages.is_empty();
        drop(outbox);
        if is_free {
            self.send_revokes();
        }
    }

    /// Asks peers for credits as far as flow control wants it. What is not wanted or possible now comes up again with the
    /// next request that is short of credits.
    fn send_revokes(&self) {
        while let Some((peer, message)) = self.flow.next_system() {
            self.count_credit_message(message, true);
            self.send_system(peer, Message::Credit(message));
        }
        if self.flow.has_system() {
            self.system_waiting.store(true, Relaxed);
        }
    }

    /// What goes back with the reply to a request that came with these credits.
    #[inline]
    pub(super) fn grant(&self, source: Rank, credit: u8) -> CreditByte {
        let (back, has_system) = self.flow.grant(source, CreditByte::from_bits(credit));
        if has_system {
            self.system_waiting.store(true, Relaxed);
        }
        back
    }

    /// The same for several requests with plain bytes: whether one reply has to say that this rank has ended an epoch.
    #[inline]
    pub(super) fn grant_plain(&self, source: Rank, requests: u32) -> bool {
        let (end_of_epoch, has_system) = self.flow.grant_plain(source, requests);
        if has_system {
            self.system_waiting.store(true, Relaxed);
        }
        end_of_epoch
    }

    fn on_credit_message(&self, source: Rank, message: System) {
        self.count_credit_message(message, false);
        // What has come back by counter first: a revoke takes only what is not in use.
        let answered = self.collect_returns(source).and_then(|()| {
            self.flow
                .on_system(source, message)
                .map_err(|violation| Error::Protocol {
                    rank: self.rank,
                    peer: source,
                    reason: violation.to_string(),
                })
        });
        match answered {
            Ok(Some(answer)) => {
                self.count_credit_message(answer, true);
                self.send_system(source, Message::Credit(answer));
            }
            Ok(None) => {}
            Err(error) => self.fail(error),
        }
    }

    /// `false`: the network has no room now.
    fn post_system(&self, target: Rank, message: Message) -> bool {
        let (match_bits, hdr_data) = message.encode();
        let submitted = if self.ni.reach(target).inject_size > 0 {
            self.ni.inject(&Inject {
                target,
                index: index::SYS,
                exchange: Exchange::Alone,
                match_bits,
                hdr_data,
                head: &[],
                body: &[],
            })
        } else {
            if !self.tickets.take(1) {
                return false;
            }
            let put = Put {
                md: self.req_md,
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
            // SAFETY: no bytes are read.
            let submitted = unsafe { self.ni.put(&put) };
            if submitted != Ok(Submit::Posted) {
                self.tickets.give(1);
            }
            submitted
        };
        match submitted {
            Ok(submit) => submit == Submit::Posted,
            Err(error) => {
                self.fail(error.into());
                true
            }
        }
    }

    pub(super) fn on_system_event(&self, event: &Event<'_>) {
        let Event::Put(put) = event else { return };
        match Message::decode(put.match_bits, put.hdr_data) {
            Some(Message::Exit { code }) => {
                self.send_system(put.source, Message::ExitSeen);
                self.fail(Error::Exited {
                    by: put.source,
                    code,
                });
            }
            Some(Message::ExitSeen) => {
                self.exit_answers.fetch_add(1, Relaxed);
            }
            Some(Message::BarrierCell { cell, word }) => self.receive_cell(put.source, cell, word),
            Some(Message::Credit(message)) => self.on_credit_message(put.source, message),
            None => {
                self.fail(self.bad_message(
                    put.source,
                    format!("unknown system message {:#x}", put.match_bits),
                ));
            }
        }
    }

    /// Tells all other ranks that the job ends with `code`, and waits until they know, at most `timeout`. Their calls end
    /// with [`Error::Exited`]. May be called at any time, from handlers too. True: all have answered.
    pub fn announce_exit(&self, code: i32, timeout: Duration) -> bool {
        self.write_credit_statistics(super::credit_statistics::When::End);
        let end = Instant::now() + timeout;
        let others = u64::from(self.size - 1);
        for peer in (0..self.size).filter(|&peer| peer != self.rank) {
            self.send_system(peer, Message::Exit { code });
        }
        while self.exit_answers.load(Relaxed) < others {
            if Instant::now() >= end {
                return false;
            }
            if matches!(
                self.fault(),
                Some(Error::Exited { .. } | Error::PeerFailed { .. })
            ) {
                // Another rank ends the job as well, or has died: nobody is left to wait for.
                break;
            }
            self.ni.progress();
            let events = self
                .ni
                .poll(self.sys_eq, u32::MAX, |event| self.on_system_event(&event));
            self.flush_system();
            if events == 0 {
                std::thread::yield_now();
            }
        }
        true
    }

    /// Serves what is still waiting to go out, for at most `timeout`: answers of a rank that is about to end.
    pub fn drain(&self, timeout: Duration) {
        let end = Instant::now() + timeout;
        while self.system_waits() && Instant::now() < end {
            // Not only the outbox: where messages need send tickets, completions bring them.
            if self.poll_once() == 0 {
                std::thread::yield_now();
            }
        }
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
                Message::Credit(System::Revoke { end_of_epoch }), Message::Credit(System::Return { credits, end_of_epoch }),
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
