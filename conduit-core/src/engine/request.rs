//! Requests: credits first, then the message in the cheapest way that the network offers.
//!
//! | peer | short, medium | long |
//! |---|---|---|
//! | mapped | one injected message | copy into the segment, then one injected message |
//! | not mapped, network injects | one injected message if it fits, else from a chunk | packed if it fits, else a put of the data and a message |
//! | network without inject | from a ReqSB chunk, which the reply frees | the same, from chunks |

use am::{
    Body, Category, Flags, Header, Long, MAX_ARGS, NO_CHUNK, NO_LID, Role as AmRole, limits, select,
};
use credits::{CreditByte, Scale};

use super::head::{MOST_HEAD, head_in};
use super::memory::Source;
use super::request_plain::Plain;
use super::rma::Blocking;
use super::table::index;
use super::token::{Role, Token};
use super::{Engine, Error, Result};
use crate::ni::{Ack, Exchange, Inject, Ni, Put, Rank, Reach, Submit};
use crate::threads::Mode;

/// A request being put together.
pub(super) struct Request<'a> {
    pub(super) operation: &'static str,
    pub(super) target: Rank,
    pub(super) handler: u8,
    pub(super) args: &'a [u32],
    pub(super) blocking: Blocking,
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Most payload bytes of a medium with `nargs` arguments, request or reply, to any rank.
    pub fn max_medium(&self, nargs: usize) -> usize {
        limits::max_medium(self.job.chunk, nargs)
    }

    /// Most bytes of a long request to `target`.
    pub fn max_long_request(&self, _target: Rank) -> usize {
        limits::MAX_LONG
    }

    /// Most bytes of a long reply to `target`: a reply may not wait, so where the requester's memory can't be written to at
    /// once its data has to fit the message.
    pub fn max_long_reply(&self, target: Rank) -> usize {
        let at_once = match self.memory.is_everything() {
            true => self.memory.reaches(&self.job, target),
            false => target < self.job.size && self.job.is_mapped(self.job.ni.reach(target)),
        };
        if at_once {
            limits::MAX_LONG
        } else {
            limits::max_packed_long(self.job.chunk, MAX_ARGS)
        }
    }

    #[inline]
    pub(super) fn check_request(&self, request: &Request<'_>) -> Result<()> {
        self.job
            .check_context(request.operation, am::Operation::Request)?;
        self.job.check_rank(request.operation, request.target)?;
        if request.args.len() > MAX_ARGS {
            let count = request.args.len();
            return Err(Error::TooManyArgs {
                operation: request.operation,
                count,
                limit: MAX_ARGS,
            });
        }
        self.check_fault()
    }

    pub(super) fn check_payload(
        &self,
        request: &Request<'_>,
        length: usize,
        limit: usize,
    ) -> Result<()> {
        if length > limit {
            let (operation, rank) = (request.operation, request.target);
            return Err(Error::PayloadTooLong {
                operation,
                rank,
                length,
                limit,
            });
        }
        Ok(())
    }

    /// Runs handler `handler` at `target` with these arguments.
    ///
    /// `false`: not sent, as that would have blocked ([`Blocking::Immediate`]).
    #[inline]
    pub fn request_short(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        blocking: Blocking,
    ) -> Result<bool> {
        if !self.is_plain_way(target, args) {
            return self.request_short_otherwise(target, handler, args, blocking);
        }
        let short = Plain::of_short("request_short", target, handler, args, blocking);
        self.request_plain(short, Scale::SHORT_COST)
    }

    /// A short that does not go the plain way: by itself and by its parts, so that what the common case does not need is in
    /// memory nowhere.
    #[inline(never)]
    fn request_short_otherwise(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        blocking: Blocking,
    ) -> Result<bool> {
        let short = Plain::of_short("request_short", target, handler, args, blocking);
        match self.is_injected_way(target, args, 0) {
            true => self.request_injected(short, Scale::SHORT_COST),
            false => self.request_generally(short),
        }
    }

    /// As [`Engine::request_short`], with a payload of at most [`Engine::max_medium`] bytes, which may be reused on return.
    pub fn request_medium(
        &self,
        target: Rank,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        blocking: Blocking,
    ) -> Result<bool> {
        let medium = || Plain {
            operation: "request_medium",
            category: Category::Medium,
            target,
            handler,
            args,
            payload,
            long: None,
            blocking,
        };
        if !self.is_plain_way(target, args) || payload.len() > self.max_medium(args.len()) {
            return self.request_medium_otherwise(medium());
        }
        let cost = self
            .credits
            .scale
            .cost(Body::args_len(args.len()) + payload.len());
        self.request_plain(medium(), cost)
    }

    /// A medium that does not go the plain way. By itself, so that this one stays short.
    #[inline(never)]
    fn request_medium_otherwise(&self, plain: Plain<'_>) -> Result<bool> {
        let (args, length) = (plain.args.len(), plain.payload.len());
        if length <= self.max_medium(args) && self.is_injected_way(plain.target, plain.args, length)
        {
            let cost = self.credits.scale.cost(Body::args_len(args) + length);
            return self.request_injected(plain, cost);
        }
        self.request_generally(plain)
    }

    /// A short or medium, whatever the network; refused here if it may not be sent.
    #[inline(never)]
    fn request_generally(&self, plain: Plain<'_>) -> Result<bool> {
        let request = Request {
            operation: plain.operation,
            target: plain.target,
            handler: plain.handler,
            args: plain.args,
            blocking: plain.blocking,
        };
        self.check_request(&request)?;
        let limit = self.max_medium(plain.args.len());
        self.check_payload(&request, plain.payload.len(), limit)?;
        self.send_request(&request, plain.category, None, Source::of(plain.payload))
    }

    /// Credits, then the message.
    #[inline]
    pub(super) fn send_request(
        &self,
        request: &Request<'_>,
        category: Category,
        long: Option<Long>,
        payload: Source,
    ) -> Result<bool> {
        let reach = self.job.ni.reach(request.target);
        let head = Body::args_len(request.args.len()) + if long.is_some() { Long::LEN } else { 0 };
        let Some(byte) = self.credits(request, self.credits.scale.cost(head + payload.len))? else {
            return Ok(false);
        };
        let flags = if long.is_some() {
            Flags::PACKED
        } else {
            Flags::empty()
        };
        self.send(request, flags, category, long, payload, byte, reach)
    }

    #[inline]
    pub(super) fn credits(&self, request: &Request<'_>, cost: u8) -> Result<Option<CreditByte>> {
        self.take_credits(request.operation, request.target, cost, request.blocking)
    }

    /// Takes credits for a request; `None`: there are none and it may not wait.
    #[inline]
    pub(super) fn take_credits(
        &self,
        operation: &'static str,
        target: Rank,
        cost: u8,
        blocking: Blocking,
    ) -> Result<Option<CreditByte>> {
        if let Some(byte) = self.credits.flow.take(target, cost) {
            return Ok(Some(byte));
        }
        self.wait_for_credits(operation, target, cost, blocking)
    }

    #[cold]
    pub(super) fn wait_for_credits(
        &self,
        operation: &'static str,
        target: Rank,
        cost: u8,
        blocking: Blocking,
    ) -> Result<Option<CreditByte>> {
        let take = || {
            self.credits
                .take_collected(&self.job, &self.control, target, cost)
        };
        let byte = take()?;
        if byte.is_some() || blocking == Blocking::Immediate {
            return Ok(byte);
        }
        self.wait_for(operation, |_| take()).map(Some)
    }

    /// Sends the message of a request that has its credits. Blocks for the network's sake only, except when a chunk is
    /// needed.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "all parts of one message, inlined into three callers"
    )]
    pub(super) fn send(
        &self,
        request: &Request<'_>,
        flags: Flags,
        category: Category,
        long: Option<Long>,
        payload: Source,
        byte: CreditByte,
        reach: &Reach,
    ) -> Result<bool> {
        let (first, _) = request.args.split_first().unwrap_or((&0, &[]));
        let mut space = [0; MOST_HEAD];
        let head = head_in(&mut space, request.args, long);
        let mut header = Header {
            flags: Flags::of(category, AmRole::Request) | flags,
            handler: request.handler,
            nargs: request.args.len() as u8,
            credit: byte.bits(),
            chunk: NO_CHUNK,
            arg0: *first,
            lid: NO_LID,
        };
        if self.job.is_mapped(reach) {
            header.flags |= Flags::NO_CHUNK;
            // SAFETY: the payload is the caller's, valid until the call returns, and `inject` copies it.
            return self.inject(request, &header, head, unsafe { payload.slice() });
        }
        self.send_from_chunk(request, header, head, payload, reach)?;
        Ok(true)
    }

    #[inline]
    fn inject(
        &self,
        request: &Request<'_>,
        header: &Header,
        head: &[u8],
        body: &[u8],
    ) -> Result<bool> {
        let (match_bits, hdr_data) = header.encode(select::REQ_RB);
        let inject = Inject {
            target: request.target,
            index: index::AM,
            exchange: Exchange::Asks,
            match_bits,
            hdr_data,
            head,
            body,
        };
        if self.job.ni.inject(&inject)? == Submit::Posted {
            return Ok(true);
        }
        let byte = CreditByte::from_bits(header.credit);
        self.inject_slowly(request.operation, &inject, byte, request.blocking)
    }

    /// The target's queue is full for the moment. An immediate request is given up, with its credits.
    #[cold]
    fn inject_slowly(
        &self,
        operation: &'static str,
        inject: &Inject<'_>,
        byte: CreditByte,
        blocking: Blocking,
    ) -> Result<bool> {
        if blocking == Blocking::Immediate {
            self.credits.flow.give_back(inject.target, byte);
            return Ok(false);
        }
        self.wait_for(operation, |engine| {
            Ok((engine.job.ni.inject(inject)? == Submit::Posted).then_some(true))
        })
    }

    /// The seed's way: a chunk holds the request until its reply arrives there.
    #[cold]
    pub(super) fn send_from_chunk(
        &self,
        request: &Request<'_>,
        mut header: Header,
        head: &[u8],
        payload: Source,
        reach: &Reach,
    ) -> Result<()> {
        let chunk = self.wait_for(request.operation, |engine| Ok(engine.req_sb.take()))?;
        header.chunk = self.req_sb.units(chunk);
        let length = head.len() + payload.len;
        if reach.inject_size > 0 && length <= reach.inject_size {
            let waiting = Request {
                blocking: Blocking::Wait,
                ..*request
            };
            // SAFETY: as in `send`.
            let payload = unsafe { payload.slice() };
            return self.inject(&waiting, &header, head, payload).map(drop);
        }
        // SAFETY: the chunk is held, and `length` fits a chunk: heads are at most `MOST_HEAD`, payloads are checked
        // against `max_medium` and `max_packed_long`, which leave room for it. The payload is valid (caller).
        unsafe {
            let at = self.req_sb.at(chunk);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
            std::ptr::copy_nonoverlapping(payload.base, at.add(head.len()), payload.len);
        }
        self.put_request(request.operation, request.target, &header, chunk, 0, length)
    }

    /// Puts a request that lies in a chunk, from `start`.
    pub(super) fn put_request(
        &self,
        operation: &'static str,
        target: Rank,
        header: &Header,
        chunk: u32,
        start: usize,
        length: usize,
    ) -> Result<()> {
        let (match_bits, hdr_data) = header.encode(select::REQ_RB);
        self.take_ticket(operation)?;
        let put = Put {
            md: self.req_sb.md,
            local_offset: chunk as usize * self.job.chunk + start,
            length,
            ack: Ack::Local,
            target,
            index: index::AM,
            match_bits,
            remote_offset: 0,
            hdr_data,
            token: Token::new(Role::Ticket, None).bits(),
        };
        self.post_put(operation, &put)
    }

    /// Submits a put until the network takes it.
    pub(super) fn post_put(&self, operation: &'static str, put: &Put) -> Result<()> {
        self.wait_for(operation, |engine| {
            // SAFETY: whoever has made `put` keeps its source unchanged until the event: chunks are held until then,
            // other memory is the caller's promise.
            let submit = unsafe { engine.job.ni.put(put)? };
            Ok((submit == Submit::Posted).then_some(()))
        })
    }
}
