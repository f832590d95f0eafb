//! Replies: sent with what is in hand, never waiting.

use am::{Body, Category, Flags, Header, Long, MAX_ARGS, NO_LID, Role as AmRole, select};
use credits::CreditByte;

use std::sync::atomic::Ordering::Relaxed;

use super::deliver::Call;
use super::hand::{Deferred, Hand};
use super::request::{MOST_HEAD, head_in};
use super::table::{SELECT_RPL_RB, index};
use super::token::{Role, Token};
use super::{Engine, Error, Result};
use crate::ni::{Ack, Exchange, Inject, Ni, NiError, Put, Rank, Submit};
use crate::shared;
use crate::threads::Mode;

/// Bodies up to this size are injected everywhere; larger ones, to a peer that is not mapped here, are read from the replier's chunk,
/// which its completion gives back. Up to here the copy costs less than the completion, and where a peer is mapped it always does: what
/// is injected is copied once, just as into a chunk.
const INLINE: usize = MOST_HEAD + 1024;

impl<'a, N: Ni, M: Mode> Call<'a, N, M> {
    /// Replies with a short. Once, from a request's handler.
    #[inline]
    pub fn reply_short(&self, handler: u8, args: &[u32]) -> Result<()> {
        const OPERATION: &str = "reply_short";
        self.check_args(OPERATION, args)?;
        let how = Flags::empty();
        let (header, hand) = self.open_reply(OPERATION, Category::Short, handler, args, how)?;
        let head = Body::of_short(args);
        self.engine
            .send_reply(self.token.source, &header, head, &[], hand)
    }

    /// Replies with a medium of at most [`Engine::max_medium`] bytes.
    #[inline]
    pub fn reply_medium(&self, handler: u8, args: &[u32], payload: &[u8]) -> Result<()> {
        let limit = self.engine.max_medium(args.len());
        self.check_payload("reply_medium", payload, limit)?;
        self.reply(
            "reply_medium",
            Category::Medium,
            handler,
            args,
            payload,
            None,
        )
    }

    /// Replies with a long of at most [`Engine::max_long_reply`] bytes to `offset` of the requester's segment (any offset
    /// for an empty one: the handler gets it as it is).
    pub fn reply_long(
        &self,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        offset: usize,
    ) -> Result<()> {
        const OPERATION: &str = "reply_long";
        let (engine, source) = (self.engine, self.token.source);
        let long = Long {
            dest: offset as u64,
            length: payload.len() as u64,
        };
        if payload.is_empty() {
            return self.reply_in_place(OPERATION, handler, args, long);
        }
        if let Some(place) = engine.memory.place_for(source, offset, payload.len()) {
            // A refused reply must have no effect, so the rules come before the copy.
            self.check_args(OPERATION, args)?;
            self.may_reply(OPERATION)?;
            // SAFETY: there is room for the payload at `place`, see `Memory::place_for`.
            unsafe { shared::copy(payload.as_ptr(), place, payload.len()) };
            return self.reply_in_place(OPERATION, handler, args, long);
        }
        self.check_payload(OPERATION, payload, engine.max_long_reply(source))?;
        engine
            .memory
            .remote(&engine.job, OPERATION, source, offset, payload.len())?;
        let everything = engine.memory.is_everything();
        let packs = payload.len() <= am::limits::max_packed_long(engine.job.chunk, MAX_ARGS);
        if packs || !everything {
            return self.reply(
                OPERATION,
                Category::Long,
                handler,
                args,
                payload,
                Some((long, Flags::PACKED)),
            );
        }
        self.check_args(OPERATION, args)?;
        self.may_reply(OPERATION)?;
        // SAFETY: the payload is borrowed; a range of this process is memory by the program's word.
        unsafe {
            engine.memory.store_anywhere(
                &engine.job,
                source,
                offset,
                payload.as_ptr(),
                payload.len(),
            )?
        };
        self.reply_in_place(OPERATION, handler, args, long)
    }

    /// A reply that says that its data is in place.
    #[inline(always)]
    fn reply_in_place(
        &self,
        operation: &'static str,
        handler: u8,
        args: &[u32],
        long: Long,
    ) -> Result<()> {
        self.engine
            .job
            .ni
            .anticipate(self.token.source, index::SAFE, Exchange::Answers);
        let long = Some((long, Flags::DEST_IN_PLACE));
        self.reply(operation, Category::Long, handler, args, &[], long)
    }

    /// Replies with a long of `length` bytes that the caller has placed at `offset` of the requester's segment by itself:
    /// where that is mapped here.
    pub fn reply_long_in_place(
        &self,
        handler: u8,
        args: &[u32],
        length: usize,
        offset: usize,
    ) -> Result<()> {
        const OPERATION: &str = "reply_long_in_place";
        let (engine, source) = (self.engine, self.token.source);
        if length > 0 {
            engine
                .memory
                .remote(&engine.job, OPERATION, source, offset, length)?;
        }
        let long = Long {
            dest: offset as u64,
            length: length as u64,
        };
        self.reply_in_place(OPERATION, handler, args, long)
    }

    fn check_payload(&self, operation: &'static str, payload: &[u8], limit: usize) -> Result<()> {
        let length = payload.len();
        if length > limit {
            return Err(Error::PayloadTooLong {
                operation,
                rank: self.token.source,
                length,
                limit,
            });
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check_args(&self, operation: &'static str, args: &[u32]) -> Result<()> {
        let count = args.len();
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs {
                operation,
                count,
                limit: MAX_ARGS,
            });
        }
        Ok(())
    }

    pub(super) fn may_reply(&self, operation: &'static str) -> Result<()> {
        let rank = self.engine.job.rank;
        self.token.may_reply().map_err(|reason| Error::Context {
            operation,
            rank,
            reason,
        })
    }

    #[inline]
    fn reply(
        &self,
        operation: &'static str,
        category: Category,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        long: Option<(Long, Flags)>,
    ) -> Result<()> {
        self.check_args(operation, args)?;
        let how = long.map_or(Flags::empty(), |(_, how)| how);
        let (header, hand) = self.open_reply(operation, category, handler, args, how)?;
        let mut space = [0; MOST_HEAD];
        let head = head_in(&mut space, args, long.map(|(long, _)| long));
        self.engine
            .send_reply(self.token.source, &header, head, payload, hand)
    }

    /// The header of the one reply to this request, which is on its way from here on, and what is in hand for it. The
    /// arguments have been checked.
    #[inline(always)]
    pub(super) fn open_reply(
        &self,
        operation: &'static str,
        category: Category,
        handler: u8,
        args: &[u32],
        how: Flags,
    ) -> Result<(Header, &'a Hand)> {
        let (engine, token) = (self.engine, self.token);
        engine.job.check_process()?;
        let hand = self.hand(operation)?;
        token.replied.set(true);
        let back = engine
            .credits
            .grant(&engine.job, token.source, token.credit);
        let flags = Flags::of(category, AmRole::Reply) | how;
        let header = Header {
            flags: flags | token.flags.intersection(Flags::NO_CHUNK),
            handler,
            nargs: args.len() as u8,
            credit: back.bits(),
            chunk: token.chunk,
            arg0: args.first().copied().unwrap_or(0),
            lid: NO_LID,
        };
        Ok((header, hand))
    }

    /// What is in hand for the reply; refused where none may be sent.
    #[inline]
    pub(super) fn hand(&self, operation: &'static str) -> Result<&'a Hand> {
        self.may_reply(operation)?;
        let rank = self.engine.job.rank;
        // An error that is made and dropped again costs every reply.
        match self.hand {
            Some(hand) => Ok(hand),
            None => Err(Error::Context {
                operation,
                rank,
                // Only reply handlers run without a hand, and `may_reply` has refused those.
                reason: am::ContextError::NotAllowed {
                    operation: am::Operation::Reply,
                    context: am::Context::ReplyHandler,
                },
            }),
        }
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// The reply that a handler has not sent, to a request with these flags and this chunk.
    pub(super) fn reply_implied(
        &self,
        target: Rank,
        flags: Flags,
        chunk: u32,
        back: CreditByte,
        hand: &Hand,
    ) {
        let header = Header {
            flags: Flags::SHORT | Flags::IMPLIED | flags.intersection(Flags::NO_CHUNK),
            handler: 0,
            nargs: 0,
            credit: back.bits(),
            chunk,
            arg0: 0,
            lid: NO_LID,
        };
        if let Err(error) = self.send_reply(target, &header, &[], &[], hand) {
            self.job.fail(error);
        }
    }

    /// Injects a reply, or sends it from the chunk in hand, see [`INLINE`]; if the network takes neither now, the reply waits in
    /// the chunk and no further request is looked at until it is gone.
    #[inline(always)]
    fn send_reply(
        &self,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
        hand: &Hand,
    ) -> Result<()> {
        if self.inject_reply(target, header, head, payload)? {
            return Ok(());
        }
        self.send_reply_from_chunk(target, header, head, payload, hand)
    }

    /// Injects a reply, if it is one to inject, see [`INLINE`], and the network takes it now.
    #[inline(always)]
    pub(super) fn inject_reply(
        &self,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
    ) -> Result<bool> {
        let reach = self.job.ni.reach(target);
        let (length, most) = (head.len() + payload.len(), reach.inject_size);
        if most == 0 || length > most || (length > INLINE && !self.job.is_mapped(reach)) {
            return Ok(false);
        }
        let (match_bits, hdr_data) = header.encode(SELECT_RPL_RB);
        let inject = Inject {
            target,
            index: index::SAFE,
            exchange: Exchange::Answers,
            match_bits,
            hdr_data,
            head,
            body: payload,
        };
        Ok(self.job.ni.inject(&inject)? == Submit::Posted)
    }

    #[inline(never)]
    fn send_reply_from_chunk(
        &self,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
        hand: &Hand,
    ) -> Result<()> {
        let Some(chunk) = hand.take_chunk() else {
            // One reply per request, and the hand is filled before each request: this cannot be.
            return Err(self.no_reply_chunk().into());
        };
        let length = head.len() + payload.len();
        debug_assert!(
            length <= self.job.chunk,
            "the limit functions keep replies within a chunk"
        );
        // SAFETY: the chunk is held, `length` fits it (the limits of medium and packed long), and neither head nor payload
        // lies in a free RplSB chunk.
        unsafe {
            let at = self.rpl_sb.at(chunk);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(head.len()), payload.len());
        }
        self.send_reply_in_chunk(target, header, (chunk, 0, length), hand);
        Ok(())
    }

    #[cold]
    pub(super) fn no_reply_chunk(&self) -> NiError {
        NiError::Exhausted {
            operation: "reply",
            what: "RplSB chunks",
            limit: self.job.settings.rpl_chunks.into(),
            setting: "GASNET_PORTAL_RPL_CHUNKS",
        }
    }

    /// Sends `length` bytes from `start` of a chunk on.
    pub(super) fn send_reply_in_chunk(
        &self,
        target: Rank,
        header: &Header,
        (chunk, start, length): (u32, usize, usize),
        hand: &Hand,
    ) {
        let deferred = Deferred {
            target,
            header: *header,
            chunk,
            start,
            length,
        };
        self.send_deferred(deferred, hand);
    }

    fn defer(&self, reply: Deferred, hand: &Hand) {
        hand.defer(reply);
        self.reply_waiting.store(true, Relaxed);
    }

    /// Puts a reply out of its chunk. `false`: not yet, it is in hand again.
    pub(super) fn send_deferred(&self, reply: Deferred, hand: &Hand) -> bool {
        let Deferred {
            target,
            ref header,
            chunk,
            start,
            length,
        } = reply;
        if !hand.take_ticket() && !self.tickets.take(1) {
            self.defer(reply, hand);
            return false;
        }
        let to_buffer = header.flags.contains(Flags::NO_CHUNK);
        let (match_bits, hdr_data) = header.encode(if to_buffer {
            SELECT_RPL_RB
        } else {
            select::REQ_SB
        });
        let put = Put {
            md: self.rpl_sb.md,
            local_offset: chunk as usize * self.job.chunk + start,
            length,
            ack: Ack::Local,
            target,
            index: index::SAFE,
            match_bits,
            remote_offset: if to_buffer {
                0
            } else {
                u64::from(header.chunk) * 64
            },
            hdr_data,
            token: Token::new(Role::Reply(chunk), None).bits(),
        };
        // SAFETY: the chunk is held until the put's event, and nobody writes a held RplSB chunk.
        match unsafe { self.job.ni.put(&put) } {
            Ok(Submit::Posted) => true,
            Ok(Submit::Again) => {
                hand.give_ticket();
                self.defer(reply, hand);
                false
            }
            Err(error) => {
                self.job.fail(error.into());
                false
            }
        }
    }
}
