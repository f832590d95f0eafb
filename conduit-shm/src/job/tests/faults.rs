//! Tests of full queues, limits, and peers that violate the protocol.

use proptest::prelude::*;

use super::super::message::{ACK, Header, NO_MD, REPLY, SEND};
use super::*;
use crate::ring::{Frame, KIND_SKIP, SLOT};

#[test]
fn a_full_queue_refuses_and_changes_nothing() {
    for shared_ring_above in [0, 32] {
        let (a, b) = pair(&ShmConfig {
            shared_ring_above,
            ..small()
        });
        b.append(
            MeMemory::Managed {
                bytes: 1 << 30,
                min_free: 0,
            },
            MeOptions::PUT,
        );
        for round in 0..3_u64 {
            let mut sent = 0_u64;
            while a.ni.inject(&Inject {
                hdr_data: sent,
                ..inject(1, &pattern(100, sent as u8))
            }) == Ok(Submit::Posted)
            {
                sent += 1;
            }
            assert!(sent >= 20, "{sent} in round {round}");
            let events = b.poll();
            assert_eq!(events.len() as u64, sent);
            for (i, event) in (0..).zip(events) {
                let Seen::Put { hdr_data, data, .. } = event else {
                    panic!("{event:?}");
                };
                assert_eq!((hdr_data, data), (i, pattern(100, i as u8)));
            }
        }
    }
}

#[test]
fn completions_wait_for_room_and_none_is_lost() {
    for shared_ring_above in [0, 32] {
        let (a, b) = pair(&ShmConfig {
            shared_ring_above,
            ..small()
        });
        b.expose(ANY);
        a.write(0, &pattern(8192, 1));
        let md = a.bind(a.region.base, 8192);
        let (mut posted, mut refused) = (0_u64, 0);
        // The operations are puts by reference, acknowledged puts, gets and atomics. Rank 0's queue
        // is not polled.
        while refused < 8 {
            let submit = match posted % 4 {
                0 => a.put(put(md, 4096, Ack::Local, posted)),
                1 => a.put(put(md, 64, Ack::Remote, posted)),
                2 => a.get(Get {
                    local_offset: 4096,
                    ..get(md, 100, posted)
                }),
                _ => {
                    let atomic = Atomic {
                        op: AtomicOp::Add,
                        ty: AtomicType::U64,
                        operand: 1,
                        comparand: 0,
                        fetch: true,
                        target: 1,
                        index: PT,
                        match_bits: 0,
                        remote_offset: 8192,
                        eq: a.eq,
                        token: posted,
                    };
                    a.ni.atomic(&atomic).unwrap()
                }
            };
            match submit {
                Submit::Posted => posted += 1,
                Submit::Again => {
                    refused += 1;
                    b.poll();
                }
            }
        }
        let mut tokens = Vec::new();
        loop {
            b.poll();
            let events = a.poll();
            if events.is_empty() {
                break;
            }
            tokens.extend(events.iter().map(|event| match event {
                Seen::Send(token) => *token,
                Seen::Ack(token, Outcome::Done, _) => *token,
                Seen::Reply(token, Outcome::Done, _, _) => *token,
                other => panic!("{other:?}"),
            }));
        }
        assert_eq!(tokens, (0..posted).collect::<Vec<_>>());
        assert!(posted > 80, "{posted}");
        assert_eq!(b.bytes(8192, 8), (posted / 4).to_ne_bytes());
        assert_eq!(a.ni.md_release(md), Ok(Unlink::Done));
    }
}

#[test]
fn staging_pieces_run_out_and_come_back() {
    let (a, b) = pair(&small());
    b.expose(ANY);
    let mut own = pattern(8192, 1);
    let md = a.bind(own.as_mut_ptr(), own.len());
    for round in 0..5 {
        assert_eq!(a.put(put(md, 8192, Ack::Remote, 1)), Submit::Posted);
        assert_eq!(a.put(put(md, 8192, Ack::Local, 2)), Submit::Posted);
        assert_eq!(a.put(put(md, 8192, Ack::Local, 3)), Submit::Again);
        assert_eq!(a.get(get(md, 8192, 4)), Submit::Again);
        assert_eq!(a.ni.md_release(md), Ok(Unlink::InUse));
        assert_eq!(b.poll().len(), 2, "{round}");
        assert_eq!(a.get(get(md, 8192, 4)), Submit::Posted);
        assert_eq!(b.poll().len(), 1);
        assert_eq!(a.poll().len(), 3);
    }
    assert_eq!(own, pattern(8192, 1));
    assert_eq!(a.ni.md_release(md), Ok(Unlink::Done));
}

#[test]
fn what_does_not_exist_is_an_error() {
    let (a, b) = pair(&small());
    let md = a.bind(a.region.base, 100);
    let unbound = MdId(md.0.wrapping_add(1));
    let put_error = |put: Put| {
        // SAFETY: no operation is submitted with the descriptor.
        unsafe { a.ni.put(&put).unwrap_err().to_string() }
    };
    let good = put(md, 8, Ack::Local, 0);
    for (bad, words) in [
        (Put { target: 2, ..good }, "rank 2 is not in a job of 2"),
        (
            Put {
                md: unbound,
                ..good
            },
            "memory descriptor",
        ),
        (
            Put {
                length: 101,
                ..good
            },
            "memory descriptor is 101; at most 100 is allowed",
        ),
        (
            Put {
                length: 8193,
                ..good
            },
            "length is 8193; at most 8192 is allowed",
        ),
        (
            Put {
                local_offset: usize::MAX,
                ..good
            },
            "memory descriptor",
        ),
        (
            Put {
                index: PtIndex(16),
                ..good
            },
            "portal table index 16",
        ),
    ] {
        let error = put_error(bad);
        assert!(error.contains(words), "{error}");
    }
    assert!(a.ni.pt_open(PtIndex(16), None).is_err());
    assert!(a.ni.pt_open(PtIndex(3), Some(EqId(1))).is_err());
    assert!(a.ni.me_unlink(MeId(u32::MAX)).is_err());
    // SAFETY: the operation is refused, so no memory is accessed.
    assert!(unsafe { a.ni.md_bind(a.region.base, 1, EqId(9)).is_err() });
    let beyond = MeMemory::Region {
        region: b.region.id,
        offset: 1,
        len: b.region.len,
    };
    let entry = MatchEntry {
        memory: beyond,
        match_bits: 0,
        ignore_bits: 0,
        source: None,
        options: ANY,
        events: MeEvents::all(),
        tag: 0,
    };
    assert!(b.ni.me_append(PT, entry).is_err());
    let too_much = a.ni.region_create(5 << 20).unwrap_err().to_string();
    assert!(
        too_much.contains("bytes in addition to existing regions"),
        "{too_much}"
    );
    assert!(a.ni.region_create(usize::MAX).is_err());
    for _ in 1..16 {
        a.ni.eq_create(1).unwrap();
    }
    assert!(a.ni.eq_create(1).is_err());
    assert!(b.ni.eq_create(1 << 40).is_err());
    assert_eq!(a.ni.poll(EqId(16), 1, |_| ()), 0);
    assert_eq!(*a.ni.reach(2), *a.ni.reach(u32::MAX));
    assert_eq!(a.ni.reach(2).max_message, 0);
}

#[test]
fn more_memory_than_the_host_has_is_refused() {
    let all = crate::memory::Memory::read().machine.room();
    let config = ShmConfig {
        region_bytes: 1 << 42,
        ..small()
    };
    let ends: Vec<Shm<Seq>> = in_process(2, &config).unwrap();
    assert!(all < 1 << 42);
    let error = ends[0].region_create(all as usize + 1).unwrap_err();
    assert!(matches!(error, NiError::System { .. }), "{error}");
    assert!(error.to_string().contains("available"), "{error}");
    // Refused requests are not counted.
    assert!(ends[1].region_create(4096).is_ok());
}

/// Writes a forged message straight into the ring from rank 0 to rank 1.
fn forge(a: &End<Seq>, slots: u32, header: &Header, kind: u8, index: u8) {
    let producer = a.ni.producer(1, usize::from(a.eq.0)).unwrap();
    let reserved = producer.reserve(slots).unwrap();
    let slot = producer.slots().address(producer.slot(reserved));
    let frame = Frame::new(slots as u16, kind, index);
    let header = Header { frame, ..*header };
    // SAFETY: the slot is the first one of the reservation just made.
    unsafe { header.write(slot) };
    producer.commit(reserved, frame);
}

/// Generates any word, but often one near a valid value.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        0_u64..4,
        Just(8192),
        (0_u64..200).prop_map(|near| (8 << 20) - 100 + near),
        Just(u64::from(u32::MAX)),
        any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn nonsense_is_counted_and_passed_over(
        messages in prop::collection::vec(
            (
                (1_u32..4, 0_u8..12, 0_u8..18, word(), 0_u32..3),
                (word(), word(), word(), word()),
                (prop_oneof![Just(NO_MD), 0_u32..3, any::<u32>()], 0_u16..4, 0_u8..20, any::<u8>()),
            ),
            1..30,
        ),
    ) {
        let (a, b) = pair(&small());
        b.expose(ANY);
        b.append(MANAGED, MeOptions::PUT);
        for ((slots, kind, index, length, source), (bits, data, offset, reference), (md, piece, eq, flags)) in messages {
            let header = Header {
                length: length as u32,
                source,
                match_bits: bits,
                hdr_data: data,
                remote_offset: offset,
                token: 1,
                reference,
                md,
                piece,
                eq,
                flags,
                ..Header::default()
            };
            // A forged wrap marker, which the ring's producer does not know, would make only that
            // ring unusable, so none is written.
            let index = if kind == KIND_SKIP { 0 } else { index };
            forge(&a, slots, &header, kind, index);
            b.poll();
            a.poll();
        }
        // The ring must still work.
        assert_eq!(a.ni.inject(&inject(1, b"after")), Ok(Submit::Posted));
        prop_assert_eq!(b.poll().len(), 1);
        if b.ni.statistics().bad_messages > 0 {
            prop_assert_eq!(b.ni.statistics().bad_peer, Some(0));
        }
    }
}

/// Checks that a forged wrap marker, which the ring's producer does not know, makes only that ring
/// unusable.
#[test]
fn a_forged_turn_harms_nobody_else() {
    let ends: Vec<End<Seq>> = world(3, &small());
    let [a, b, c] = &ends[..] else { panic!() };
    b.append(MANAGED, MeOptions::PUT);
    for round in 0..200 {
        if a.ni
            .producer(1, usize::from(a.eq.0))
            .unwrap()
            .reserve(1)
            .is_some()
        {
            forge(a, 1, &Header::default(), KIND_SKIP, 1);
        }
        b.poll();
        assert_eq!(c.ni.inject(&inject(1, &[round])), Ok(Submit::Posted));
        let events = b.poll();
        assert!(
            matches!(&events[..], [Seen::Put { source: 2, data, .. }, ..] if data[..] == [round]),
            "{events:?}"
        );
    }
}

#[test]
fn forged_completions_complete_nothing() {
    let (a, b) = pair(&small());
    let md = b.bind(b.region.base, 100);
    for kind in [SEND, ACK, REPLY] {
        let header = Header {
            md: md.0,
            ..Header::default()
        };
        forge(&a, 1, &header, kind, 0);
    }
    assert!(b.poll().is_empty());
    assert_eq!(b.ni.statistics().bad_messages, 3);
    assert_eq!(b.ni.md_release(md), Ok(Unlink::Done));
}

#[test]
fn a_broken_ring_leaves_the_others_going() {
    let ends: Vec<End<Seq>> = world(3, &small());
    ends[1].append(MANAGED, MeOptions::PUT);
    let header = Header::default();
    let producer = ends[0].ni.producer(1, 0).unwrap();
    let reserved = producer.reserve(1).unwrap();
    let slot = producer.slots().address(producer.slot(reserved));
    // SAFETY: the slot is the first one of the reservation just made. The frame covers no slots.
    unsafe { header.write(slot) };
    producer.commit(reserved, header.frame);
    assert_eq!(ends[0].ni.inject(&inject(1, b"lost")), Ok(Submit::Posted));
    assert_eq!(ends[2].ni.inject(&inject(1, b"good")), Ok(Submit::Posted));
    let events = ends[1].poll();
    assert!(
        matches!(&events[..], [Seen::Put { source: 2, .. }]),
        "{events:?}"
    );
    assert_eq!(ends[1].ni.statistics().bad_peer, Some(0));
    assert_eq!(SLOT, 64);
}
