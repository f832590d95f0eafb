//! Arrival of active messages: from an event to the handler's call.

use std::sync::Arc;

use am::handlers::{RegisterError, Registration, Table};
use am::lid::Pairing;
use am::{Body, Category, DataHeader, Flags, Header, Long};
use credits::CreditByte;

use super::flow::Returned;
use super::inbox::Inbox;
use super::message::{Payload, PendingLong, ProtocolError};
use super::reserve::ReplyReserve;
use super::table::index;
use super::{Call, Engine, Error, Handler, Result, context};
use crate::ni::{Capabilities, Exchange, Ni, PutEvent, Rank};
use crate::threads::Mode;

/// Dropped only by a handler's panic, which ends the job: nobody may run the same message again, and threads that wait
/// for what it should have brought must hear of it.
struct Panicking<'a, N: Ni, M: Mode>(&'a Engine<N, M>, u8);

impl<N: Ni, M: Mode> Drop for Panicking<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self(engine, handler) = *self;
        engine.job.fail(Error::HandlerPanicked {
            rank: engine.job.rank,
            handler,
        });
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Registers more handlers; ids that were [`am::handlers::AUTOMATIC`] are written back. Local, does not poll.
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
    pub(super) fn register_own(&self, list: &[Registration<Handler<N, M>>]) -> Result<()>
    where
        N: 'static,
    {
        let entered = self.checked(list);
        self.enter(|table| table.register_reserved(&entered))
    }

    /// With checks each handler says where its thread is. Found out here, so that without them a call costs nothing for it.
    fn checked(&self, list: &[Registration<Handler<N, M>>]) -> Vec<Registration<Handler<N, M>>>
    where
        N: 'static,
    {
        let mut list = list.to_vec();
        if self.job.has_checks() {
            for Registration { entry, .. } in &mut list {
                let handler = entry.handler.clone();
                entry.handler = Arc::new(move |call| {
                    let _entered = context::Entered::new(call.token.context());
                    handler(call);
                });
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
    #[inline]
    pub(super) fn on_request(&self, put: &PutEvent<'_>, inbox: &mut Inbox, reserve: &ReplyReserve) {
        if let Err(error) = self.run_request_of(put, inbox, reserve) {
            self.protocol_error(put.source, error);
        }
    }

    #[inline]
    fn run_request_of(
        &self,
        put: &PutEvent<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> Result<(), ProtocolError> {
        let header = Header::decode(put.match_bits, put.hdr_data)?;
        if header.role() != am::Role::Request {
            return Err(ProtocolError::ReplyAmongRequests);
        }
        self.anticipate_short(header.category(), put.source, Exchange::Answers);
        let mut single = 0;
        let (args, rest) = Body::read_args(&header, put.data, &mut single)?;
        let payload = match header.category() {
            Category::Short => Payload::None,
            Category::Medium => Payload::Medium(rest),
            Category::Long => {
                let long = Long::read(&header, put.data)?;
                if header.flags.has_separate_data() {
                    let pending = PendingLong::new(header, args, long);
                    return self.pair(put.source, header.lid, Some(pending), inbox, reserve);
                }
                self.memory.place_long(&self.job, &header, &long, rest)?
            }
        };
        self.run_request(put.source, &header, args, payload, inbox, reserve)
    }

    /// The data of a long request has been placed.
    #[cold]
    pub(super) fn on_long_data(
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
    #[cold]
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
                let payload = self.memory.place_long(&self.job, &header, &long, &[])?;
                let args = &args[..usize::from(header.nargs)];
                self.run_request(source, &header, args, payload, inbox, reserve)
            }
            Pairing::Full(_) => Err(ProtocolError::TooManyLongs),
            Pairing::Duplicate(_) => Err(ProtocolError::SameHalf { lid }),
        }
    }

    #[inline]
    fn run_request(
        &self,
        source: Rank,
        header: &Header,
        args: &[u32],
        payload: Payload<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> Result<(), ProtocolError> {
        let token = am::Token::new(source, header);
        self.run(header, &token, args, payload, Some(reserve))?;
        if token.owes_reply() {
            self.end_request(&token, inbox, reserve);
        }
        Ok(())
    }

    #[inline(always)]
    fn run(
        &self,
        header: &Header,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    ) -> Result<(), ProtocolError> {
        let id = header.handler;
        let table = self.handlers.table();
        let entry = table
            .and_then(|table| table.get(id))
            .ok_or(ProtocolError::NoHandler { id })?;
        entry.check(header)?;
        let panicking = Panicking(self, id);
        (entry.handler)(&Call {
            engine: self,
            token,
            reserve,
            args,
            payload,
        });
        std::mem::forget(panicking);
        Ok(())
    }

    /// What a request is owed whose handler has sent no reply.
    #[inline]
    fn end_request(&self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
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
            self.replies.send_implied(
                &self.job,
                &self.tickets,
                source,
                flags,
                chunk,
                back,
                reserve,
            );
        }
    }

    /// A message has come. After a short another to its source is likely to follow at once: the reply, or the next request.
    /// Others are mostly answered by others, and while a payload is written, the line would be taken back.
    #[inline(always)]
    fn anticipate_short(&self, category: Category, source: Rank, exchange: Exchange) {
        if category == Category::Short {
            let index = match exchange {
                Exchange::Answers => index::SAFE,
                Exchange::Asks | Exchange::Alone => index::AM,
            };
            self.job.ni.anticipate(source, index, exchange);
        }
    }

    /// A message in a reply buffer or in the chunk of its request.
    #[inline]
    pub(super) fn on_reply(&self, put: &PutEvent<'_>) {
        if let Err(error) = self.run_reply(put) {
            self.protocol_error(put.source, error);
        }
    }

    #[inline]
    fn run_reply(&self, put: &PutEvent<'_>) -> Result<(), ProtocolError> {
        let header = Header::decode(put.match_bits, put.hdr_data)?;
        if header.role() != am::Role::Reply {
            return Err(ProtocolError::RequestAmongReplies);
        }
        // The next request, which most replies are waited for.
        self.anticipate_short(header.category(), put.source, Exchange::Asks);
        self.credits
            .flow
            .settle(put.source, CreditByte::from_bits(header.credit))?;
        if !header.flags.contains(Flags::IMPLIED) {
            let data = self.body(put).ok_or(ProtocolError::OutsideOfChunk)?;
            let mut single = 0;
            let (args, rest) = Body::read_args(&header, data, &mut single)?;
            let payload = match header.category() {
                Category::Short => Payload::None,
                Category::Medium => Payload::Medium(rest),
                Category::Long => {
                    self.memory
                        .place_long(&self.job, &header, &Long::read(&header, data)?, rest)?
                }
            };
            let token = am::Token::new(put.source, &header);
            self.run(&header, &token, args, payload, None)?;
        }
        if let Some(offset) = header.reply_chunk() {
            self.req_sb.give(&self.job, self.req_sb.number(offset));
        }
        Ok(())
    }

    #[cold]
    pub(super) fn protocol_error(&self, source: Rank, error: ProtocolError) {
        self.job.fail_by_message(source, error.to_string());
    }
}
