//! Plain messages: shorts, mediums, and longs whose data is in place, nearly all that a program receives.
//!
//! They come in runs with the same match bits (but for a chunk), so for the same handler and with as many arguments. What follows
//! from those is found out once ([`CachedHeader`]); a message like those before costs a comparison, the arguments' place in its
//! body and the reserveler's call. Requests without a chunk whose handlers do not reply are counted ([`PendingReturns`]) and granted together.

use am::{Category, Flags, Header};
use credits::CreditByte;

use super::Engine;
use super::Handler;
use super::flow::Returned;
use super::header_cache::{CachedHeader, HeaderCache, payload_in};
use super::inbox::Inbox;
use super::message::{Arrived, ProtocolError};
use super::reserve::ReplyReserve;
use super::table::index;
use crate::ni::{Capabilities, Common, Exchange, Ni, PutEvent, Puts, Rank};
use crate::threads::Mode;

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Requests that are known: all that follows from what they have in common is found out before the first. False: none
    /// is taken, they have to go the general way.
    #[inline(always)]
    pub(super) fn run_known<P: Puts>(
        &self,
        known: &CachedHeader<Handler<N, M>>,
        puts: &mut P,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> bool {
        let Common { source, length, .. } = puts.common();
        let reach = self.job.ni.reach(source);
        if known.layout.check(length).is_err()
            || !known.token.flags.contains(Flags::NO_CHUNK)
            || !reach.capabilities.contains(Capabilities::WINDOW)
        {
            return false;
        }
        inbox.count_for(&self.job, &self.credits, source);
        // A copy of the loop for each, where the category is known.
        match known.category {
            Category::Short => self.run_alike(known, Category::Short, puts, inbox, reserve),
            Category::Medium => self.run_alike(known, Category::Medium, puts, inbox, reserve),
            Category::Long => self.run_alike(known, Category::Long, puts, inbox, reserve),
        }
        true
    }

    /// The same for a request by itself.
    #[inline(always)]
    pub(super) fn run_known_single(
        &self,
        known: &CachedHeader<Handler<N, M>>,
        put: &PutEvent<'_>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) -> bool {
        self.anticipate_short(known.category, put.source, Exchange::Answers);
        let single = Header::arg0_in(put.hdr_data);
        let Some((token, args, payload)) =
            known.parts(&self.job, &self.memory, put, put.data, &single)
        else {
            return false;
        };
        self.call(
            &known.handler,
            known.id,
            &token,
            args,
            payload,
            Some(reserve),
        );
        if !token.replied.get() {
            self.end_request(&token, inbox, reserve);
        }
        true
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

    /// A reply that is known. False: it has to go the general way.
    #[inline(always)]
    pub(super) fn run_known_reply(
        &self,
        known: &CachedHeader<Handler<N, M>>,
        put: &PutEvent<'_>,
    ) -> bool {
        // The next request, which most replies are waited for.
        self.anticipate_short(known.category, put.source, Exchange::Asks);
        let single = Header::arg0_in(put.hdr_data);
        let Some((token, args, payload)) =
            known.parts(&self.job, &self.memory, put, put.data, &single)
        else {
            return false;
        };
        let byte = CreditByte::from_bits(token.credit);
        match self.credits.flow.settle(put.source, byte) {
            Ok(()) => self.call(&known.handler, known.id, &token, args, payload, None),
            Err(violation) => {
                self.bad(put.source, violation.into());
                return true;
            }
        }
        if !token.flags.contains(Flags::NO_CHUNK) {
            self.req_sb.give(&self.job, self.req_sb.number(token.chunk));
        }
        true
    }

    #[inline(always)]
    fn run_alike<P: Puts>(
        &self,
        known: &CachedHeader<Handler<N, M>>,
        category: Category,
        puts: &mut P,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let Common { source, .. } = puts.common();
        let mut token = am::Token {
            source,
            ..known.token.clone()
        };
        let (handler, layout) = (&*known.handler, known.layout);
        let mut ended = Returned::default();
        let panicking = self.panicking(known.id);
        while let Some(put) = puts.next() {
            let single = Header::arg0_in(put.hdr_data);
            let args = layout.args(put.data, &single).map_err(ProtocolError::from);
            let (args, payload) = match args.and_then(|args| {
                Ok((
                    args,
                    payload_in(&self.job, &self.memory, category, layout, put.data)?,
                ))
            }) {
                Ok(parts) => parts,
                Err(bad) => {
                    self.bad(source, bad);
                    break;
                }
            };
            token.credit = Header::credit_in(put.hdr_data);
            token.replied.set(false);
            self.call_within(handler, &token, args, payload, Some(reserve));
            let byte = CreditByte::from_bits(token.credit);
            if byte.is_plain() && !token.replied.get() {
                ended = ended.add(1, byte.credits().into());
                continue;
            }
            if !token.replied.get() {
                self.end_request_singly(source, byte, token.flags, token.chunk, inbox, reserve);
            }
            if !self.replies.can_reply(reserve) {
                break;
            }
        }
        std::mem::forget(panicking);
        inbox.pending.ended = inbox.pending.ended.and(ended);
    }

    #[inline(never)]
    pub(super) fn on_unknown_request(
        &self,
        message: Arrived<'_>,
        headers: &mut HeaderCache<Handler<N, M>>,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let Arrived {
            source, match_bits, ..
        } = message;
        let header = Header::decode(match_bits, message.hdr_data).map_err(ProtocolError::from);
        if let Ok(header) = &header {
            self.anticipate_short(header.category(), source, Exchange::Answers);
        }
        let done = header.and_then(|header| {
            self.request_arrived(message, &header, inbox, reserve)?;
            Ok(header)
        });
        match done {
            Err(bad) => self.bad(source, bad),
            Ok(header) if header.role() == am::Role::Request => {
                headers.note(&header, match_bits, &self.handlers);
            }
            Ok(_) => {}
        }
    }

    pub(super) fn on_unknown_reply(
        &self,
        put: &PutEvent<'_>,
        headers: &mut HeaderCache<Handler<N, M>>,
    ) {
        match self.reply_arrived(put) {
            Err(bad) => self.bad(put.source, bad),
            Ok(header) => headers.note(&header, put.match_bits, &self.handlers),
        }
    }

    /// What a request is owed whose handler has sent no reply.
    #[inline]
    pub(super) fn end_request(&self, token: &am::Token, inbox: &mut Inbox, reserve: &ReplyReserve) {
        let byte = CreditByte::from_bits(token.credit);
        self.end_request_singly(token.source, byte, token.flags, token.chunk, inbox, reserve);
    }

    #[inline(never)]
    fn end_request_singly(
        &self,
        source: Rank,
        byte: CreditByte,
        flags: Flags,
        chunk: u32,
        inbox: &mut Inbox,
        reserve: &ReplyReserve,
    ) {
        let reach = self.job.ni.reach(source);
        let mapped =
            flags.contains(Flags::NO_CHUNK) && reach.capabilities.contains(Capabilities::WINDOW);
        if mapped && byte.is_plain() {
            inbox.count_for(&self.job, &self.credits, source);
            inbox.pending.ended = inbox.pending.ended.add(1, byte.credits().into());
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
}
