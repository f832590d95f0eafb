//! Replies: sent with what is in hand, never waiting.

use am::{Body, Category, Flags, Header, Long, MAX_ARGS, NO_LID, Role as AmRole, select};
use credits::CreditByte;

use std::sync::atomic::Ordering::Relaxed;

use super::deliver::Call;
use super::hand::Hand;
use super::request::MOST_HEAD;
use super::token::{Role, Token};
use super::{Engine, Error, Result, SELECT_RPL_RB, index};
use crate::ni::{Ack, Inject, Ni, NiError, Put, Rank, Submit};
use crate::threads::Mode;

/// Bodies up to this size are injected; larger ones are read from the replier's chunk.
const INLINE: usize = MOST_HEAD + 112;

/// A reply that lies in a chunk and waits for the network to take it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deferred {
    target: Rank,
    header: Header,
    chunk: u32,
    length: usize,
}

impl<N: Ni, M: Mode> Call<'_, N, M> {
    /// Replies with a short. Once, from a request's handler.
    #[inline]
    pub fn reply_short(&self, handler: u8, args: &[u32]) -> Result<()> {
        self.reply("reply_short", Category::Short, handler, args, &[], None)
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
        let (engine, source) = (self.engine, self.token.source);
        self.check_payload("reply_long", payload, engine.max_long_reply(source))?;
        let long = Long {
            dest: offset as u64,
            length: payload.len() as u64,
        };
        if payload.is_empty() {
            let long = Some((long, Flags::DEST_IN_PLACE));
            return self.reply("reply_long", Category::Long, handler, args, &[], long);
        }
        let segment = engine.remote("reply_long", source, offset, payload.len())?;
        let everything = engine.segments("reply_long")?.everything;
        let packs = payload.len() <= am::limits::max_packed_long(engine.chunk, MAX_ARGS);
        if segment.window.0.is_null() && (packs || !everything) {
            return self.reply(
                "reply_long",
                Category::Long,
                handler,
                args,
                payload,
                Some((long, Flags::PACKED)),
            );
        }
        // A refused reply must have no effect, so the rules come before the copy.
        self.check_args("reply_long", args)?;
        self.may_reply("reply_long")?;
        if everything {
            // SAFETY: the payload is borrowed; a range of this process is memory by the program's word.
            unsafe { engine.store_anywhere(source, offset, payload.as_ptr(), payload.len())? };
        } else {
            // SAFETY: `remote` has checked the range against the window, which is valid for writes.
            unsafe {
                std::ptr::copy(
                    payload.as_ptr(),
                    segment.window.0.add(offset),
                    payload.len(),
                )
            };
        }
        self.reply(
            "reply_long",
            Category::Long,
            handler,
            args,
            &[],
            Some((long, Flags::DEST_IN_PLACE)),
        )
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
    fn check_args(&self, operation: &'static str, args: &[u32]) -> Result<()> {
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

    fn may_reply(&self, operation: &'static str) -> Result<()> {
        let rank = self.engine.rank;
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
        let (engine, token) = (self.engine, self.token);
        self.check_args(operation, args)?;
        self.may_reply(operation)?;
        let Some(hand) = self.hand else {
            // Only reply handlers run without a hand, and `may_reply` has refused those.
            let reason = am::Context::ReplyHandler.may_reply(false).err();
            return reason.map_or(Ok(()), |reason| {
                Err(Error::Context {
                    operation,
                    rank: engine.rank,
                    reason,
                })
            });
        };
        token.replied.set(true);
        let back = engine.grant(token.source, token.credit);
        let mut head = [0; MOST_HEAD];
        let mut head_len = Body::write_args(args, &mut head);
        let mut flags = Flags::of(category, AmRole::Reply);
        if let Some((long, how)) = long {
            head_len = long.write(args.len(), &mut head);
            flags |= how;
        }
        let header = Header {
            flags: flags | token.flags.intersection(Flags::NO_CHUNK),
            handler,
            nargs: args.len() as u8,
            credit: back.bits(),
            chunk: token.chunk,
            arg0: args.first().copied().unwrap_or(0),
            lid: NO_LID,
        };
        engine.send_reply(token.source, &header, &head[..head_len], payload, hand)
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
            self.fail(error);
        }
    }

    /// Injects a small reply, sends any other from the chunk in hand; if the network takes neither now, the reply waits in
    /// the chunk and no further request is looked at until it is gone.
    #[inline]
    fn send_reply(
        &self,
        target: Rank,
        header: &Header,
        head: &[u8],
        payload: &[u8],
        hand: &Hand,
    ) -> Result<()> {
        let length = head.len() + payload.len();
        let most = INLINE.min(self.ni.reach(target).inject_size);
        if most > 0 && length <= most {
            let (match_bits, hdr_data) = header.encode(SELECT_RPL_RB);
            let inject = Inject {
                target,
                index: index::SAFE,
                match_bits,
                hdr_data,
                head,
                body: payload,
            };
            if self.ni.inject(&inject)? == Submit::Posted {
                return Ok(());
            }
        }
        self.send_reply_from_chunk(target, header, head, payload, hand)
    }

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
            let limit = self.settings.rpl_chunks.into();
            return Err(NiError::Exhausted {
                operation: "reply",
                what: "RplSB chunks",
                limit,
                setting: "GASNET_PORTAL_RPL_CHUNKS",
            }
            .into());
        };
        let length = head.len() + payload.len();
        debug_assert!(
            length <= self.chunk,
            "the limit functions keep replies within a chunk"
        );
        // SAFETY: the chunk is held, `length` fits it (the limits of medium and packed long), and neither head nor payload
        // lies in a free RplSB chunk.
        unsafe {
            let at = self.rpl_chunk(chunk);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(head.len()), payload.len());
        }
        let deferred = Deferred {
            target,
            header: *header,
            chunk,
            length,
        };
        self.send_deferred(deferred, hand);
        Ok(())
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
            md: self.rpl_md,
            local_offset: chunk as usize * self.chunk,
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
        match unsafe { self.ni.put(&put) } {
            Ok(Submit::Posted) => true,
            Ok(Submit::Again) => {
                hand.give_ticket();
                self.defer(reply, hand);
                false
            }
            Err(error) => {
                self.fail(error.into());
                false
            }
        }
    }
}
