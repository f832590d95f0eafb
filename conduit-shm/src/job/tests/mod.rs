//! Tests with worlds in one process. The conformance suite covers what every network must do. These
//! tests cover the implementation, which includes every path that bytes can take, full queues,
//! peers that violate the protocol, threads, and the start.

mod activations;
mod coalescing;
mod faults;
mod lanes;
mod operations;
mod reply_slots;
mod schedules;
mod start;
mod threads;
mod waiting;

use std::time::Duration;

use conduit_core::ni::*;
use conduit_core::threads::{Mode, Seq};

use super::{Shm, ShmConfig, in_process};

const PT: PtIndex = PtIndex(1);

/// Settings with small values, so that limits are reached.
fn small() -> ShmConfig {
    ShmConfig {
        region_bytes: 4 << 20,
        queue_bytes: 4 << 20,
        inject_size: 256,
        inline_size: 128,
        max_message: 8 << 10,
        max_managed: 8 << 10,
        staging_pieces: 2,
        // There are no pauses, so a poll finds everything that has arrived.
        max_coalescing: Duration::ZERO,
        ..ShmConfig::default()
    }
}

/// A rank with a region, a queue, and an index that is open on that queue.
struct End<M: Mode> {
    ni: Shm<M>,
    eq: EqId,
    region: Region,
}

fn world<M: Mode>(ranks: u32, config: &ShmConfig) -> Vec<End<M>> {
    let open = |ni: Shm<M>| {
        let eq = ni.eq_create(64).unwrap();
        let region = ni.region_create(64 << 10).unwrap();
        ni.pt_open(PT, Some(eq)).unwrap();
        End { ni, eq, region }
    };
    in_process(ranks, config)
        .unwrap()
        .into_iter()
        .map(open)
        .collect()
}

/// An event without borrows, which owns the bytes of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Put {
        tag: u64,
        source: Rank,
        match_bits: u64,
        hdr_data: u64,
        offset: u64,
        requested: usize,
        length: usize,
        data: Vec<u8>,
    },
    Get(u64, Rank, u64, usize),
    Atomic(u64, Rank, u64),
    Unlinked(u64),
    Free(u64),
    Send(u64),
    Ack(u64, Outcome, usize),
    Reply(u64, Outcome, usize, u64),
}

fn seen(event: Event<'_>) -> Seen {
    match event {
        Event::Put(put) => {
            assert_eq!(put.data.as_ptr().addr() % 16 * put.data.len(), 0);
            Seen::Put {
                tag: put.tag,
                source: put.source,
                match_bits: put.match_bits,
                hdr_data: put.hdr_data,
                offset: put.offset,
                requested: put.requested,
                length: put.length,
                data: put.data.to_vec(),
            }
        }
        Event::Get {
            tag,
            source,
            offset,
            length,
            ..
        } => Seen::Get(tag, source, offset, length),
        Event::Atomic {
            tag,
            source,
            offset,
            ..
        } => Seen::Atomic(tag, source, offset),
        Event::Unlinked { tag } => Seen::Unlinked(tag),
        Event::Free { tag } => Seen::Free(tag),
        Event::Send { token } => Seen::Send(token),
        Event::Ack {
            token,
            outcome,
            length,
        } => Seen::Ack(token, outcome, length),
        Event::Reply {
            token,
            outcome,
            length,
            value,
        } => Seen::Reply(token, outcome, length, value),
    }
}

impl<M: Mode> End<M> {
    /// Polls until there are no more events, and returns them all.
    fn poll(&self) -> Vec<Seen> {
        let mut all = Vec::new();
        while self.ni.poll(self.eq, 3, |event| all.push(seen(event))) > 0 {}
        all
    }

    /// Appends an entry over the whole region, with all events.
    fn expose(&self, options: MeOptions) -> MeId {
        self.append(
            MeMemory::Region {
                region: self.region.id,
                offset: 0,
                len: self.region.len,
            },
            options,
        )
    }

    fn append(&self, memory: MeMemory, options: MeOptions) -> MeId {
        let entry = MatchEntry {
            memory,
            match_bits: 0,
            ignore_bits: u64::MAX,
            source: None,
            options,
            events: MeEvents::all(),
            tag: 77,
        };
        self.ni.me_append(PT, entry).unwrap()
    }

    /// Binds a descriptor of memory that outlives the test.
    fn bind(&self, base: *mut u8, len: usize) -> MdId {
        // SAFETY: the callers keep the memory valid until the world is dropped.
        unsafe { self.ni.md_bind(base, len, self.eq).unwrap() }
    }

    fn put(&self, put: Put) -> Submit {
        // SAFETY: the tests change sources only after the completion.
        unsafe { self.ni.put(&put).unwrap() }
    }

    fn get(&self, get: Get) -> Submit {
        // SAFETY: the tests read destinations only after the reply.
        unsafe { self.ni.get(&get).unwrap() }
    }

    /// Returns bytes of this rank's own region.
    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.region.len);
        // SAFETY: the bytes lie within the region, and no operation on them is in progress.
        unsafe { std::slice::from_raw_parts(self.region.base.add(offset), len).to_vec() }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.region.len);
        // SAFETY: the bytes lie within the region, and no operation on them is in progress.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.region.base.add(offset),
                bytes.len(),
            );
        }
    }
}

fn put(md: MdId, length: usize, ack: Ack, token: u64) -> Put {
    Put {
        md,
        local_offset: 0,
        length,
        ack,
        target: 1,
        index: PT,
        match_bits: 5,
        remote_offset: 0,
        hdr_data: 6,
        token,
    }
}

fn get(md: MdId, length: usize, token: u64) -> Get {
    Get {
        md,
        local_offset: 0,
        length,
        target: 1,
        index: PT,
        match_bits: 5,
        remote_offset: 0,
        token,
    }
}

fn inject(target: Rank, bytes: &[u8]) -> Inject<'_> {
    Inject {
        target,
        index: PT,
        exchange: Exchange::OneWay,
        match_bits: 5,
        hdr_data: 6,
        head: &[],
        body: bytes,
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

/// Returns the event at the target of a put from rank 0 that [`put`] has created.
fn arrived(offset: u64, requested: usize, length: usize, data: &[u8]) -> Seen {
    Seen::Put {
        tag: 77,
        source: 0,
        match_bits: 5,
        hdr_data: 6,
        offset,
        requested,
        length,
        data: data.to_vec(),
    }
}

const ANY: MeOptions = MeOptions::PUT
    .union(MeOptions::GET)
    .union(MeOptions::ATOMIC);
const MANAGED: MeMemory = MeMemory::Managed {
    bytes: 32 << 10,
    min_free: 8 << 10,
};

fn pair(config: &ShmConfig) -> (End<Seq>, End<Seq>) {
    let mut ends = world(2, config);
    let (b, a) = (ends.pop().unwrap(), ends.pop().unwrap());
    (a, b)
}
