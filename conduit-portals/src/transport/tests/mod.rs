//! Tests of everything that the conformance suite doesn't cover: the progress thread, direct
//! access, atomics by the network, malicious and failing peers, adopted regions, threads.

mod atomics;
mod connections;
mod direct;
/// The crate `tests` contains this module as well, but this crate can't depend on that crate.
#[expect(unreachable_pub, reason = "public in the other crate")]
#[path = "../../../../tests/src/fabric/mod.rs"]
mod fabric;
mod faults;
mod hostile;
mod lanes;
mod order;
mod progress_thread;

use std::time::Duration;

use conduit_core::ni::{
    Ack, EqId, Event, Get, MatchEntry, MdId, MeEvents, MeMemory, MeOptions, Ni, PtIndex, Put,
    Region,
};
use conduit_core::threads::{Par, Seq};

use super::{PortalsConfig, SoftPortals};
use fabric::{Disorder, Fabric, FabricTransport};

const PT: PtIndex = PtIndex(4);

type End<M> = SoftPortals<M, FabricTransport>;

fn job<M: conduit_core::threads::Mode>(ranks: u32) -> (Fabric, Vec<End<M>>) {
    job_on(ranks, Disorder::default())
}

fn job_on<M: conduit_core::threads::Mode>(ranks: u32, disorder: Disorder) -> (Fabric, Vec<End<M>>) {
    let fabric = Fabric::new(ranks);
    let ends = (0..ranks)
        .map(|rank| {
            let transport = fabric.transport(rank, disorder);
            SoftPortals::new(transport, rank, ranks, &PortalsConfig::default())
        })
        .collect();
    (fabric, ends)
}

fn entry(memory: MeMemory) -> MatchEntry {
    MatchEntry {
        memory,
        match_bits: 0,
        ignore_bits: u64::MAX,
        source: None,
        options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC | MeOptions::TRUNCATE,
        events: MeEvents::all(),
        tag: 7,
    }
}

fn over(region: &Region) -> MatchEntry {
    entry(MeMemory::Region {
        region: region.id,
        offset: 0,
        len: region.len,
    })
}

fn put_to_1(md: MdId, length: usize) -> Put {
    Put {
        md,
        local_offset: 0,
        length,
        ack: Ack::Remote,
        target: 1,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        hdr_data: 0,
        token: 1,
    }
}

fn events<M: conduit_core::threads::Mode>(end: &End<M>, eq: EqId) -> Vec<String> {
    let mut events = Vec::new();
    for _ in 0..4 {
        end.progress();
        end.poll(eq, u32::MAX, |event| events.push(format!("{event:?}")));
    }
    events
}

#[test]
fn an_adopted_region_takes_puts() {
    let (_, ends) = job::<Seq>(2);
    let own = ends[1].region_create(1 << 16).unwrap();
    // The other region belongs to another network.
    let (_, others) = job::<Seq>(1);
    let other = others[0].region_create(1 << 16).unwrap();
    // SAFETY: `others` is dropped after `ends`' last access below.
    let adopted = unsafe { ends[1].region_adopt(other.base, other.len) }.unwrap();
    assert_ne!(own.id, adopted.id);
    let eq = ends[1].eq_create(16).unwrap();
    ends[1].pt_open(PT, Some(eq)).unwrap();
    ends[1].me_append(PT, over(&adopted)).unwrap();
    let completions = ends[0].eq_create(16).unwrap();
    let bytes = vec![9_u8; 5000];
    // SAFETY: the bytes live until the put has ended.
    let md = unsafe { ends[0].md_bind(bytes.as_ptr().cast_mut(), 5000, completions) }.unwrap();
    let put = Put {
        remote_offset: 100,
        ..put_to_1(md, 5000)
    };
    // SAFETY: the source lives until the put has ended, and nothing writes it.
    let _ = unsafe { ends[0].put(&put) }.unwrap();
    assert_eq!(events(&ends[1], eq).len(), 1);
    assert_eq!(events(&ends[0], completions).len(), 1);
    // SAFETY: the bytes are those of the region, and are not written at this point.
    let written = unsafe { std::slice::from_raw_parts(other.base, 5200) };
    assert!(written[100..5100].iter().all(|byte| *byte == 9));
    assert_eq!((written[99], written[5100]), (0, 0));
    drop(ends);
}

/// Lets threads of two ranks send to each other and poll at the same time.
#[test]
fn threads_share_an_end() {
    const EACH: u64 = 2000;
    let (_, ends) = job::<Par>(2);
    let mut queues = Vec::new();
    for end in &ends {
        let eq = end.eq_create(64).unwrap();
        end.pt_open(PT, Some(eq)).unwrap();
        let managed = MeMemory::Managed {
            bytes: 1 << 30,
            min_free: 64,
        };
        end.me_append(PT, entry(managed)).unwrap();
        queues.push(eq);
    }
    let (ends, queues) = (&ends, &queues);
    std::thread::scope(|scope| {
        for rank in 0..2_usize {
            let received = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
            for thread in 0..2_u64 {
                let received = received.clone();
                scope.spawn(move || {
                    let end = &ends[rank];
                    let take = |event: Event<'_>| {
                        let Event::Put(put) = event else {
                            panic!("{event:?}");
                        };
                        assert_eq!(put.data, put.hdr_data.to_ne_bytes());
                        received.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    };
                    for i in 0..EACH {
                        let hdr_data = thread * EACH + i;
                        let inject = conduit_core::ni::Inject {
                            target: 1 - rank as u32,
                            index: PT,
                            exchange: conduit_core::ni::Exchange::OneWay,
                            match_bits: 0,
                            hdr_data,
                            head: &hdr_data.to_ne_bytes(),
                            body: &[],
                        };
                        while end.inject(&inject).unwrap() == conduit_core::ni::Submit::Again {
                            end.poll(queues[rank], 8, take);
                        }
                    }
                    while received.load(std::sync::atomic::Ordering::Relaxed) < 2 * EACH {
                        if end.poll(queues[rank], 8, take) == 0 {
                            end.wait(Duration::from_millis(1));
                        }
                    }
                });
            }
        }
    });
}

/// Checks that the response to a put means that the target has the bytes, but not that the source
/// may be reused.
#[test]
fn a_response_that_overtakes_leaves_the_source_in_use() {
    use super::wire::Header;
    use crate::transport::fragment::FragmentHandler;

    let (_, ends) = job::<Seq>(2);
    let completions = ends[0].eq_create(16).unwrap();
    let bytes = [5_u8; 5000];
    // SAFETY: the bytes live as long as the ends.
    let md = unsafe { ends[0].md_bind(bytes.as_ptr().cast_mut(), 5000, completions) }.unwrap();
    let put = put_to_1(md, 5000);
    // SAFETY: the source lives until the put has ended, and nothing writes it.
    let _ = unsafe { ends[0].put(&put) }.unwrap();
    // The first operation's id is 0.
    let response = Header::Response {
        operation: 0,
        outcome: conduit_core::ni::Outcome::Done,
        length: 5000,
        value: 0,
    };
    let bytes = response.encode(None);
    ends[0].inner().portals.fragment(1, bytes.as_slice(), &[]);
    assert!(events(&ends[0], completions).is_empty());
    assert_eq!(ends[0].md_release(md), Ok(conduit_core::ni::Unlink::InUse));
    ends[0].inner().portals.sent(1, 0);
    assert_eq!(events(&ends[0], completions).len(), 1);
    assert_eq!(ends[0].md_release(md), Ok(conduit_core::ni::Unlink::Done));
}

#[test]
fn an_entry_stays_linked_until_a_long_reply_has_arrived() {
    let (_, ends) = job::<Seq>(2);
    let region = ends[1].region_create(1 << 20).unwrap();
    let eq = ends[1].eq_create(16).unwrap();
    ends[1].pt_open(PT, Some(eq)).unwrap();
    let me = ends[1].me_append(PT, over(&region)).unwrap();
    let completions = ends[0].eq_create(16).unwrap();
    let mut space = vec![1_u8; 1 << 20];
    // SAFETY: the space lives until the get has ended.
    let md = unsafe { ends[0].md_bind(space.as_mut_ptr(), 1 << 20, completions) }.unwrap();
    let get = Get {
        md,
        local_offset: 0,
        length: 1 << 20,
        target: 1,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        token: 3,
    };
    // SAFETY: the destination is read only after the get has ended.
    let _ = unsafe { ends[0].get(&get) }.unwrap();
    assert_eq!(ends[0].md_release(md), Ok(conduit_core::ni::Unlink::InUse));
    // The reply is in flight, and its arrival is not acknowledged.
    ends[1].progress();
    assert_eq!(ends[1].me_unlink(me), Ok(conduit_core::ni::Unlink::InUse));
    assert_eq!(events(&ends[0], completions).len(), 1);
    let raised = events(&ends[1], eq);
    assert!(
        raised.len() == 1 && raised[0].starts_with("Get"),
        "{raised:?}"
    );
    assert_eq!(ends[1].me_unlink(me), Ok(conduit_core::ni::Unlink::Done));
    assert_eq!(ends[0].md_release(md), Ok(conduit_core::ni::Unlink::Done));
    assert!(space.iter().all(|byte| *byte == 0));
}
