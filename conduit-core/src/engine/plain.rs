//! Plain requests: shorts and mediums that need no chunk, nearly all that a program receives.
//!
//! They come in runs with the same match bits, so for the same handler and with as many arguments. What follows from the
//! match bits is found out once ([`Known`]); a request like those before costs a comparison, the arguments' place in its
//! body and the handler's call. Those whose handlers do not reply are counted ([`Counted`]) and granted together.

use am::{Category, Flags, Header, Layout, NO_CHUNK};
use credits::{CreditByte, MAX_CREDITS};

use super::Engine;
use super::deliver::{Arrived, Bad, Handler, Payload};
use super::hand::Hand;
use super::poll::Inbox;
use crate::ni::{Capabilities, Ni, Rank};
use crate::threads::Mode;

/// Flags of the two kinds of plain requests.
const SHORT: Flags = Flags::SHORT.union(Flags::REQUEST).union(Flags::NO_CHUNK);
const MEDIUM: Flags = Flags::MEDIUM.union(Flags::REQUEST).union(Flags::NO_CHUNK);

/// What is known of plain requests with these match bits: they have been decoded and checked.
struct Known<N: Ni, M: Mode> {
    match_bits: u64,
    layout: Layout,
    medium: bool,
    /// As for a request from nobody.
    token: am::Token,
    id: u8,
    /// An id's handler never changes.
    handler: Handler<N, M>,
}

/// The plain requests that have come last.
pub(super) struct Recent<N: Ni, M: Mode> {
    known: Option<Known<N, M>>,
    /// The match bits of the last request that was not known. The second in a row is worth remembering.
    unknown: u64,
}

impl<N: Ni, M: Mode> Recent<N, M> {
    pub(super) fn new() -> Self {
        Self {
            known: None,
            unknown: 0,
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
    requests: u32,
    credits: u32,
}

impl Counted {
    /// Counts a request; false: it is not from the same peer as those before, or the first.
    #[inline(always)]
    fn count(&mut self, source: Rank, credits: u8) -> bool {
        let same = self.requests > 0 && self.source == source;
        if same {
            self.requests += 1;
            self.credits += u32::from(credits);
        }
        same
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// A message in a request buffer.
    #[inline(always)]
    pub(super) fn on_request(
        &self,
        message: Arrived<'_>,
        recent: &mut Recent<N, M>,
        inbox: &mut Inbox,
        hand: &Hand,
    ) {
        match &recent.known {
            Some(known) if known.match_bits == message.match_bits => {
                self.run_known(known, message, inbox, hand);
            }
            _ => self.on_unknown_request(message, recent, inbox, hand),
        }
    }

    #[inline(always)]
    fn run_known(&self, known: &Known<N, M>, message: Arrived<'_>, inbox: &mut Inbox, hand: &Hand) {
        let Arrived {
            source,
            hdr_data,
            data,
            ..
        } = message;
        let (arg0, credit) = (Header::arg0_in(hdr_data), Header::credit_in(hdr_data));
        let mut single = 0;
        let (args, rest) = match known.layout.read(arg0, data, &mut single) {
            Ok(parts) => parts,
            Err(error) => return self.bad(source, error.into()),
        };
        let payload = match known.medium {
            true => Payload::Medium(rest),
            false => Payload::None,
        };
        let token = am::Token {
            source,
            credit,
            replied: false.into(),
            ..known.token
        };
        self.call(&known.handler, known.id, &token, args, payload, Some(hand));
        if !token.replied.get() {
            self.end_request(&token, inbox, hand);
        }
    }

    #[inline(never)]
    fn on_unknown_request(
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
        let done = header.and_then(|header| {
            self.request_arrived(message, &header, inbox, hand)?;
            Ok(header)
        });
        match done {
            Err(bad) => self.bad(source, bad),
            Ok(header) if recent.unknown == match_bits => recent.known = self.know(&header),
            Ok(_) => recent.unknown = match_bits,
        }
    }

    /// What to keep of a request that has been handled.
    fn know(&self, header: &Header) -> Option<Known<N, M>> {
        if header.flags != SHORT && header.flags != MEDIUM {
            return None;
        }
        Some(Known {
            match_bits: header.encode(am::select::REQ_RB).0,
            layout: Layout::of(header).ok()?,
            medium: header.category() == Category::Medium,
            token: am::Token::new(0, header),
            id: header.handler,
            handler: self.handlers.table()?.get(header.handler)?.handler.clone(),
        })
    }

    /// What a request is owed whose handler has sent no reply.
    #[inline(always)]
    pub(super) fn end_request(&self, token: &am::Token, inbox: &mut Inbox, hand: &Hand) {
        let byte = CreditByte::from_bits(token.credit);
        let counted = byte.is_plain()
            && token.flags.contains(Flags::NO_CHUNK)
            && inbox.counted.count(token.source, byte.credits());
        if !counted {
            self.end_request_singly(token.source, byte, token.flags, token.chunk, inbox, hand);
        }
    }

    /// The same where it isn't counted as the one before.
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
        let reach = self.ni.reach(source);
        let mapped =
            flags.contains(Flags::NO_CHUNK) && reach.capabilities.contains(Capabilities::WINDOW);
        if mapped && byte.is_plain() {
            self.grant_counted(inbox, hand);
            inbox.counted = Counted {
                source,
                requests: 1,
                credits: byte.credits().into(),
            };
            return;
        }
        let back = self.grant(source, byte.bits());
        if mapped && back.is_plain() {
            inbox.give_back(source, 1, back.credits().into());
        } else {
            self.reply_implied(source, flags, chunk, back, hand);
        }
    }

    /// Grants what was counted. One is replied to by a message if the peer is to be told of the end of an epoch; its reply
    /// is in hand, as it has not been used.
    pub(super) fn grant_counted(&self, inbox: &mut Inbox, hand: &Hand) {
        let Counted {
            source,
            mut requests,
            mut credits,
        } = std::mem::take(&mut inbox.counted);
        if requests == 0 {
            return;
        }
        if self.grant_plain(source, requests) {
            let first = credits.min(MAX_CREDITS.into());
            let back = CreditByte::new(true, 0, first as u8);
            self.reply_implied(source, Flags::NO_CHUNK, NO_CHUNK, back, hand);
            requests -= 1;
            credits -= first;
        }
        if requests > 0 {
            inbox.give_back(source, requests, credits);
        }
    }
}
