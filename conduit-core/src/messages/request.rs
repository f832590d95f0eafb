//! Requests. A request takes its credits first, and then sends its message in the cheapest way that
//! the network offers.
//!
//! | peer | short, medium | long |
//! |---|---|---|
//! | mapped | one injected message | copy into the segment, then one injected message |
//! | not mapped, network injects | one injected message if it fits, else from a chunk | packed if it fits, else a put of the data and a message |
//! | network without inject | from a ReqSB chunk, which the reply frees | packed if it fits, else a put of the data and a message; messages are sent from ReqSB chunks |

use am::{
    Body, Category, Flags, Header, Long, MAX_ARGS, NO_CHUNK, NO_LID, Role as AmRole, limits, select,
};
use credits::{CreditByte, Scale};

use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::{Error, Result};
use crate::kernel::options::Blocking;
use crate::kernel::portal_table::index;
use crate::kernel::token::{Role, Token};
use crate::memory::Remote;
use crate::messages::head::{MOST_HEAD, head_in};
use crate::ni::{Ack, Exchange, Inject, Ni, Put, Rank, Submit};
use crate::threads::Mode;

/// An outgoing request. It is passed by value, because storing its fields in memory first would
/// cost more than the message itself.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) operation: &'static str,
    pub(crate) category: Category,
    pub(crate) target: Rank,
    pub(crate) handler: u8,
    pub(crate) args: &'a [u32],
    /// The payload: the bytes of a medium or of a packed long.
    pub(crate) payload: &'a [u8],
    /// For a long, its destination and the way in which its bytes get there. If the bytes travel
    /// separately, `lid` pairs them with this message.
    pub(crate) long: Option<(Long, Flags)>,
    pub(crate) lid: u32,
    /// Whether the request goes straight into a queue of the target.
    pub(crate) is_mapped: bool,
    pub(crate) blocking: Blocking,
}

impl<'a> Request<'a> {
    /// Creates a request that carries only arguments.
    #[inline(always)]
    pub(crate) fn new(
        operation: &'static str,
        category: Category,
        target: Rank,
        handler: u8,
        args: &'a [u32],
        is_mapped: bool,
        blocking: Blocking,
    ) -> Self {
        Self {
            operation,
            category,
            target,
            handler,
            args,
            payload: &[],
            long: None,
            lid: NO_LID,
            is_mapped,
            blocking,
        }
    }

    /// Returns the length of the request's message in bytes.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        let head = Body::args_len(self.args.len());
        head + self.long.map_or(0, |_| Long::LEN) + self.payload.len()
    }

    #[inline(always)]
    fn header(&self, byte: CreditByte, chunk: Option<u32>) -> Header {
        let flags = Flags::of(self.category, AmRole::Request);
        let flags = flags.union(self.long.map_or(Flags::empty(), |(_, how)| how));
        Header {
            flags: match chunk {
                Some(_) => flags,
                None => flags.union(Flags::NO_CHUNK),
            },
            handler: self.handler,
            nargs: self.args.len() as u8,
            credit: byte.bits(),
            chunk: chunk.unwrap_or(NO_CHUNK),
            arg0: self.args.first().copied().unwrap_or(0),
            lid: self.lid,
        }
    }

    /// Returns the head of the message, which precedes the payload.
    #[inline(always)]
    fn head<'b>(&self, space: &'b mut [u8; MOST_HEAD]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self.category {
            Category::Short => Body::of_short(self.args),
            _ => head_in(space, self.args, self.long.map(|(long, _)| long)),
        }
    }

    /// Injects the request as a single message.
    #[inline(always)]
    fn inject<N: Ni>(
        self,
        ni: &N,
        byte: CreditByte,
        chunk: Option<u32>,
        exchange: Exchange,
    ) -> Result<bool> {
        let (match_bits, hdr_data) = self.header(byte, chunk).encode(select::REQ_RB);
        let mut space = [0; MOST_HEAD];
        let inject = Inject {
            target: self.target,
            index: index::AM,
            match_bits,
            hdr_data,
            head: self.head(&mut space),
            body: self.payload,
            exchange,
        };
        Ok(ni.inject(&inject)? == Submit::Posted)
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Messages> {
    /// Returns the maximum payload, in bytes, of a medium with `nargs` arguments. It is the same
    /// for requests and replies, and for all ranks.
    pub fn max_medium(self, nargs: usize) -> usize {
        limits::max_medium(self.job().chunk, nargs)
    }

    /// Checks that a medium with this payload has room for the maximum number of arguments.
    #[inline]
    pub fn check_medium(self, target: Rank, length: usize) -> Result<()> {
        let limit = self.max_medium(MAX_ARGS);
        match length <= limit {
            true => Ok(()),
            false => Err(Error::PayloadTooLong {
                operation: "request_medium",
                rank: target,
                length,
                limit,
            }),
        }
    }

    /// Checks that the rank is in the job.
    pub fn check_rank(self, operation: &'static str, rank: Rank) -> Result<()> {
        self.job().check_rank(operation, rank)
    }

    /// Returns the maximum length in bytes of a long request to `target`.
    pub fn max_long_request(self, _target: Rank) -> usize {
        limits::MAX_LONG
    }

    /// Returns the maximum length in bytes of a long reply to `target`. A reply may not wait, so
    /// its data must fit in the message unless the requester's memory can be written directly.
    pub fn max_long_reply(self, target: Rank) -> usize {
        let at_once = match self.engine.memory.is_process() {
            true => self
                .engine
                .memory
                .address_at_once(Remote::segment(target, 0))
                .is_some(),
            false => target < self.job().size && self.job().is_mapped(self.job().ni.reach(target)),
        };
        if at_once {
            limits::MAX_LONG
        } else {
            limits::max_packed_long(self.job().chunk, MAX_ARGS)
        }
    }

    /// Checks that a request may be sent, which takes one comparison in the common case. Returns
    /// whether the target is mapped.
    #[inline(always)]
    pub(crate) fn check_request(
        self,
        operation: &'static str,
        target: Rank,
        args: &[u32],
    ) -> Result<bool> {
        match self.job().is_short_cut(target) && args.len() <= MAX_ARGS {
            true => Ok(true),
            false => self.check_request_fully(operation, target, args.len()),
        }
    }

    /// Performs all checks for a request, and returns whether the target is mapped.
    #[cold]
    fn check_request_fully(
        self,
        operation: &'static str,
        target: Rank,
        count: usize,
    ) -> Result<bool> {
        self.job()
            .check_context(operation, am::Operation::Request)?;
        self.job().check_rank(operation, target)?;
        if count > MAX_ARGS {
            return Err(Error::TooManyArgs {
                operation,
                count,
                limit: MAX_ARGS,
            });
        }
        self.engine.check_fault()?;
        Ok(self.job().is_mapped(self.job().ni.reach(target)))
    }

    /// Runs the handler with id `handler` at `target` with these arguments.
    ///
    /// Returns `false` if the request was not sent because sending it would have blocked
    /// ([`Blocking::Immediate`]).
    #[inline]
    pub fn request_short(
        self,
        target: Rank,
        handler: u8,
        args: &[u32],
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request";
        let mapped = self.check_request(OPERATION, target, args)?;
        let category = Category::Short;
        let short = Request::new(OPERATION, category, target, handler, args, mapped, blocking);
        self.request(short, Scale::SHORT_COST)
    }

    /// Sends a request as [`Calls::request_short`] does, with a payload of at most
    /// [`Calls::max_medium`] bytes. The payload may be reused when this call returns.
    pub fn request_medium(
        self,
        target: Rank,
        handler: u8,
        args: &[u32],
        payload: &[u8],
        blocking: Blocking,
    ) -> Result<bool> {
        const OPERATION: &str = "request_medium";
        let mapped = self.check_request(OPERATION, target, args)?;
        let category = Category::Medium;
        let medium = Request {
            payload,
            ..Request::new(OPERATION, category, target, handler, args, mapped, blocking)
        };
        let (length, limit) = (payload.len(), self.max_medium(args.len()));
        if length > limit {
            return Err(Error::PayloadTooLong {
                operation: OPERATION,
                rank: target,
                length,
                limit,
            });
        }
        self.request(
            medium,
            self.engine.messages.credits.scale.cost(medium.length()),
        )
    }

    /// Takes the credits for a request, and sends the request.
    #[inline(always)]
    pub(crate) fn request(self, request: Request<'_>, cost: u8) -> Result<bool> {
        let Request {
            operation,
            target,
            blocking,
            ..
        } = request;
        let mut exchange = Exchange::ExpectsReply;
        let flood = || exchange = Exchange::OneWay;
        let byte = match self
            .engine
            .messages
            .credits
            .flow
            .take_noting(target, cost, flood)
        {
            Some(byte) => byte,
            None => match self.wait_for_credits(operation, target, cost, blocking)? {
                Some(byte) => byte,
                None => return Ok(false),
            },
        };
        self.send(request, byte, exchange)
    }

    /// Takes credits for a request. Returns `None` if none are free and the request may not wait
    /// for them.
    #[inline]
    pub(crate) fn take_credits(
        self,
        operation: &'static str,
        target: Rank,
        cost: u8,
        blocking: Blocking,
    ) -> Result<Option<CreditByte>> {
        if let Some(byte) = self.engine.messages.credits.flow.take(target, cost) {
            return Ok(Some(byte));
        }
        self.wait_for_credits(operation, target, cost, blocking)
    }

    #[cold]
    fn wait_for_credits(
        self,
        operation: &'static str,
        target: Rank,
        cost: u8,
        blocking: Blocking,
    ) -> Result<Option<CreditByte>> {
        let take = || {
            self.engine
                .messages
                .credits
                .take_collected(self.kernel(), target, cost)
        };
        let byte = take()?;
        if byte.is_some() || blocking == Blocking::Immediate {
            return Ok(byte);
        }
        self.engine
            .wait_for(operation, Awaits::Credits(target), |_| take())
            .map(Some)
    }

    /// Sends the message of a request whose credits have been taken. If the target is mapped, its
    /// queue is full and the request is immediate, the request is dropped and its credits are
    /// returned. If the target is not mapped, even an immediate request may wait for a chunk and
    /// for the network.
    #[inline(always)]
    pub(crate) fn send(
        self,
        request: Request<'_>,
        byte: CreditByte,
        exchange: Exchange,
    ) -> Result<bool> {
        if request.is_mapped && request.inject(&self.job().ni, byte, None, exchange)? {
            return Ok(true);
        }
        match request.is_mapped {
            true => self.send_later(request, byte),
            false => self.send_from_chunk(request, byte),
        }
    }

    /// Sends a request to a target whose queue is full at the moment.
    #[cold]
    fn send_later(self, request: Request<'_>, byte: CreditByte) -> Result<bool> {
        if request.blocking == Blocking::Immediate {
            self.engine
                .messages
                .credits
                .flow
                .give_back(request.target, byte);
            return Ok(false);
        }
        self.engine
            .wait_for(request.operation, Awaits::Room(request.target), |engine| {
                let sent = request.inject(&engine.job().ni, byte, None, Exchange::OneWay)?;
                Ok(sent.then_some(true))
            })
    }

    /// Sends a request to an unmapped peer. Takes a chunk for the reply, and sends the request from
    /// this chunk if the message is too long to be injected. Waits for the chunk and for the
    /// network.
    #[cold]
    fn send_from_chunk(self, request: Request<'_>, byte: CreditByte) -> Result<bool> {
        let operation = request.operation;
        let chunk = match self.kernel().chunks.take() {
            Some(chunk) => chunk,
            None => self.engine.wait_for(operation, Awaits::Chunk, |engine| {
                Ok(engine.kernel.chunks.take())
            })?,
        };
        let units = Some(self.kernel().chunks.units(chunk));
        let most = self.job().ni.reach(request.target).inject_size;
        if most > 0 && request.length() <= most {
            let inject = || request.inject(&self.job().ni, byte, units, Exchange::OneWay);
            let sent = match inject() {
                Ok(false) => self
                    .engine
                    .wait_for(operation, Awaits::Room(request.target), |_| {
                        Ok(inject()?.then_some(true))
                    }),
                sent => sent,
            };
            if sent.is_err() {
                self.kernel().give_chunk(chunk);
                self.engine
                    .messages
                    .credits
                    .flow
                    .give_back(request.target, byte);
            }
            return sent;
        }
        let mut space = [0; MOST_HEAD];
        let (head, payload) = (request.head(&mut space), request.payload);
        // SAFETY: the chunk is held, and head and payload fit in it. Heads have at most `MOST_HEAD`
        // bytes, and payloads are checked against `max_medium` and `max_packed_long`, which leave
        // room for heads.
        unsafe {
            let at = self.kernel().chunks.at(chunk);
            std::ptr::copy_nonoverlapping(head.as_ptr(), at, head.len());
            std::ptr::copy_nonoverlapping(payload.as_ptr(), at.add(head.len()), payload.len());
        }
        let length = head.len() + payload.len();
        let header = request.header(byte, units);
        self.put_request(operation, request.target, &header, chunk, 0, length)?;
        Ok(true)
    }

    /// Puts a request whose `length` bytes lie at offset `start` in a chunk.
    pub(crate) fn put_request(
        self,
        operation: &'static str,
        target: Rank,
        header: &Header,
        chunk: u32,
        start: usize,
        length: usize,
    ) -> Result<()> {
        let (match_bits, hdr_data) = header.encode(select::REQ_RB);
        self.engine.rma().take_ticket(operation)?;
        let put = Put {
            md: self.kernel().chunks.md,
            local_offset: chunk as usize * self.job().chunk + start,
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

    /// Submits a put again and again until the network accepts it.
    pub(crate) fn post_put(self, operation: &'static str, put: &Put) -> Result<()> {
        self.engine
            .wait_for(operation, Awaits::Room(put.target), |engine| {
                // SAFETY: the creator of `put` keeps its source unchanged until the completion
                // event. Chunks are held until then. For other memory the creator's own caller
                // guarantees this.
                let submit = unsafe { engine.job().ni.put(put)? };
                Ok((submit == Submit::Posted).then_some(()))
            })
    }
}
