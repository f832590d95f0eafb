//! Tests of every operation on every path that its bytes can take.

use super::*;

/// Lengths on both sides of every boundary, which are those of a slot, of a compact slot, of inline
/// payloads and of the largest messages.
const LENGTHS: [usize; 12] = [0, 1, 31, 32, 33, 64, 127, 128, 129, 1000, 4096, 8192];

/// Configurations with exclusive and with shared rings.
fn configs() -> [ShmConfig; 2] {
    [
        small(),
        ShmConfig {
            shared_ring_above: 0,
            ..small()
        },
    ]
}

#[test]
fn puts_arrive_from_any_memory_with_either_completion() {
    for config in configs() {
        let (a, b) = pair(&config);
        b.expose(ANY);
        let mut own = pattern(8192, 1);
        a.write(16, &pattern(8192, 2));
        // The source is memory of the process, memory of a region, or misaligned memory of a
        // region.
        let sources = [
            (own.as_mut_ptr(), pattern(8192, 1)),
            (a.region.base.wrapping_add(16), pattern(8192, 2)),
            (
                a.region.base.wrapping_add(17),
                pattern(8192, 2)[1..].to_vec(),
            ),
        ];
        for (base, expected) in &sources {
            let md = a.bind(*base, expected.len());
            for length in LENGTHS {
                let length = length.min(expected.len());
                for ack in [Ack::Local, Ack::Remote] {
                    for remote_offset in [0, 24] {
                        b.write(0, &[0xee; 8300]);
                        let request = Put {
                            remote_offset,
                            ..put(md, length, ack, 9)
                        };
                        assert_eq!(a.put(request), Submit::Posted);
                        assert_eq!(b.poll(), [arrived(remote_offset, length, length, &[])]);
                        let completed = match ack {
                            Ack::Local => Seen::Send(9),
                            Ack::Remote => Seen::Ack(9, Outcome::Done, length),
                        };
                        assert_eq!(a.poll(), [completed]);
                        let at = remote_offset as usize;
                        assert_eq!(b.bytes(at, length), expected[..length]);
                        assert_eq!(b.bytes(at + length, 64), [0xee; 64]);
                    }
                }
            }
            assert_eq!(a.ni.md_release(md), Ok(Unlink::Done));
        }
    }
}

#[test]
fn gets_bring_bytes_to_any_memory() {
    for config in configs() {
        let (a, b) = pair(&config);
        b.expose(ANY);
        b.write(0, &pattern(8300, 3));
        let mut own = vec![0_u8; 8300];
        for base in [own.as_mut_ptr(), a.region.base.wrapping_add(1)] {
            let md = a.bind(base, 8300);
            for length in LENGTHS {
                for remote_offset in [0, 24] {
                    // SAFETY: the bytes lie in the descriptor's memory, to which no references
                    // exist.
                    unsafe { base.write_bytes(0xee, 8300) };
                    let request = Get {
                        local_offset: 8,
                        remote_offset,
                        ..get(md, length, 9)
                    };
                    assert_eq!(a.get(request), Submit::Posted);
                    assert_eq!(b.poll(), [Seen::Get(77, 0, remote_offset, length)]);
                    assert_eq!(a.poll(), [Seen::Reply(9, Outcome::Done, length, 0)]);
                    // SAFETY: the bytes lie in the descriptor's memory, to which no references
                    // exist.
                    let got = unsafe { std::slice::from_raw_parts(base, 8300).to_vec() };
                    assert_eq!(got[..8], [0xee; 8]);
                    let expected = &pattern(8300, 3)[remote_offset as usize..][..length];
                    assert_eq!(&got[8..8 + length], expected);
                    assert!(got[8 + length..].iter().all(|&byte| byte == 0xee));
                }
            }
            assert_eq!(a.ni.md_release(md), Ok(Unlink::Done));
        }
    }
}

#[test]
fn managed_entries_hand_the_bytes_out_in_place() {
    for config in configs() {
        let (a, b) = pair(&config);
        let mut own = pattern(8192, 4);
        a.write(0, &pattern(8192, 5));
        for (base, seed) in [(own.as_mut_ptr(), 4), (a.region.base, 5)] {
            let md = a.bind(base, 8192);
            for length in LENGTHS {
                let me = b.append(MANAGED, MeOptions::PUT);
                assert_eq!(a.put(put(md, length, Ack::Remote, 9)), Submit::Posted);
                assert_eq!(
                    b.poll(),
                    [arrived(0, length, length, &pattern(length, seed))]
                );
                assert_eq!(a.poll(), [Seen::Ack(9, Outcome::Done, length)]);
                assert_eq!(b.ni.me_unlink(me), Ok(Unlink::Done));
            }
        }
    }
}

#[test]
fn injects_carry_two_pieces() {
    let (a, b) = pair(&small());
    b.append(MANAGED, MeOptions::PUT);
    for length in [0, 1, 16, 17, 32, 33, 96, 97, 240] {
        let bytes = pattern(length + 16, 6);
        let request = Inject {
            head: &bytes[..16],
            ..inject(1, &bytes[16..])
        };
        assert_eq!(a.ni.inject(&request), Ok(Submit::Posted));
        let events = b.poll();
        assert!(
            matches!(&events[..], [Seen::Put { data, .. }] if *data == bytes),
            "{events:?}"
        );
    }
    assert!(a.poll().is_empty());
    assert!(a.ni.inject(&inject(1, &[0; 257])).is_err());
}

#[test]
fn a_full_entry_unlinks_itself_and_the_next_takes_over() {
    let (a, b) = pair(&small());
    for tag in 0..2 {
        let entry = MatchEntry {
            memory: MeMemory::Managed {
                bytes: 256,
                min_free: 128,
            },
            match_bits: 5,
            ignore_bits: 0,
            source: Some(0),
            options: MeOptions::PUT,
            events: MeEvents::all(),
            tag,
        };
        b.ni.me_append(PT, entry).unwrap();
    }
    for _ in 0..4 {
        assert_eq!(a.ni.inject(&inject(1, &[1; 100])), Ok(Submit::Posted));
    }
    let events = b.poll();
    let names: Vec<_> = events
        .iter()
        .map(|event| match event {
            Seen::Put { tag, offset, .. } => format!("put {tag} at {offset}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        names,
        [
            "put 0 at 0",
            "put 0 at 128",
            "Unlinked(0)",
            "Free(0)",
            "put 1 at 0",
            "put 1 at 128",
            "Unlinked(1)",
            "Free(1)",
        ]
    );
    assert_eq!(b.ni.statistics().dropped, 0);
}

#[test]
fn every_event_counts_against_the_limit() {
    let (a, b) = pair(&small());
    b.append(MANAGED, MeOptions::PUT | MeOptions::USE_ONCE);
    b.append(MANAGED, MeOptions::PUT | MeOptions::USE_ONCE);
    for _ in 0..2 {
        assert_eq!(a.ni.inject(&inject(1, &[1])), Ok(Submit::Posted));
    }
    for expected in ["Put", "Unlinked", "Free", "Put", "Unlinked", "Free"] {
        assert_eq!(b.ni.poll(b.eq, 0, |event| panic!("{event:?}")), 0);
        let mut name = String::new();
        assert_eq!(b.ni.poll(b.eq, 1, |event| name = format!("{event:?}")), 1);
        assert!(name.starts_with(expected), "{name}, expected {expected}");
    }
    assert_eq!(b.ni.poll(b.eq, 1, |_| ()), 0);
    assert_eq!(b.ni.poll(b.eq, 0, |_| ()), 0);
}

/// Returns a receiver that has not yet received anything, and its senders.
fn awaiting(ranks: u32) -> (End<Seq>, Vec<End<Seq>>) {
    let mut senders = world::<Seq>(ranks, &small());
    let receiver = senders.remove(0);
    assert!(receiver.poll().is_empty());
    (receiver, senders)
}

/// Returns descriptions of the events that one poll delivered. Puts are described by their sources.
fn polled(receiver: &End<Seq>, limit: u32) -> Vec<String> {
    let mut all = Vec::new();
    receiver
        .ni
        .poll(receiver.eq, limit, |event| match seen(event) {
            Seen::Put { source, .. } => all.push(format!("put of {source}")),
            other => all.push(format!("{other:?}")),
        });
    all
}

#[test]
fn a_source_that_always_has_a_message_holds_up_nobody() {
    for limit in [1, 100] {
        let (receiver, senders) = awaiting(4);
        receiver.append(MANAGED, MeOptions::PUT);
        for round in 0..8 {
            let mut events = Vec::new();
            for sender in &senders[1..] {
                assert_eq!(sender.ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
            }
            // Each poll finds a message of rank 1, and each of the other ranks gets its turn after
            // at most two of these messages.
            for _ in 0..6 {
                assert_eq!(senders[0].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
                events.extend(polled(&receiver, limit));
            }
            for source in 2..4 {
                let name = format!("put of {source}");
                assert!(events.contains(&name), "round {round}: {events:?}");
            }
            receiver.poll();
        }
    }
}

#[test]
fn what_an_event_leaves_owing_comes_before_any_awaited_message() {
    let (receiver, senders) = awaiting(3);
    receiver.append(MANAGED, MeOptions::PUT | MeOptions::USE_ONCE);
    receiver.append(MANAGED, MeOptions::PUT);
    assert_eq!(senders[0].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
    assert_eq!(polled(&receiver, 1), ["put of 1"]);
    assert_eq!(senders[1].ni.inject(&inject(0, &[1])), Ok(Submit::Posted));
    for expected in ["Unlinked(77)", "Free(77)", "put of 2"] {
        assert_eq!(polled(&receiver, 1), [expected]);
    }
}

#[test]
fn refusals_are_told() {
    let (a, b) = pair(&ShmConfig {
        staging_pieces: 3,
        ..small()
    });
    let mut own = vec![0_u8; 8192];
    let md = a.bind(own.as_mut_ptr(), own.len());
    for length in [8, 128, 8192] {
        assert_eq!(a.put(put(md, length, Ack::Remote, 1)), Submit::Posted);
        assert_eq!(a.put(put(md, length, Ack::Local, 2)), Submit::Posted);
        assert_eq!(a.get(get(md, length, 3)), Submit::Posted);
        assert!(b.poll().is_empty());
        let mut events = a.poll();
        events.sort_by_key(|event| format!("{event:?}"));
        let expected = [
            Seen::Ack(1, Outcome::NoMatch, 0),
            Seen::Reply(3, Outcome::NoMatch, 0, 0),
            Seen::Send(2),
        ];
        assert_eq!(events, expected);
    }
    assert_eq!(b.ni.statistics().dropped, 9);
    b.expose(ANY);
    let outside = b.region.len as u64 + 1;
    assert_eq!(
        a.put(Put {
            remote_offset: outside,
            ..put(md, 8, Ack::Remote, 1)
        }),
        Submit::Posted
    );
    assert_eq!(
        a.get(Get {
            remote_offset: outside,
            ..get(md, 8, 3)
        }),
        Submit::Posted
    );
    assert!(b.poll().is_empty());
    let expected = [
        Seen::Ack(1, Outcome::OutOfRange, 0),
        Seen::Reply(3, Outcome::OutOfRange, 0, 0),
    ];
    assert_eq!(a.poll(), expected);
    assert_eq!(a.ni.md_release(md), Ok(Unlink::Done));
}

#[test]
fn atomics_act_on_regions() {
    let (a, b) = pair(&small());
    b.expose(ANY);
    b.write(8, &40_u64.to_ne_bytes());
    let add = Atomic {
        op: AtomicOp::Add,
        ty: AtomicType::U64,
        operand: 2,
        comparand: 0,
        fetch: true,
        target: 1,
        index: PT,
        match_bits: 0,
        remote_offset: 8,
        eq: a.eq,
        token: 1,
    };
    let quiet = Atomic {
        op: AtomicOp::CompareSwap,
        operand: 50,
        comparand: 42,
        fetch: false,
        token: 2,
        ..add
    };
    let crooked = Atomic {
        remote_offset: 12,
        token: 3,
        ..add
    };
    for atomic in [add, quiet, crooked] {
        assert_eq!(a.ni.atomic(&atomic), Ok(Submit::Posted));
    }
    assert_eq!(b.poll(), [Seen::Atomic(77, 0, 8), Seen::Atomic(77, 0, 8)]);
    let expected = [
        Seen::Reply(1, Outcome::Done, 8, 40),
        Seen::Ack(2, Outcome::Done, 8),
        Seen::Reply(3, Outcome::OutOfRange, 0, 0),
    ];
    assert_eq!(a.poll(), expected);
    assert_eq!(b.bytes(8, 8), 50_u64.to_ne_bytes());
}

#[test]
fn a_rank_can_talk_to_itself() {
    let (a, _b) = pair(&small());
    a.expose(ANY);
    a.write(0, &pattern(4096, 7));
    let md = a.bind(a.region.base, 8192);
    for length in [8, 4096] {
        let to_self = Put {
            target: 0,
            remote_offset: 5000,
            ..put(md, length, Ack::Remote, 1)
        };
        assert_eq!(a.put(to_self), Submit::Posted);
        let expected = [
            arrived(5000, length, length, &[]),
            Seen::Ack(1, Outcome::Done, length),
        ];
        assert_eq!(a.poll(), expected);
        assert_eq!(a.bytes(5000, length), pattern(length, 7));
        let from_self = Get {
            target: 0,
            local_offset: 100,
            ..get(md, length, 2)
        };
        assert_eq!(a.get(from_self), Submit::Posted);
        let expected = [
            Seen::Get(77, 0, 0, length),
            Seen::Reply(2, Outcome::Done, length, 0),
        ];
        assert_eq!(a.poll(), expected);
        let n = length.min(100);
        assert_eq!(a.bytes(100, n), pattern(4096, 7)[..n]);
        a.write(0, &pattern(4096, 7));
    }
}

#[test]
fn an_index_without_queue_is_served_by_progress() {
    let (a, b) = pair(&small());
    let quiet = PtIndex(2);
    let mut own = [7_u8; 16];
    let md = a.bind(own.as_mut_ptr(), own.len());
    let request = Put {
        index: quiet,
        ..put(md, 16, Ack::Remote, 1)
    };
    assert_eq!(a.put(request), Submit::Again);
    b.ni.pt_open(quiet, None).unwrap();
    assert!(b.ni.pt_open(quiet, None).is_err());
    let region = MeMemory::Region {
        region: b.region.id,
        offset: 0,
        len: 64,
    };
    let entry = MatchEntry {
        memory: region,
        match_bits: 5,
        ignore_bits: 0,
        source: None,
        options: MeOptions::PUT,
        events: MeEvents::all(),
        tag: 1,
    };
    b.ni.me_append(quiet, entry).unwrap();
    assert_eq!(a.put(request), Submit::Posted);
    assert!(b.poll().is_empty());
    assert!(a.poll().is_empty());
    b.ni.progress();
    assert!(b.poll().is_empty());
    assert_eq!(a.poll(), [Seen::Ack(1, Outcome::Done, 16)]);
    assert_eq!(b.bytes(0, 17)[..], [&[7; 16][..], &[0]].concat());
}

#[test]
fn a_handler_may_reply_and_append_but_not_poll_or_unlink_its_entry() {
    let (a, b) = pair(&small());
    let me = b.append(MANAGED, MeOptions::PUT);
    a.append(MANAGED, MeOptions::PUT);
    assert_eq!(a.ni.inject(&inject(1, b"ping")), Ok(Submit::Posted));
    let delivered = b.ni.poll(b.eq, 8, |event| {
        assert!(matches!(event, Event::Put(_)));
        assert_eq!(b.ni.poll(b.eq, 8, |_| panic!("inside itself")), 0);
        assert_eq!(b.ni.inject(&inject(0, b"pong")), Ok(Submit::Posted));
        assert!(b.ni.window(0, RegionId(0)).is_some());
        assert_eq!(b.ni.me_unlink(me), Ok(Unlink::InUse));
        b.append(MANAGED, MeOptions::PUT);
    });
    assert_eq!(delivered, 1);
    assert_eq!(b.ni.me_unlink(me), Ok(Unlink::Done));
    let events = a.poll();
    assert!(matches!(&events[..], [Seen::Put { data, .. }] if data == b"pong"));
}

#[test]
fn windows_are_the_peers_regions() {
    let (a, b) = pair(&small());
    let window = a.ni.window(1, b.region.id).unwrap();
    assert_eq!(window.len, b.region.len);
    assert!(a.ni.window(1, RegionId(1)).is_none());
    assert!(a.ni.window(2, RegionId(0)).is_none());
    let second = b.ni.region_create(1).unwrap();
    assert_eq!(second.len, 4096);
    let window = a.ni.window(1, second.id).unwrap();
    // SAFETY: the bytes lie within the window, and only this thread accesses them.
    unsafe {
        window.base.add(4095).write(9);
        assert_eq!(second.base.add(4095).read(), 9);
    }
    let (a, b) = pair(&ShmConfig {
        windows: false,
        ..small()
    });
    assert!(a.ni.window(1, b.region.id).is_none());
    assert!(a.ni.window(0, a.region.id).is_some());
    assert!(!a.ni.reach(1).capabilities.contains(Capabilities::WINDOW));
}
