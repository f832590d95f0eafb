//! Arrival of active messages: from an event to the reserveler's call.

use std::sync::Arc;

use am::handlers::{RegisterError, Registration, Table};
use am::lid::Pairing;
use am::{Body, Category, DataHeader, Flags, Header, Long, MAX_ARGS};
use credits::CreditByte;

use super::inbox::Inbox;
use super::message::{Arrived, Payload, PendingLong, ProtocolError};
use super::reserve::ReplyReserve;
use super::{Call, Engine, Error, Handler, Result, context};
use crate::ni::{Ni, PutEvent, Rank};
use crate::threads::Mode;

/// Dropped only by a reserveler's panic, which ends the job: nobody may run the same message again, and threads that wait
/// for what it should have brought must hear of it.
pub(super) struct Panicking<'a, N: Ni, M: Mode>(&'a Engine<N, M>, u8);

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

    /// A request, in the general way.
    pub(super) fn request_arrived(
        &self,
        message: Arrived<'_>,
        header: &Header,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> Result<(), ProtocolError> {
        let Arrived { source, data, .. } = message;
        let mut single = 0;
        let (args, rest) = Body::read_args(header, data, &mut single)?;
        let payload = match header.category() {
            Category::Short => Payload::None,
            Category::Medium => Payload::Medium(rest),
            Category::Long => {
                return self.long_arrived(source, data, header, args, rest, inbox, reserve);
            }
        };
        self.run_request(source, header, args, payload, inbox, reserve)
    }

    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "by register: a struct would have to be in memory for every message"
    )]
    fn long_arrived(
        &self,
        source: Rank,
        data: &[u8],
        header: &Header,
        args: &[u32],
        rest: &[u8],
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> Result<(), ProtocolError> {
        let long = Long::read(header, data)?;
        if header.flags.has_separate_data() {
            let mut kept = [0; MAX_ARGS];
            kept[..args.len()].copy_from_slice(args);
            let pending = PendingLong {
                header: *header,
                args: kept,
                long,
            };
            return self.pair(source, header.lid, Some(pending), inbox, reserve);
        }
        let payload = self.memory.place_long(&self.job, header, &long, rest)?;
        self.run_request(source, header, args, payload, inbox, reserve)
    }

    /// The data of a long request has been placed.
    pub(super) fn on_long_data(
        &self,
        source: Rank,
        match_bits: u64,
        hdr_data: u64,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let paired = DataHeader::decode(match_bits, hdr_data)
            .map_err(ProtocolError::from)
            .and_then(|header| self.pair(source, header.lid, None, inbox, reserve));
        if let Err(bad) = paired {
            self.bad(source, bad);
        }
    }

    /// One half of a long request; runs the reserveler when it is the second.
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
        let entry = self
            .handlers
            .table()
            .and_then(|table| table.get(header.handler))
            .ok_or(ProtocolError::NoHandler { id: header.handler })?;
        entry.check(header)?;
        self.call(
            &entry.handler,
            header.handler,
            token,
            args,
            payload,
            reserve,
        );
        Ok(())
    }

    /// Runs a reserveler that has been found to be the right one.
    #[inline(always)]
    pub(super) fn call(
        &self,
        handler: &Handler<N, M>,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    ) {
        let panicking = self.panicking(id);
        self.call_within(&**handler, token, args, payload, reserve);
        std::mem::forget(panicking);
    }

    /// To be forgotten after calls of this handler that have not panicked.
    #[inline(always)]
    pub(super) fn panicking(&self, id: u8) -> Panicking<'_, N, M> {
        Panicking(self, id)
    }

    /// Runs a reserveler, within the life of a [`Panicking`].
    #[inline(always)]
    pub(super) fn call_within(
        &self,
        handler: &(dyn Fn(&Call<'_, N, M>) + Send + Sync),
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    ) {
        handler(&Call {
            engine: self,
            token,
            reserve,
            args,
            payload,
        });
    }

    /// A message in a reply buffer or in the chunk of its request, in the general way.
    pub(super) fn reply_arrived(&self, put: &PutEvent<'_>) -> Result<Header, ProtocolError> {
        let header = Header::decode(put.match_bits, put.hdr_data)?;
        if header.role() != am::Role::Reply {
            return Err(ProtocolError::RequestAmongReplies);
        }
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
        Ok(header)
    }

    #[cold]
    pub(super) fn bad(&self, source: Rank, bad: ProtocolError) {
        self.job.fail_by_message(source, bad.to_string());
    }
}
