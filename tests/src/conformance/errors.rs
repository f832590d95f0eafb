//! The calls that a network must refuse with the right error, at once, and without any effect.

use conduit_core::ni::{
    Atomic, EqId, Exchange, Get, Inject, MdId, MeId, Ni, NiError, PtIndex, Put, Rank,
};

use super::entry::{PT, atomic_on, get_from, managed, over, put_to};
use super::{Peek, World, theme};

theme! { "errors":
    rank_outside_the_job(2)
        "An operation on a rank outside the job is refused with NoSuchRank, which names the operation, rank and size.";
    reach_outside_the_job(2)
        "A rank beyond the job has an unreachable Reach: no capability, all sizes 0.";
    index_outside_the_table(2)
        "An index beyond limits().pt_indices is refused with NoSuchObject.";
    unknown_descriptor(2)
        "A descriptor that doesn't exist is refused with NoSuchObject.";
    unknown_entry(1)
        "Unlinking an entry that doesn't exist is refused with NoSuchObject.";
    unknown_queue(1)
        "A queue that doesn't exist is refused with NoSuchObject, and polling it delivers nothing.";
    outside_the_descriptor(2)
        "A range outside the descriptor is refused with OverLimit, at any distance.";
    limits_are_usable(2)
        "The limits are large enough for any job, and each rank sees the same limits of its peers.";
    places_are_told(3)
        "rank() and size() return each rank's number and the job's size.";
}

/// Submits each kind of operation with this target and index, and checks that it is refused.
fn all_refused<N: Ni>(
    w: &mut World<N>,
    target: Rank,
    index: PtIndex,
    md: MdId,
    check: impl Fn(&NiError, &str),
) {
    let known = w.source(0, &[1; 8]);
    let eq = w.completions(0);
    let put = Put {
        md,
        index,
        ..put_to(target, &known)
    };
    let get = Get {
        md,
        index,
        ..get_from(target, &known)
    };
    // SAFETY: the put is refused, and these cases never touch the memory behind a descriptor.
    let answer = w.submit(0, |net| unsafe { net.put(&put) });
    check(&answer.expect_err("put"), "put");
    // SAFETY: the get is refused, and these cases never touch the memory behind a descriptor.
    let answer = w.submit(0, |net| unsafe { net.get(&get) });
    check(&answer.expect_err("get"), "get");
    // Atomics and injects have no descriptor that could be wrong, so they are tested only with a
    // wrong target or index.
    if target != 1 || index != PT {
        let atomic = Atomic {
            index,
            ..atomic_on(target, eq)
        };
        let answer = w.submit(0, |net| net.atomic(&atomic));
        check(&answer.expect_err("atomic"), "atomic");
        let inject = Inject {
            target,
            index,
            exchange: Exchange::OneWay,
            match_bits: 0,
            hdr_data: 0,
            head: &[],
            body: &[],
        };
        let answer = w.submit(0, |net| net.inject(&inject));
        check(&answer.expect_err("inject"), "inject");
    }
}

fn named(error: &NiError, name: &str) {
    let text = error.to_string();
    assert!(text.contains(name), "names {name}: {text}");
}

fn rank_outside_the_job<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let md = w.source(0, &[1; 8]);
    for rank in [2, 3, 1000, u32::MAX] {
        all_refused(w, rank, PT, md.id, |error, name| {
            assert!(
                matches!(error, NiError::NoSuchRank { rank: r, size: 2, .. } if *r == rank),
                "{name}: {error:?}"
            );
            named(error, name);
        });
    }
    w.settle();
    assert!(w.log().is_empty(), "no effects");
}

fn reach_outside_the_job<N: Ni>(w: &mut World<N>) {
    for rank in [2, 3, u32::MAX] {
        let reach = w.net(0).reach(rank);
        assert!(reach.capabilities.is_empty());
        assert_eq!(
            (reach.inject_size, reach.max_message, reach.max_managed),
            (0, 0, 0)
        );
    }
}

fn index_outside_the_table<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let md = w.source(0, &[1; 8]);
    // `pt_indices` is the first invalid index, and 255 is always invalid.
    let first = w.net(0).limits().pt_indices;
    for index in [first, u8::MAX] {
        let index = PtIndex(index);
        let is_refused = |error: &NiError| {
            assert!(
                matches!(error, NiError::NoSuchObject { value, .. } if *value == u64::from(index.0)),
                "{error:?}"
            );
        };
        all_refused(w, 1, index, md.id, |error, name| {
            is_refused(error);
            named(error, name);
        });
        is_refused(&w.net(0).pt_open(index, None).expect_err("pt_open"));
        let entry = managed(64, 1);
        is_refused(&w.net(0).me_append(index, entry).expect_err("me_append"));
    }
    w.settle();
    assert!(w.log().is_empty(), "no effects");
}

fn unknown_descriptor<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    for id in [100_000, u32::MAX] {
        all_refused(w, 1, PT, MdId(id), |error, name| {
            assert!(
                matches!(error, NiError::NoSuchObject { value, .. } if *value == u64::from(id)),
                "{name}: {error:?}"
            );
            named(error, name);
        });
        let answer = w.net(0).md_release(MdId(id));
        assert!(
            matches!(answer, Err(NiError::NoSuchObject { .. })),
            "{answer:?}"
        );
    }
}

fn unknown_entry<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    let region = w.region(0, 4096);
    w.append(0, over(&region));
    for id in [100_000, u32::MAX] {
        let answer = w.net(0).me_unlink(MeId(id));
        assert!(
            matches!(answer, Err(NiError::NoSuchObject { value, .. }) if value == u64::from(id)),
            "{answer:?}"
        );
    }
}

fn unknown_queue<N: Ni>(w: &mut World<N>) {
    let md = w.source(0, &[1; 8]);
    for id in [md.eq.0 + 1, u8::MAX] {
        let eq = EqId(id);
        let refused = |error: NiError| {
            assert!(
                matches!(error, NiError::NoSuchObject { value, .. } if value == u64::from(id)),
                "{error:?}"
            );
        };
        let net = w.net(0);
        // SAFETY: the world keeps the memory until its networks have been dropped.
        refused(unsafe { net.md_bind(md.extent().0, 8, eq) }.expect_err("md_bind"));
        refused(net.pt_open(PT, Some(eq)).expect_err("pt_open"));
        assert_eq!(net.poll(eq, 1, |_| panic!("no event")), 0);
        let answer = w.submit(0, |net| net.atomic(&atomic_on(0, eq)));
        refused(answer.expect_err("atomic"));
    }
    w.open(0, PT, Some(md.eq));
}

fn outside_the_descriptor<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let md = w.source(0, &[1; 100]);
    for (local_offset, length) in [
        (0, 101),
        (1, 100),
        (100, 1),
        (101, 0),
        (usize::MAX, 1),
        (usize::MAX, 0),
        (50, 51),
    ] {
        let put = Put {
            local_offset,
            length,
            ..put_to(1, &md)
        };
        let get = Get {
            local_offset,
            length,
            ..get_from(1, &md)
        };
        // SAFETY: all these operations are refused, so nothing is read or written.
        let answers = [
            w.submit(0, |net| unsafe { net.put(&put) }),
            w.submit(0, |net| unsafe { net.get(&get) }),
        ];
        for answer in answers {
            assert!(
                matches!(answer, Err(NiError::OverLimit { .. })),
                "{length} bytes at {local_offset}: {answer:?}"
            );
        }
    }
    w.settle();
    assert!(w.log().is_empty(), "no effects");
    let last = Put {
        local_offset: 99,
        length: 1,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &last).length, 1);
}

fn limits_are_usable<N: Ni>(w: &mut World<N>) {
    for rank in 0..2 {
        let limits = w.net(rank).limits();
        assert!(limits.pt_indices >= 3, "room for the engine's three lists");
        assert!(limits.event_queues >= 3);
        assert!(limits.match_entries >= 32);
        assert!(limits.memory_descriptors >= 32);
        assert!(limits.regions >= 2);
        assert!(limits.region_bytes >= 1 << 20);
        for peer in 0..2 {
            let reach = w.net(rank).reach(peer);
            assert!(
                reach.max_message >= 64 << 10,
                "other cases send messages of this length"
            );
            assert!(reach.max_managed >= 1024);
            assert!(reach.inject_size <= reach.max_managed);
        }
    }
}

fn places_are_told<N: Ni>(w: &mut World<N>) {
    for rank in 0..3 {
        assert_eq!((w.net(rank).rank(), w.net(rank).size()), (rank, 3));
    }
}
