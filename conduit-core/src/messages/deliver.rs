//! Arrival of active messages: from an event to the handler's call.

use std::sync::Arc;

use am::handlers::{RegisterError, Registration, Table};
use am::lid::Pairing;
use am::{Body, Category, DataHeader, Flags, Header, HeaderError, Long, Role};
use credits::CreditByte;

use crate::engine::{Call, Engine, Handler};
use crate::kernel::context;
use crate::kernel::error::{Error, Result};
use crate::messages::flow::Returned;
use crate::messages::inbox::Inbox;
use crate::messages::kind::Kind;
use crate::messages::payload::{Payload, PendingLong, ProtocolError};
use crate::messages::reserve::ReplyReserve;
use crate::ni::{Capabilities, Ni, PutEvent, Rank};
use crate::threads::Mode;

/// Match bits and header data.
type Words = (u64, u64);

/// Dropped only by a handler's panic, which ends the job: nobody may run the same message again,
/// and threads that wait for what it should have brought must hear of it.
struct Panicking<'a, N: Ni, M: Mode>(&'a Engine<N, M>, u8);

impl<N: Ni, M: Mode> Drop for Panicking<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self(engine, handler) = *self;
        let name = engine.handlers.get(handler).and_then(|entry| entry.name);
        engine.job.fail(Error::HandlerPanicked {
            rank: engine.job.rank,
            handler: match name {
                Some(name) => format!("{handler} ({name})"),
                None => handler.to_string(),
            },
        });
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Registers more handlers; ids that were [`am::handlers::AUTOMATIC`] are written back. Local,
    /// does not poll.
    pub fn register(&self, list: &mut [Registration<Handler<N, M>>]) -> Result<()>
    where
        N: 'static,
    {
        let mut entered = self.checked(list);
        self.enter(|table| table.register(&mut entered))?;
        for (registration, entered) in list.iter_mut().zip(entered) {
            registration.id = entered.id;
        }
        Ok(())
    }

    /// Registers handlers of the library itself.
    pub(crate) fn register_own(&self, list: &[Registration<Handler<N, M>>]) -> Result<()>
    where
        N: 'static,
    {
        let entered = self.checked(list);
        self.enter(|table| table.register_reserved(&entered))
    }

    /// With checks each handler says where its thread is. Found out here, so that without them a
    /// call costs nothing for it.
    fn checked(&self, list: &[Registration<Handler<N, M>>]) -> Vec<Registration<Handler<N, M>>>
    where
        N: 'static,
    {
        let mut list = list.to_vec();
        if self.job.has_checks() {
            for Registration { entry, .. } in &mut list {
                let handler = entry.handler.clone();
                entry.handler = Handler(Arc::new(move |call| {
                    let _entered = context::Entered::new(call.token.context());
                    (handler.0)(call);
                }));
            }
        }
        list
    }

    fn enter(
        &self,
        enter: impl FnOnce(&mut Table<Handler<N, M>>) -> Result<(), RegisterError>,
    ) -> Result<()> {
        self.handlers
            .replace(enter)
            .map_err(|reason| Error::Register {
                rank: self.job.rank,
                reason,
            })
    }

    /// A request in a request buffer.
    #[inline(always)]
    pub(crate) fn on_request(
        &self,
        put: &PutEvent<'_>,
        last: &mut Kind,
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

    /// Runs a request's handler, and what the request is owed if that has sent no reply.
    #[inline(always)]
    fn run_request(
        &self,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        self.call(id, token, args, payload, Some(reserve));
        if token.owes_reply() {
            self.end_request(token, inbox, reserve);
        }
    }

    /// Finds out the kind of a message, which came where only those of a role may. False: it is
    /// none, which has ended the job.
    #[inline(never)]
    fn learn_kind(&self, source: Rank, words: Words, role: Role, last: &mut Kind) -> bool {
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

    fn find_kind(&self, words: Words, role: Role) -> Result<Kind, ProtocolError> {
        let header = Header::decode(words.0, words.1)?;
        match (header.role() == role, role) {
            (true, _) => {}
            (false, Role::Request) => return Err(ProtocolError::ReplyAmongRequests),
            (false, Role::Reply) => return Err(ProtocolError::RequestAmongReplies),
        }
        if !header.flags.contains(Flags::IMPLIED) {
            let id = header.handler;
            let entry = self.handlers.get(id);
            entry
                .ok_or(ProtocolError::NoHandler { id })?
                .check(&header)?;
        }
        Ok(Kind::of(words.0, &header)?)
    }

    /// What the handler of a message is called with. The data of a long is put to its place, if the
    /// message carries it. `None`: the message is malformed.
    #[inline(always)]
    fn parts<'a>(
        &self,
        kind: &Kind,
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
                self.memory.placed_long(&self.job, &long).ok()?
            }
        };
        Some((args, payload))
    }

    #[inline(never)]
    fn place_packed(&self, words: Words, data: &[u8]) -> Result<Payload<'static>, ProtocolError> {
        let header = Header::decode(words.0, words.1)?;
        let long = Long::read(&header, data)?;
        let mut single = 0;
        let (_, packed) = Body::read_args(&header, data, &mut single)?;
        self.memory.place_packed(&self.job, &long, packed)
    }

    /// What is wrong with a message that has no [parts](Self::parts).
    #[cold]
    fn on_malformed(&self, source: Rank, words: Words, data: &[u8]) {
        let check = || {
            let header = Header::decode(words.0, words.1)?;
            Body::read_args(&header, data, &mut 0)?;
            match header.category() {
                Category::Long if header.flags.contains(Flags::PACKED) => {
                    self.place_packed(words, data)
                }
                Category::Long => {
                    let long = Long::read(&header, data)?;
                    self.memory.placed_long(&self.job, &long)
                }
                _ => Err(HeaderError::Misaligned.into()),
            }
        };
        // A second look that finds nothing wrong has seen something else: the message is lost all
        // the same.
        let found = check().err();
        self.protocol_error(source, found.unwrap_or(HeaderError::Misaligned.into()));
    }

    /// Runs a handler, of whose kind of message it is known that there is one. A panic of it ends
    /// the job.
    #[inline(always)]
    fn call(
        &self,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    ) {
        let Some(entry) = self.handlers.get(id) else {
            return;
        };
        let panicking = Panicking(self, id);
        (entry.handler.0)(&Call {
            engine: self,
            token,
            reserve,
            args,
            payload,
        });
        std::mem::forget(panicking);
    }

    /// Runs a client's handler that a handler of the library has been told to run.
    pub(crate) fn run(&self, id: u8, token: &am::Token, payload: Payload<'_>) {
        self.call(id, token, &[], payload, None);
    }

    /// The message of a long request whose data is placed by another.
    #[cold]
    fn on_long_header(
        &self,
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

    /// The data of a long request has been placed.
    #[cold]
    pub(crate) fn on_long_data(
        &self,
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

    /// One half of a long request; runs the handler when it is the second.
    fn pair(
        &self,
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
                let payload = self.memory.placed_long(&self.job, &long)?;
                let args = &args[..usize::from(header.nargs)];
                let token = am::Token::new(source, &header);
                self.run_request(header.handler, &token, args, payload, inbox, reserve);
                Ok(())
            }
            Pairing::Full(_) => Err(ProtocolError::TooManyLongs),
            Pairing::Duplicate(_) => Err(ProtocolError::SameHalf { lid }),
        }
    }

    /// What a request is owed whose handler has sent no reply. In the common case it is counted,
    /// with others of its sender.
    #[inline(always)]
    fn end_request(&self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
        let byte = CreditByte::from_bits(token.credit);
        let is_counted = token.flags.contains(Flags::NO_CHUNK)
            && byte.is_plain()
            && self.job.is_short_cut(token.source);
        match is_counted {
            true => inbox.count(&self.job, &self.credits, token.source, byte.credits()),
            false => self.answer_request(token, inbox, reserve),
        }
    }

    /// The same, whoever sent it.
    #[inline(never)]
    fn answer_request(&self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
        let byte = CreditByte::from_bits(token.credit);
        let &am::Token {
            source,
            flags,
            chunk,
            ..
        } = token;
        let reach = self.job.ni.reach(source);
        let mapped =
            flags.contains(Flags::NO_CHUNK) && reach.capabilities.contains(Capabilities::WINDOW);
        if mapped && byte.is_plain() {
            inbox.count(&self.job, &self.credits, source, byte.credits());
            return;
        }
        let back = self.credits.grant(&self.job, source, byte.bits());
        if mapped && back.extra() == 0 {
            let ended = Returned::default().add(1, back.credits().into());
            inbox.give_back(source, ended, back.end_of_epoch());
        } else {
            self.replies
                .send_implied(&self.job, source, flags, chunk, back, reserve);
        }
    }

    /// A message in a reply buffer or in the chunk of its request.
    #[inline(always)]
    pub(crate) fn on_reply(&self, put: &PutEvent<'_>, last: &mut Kind) {
        let words = (put.match_bits, put.hdr_data);
        if !last.is_of(put.match_bits) && !self.learn_kind(put.source, words, Role::Reply, last) {
            return;
        }
        let kind = &*last;
        let token = kind.token(put.source, put);
        let credit = CreditByte::from_bits(token.credit);
        if let Err(violation) = self.credits.flow.settle(put.source, credit) {
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
            self.call(kind.id, &token, args, payload, None);
        }
        if !kind.flags.contains(Flags::NO_CHUNK) {
            self.req_sb.give(&self.job, self.req_sb.number(token.chunk));
        }
    }

    #[cold]
    pub(crate) fn protocol_error(&self, source: Rank, error: ProtocolError) {
        self.job.fail_by_message(source, error.to_string());
    }
}
