//! Plain requests on their way out: shorts, mediums, and longs whose data is in place, to mapped peers; shorts and mediums that are
//! injected to others. Nearly all that a program sends. Which way a peer's take is found out once, at start ([`Way`]).

use am::{Body, Category, Flags, Header, Long, MAX_ARGS, NO_CHUNK, NO_LID, Role as AmRole, select};
use credits::CreditByte;

use super::head::{MOST_HEAD, head_in};
use super::rma::Blocking;
use super::table::index;
use super::ways::Way;
use super::{Engine, Result};
use crate::ni::{Exchange, Inject, Ni, Rank, Submit};
use crate::threads::Mode;

/// A request that is one injected message. It goes from hand to hand by value: what has to be in
/// memory before a message can be written costs more than the message.
#[derive(Clone, Copy)]
pub(super) struct Plain<'a> {
    pub(super) operation: &'static str,
    pub(super) category: Category,
    pub(super) target: Rank,
    pub(super) handler: u8,
    pub(super) args: &'a [u32],
    pub(super) payload: &'a [u8],
    /// Where a long's data is.
    pub(super) long: Option<Long>,
    pub(super) blocking: Blocking,
}

impl<'a> Plain<'a> {
    /// A short.
    #[inline(always)]
    pub(super) fn of_short(
        operation: &'static str,
        target: Rank,
        handler: u8,
        args: &'a [u32],
        blocking: Blocking,
    ) -> Self {
        Self {
            operation,
            category: Category::Short,
            target,
            handler,
            args,
            payload: &[],
            long: None,
            blocking,
        }
    }

    /// A long whose data is in place when it is sent: at an offset, of a length.
    #[inline(always)]
    pub(super) fn of_long(
        operation: &'static str,
        target: Rank,
        handler: u8,
        args: &'a [u32],
        (offset, length): (usize, usize),
        blocking: Blocking,
    ) -> Self {
        Self {
            operation,
            category: Category::Long,
            target,
            handler,
            args,
            payload: &[],
            long: Some(Long {
                dest: offset as u64,
                length: length as u64,
            }),
            blocking,
        }
    }

    #[inline(always)]
    fn header(&self, byte: CreditByte, chunk: Option<u32>) -> (u64, u64) {
        let flags = match self.category {
            Category::Long => Flags::of(Category::Long, AmRole::Request) | Flags::DEST_IN_PLACE,
            other => Flags::of(other, AmRole::Request),
        };
        let header = Header {
            flags: match chunk {
                Some(_) => flags,
                None => flags.union(Flags::NO_CHUNK),
            },
            handler: self.handler,
            nargs: self.args.len() as u8,
            credit: byte.bits(),
            chunk: chunk.unwrap_or(NO_CHUNK),
            arg0: self.args.first().copied().unwrap_or(0),
            lid: NO_LID,
        };
        header.encode(select::REQ_RB)
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Whether a request can go by [`Self::request_plain`]. Refusals, and checks of the context, are in the general
    /// way.
    #[inline(always)]
    pub(super) fn is_plain_way(&self, target: Rank, args: &[u32]) -> bool {
        self.goes(target, Way::Mapped) && args.len() <= MAX_ARGS
    }

    #[inline(always)]
    fn goes(&self, target: Rank, way: Way) -> bool {
        let ways = self.job.ways.get(target as usize);
        ways.is_some_and(|found| found.is(way))
    }

    /// Whether one with so long a payload can go by [`Self::request_injected`]; the rest as for [`Self::is_plain_way`].
    #[inline(always)]
    pub(super) fn is_injected_way(&self, target: Rank, args: &[u32], payload: usize) -> bool {
        self.goes(target, Way::Injected)
            && args.len() <= MAX_ARGS
            && self
                .inject_size
                .checked_sub(Body::args_len(args.len()))
                .is_some_and(|most| payload <= most)
    }

    /// What [`Self::send_from_chunk`] does of a message that is injected, by itself: the chunk is held for the reply.
    #[inline(always)]
    pub(super) fn request_injected(&self, plain: Plain<'_>, cost: u8) -> Result<bool> {
        let Plain {
            operation,
            target,
            blocking,
            ..
        } = plain;
        let Some(byte) = self.take_credits(operation, target, cost, blocking)? else {
            return Ok(false);
        };
        let taken = self.req_sb.take();
        let chunk = match taken {
            Some(chunk) => chunk,
            None => self.wait_for_chunk(operation)?,
        };
        let chunk = Some(self.req_sb.units(chunk));
        if self.inject_plain(plain, byte, chunk, Exchange::Alone)? == Submit::Posted {
            return Ok(true);
        }
        // A copy, so that the other one never has to be in memory.
        self.request_injected_slowly(plain, byte, chunk)
    }

    #[cold]
    fn wait_for_chunk(&self, operation: &'static str) -> Result<u32> {
        self.wait_for(operation, |engine| Ok(engine.req_sb.take()))
    }

    #[cold]
    fn request_injected_slowly(
        &self,
        plain: Plain<'_>,
        byte: CreditByte,
        chunk: Option<u32>,
    ) -> Result<bool> {
        self.wait_for(plain.operation, |engine| {
            let submit = engine.inject_plain(plain, byte, chunk, Exchange::Alone)?;
            Ok((submit == Submit::Posted).then_some(true))
        })
    }

    /// The common case by itself, without anything that only the others need.
    #[inline(always)]
    pub(super) fn request_plain(&self, plain: Plain<'_>, cost: u8) -> Result<bool> {
        let Plain {
            operation,
            target,
            blocking,
            ..
        } = plain;
        let mut exchange = Exchange::Asks;
        let flood = || {
            exchange = Exchange::Alone;
            if plain.category == Category::Short {
                self.job.ni.anticipate_several(target, index::AM);
            }
        };
        let byte = match self.credits.flow.take_noting(target, cost, flood) {
            Some(byte) => byte,
            None => match self.wait_for_credits(operation, target, cost, blocking)? {
                Some(byte) => byte,
                None => return Ok(false),
            },
        };
        if exchange == Exchange::Asks && plain.payload.is_empty() {
            self.job.ni.anticipate(target, index::AM, exchange);
        }
        self.send_plain(plain, byte, exchange)
    }

    /// The message of a request that has its credits.
    #[inline(always)]
    pub(super) fn send_plain(
        &self,
        plain: Plain<'_>,
        byte: CreditByte,
        exchange: Exchange,
    ) -> Result<bool> {
        if self.inject_plain(plain, byte, None, exchange)? == Submit::Posted {
            return Ok(true);
        }
        // By its parts: what is handed over whole is put together in memory before it is known whether it is needed, and a core can
        // have only so many stores under way, which all wait for the line of a message.
        let Plain {
            operation,
            category,
            target,
            handler,
            args,
            payload,
            long,
            blocking,
        } = plain;
        let (dest, length) = long.map_or((0, 0), |long| (long.dest, long.length));
        self.request_plain_slowly(
            operation, category, target, handler, args, payload, dest, length, blocking, byte,
        )
    }

    #[inline(always)]
    fn inject_plain(
        &self,
        plain: Plain<'_>,
        byte: CreditByte,
        chunk: Option<u32>,
        exchange: Exchange,
    ) -> Result<Submit> {
        let (match_bits, hdr_data) = plain.header(byte, chunk);
        let mut space = [0; MOST_HEAD];
        let head = match plain.category {
            Category::Short => Body::of_short(plain.args),
            _ => head_in(&mut space, plain.args, plain.long),
        };
        let inject = Inject {
            target: plain.target,
            index: index::AM,
            match_bits,
            hdr_data,
            head,
            body: plain.payload,
            exchange,
        };
        Ok(self.job.ni.inject(&inject)?)
    }

    /// The target's queue is full for the moment. An immediate request is given up, with its credits.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "the parts of a request")]
    fn request_plain_slowly(
        &self,
        operation: &'static str,
        category: Category,
        target: Rank,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        dest: u64,
        length: u64,
        blocking: Blocking,
        byte: CreditByte,
    ) -> Result<bool> {
        let plain = Plain {
            operation,
            category,
            target,
            handler,
            args,
            payload,
            long: (category == Category::Long).then_some(Long { dest, length }),
            blocking,
        };
        if plain.blocking == Blocking::Immediate {
            self.credits.flow.give_back(plain.target, byte);
            return Ok(false);
        }
        self.wait_for(plain.operation, |engine| {
            Ok(
                (engine.inject_plain(plain, byte, None, Exchange::Alone)? == Submit::Posted)
                    .then_some(true),
            )
        })
    }
}
