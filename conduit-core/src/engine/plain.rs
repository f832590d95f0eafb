//! Plain messages: shorts, mediums, and longs whose data is in place, nearly all that a program receives.
//!
//! They come in runs with the same match bits (but for a chunk), so for the same handler and with as many arguments. What follows
//! from those is found out once ([`Known`]); a message like those before costs a comparison, the arguments' place in its
//! body and the handler's call. Requests without a chunk whose handlers do not reply are counted ([`Counted`]) and granted together.

use am::{Category, Flags, Header, Layout};
use credits::CreditByte;

use super::Engine;
use super::deliver::{Arrived, Handler};
use super::flow::Returned;
use super::hand::Hand;
use super::message::{Bad, Payload};
use super::requests::Inbox;
use super::table::index;
use crate::ni::{Capabilities, Common, Exchange, Ni, PutEvent, Puts, Rank};
use crate::threads::Mode;

/// Flags of plain messages, but for what says that they need no chunk, and of requests.
const PLAIN: [Flags; 3] = [
    Flags::SHORT,
    Flags::MEDIUM,
    Flags::LONG.union(Flags::DEST_IN_PLACE),
];

/// What is known of plain messages of one kind: they have been decoded and checked.
pub(super) struct Known<N: Ni, M: Mode> {
    kind: u32,
    layout: Layout,
    category: Category,
    /// As for a message from nobody.
    token: am::Token,
    id: u8,
    /// An id's handler never changes.
    handler: Handler<N, M>,
}

/// The plain requests, or replies, that have come last.
pub(super) struct Recent<N: Ni, M: Mode> {
    known: Option<Known<N, M>>,
    /// The kind of the last one that was not known. The second in a row is worth remembering.
    unknown: u32,
}

/// The match bits without the chunk.
#[inline(always)]
fn kind_of(match_bits: u64) -> u32 {
    match_bits as u32
}

impl<N: Ni, M: Mode> Recent<N, M> {
    pub(super) fn new() -> Self {
        Self {
            known: None,
            unknown: 0,
        }
    }

    /// What is known of messages with these match bits.
    #[inline(always)]
    pub(super) fn known(&self, match_bits: u64) -> Option<&Known<N, M>> {
        self.known
            .as_ref()
            .filter(|known| known.kind == kind_of(match_bits))
    }

    /// One that was not known has been handled.
    fn note(&mut self, header: &Header, match_bits: u64, engine: &Engine<N, M>) {
        if self.known(match_bits).is_some() {
            // One in its request's chunk, which goes the general way all the same.
            return;
        }
        if self.unknown == kind_of(match_bits) {
            self.known = engine.know(header, self.unknown);
        } else {
            self.unknown = kind_of(match_bits);
        }
    }
}

impl<N: Ni, M: Mode> std::fmt::Debug for Recent<N, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recent").finish_non_exhaustive()
    }
}

/// Requests of one mapped peer with plain credit bytes, whose handlers have run and not replied, not granted yet.
#[derive(Debug, Default)]
pub(super) struct Counted {
    source: Rank,
    ended: Returned,
}

impl Counted {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ended == Returned::default()
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Requests that are known: all that follows from what they have in common is found out before the first. False: none
    /// is taken, they have to go the general way.
    #[inline(always)]
    pub(super) fn run_known<P: Puts>(
        &self,
        known: &Known<N, M>,
        puts: &mut P,
        inbox: &mut Inbox,
        hand: &Hand,
    ) -> bool {
        let Common { source, length, .. } = puts.common();
        let reach = self.job.ni.reach(source);
        if known.layout.check(length).is_err()
            || !known.token.flags.contains(Flags::NO_CHUNK)
            || !reach.capabilities.contains(Capabilities::WINDOW)
        {
            return false;
        }
        self.count_for(source, inbox);
        // A copy of the loop for each, where the category is known.
        match known.category {
            Category::Short => self.run_alike(known, Category::Short, puts, inbox, hand),
            Category::Medium => self.run_alike(known, Category::Medium, puts, inbox, hand),
            Category::Long => self.run_alike(known, Category::Long, puts, inbox, hand),
        }
        true
    }

    /// The same for a request by itself.
    #[inline(always)]
    pub(super) fn run_known_single(
        &self,
        known: &Known<N, M>,
        put: &PutEvent<'_>,
        inbox: &mut Inbox,
        hand: &Hand,
    ) -> bool {
        self.anticipate_short(known.category, put.source, Exchange::Answers);
        let single = Header::arg0_in(put.hdr_data);
        let Some((token, args, payload)) = self.parts(known, put, put.data, &single) else {
            return false;
        };
        self.call(&known.handler, known.id, &token, args, payload, Some(hand));
        if !token.replied.get() {
            self.end_request(&token, inbox, hand);
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
    pub(super) fn run_known_reply(&self, known: &Known<N, M>, put: &PutEvent<'_>) -> bool {
        // The next request, which most replies are waited for.
        self.anticipate_short(known.category, put.source, Exchange::Asks);
        let single = Header::arg0_in(put.hdr_data);
        let Some((token, args, payload)) = self.parts(known, put, put.data, &single) else {
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

    /// What the handler of a message that is known is called with. `None`: there is something wrong with it.
    #[inline(always)]
    fn parts<'a>(
        &self,
        known: &Known<N, M>,
        put: &PutEvent<'_>,
        data: &'a [u8],
        single: &'a u32,
    ) -> Option<(am::Token, &'a [u32], Payload<'a>)> {
        let layout = known.layout;
        layout.check(put.length).ok()?;
        let args = layout.args(data, single).ok()?;
        let payload = self.payload_in(known.category, layout, data).ok()?;
        let token = am::Token {
            source: put.source,
            credit: Header::credit_in(put.hdr_data),
            chunk: Header::chunk_in(put.match_bits),
            ..known.token.clone()
        };
        Some((token, args, payload))
    }

    /// The payload of a message that is known.
    #[inline(always)]
    fn payload_in<'a>(
        &self,
        category: Category,
        layout: Layout,
        data: &'a [u8],
    ) -> Result<Payload<'a>, Bad> {
        match category {
            Category::Short => Ok(Payload::None),
            Category::Medium => Ok(Payload::Medium(layout.payload(data))),
            Category::Long => match layout.long(data) {
                Some(long) => self.memory.placed_long(&self.job, &long),
                // `Layout::check` has found it long enough.
                None => Err(Bad::NotAttached),
            },
        }
    }

    #[inline(always)]
    fn run_alike<P: Puts>(
        &self,
        known: &Known<N, M>,
        category: Category,
        puts: &mut P,
        inbox: &mut Inbox,
        hand: &Hand,
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
            let args = layout.args(put.data, &single).map_err(Bad::from);
            let (args, payload) = match args
                .and_then(|args| Ok((args, self.payload_in(category, layout, put.data)?)))
            {
                Ok(parts) => parts,
                Err(bad) => {
                    self.bad(source, bad);
                    break;
                }
            };
            token.credit = Header::credit_in(put.hdr_data);
            token.replied.set(false);
            self.call_within(handler, &token, args, payload, Some(hand));
            let byte = CreditByte::from_bits(token.credit);
            if byte.is_plain() && !token.replied.get() {
                ended = ended.add(1, byte.credits().into());
                continue;
            }
            if !token.replied.get() {
                self.end_request_singly(source, byte, token.flags, token.chunk, inbox, hand);
            }
            if !self.can_reply(hand) {
                break;
            }
        }
        std::mem::forget(panicking);
        inbox.counted.ended = inbox.counted.ended.and(ended);
    }

    #[inline(never)]
    pub(super) fn on_unknown_request(
        &self,
        message: Arrived<'_>,
        recent: &mut Recent<N, M>,
        inbox: &mut Inbox,
        hand: &Hand,
    ) {
        let Arrived {
            source, match_bits, ..
        } = message;
        let header = Header::decode(match_bits, message.hdr_data).map_err(Bad::from);
        if let Ok(header) = &header {
            self.anticipate_short(header.category(), source, Exchange::Answers);
        }
        let done = header.and_then(|header| {
            self.request_arrived(message, &header, inbox, hand)?;
            Ok(header)
        });
        match done {
            Err(bad) => self.bad(source, bad),
            Ok(header) if header.role() == am::Role::Request => {
                recent.note(&header, match_bits, self);
            }
            Ok(_) => {}
        }
    }

    pub(super) fn on_unknown_reply(&self, put: &PutEvent<'_>, recent: &mut Recent<N, M>) {
        match self.reply_arrived(put) {
            Err(bad) => self.bad(put.source, bad),
            Ok(header) => recent.note(&header, put.match_bits, self),
        }
    }

    /// What to keep of a message that has been handled, of this kind.
    fn know(&self, header: &Header, kind: u32) -> Option<Known<N, M>> {
        let flags = header
            .flags
            .difference(Flags::NO_CHUNK.union(Flags::REQUEST));
        if !PLAIN.contains(&flags) {
            return None;
        }
        Some(Known {
            kind,
            layout: Layout::of(header).ok()?,
            category: header.category(),
            token: am::Token::new(0, header),
            id: header.handler,
            handler: self.handlers.table()?.get(header.handler)?.handler.clone(),
        })
    }

    /// What a request is owed whose handler has sent no reply.
    #[inline]
    pub(super) fn end_request(&self, token: &am::Token, inbox: &mut Inbox, hand: &Hand) {
        let byte = CreditByte::from_bits(token.credit);
        self.end_request_singly(token.source, byte, token.flags, token.chunk, inbox, hand);
    }

    #[inline(never)]
    fn end_request_singly(
        &self,
        source: Rank,
        byte: CreditByte,
        flags: Flags,
        chunk: u32,
        inbox: &mut Inbox,
        hand: &Hand,
    ) {
        let reach = self.job.ni.reach(source);
        let mapped =
            flags.contains(Flags::NO_CHUNK) && reach.capabilities.contains(Capabilities::WINDOW);
        if mapped && byte.is_plain() {
            self.count_for(source, inbox);
            inbox.counted.ended = inbox.counted.ended.add(1, byte.credits().into());
            return;
        }
        let back = self.credits.grant(&self.job, source, byte.bits());
        if mapped && back.extra() == 0 {
            let ended = Returned::default().add(1, back.credits().into());
            inbox.give_back(source, ended, back.end_of_epoch());
        } else {
            self.reply_implied(source, flags, chunk, back, hand);
        }
    }

    /// Grants what was counted of any other peer: from here on requests of this one are counted.
    #[inline]
    fn count_for(&self, source: Rank, inbox: &mut Inbox) {
        if inbox.counted.source != source {
            self.grant_counted(inbox);
            inbox.counted.source = source;
        }
    }

    /// Grants what was counted.
    #[inline]
    pub(super) fn grant_counted(&self, inbox: &mut Inbox) {
        if !inbox.counted.is_empty() {
            let ended = std::mem::take(&mut inbox.counted.ended);
            let source = inbox.counted.source;
            let end_of_epoch = self.credits.grant_plain(
                &self.job,
                source,
                ended.since(Returned::default()).requests,
            );
            inbox.give_back(source, ended, end_of_epoch);
        }
    }
}
