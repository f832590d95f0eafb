//! The delivery of active messages, from the event up to the call of the handler.

use am::lid::Pairing;
use am::{Body, Category, DataHeader, Flags, Header, HeaderError, Long, Role};
use credits::CreditByte;

use super::Messages;
use super::flow::Returned;
use super::inbox::Inbox;
use super::kind::MessageKind;
use super::payload::{Payload, PendingLong, ProtocolError};
use super::reserve::ReplyReserve;
use crate::kernel::Kernel;
use crate::kernel::portal_table::tag;
use crate::memory::Memory;
use crate::ni::{Capabilities, Ni, PutEvent, Rank};
use crate::threads::Mode;

/// The match bits and header data of a message.
type Words = (u64, u64);

/// The receiver of messages, which is the engine. It lends its subjects to the delivery and calls
/// handlers.
pub(crate) trait Receiver {
    type Ni: Ni;
    type Mode: Mode;
    type Handler: Clone;

    fn subjects(&self) -> Subjects<'_, Self>;

    /// Runs the handler with this registered id. `reserve` is present if the handler may reply.
    fn run(
        &self,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    );
}

pub(crate) type Subjects<'a, R> = (
    &'a Kernel<<R as Receiver>::Ni, <R as Receiver>::Mode>,
    &'a Memory,
    &'a Messages<<R as Receiver>::Mode, <R as Receiver>::Handler>,
);

/// The delivery of messages to a receiver. This type is one word in size, because it is passed
/// along with each message.
pub(crate) struct Delivery<'a, R>(pub(crate) &'a R);

impl<R> Clone for Delivery<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for Delivery<'_, R> {}

fn long_payload<'a>((offset, length): (usize, usize)) -> Payload<'a> {
    Payload::Long { offset, length }
}

impl<'e, R: Receiver> Delivery<'e, R> {
    #[inline(always)]
    pub(crate) fn kernel(self) -> &'e Kernel<R::Ni, R::Mode> {
        self.0.subjects().0
    }

    #[inline(always)]
    fn memory(self) -> &'e Memory {
        self.0.subjects().1
    }

    #[inline(always)]
    pub(crate) fn messages(self) -> &'e Messages<R::Mode, R::Handler> {
        self.0.subjects().2
    }

    /// Handles a request that has arrived in a request buffer.
    #[inline(always)]
    pub(crate) fn on_request(
        self,
        put: &PutEvent<'_>,
        last: &mut MessageKind,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let words = (put.match_bits, put.hdr_data);
        if !last.is_of(put.match_bits) && !self.learn_kind(put.source, words, Role::Request, last) {
            return;
        }
        let kind = &*last;
        if kind.flags.has_separate_data() {
            return self.on_long_header(put.source, words, put.data, inbox, reserve);
        }
        let single = Header::arg0_in(put.hdr_data);
        let Some((args, payload)) = self.parts(kind, words, put.data, &single) else {
            return self.on_malformed(put.source, words, put.data);
        };
        let token = kind.token(put.source, put);
        self.run_request(kind.id, &token, args, payload, inbox, reserve);
    }

    /// Runs the handler of a request. If the handler has sent no reply, completes the request.
    #[inline(always)]
    fn run_request(
        self,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        self.0.run(id, token, args, payload, Some(reserve));
        if token.owes_reply() {
            self.end_request(token, inbox, reserve);
        }
    }

    /// Determines the kind of a message that has arrived in a queue for messages of `role`. Returns
    /// false if the message is invalid; the job has then been ended.
    #[inline(never)]
    fn learn_kind(self, source: Rank, words: Words, role: Role, last: &mut MessageKind) -> bool {
        match self.find_kind(words, role) {
            Ok(kind) => {
                *last = kind;
                true
            }
            Err(error) => {
                self.protocol_error(source, error);
                false
            }
        }
    }

    fn find_kind(self, words: Words, role: Role) -> Result<MessageKind, ProtocolError> {
        let header = Header::decode(words.0, words.1)?;
        match (header.role() == role, role) {
            (true, _) => {}
            (false, Role::Request) => return Err(ProtocolError::ReplyAmongRequests),
            (false, Role::Reply) => return Err(ProtocolError::RequestAmongReplies),
        }
        if !header.flags.contains(Flags::IMPLIED) {
            let id = header.handler;
            let entry = self.messages().handlers.get(id);
            entry
                .ok_or(ProtocolError::NoHandler { id })?
                .check(&header)?;
        }
        Ok(MessageKind::of(words.0, &header)?)
    }

    /// Returns the arguments and the payload with which to call the handler. If the message carries
    /// the data of a long, copies that data to its destination. Returns `None` if the message is
    /// malformed.
    #[inline(always)]
    fn parts<'a>(
        self,
        kind: &MessageKind,
        words: Words,
        data: &'a [u8],
        single: &'a u32,
    ) -> Option<(&'a [u32], Payload<'a>)> {
        let layout = kind.layout;
        layout.check(data.len()).ok()?;
        let args = layout.args(data, single).ok()?;
        let payload = match kind.category {
            Category::Short => Payload::None,
            Category::Medium => Payload::Medium(layout.payload(data)),
            Category::Long if kind.flags.contains(Flags::PACKED) => {
                self.place_packed(words, data).ok()?
            }
            Category::Long => {
                let long = layout.long(data)?;
                long_payload(self.memory().placed_long(self.kernel(), &long).ok()?)
            }
        };
        Some((args, payload))
    }

    #[inline(never)]
    fn place_packed(self, words: Words, data: &[u8]) -> Result<Payload<'static>, ProtocolError> {
        let header = Header::decode(words.0, words.1)?;
        let long = Long::read(&header, data)?;
        let mut single = 0;
        let (_, packed) = Body::read_args(&header, data, &mut single)?;
        Ok(long_payload(self.memory().place_packed(
            self.kernel(),
            &long,
            packed,
        )?))
    }

    /// Reports the error in a message for which [`parts`](Self::parts) has returned `None`.
    #[cold]
    fn on_malformed(self, source: Rank, words: Words, data: &[u8]) {
        let check = || {
            let header = Header::decode(words.0, words.1)?;
            Body::read_args(&header, data, &mut 0)?;
            match header.category() {
                Category::Long if header.flags.contains(Flags::PACKED) => {
                    self.place_packed(words, data)
                }
                Category::Long => {
                    let long = Long::read(&header, data)?;
                    Ok(long_payload(
                        self.memory().placed_long(self.kernel(), &long)?,
                    ))
                }
                _ => Err(HeaderError::Misaligned.into()),
            }
        };
        // If this second check finds no error, the bytes have changed since the first check. The
        // message is lost nevertheless.
        let found = check().err();
        self.protocol_error(source, found.unwrap_or(HeaderError::Misaligned.into()));
    }

    /// Handles the header of a long request whose data travels separately.
    #[cold]
    fn on_long_header(
        self,
        source: Rank,
        words: Words,
        data: &[u8],
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let read = || {
            let header = Header::decode(words.0, words.1)?;
            let mut single = 0;
            let (args, _) = Body::read_args(&header, data, &mut single)?;
            Ok(PendingLong::new(header, args, Long::read(&header, data)?))
        };
        let paired = read().and_then(|pending| {
            let lid = pending.header.lid;
            self.pair(source, lid, Some(pending), inbox, reserve)
        });
        if let Err(error) = paired {
            self.protocol_error(source, error);
        }
    }

    /// Handles the arrival of a long request's data.
    #[cold]
    pub(crate) fn on_long_data(
        self,
        put: &PutEvent<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let paired = DataHeader::decode(put.match_bits, put.hdr_data)
            .map_err(ProtocolError::from)
            .and_then(|header| self.pair(put.source, header.lid, None, inbox, reserve));
        if let Err(error) = paired {
            self.protocol_error(put.source, error);
        }
    }

    /// Pairs one half of a long request with the other, and runs the handler once both have
    /// arrived.
    fn pair(
        self,
        source: Rank,
        lid: u32,
        header: Option<PendingLong>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> Result<(), ProtocolError> {
        let pairing = match header {
            Some(header) => inbox.longs.arrive_header(source, lid, header),
            None => inbox.longs.arrive_data(source, lid),
        };
        match pairing {
            Pairing::Wait => Ok(()),
            Pairing::Ready(PendingLong { header, args, long }) => {
                let payload = long_payload(self.memory().placed_long(self.kernel(), &long)?);
                let args = &args[..usize::from(header.nargs)];
                let token = am::Token::new(source, &header);
                self.run_request(header.handler, &token, args, payload, inbox, reserve);
                Ok(())
            }
            Pairing::Full(_) => Err(ProtocolError::TooManyLongs),
            Pairing::Duplicate(_) => Err(ProtocolError::SameHalf { lid }),
        }
    }

    /// Returns the credits of a request whose handler has sent no reply. In the common case they
    /// are added to a counter that its sender reads.
    #[inline(always)]
    fn end_request(self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
        let byte = CreditByte::from_bits(token.credit);
        let is_counted = token.flags.contains(Flags::NO_CHUNK)
            && byte.is_plain()
            && self.kernel().job.is_short_cut(token.source);
        match is_counted {
            true => inbox.count(
                self.kernel(),
                &self.messages().credits,
                token.source,
                byte.credits(),
            ),
            false => self.answer_request(token, inbox, reserve),
        }
    }

    /// Returns the credits of any request, either by counter or by the implied reply.
    #[inline(never)]
    fn answer_request(self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
        let byte = CreditByte::from_bits(token.credit);
        let &am::Token {
            source,
            flags,
            chunk,
            ..
        } = token;
        let reach = self.kernel().job.ni.reach(source);
        let mapped =
            flags.contains(Flags::NO_CHUNK) && reach.capabilities.contains(Capabilities::WINDOW);
        if mapped && byte.is_plain() {
            inbox.count(
                self.kernel(),
                &self.messages().credits,
                source,
                byte.credits(),
            );
            return;
        }
        let back = self
            .messages()
            .credits
            .grant(self.kernel(), source, byte.bits());
        if mapped && back.extra() == 0 {
            let ended = Returned::default().add(1, back.credits().into());
            inbox.give_back(source, ended, back.end_of_epoch());
        } else {
            self.messages().replies.send_implied(
                self.kernel(),
                source,
                flags,
                chunk,
                back,
                reserve,
            );
        }
    }

    /// Handles a message that has arrived in a reply buffer, or in the chunk of the request that it
    /// answers.
    #[inline(always)]
    pub(crate) fn on_reply(self, put: &PutEvent<'_>, last: &mut MessageKind) {
        let words = (put.match_bits, put.hdr_data);
        if !last.is_of(put.match_bits) && !self.learn_kind(put.source, words, Role::Reply, last) {
            return;
        }
        let kind = &*last;
        let token = kind.token(put.source, put);
        let credit = CreditByte::from_bits(token.credit);
        if let Err(violation) = self.messages().credits.flow.settle(put.source, credit) {
            return self.protocol_error(put.source, violation.into());
        }
        if !kind.flags.contains(Flags::IMPLIED) {
            let Some(data) = self.body(put) else {
                return self.protocol_error(put.source, ProtocolError::OutsideOfChunk);
            };
            let single = Header::arg0_in(put.hdr_data);
            let Some((args, payload)) = self.parts(kind, words, data, &single) else {
                return self.on_malformed(put.source, words, data);
            };
            self.0.run(kind.id, &token, args, payload, None);
        }
        if !kind.flags.contains(Flags::NO_CHUNK) {
            self.kernel()
                .give_chunk(self.kernel().chunks.number(token.chunk));
        }
    }

    #[cold]
    pub(crate) fn protocol_error(self, source: Rank, error: ProtocolError) {
        self.kernel().job.fail_by_message(source, error.to_string());
    }

    /// Returns the bytes of a put event as a message body, which lies in the buffer or in the chunk
    /// to which it was put.
    fn body<'p>(self, put: &PutEvent<'p>) -> Option<&'p [u8]>
    where
        'e: 'p,
    {
        if put.tag == tag::RPL_RB {
            return Some(put.data);
        }
        let first = self.kernel().chunks.in_chunk(put.offset, put.length)?;
        // SAFETY: `in_chunk` has checked that the bytes lie inside one ReqSB chunk, and the network
        // wrote them before this event. The chunk belongs to the request that this reply answers
        // and is freed only after the handler, so nothing writes the bytes while the slice lives.
        // (A peer that does so violates the protocol.)
        Some(unsafe { std::slice::from_raw_parts(first, put.length) })
    }
}
