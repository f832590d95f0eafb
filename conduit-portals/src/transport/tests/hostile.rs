//! Tests of a peer that sends arbitrary messages with valid authentication tags. No message causes
//! a panic or a write outside the entries, and the peer is reported.

use conduit_core::ni::{Ack, Event, Get, MeEvents, MeId, MeMemory, MeOptions, Ni, Put};
use conduit_core::threads::Seq;
use proptest::prelude::*;

use super::{Disorder, End, PT, entry, job, job_on, over};
use crate::transport::fragment::FragmentHandler;

/// A call of the fragment handler by the hostile peer, or a poll by its victim.
#[derive(Debug, Clone)]
enum Step {
    Fragment(Vec<u8>, Vec<u8>),
    Begin(Vec<u8>, usize),
    Place(prop::sample::Index, usize, usize),
    End(prop::sample::Index),
    Poll,
}

/// Generates headers. Most are nearly valid and consist of a kind, flags, an index and small
/// numbers.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let field = prop_oneof![3 => 0_u64..16, 1 => any::<u64>()];
    let near = (
        0_u8..13,
        0_u8..4,
        0_u8..8,
        any::<u8>(),
        0_u16..3,
        prop::collection::vec(field, 0..6),
        0_usize..70,
    )
        .prop_map(|(kind, flags, a, b, taken, fields, cut)| {
            let mut bytes = vec![kind, flags, a, b];
            bytes.extend(taken.to_le_bytes());
            bytes.extend(taken.to_le_bytes());
            bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
            // The length is often the valid one for the kind.
            let lengths = [0, 36, 24, 32, 44, 24, 12, 8, 8, 52, 12, 12, 16];
            let length = lengths.get(usize::from(kind)).copied().unwrap_or(cut);
            bytes.resize(if cut < 10 { cut } else { length }, 0);
            bytes
        });
    prop_oneof![4 => near, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

fn step() -> impl Strategy<Value = Step> {
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    prop_oneof![
        4 => (header(), payload).prop_map(|(header, payload)| Step::Fragment(header, payload)),
        2 => (header(), 0_usize..20_000).prop_map(|(header, length)| Step::Begin(header, length)),
        3 => (any::<prop::sample::Index>(), 0_usize..20_000, 0_usize..3000)
            .prop_map(|(index, offset, length)| Step::Place(index, offset, length)),
        2 => any::<prop::sample::Index>().prop_map(Step::End),
        1 => Just(Step::Poll),
    ]
}

/// Starts operations of this rank. A peer may guess their ids.
fn begin_own(end: &End<Seq>, space: &mut [u8]) -> conduit_core::ni::EqId {
    let eq = end.eq_create(16).unwrap();
    // SAFETY: the caller's memory outlives `end`.
    let md = unsafe { end.md_bind(space.as_mut_ptr(), space.len(), eq) }.unwrap();
    let get = Get {
        md,
        local_offset: 100,
        length: 2000,
        target: 0,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        token: 1,
    };
    let put = Put {
        md,
        local_offset: 3000,
        length: 500,
        ack: Ack::Remote,
        target: 0,
        index: PT,
        match_bits: 0,
        remote_offset: 0,
        hdr_data: 0,
        token: 2,
    };
    for _ in 0..2 {
        // SAFETY: the memory that the gets write is read only at the end of the test; nothing
        // writes the memory that the puts read.
        unsafe {
            let _ = end.get(&get).unwrap();
            let _ = end.put(&put).unwrap();
        }
    }
    eq
}

proptest! {
    #[test]
    fn any_calls_are_handled(
        steps in prop::collection::vec(step(), 0..80),
        direct in any::<bool>(),
    ) {
        let mut space = vec![0x11_u8; 4096];
        let disorder = Disorder { direct, ..Disorder::default() };
        let (_, ends) = job_on::<Seq>(2, disorder);
        let end = &ends[1];
        let region = end.region_create(1 << 16).unwrap();
        // SAFETY: the bytes are those of a region that nothing else uses yet.
        unsafe { region.base.write_bytes(0x22, region.len) };
        let eq = end.eq_create(16).unwrap();
        end.pt_open(PT, Some(eq)).unwrap();
        let mut small = over(&region);
        small.memory = MeMemory::Region { region: region.id, offset: 4096, len: 1000 };
        small.ignore_bits = !1;
        if direct {
            small.events = MeEvents::LINK;
        }
        end.me_append(PT, small).unwrap();
        let managed = MeMemory::Managed { bytes: 8192, min_free: 64 };
        end.me_append(PT, entry(managed)).unwrap();
        let own = begin_own(end, &mut space);
        let mut ids = Vec::new();
        for step in steps {
            let mut inner = end.inner();
            match step {
                Step::Fragment(header, payload) => {
                    inner.portals.fragment(0, &header, &payload);
                }
                Step::Begin(header, length) => ids.extend(inner.portals.begin(0, &header, length)),
                Step::Place(at, offset, length) if !ids.is_empty() => {
                    inner.portals.place(*at.get(&ids), offset, &vec![0x33; length]);
                }
                Step::End(at) if !ids.is_empty() => {
                    let id = ids.swap_remove(at.index(ids.len()));
                    inner.portals.end(id);
                }
                Step::Place(..) | Step::End(_) => {}
                Step::Poll => {
                    drop(inner);
                    end.progress();
                    for eq in [eq, own] {
                        end.poll(eq, 8, |event| {
                            if let Event::Put(put) = event {
                                assert!(put.data.is_empty() || put.data.len() == put.length);
                                assert!(put.length <= put.requested);
                            }
                        });
                    }
                }
            }
        }
        // SAFETY: the bytes are those of the region, which nothing writes at this point.
        let bytes = unsafe { std::slice::from_raw_parts(region.base, region.len) };
        let untouched = |bytes: &[u8], byte| bytes.iter().all(|b| *b == byte);
        prop_assert!(untouched(&bytes[..4096], 0x22) && untouched(&bytes[5096..], 0x22));
        drop(ends);
        prop_assert!(untouched(&space[..100], 0x11) && untouched(&space[2100..], 0x11));
    }
}

#[test]
fn a_protocol_error_names_its_peer() {
    let (_, ends) = job::<Seq>(3);
    assert_eq!(ends[1].bad_peer(), None);
    {
        let mut inner = ends[1].inner();
        assert!(
            inner.portals.fragment(2, &[99; 12], &[]),
            "taken and dropped"
        );
        assert!(inner.portals.fragment(0, &[], &[]));
    }
    assert_eq!(
        ends[1].bad_peer(),
        Some(2),
        "the first offender is reported"
    );
    assert_eq!(ends[1].counters(|counters, _| counters.protocol_errors), 2);
}

/// Overruns a window. Each message beyond the window is a protocol error and is not delivered, so
/// the memory that a flood can occupy is bounded.
#[test]
fn a_flood_beyond_the_window_is_a_protocol_error() {
    let (_, ends) = job::<Seq>(2);
    let eq = ends[1].eq_create(16).unwrap();
    ends[1].pt_open(PT, Some(eq)).unwrap();
    let managed = MeMemory::Managed {
        bytes: 1 << 30,
        min_free: 64,
    };
    ends[1].me_append(PT, entry(managed)).unwrap();
    let put = crate::transport::wire::Put {
        index: PT.0,
        match_bits: 0,
        hdr_data: 0,
        offset: 0,
        operation: None,
    };
    let header = crate::transport::wire::Header::Put(put).encode(None);
    let window = super::PortalsConfig::default().window;
    {
        let mut inner = ends[1].inner();
        for _ in 0..window {
            inner
                .portals
                .fragment(0, header.as_slice(), b"in the window");
        }
        assert_eq!(inner.portals.counters.protocol_errors, 0);
        for _ in 0..10 {
            inner.portals.fragment(0, header.as_slice(), b"beyond");
        }
        assert_eq!(inner.portals.counters.protocol_errors, 10);
    }
    assert_eq!(ends[1].bad_peer(), Some(0));
    let mut received = 0;
    ends[1].poll(eq, u32::MAX, |_| received += 1);
    assert_eq!(received, u32::from(window));
}

/// Sends valid and invalid messages about direct access.
#[test]
fn invalid_messages_about_direct_access_are_protocol_errors() {
    use crate::transport::interface::Remote;
    use crate::transport::wire::{Advertisement, Header};
    let valid = Advertisement {
        entry: MeId(u32::from(PT.0) << 28 | 5),
        options: MeOptions::PUT,
        match_bits: 0,
        ignore_bits: 0,
        remote: Remote {
            key: 1,
            address: u64::MAX - 100,
        },
        length: 100,
    };
    let another = Advertisement {
        entry: MeId(u32::from(PT.0) << 28 | 6),
        ..valid
    };
    let elsewhere = Advertisement {
        entry: MeId(3 << 28),
        ..valid
    };
    let invalid = [
        // The range would wrap around the end of the address space.
        Header::Advertise(Advertisement {
            length: 101,
            ..elsewhere
        }),
        Header::Advertise(Advertisement {
            options: MeOptions::USE_ONCE,
            ..elsewhere
        }),
        // An index has at most one advertised entry.
        Header::Advertise(valid),
        Header::Advertise(another),
        Header::Withdraw(another.entry),
        Header::Withdrawn(valid.entry),
    ];
    let accepted = |inner: &mut crate::transport::Inner<_>, header: &Header| {
        let before = inner.portals.counters.protocol_errors;
        inner
            .portals
            .fragment(0, header.encode(None).as_slice(), &[]);
        inner.portals.counters.protocol_errors == before
    };
    let disorder = Disorder {
        direct: true,
        ..Disorder::default()
    };
    let (_, ends) = job_on::<Seq>(2, disorder);
    let mut inner = ends[1].inner();
    assert!(accepted(&mut inner, &Header::Advertise(valid)));
    for header in &invalid {
        assert!(!accepted(&mut inner, header), "{header:?}");
    }
    assert!(accepted(&mut inner, &Header::Advertise(elsewhere)));
    assert!(accepted(&mut inner, &Header::Withdraw(valid.entry)));
    assert!(
        !accepted(&mut inner, &Header::Withdraw(valid.entry)),
        "the second withdrawal is invalid"
    );
    assert!(accepted(&mut inner, &Header::Advertise(another)));
    // Completions of operations that are not in flight are ignored.
    inner.portals.done(0, 0, 0);
    inner.portals.done(7, u64::MAX, 0);
    drop(inner);
    // Without direct access, every such message is an error.
    let (_, ends) = job::<Seq>(2);
    let mut inner = ends[1].inner();
    for header in [
        Header::Advertise(valid),
        Header::Withdraw(valid.entry),
        Header::Withdrawn(valid.entry),
    ] {
        assert!(!accepted(&mut inner, &header), "{header:?}");
    }
}
