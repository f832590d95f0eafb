//! What is known of plain messages: shorts, mediums, and longs whose data is in place, nearly all that a program receives.
//!
//! They come in runs with the same match bits (but for a chunk), so for the same handler and with as many arguments. What follows
//! from those is found out once ([`CachedHeader`]).

use am::{Category, Flags, Header, Layout};

use super::handlers::Handlers;
use super::job::Job;
use super::memory::Memory;
use super::message::{Payload, ProtocolError};
use crate::ni::{Ni, PutEvent};

/// Flags of plain messages, but for what says that they need no chunk, and of requests.
const PLAIN: [Flags; 3] = [
    Flags::SHORT,
    Flags::MEDIUM,
    Flags::LONG.union(Flags::DEST_IN_PLACE),
];

/// What is known of plain messages of one kind: they have been decoded and checked.
pub(super) struct CachedHeader<H> {
    kind: u32,
    pub(super) layout: Layout,
    pub(super) category: Category,
    /// As for a message from nobody.
    pub(super) token: am::Token,
    pub(super) id: u8,
    /// An id's handler never changes.
    pub(super) handler: H,
}

/// The plain requests, or replies, that have come last.
pub(super) struct HeaderCache<H> {
    known: Option<CachedHeader<H>>,
    /// The kind of the last one that was not known. The second in a row is worth remembering.
    unknown: u32,
}

/// The match bits without the chunk.
#[inline(always)]
fn kind_of(match_bits: u64) -> u32 {
    match_bits as u32
}

impl<H: Clone> HeaderCache<H> {
    pub(super) fn new() -> Self {
        Self {
            known: None,
            unknown: 0,
        }
    }

    /// What is known of messages with these match bits.
    #[inline(always)]
    pub(super) fn known(&self, match_bits: u64) -> Option<&CachedHeader<H>> {
        self.known
            .as_ref()
            .filter(|known| known.kind == kind_of(match_bits))
    }

    /// One that was not known has been handled.
    pub(super) fn note(&mut self, header: &Header, match_bits: u64, handlers: &Handlers<H>) {
        if self.known(match_bits).is_some() {
            // One in its request's chunk, which goes the general way all the same.
            return;
        }
        if self.unknown == kind_of(match_bits) {
            self.known = CachedHeader::of(header, self.unknown, handlers);
        } else {
            self.unknown = kind_of(match_bits);
        }
    }
}

impl<H> std::fmt::Debug for HeaderCache<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeaderCache").finish_non_exhaustive()
    }
}

impl<H: Clone> CachedHeader<H> {
    /// What to keep of a message that has been handled, of this kind.
    fn of(header: &Header, kind: u32, handlers: &Handlers<H>) -> Option<Self> {
        let flags = header
            .flags
            .difference(Flags::NO_CHUNK.union(Flags::REQUEST));
        if !PLAIN.contains(&flags) {
            return None;
        }
        Some(Self {
            kind,
            layout: Layout::of(header).ok()?,
            category: header.category(),
            token: am::Token::new(0, header),
            id: header.handler,
            handler: handlers.table()?.get(header.handler)?.handler.clone(),
        })
    }

    /// What the reserveler of a message that is known is called with. `None`: there is something wrong with it.
    #[inline(always)]
    pub(super) fn parts<'a, N: Ni>(
        &self,
        job: &Job<N>,
        memory: &Memory,
        put: &PutEvent<'_>,
        data: &'a [u8],
        single: &'a u32,
    ) -> Option<(am::Token, &'a [u32], Payload<'a>)> {
        let layout = self.layout;
        layout.check(put.length).ok()?;
        let args = layout.args(data, single).ok()?;
        let payload = payload_in(job, memory, self.category, layout, data).ok()?;
        let token = am::Token {
            source: put.source,
            credit: Header::credit_in(put.hdr_data),
            chunk: Header::chunk_in(put.match_bits),
            ..self.token.clone()
        };
        Some((token, args, payload))
    }
}

/// The payload of a message that is known.
#[inline(always)]
pub(super) fn payload_in<'a, N: Ni>(
    job: &Job<N>,
    memory: &Memory,
    category: Category,
    layout: Layout,
    data: &'a [u8],
) -> Result<Payload<'a>, ProtocolError> {
    match category {
        Category::Short => Ok(Payload::None),
        Category::Medium => Ok(Payload::Medium(layout.payload(data))),
        Category::Long => match layout.long(data) {
            Some(long) => memory.placed_long(job, &long),
            // `Layout::check` has found it long enough.
            None => Err(ProtocolError::NotAttached),
        },
    }
}
