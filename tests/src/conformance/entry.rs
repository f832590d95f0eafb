//! Functions that build the entries and operations that most cases use. A case changes the relevant
//! fields by struct update.

use conduit_core::ni::{
    Ack, Atomic, AtomicOp, AtomicType, Get, MatchEntry, MeEvents, MeMemory, MeOptions, PtIndex,
    Put, Rank, Region,
};

use super::world::Md;

/// The index that cases use.
pub const PT: PtIndex = PtIndex(0);
/// A second index, for cases that need two.
pub const OTHER: PtIndex = PtIndex(1);

const PLAIN: MatchEntry = MatchEntry {
    memory: MeMemory::Nothing,
    match_bits: 0,
    ignore_bits: 0,
    source: None,
    options: MeOptions::PUT,
    events: MeEvents::all(),
    tag: 0,
};

/// Returns a persistent entry over a whole region for puts, gets and atomics of match bits 0, with
/// all events.
pub fn over(region: &Region) -> MatchEntry {
    piece(region, 0, region.len)
}

/// Returns a persistent entry over a piece of a region.
pub fn piece(region: &Region, offset: usize, len: usize) -> MatchEntry {
    MatchEntry {
        memory: MeMemory::Region {
            region: region.id,
            offset,
            len,
        },
        options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC,
        ..PLAIN
    }
}

/// Returns a locally managed entry for puts of match bits 0, with all events.
pub fn managed(bytes: usize, min_free: usize) -> MatchEntry {
    MatchEntry {
        memory: MeMemory::Managed { bytes, min_free },
        ..PLAIN
    }
}

/// Returns an entry that takes messages of any length and any bits, but only their headers.
pub fn catch_basin() -> MatchEntry {
    MatchEntry {
        ignore_bits: u64::MAX,
        options: MeOptions::PUT | MeOptions::TRUNCATE,
        ..PLAIN
    }
}

/// Returns a put of a whole descriptor to the start of the entry for bits 0. The target
/// acknowledges it. Its token is 0.
pub fn put_to(target: Rank, md: &Md) -> Put {
    Put {
        md: md.id,
        local_offset: 0,
        length: md.len,
        ack: Ack::Remote,
        target,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        hdr_data: 0,
        token: 0,
    }
}

/// Returns a get that fills a whole descriptor from the start of the entry for bits 0. Its token is
/// 0.
pub fn get_from(target: Rank, md: &Md) -> Get {
    Get {
        md: md.id,
        local_offset: 0,
        length: md.len,
        target,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        token: 0,
    }
}

/// Returns a fetching addition of 1 to the first `U64` of the entry for bits 0. Its token is 0.
pub fn atomic_on(target: Rank, eq: conduit_core::ni::EqId) -> Atomic {
    Atomic {
        op: AtomicOp::Add,
        ty: AtomicType::U64,
        operand: 1,
        comparand: 0,
        fetch: true,
        target,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        eq,
        token: 0,
    }
}

/// Returns `len` bytes that depend on their position and on the seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
