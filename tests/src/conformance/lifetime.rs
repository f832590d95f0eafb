//! How descriptors and entries end, and how their ids are reused.

use conduit_core::ni::{Ack, MatchEntry, MeId, Ni, NiError, Outcome, Put, Unlink};

use super::entry::{PT, get_from, managed, over, pattern, piece, put_to};
use super::{Applies, Peek, Seen, World, theme};

theme! { "lifetime":
    released_source_is_not_read(2)
        "Once a descriptor's release is Done, its memory is not read any more, and the puts in flight have their bytes.";
    released_destination_is_not_written(2)
        "Once a descriptor's release is Done, its memory is not written any more.";
    idle_descriptor_can_be_released(1)
        "A descriptor without operations in flight can be released.";
    released_descriptor_is_gone(2)
        "Operations on a released descriptor are refused.";
    unlinked_region_is_not_written(2)
        "Once an entry's unlinking is Done, no later put changes its memory.";
    unlinking_twice_is_refused(2)
        "Unlinking an entry that me_unlink or its own use has unlinked is refused.";
    descriptors_come_and_go(2)
        "Descriptors may be bound and released any number of times within the limit.";
    entries_come_and_go(2)
        "Entries may be appended and unlinked any number of times within the limit.";
    too_many_descriptors_are_refused(1)
        "At most limits().memory_descriptors can be bound, and after a release there is room for another.";
    too_many_entries_are_refused(1)
        "At most limits().match_entries can be linked, and after an unlinking there is room for another.";
    too_many_queues_are_refused(1)
        "At most limits().event_queues can be created.";
}

/// How many times a case repeats its lengths.
const ROUNDS: usize = 8;

fn released_source_is_not_read<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 1 << 16);
    w.append(1, over(&region));
    // The lengths are repeated, because it is random whether a release meets an operation in
    // flight.
    for (i, length) in [8, 100, 2000, 50_000]
        .repeat(ROUNDS)
        .into_iter()
        .enumerate()
    {
        for ack in [Ack::Local, Ack::Remote] {
            let bytes = pattern(i as u64, length);
            let md = w.source(0, &bytes);
            let put = Put {
                ack,
                ..put_to(1, &md)
            };
            w.put(0, &put);
            w.release(&md);
            md.poke(0, &vec![0xEE; length]);
            w.wait_puts(1, 1);
            assert!(region.peek(0, length) == bytes, "{length} bytes");
            w.end_of(0, 0);
            w.clear_log();
        }
    }
}

fn released_destination_is_not_written<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 1 << 16);
    region.poke(0, &pattern(1, 1 << 16));
    w.append(1, over(&region));
    for length in [8, 100, 2000, 50_000].repeat(ROUNDS) {
        let md = w.space(0, length);
        w.get(0, &get_from(1, &md));
        w.release(&md);
        assert!(
            md.bytes() == region.peek(0, length),
            "the get has completed"
        );
        md.poke(0, &vec![0xEE; length]);
        w.end_of(0, 0);
        w.settle();
        assert!(md.bytes() == vec![0xEE; length], "{length} bytes");
    }
}

fn idle_descriptor_can_be_released<N: Ni>(w: &mut World<N>) {
    let md = w.source(0, &[1; 100]);
    w.release(&md);
}

fn released_descriptor_is_gone<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(4096, 64));
    let md = w.source(0, &[1; 8]);
    w.release(&md);
    // SAFETY: the put is refused, so the network reads nothing.
    let put = w.submit(0, |net| unsafe { net.put(&put_to(1, &md)) });
    assert!(matches!(put, Err(NiError::NoSuchObject { .. })), "{put:?}");
    // SAFETY: the get is refused, so the network writes nothing.
    let get = w.submit(0, |net| unsafe { net.get(&get_from(1, &md)) });
    assert!(matches!(get, Err(NiError::NoSuchObject { .. })), "{get:?}");
    let again = w.net(0).md_release(md.id);
    assert!(
        matches!(again, Err(NiError::NoSuchObject { .. })),
        "{again:?}"
    );
}

fn unlinked_region_is_not_written<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let md = w.source(0, &[0xAB; 64]);
    for round in 0..10 {
        region.poke(0, &[0; 4096]);
        let me = w.append(1, over(&region));
        for token in 0..8 {
            let put = Put {
                token,
                remote_offset: token * 64,
                ..put_to(1, &md)
            };
            w.put(0, &put);
        }
        w.unlink(1, me);
        let before = region.bytes();
        let mut done = 0;
        for token in 0..8 {
            done += usize::from(w.end_of(0, token).outcome == Outcome::Done);
        }
        w.settle();
        assert!(
            region.bytes() == before,
            "round {round}: the entry was written after its unlinking"
        );
        let written = before.iter().filter(|byte| **byte == 0xAB).count();
        assert_eq!(written, 64 * done, "only the acknowledged bytes are there");
    }
}

fn unlink_is_refused<N: Ni>(w: &mut World<N>, me: MeId) {
    // The entry may be in use while its events are in flight.
    w.until("the entry is gone", |w| match w.net(1).me_unlink(me) {
        Ok(answer) => {
            assert_eq!(answer, Unlink::InUse, "unlinked twice");
            false
        }
        Err(NiError::NoSuchObject { .. }) => true,
        Err(other) => panic!("{other:?}"),
    });
}

fn unlinking_twice_is_refused<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let me = w.append(1, over(&region));
    w.unlink(1, me);
    unlink_is_refused(w, me);
    let entry = piece(&region, 0, 64);
    let me = w.append(
        1,
        MatchEntry {
            options: entry.options | conduit_core::ni::MeOptions::USE_ONCE,
            tag: 3,
            ..entry
        },
    );
    let md = w.source(0, &[1]);
    w.put_and_wait(&md, &put_to(1, &md));
    w.until("the entry has unlinked itself", |w| {
        w.count(1, |event| *event == Seen::Unlinked { tag: 3 }) == 1
    });
    unlink_is_refused(w, me);
}

fn descriptors_come_and_go<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(1 << 18, 64));
    for i in 0..500_u64 {
        let md = w.source(0, &i.to_ne_bytes());
        w.put_and_wait(&md, &put_to(1, &md));
        w.release(&md);
    }
    let mut seen: Vec<_> = (w.wait_puts(1, 500).into_iter())
        .map(|put| u64::from_ne_bytes(put.data.try_into().expect("8 bytes")))
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..500));
}

fn entries_come_and_go<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let md = w.source(0, &[1; 8]);
    for tag in 0..500 {
        let entry = MatchEntry {
            tag,
            match_bits: tag,
            ..over(&region)
        };
        let me = w.append(1, entry);
        if tag % 5 == 0 {
            let put = Put {
                match_bits: tag,
                ..put_to(1, &md)
            };
            assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        }
        w.unlink(1, me);
    }
    let puts = w.wait_puts(1, 100);
    assert!(puts.iter().all(|put| put.tag == put.match_bits));
}

fn too_many_descriptors_are_refused<N: Ni>(w: &mut World<N>) -> Applies {
    let limit = w.net(0).limits().memory_descriptors;
    if limit > 1 << 17 {
        return Applies::No(format!("this case doesn't create {limit} descriptors"));
    }
    let first = w.source(0, &[0; 8]);
    for _ in 1..limit {
        w.source(0, &[]);
    }
    let bind = |w: &World<N>| {
        // SAFETY: the world keeps the memory until its networks have been dropped.
        unsafe { w.net(0).md_bind(first.extent().0, 8, first.eq) }
    };
    let answer = bind(w);
    assert!(
        matches!(answer, Err(NiError::Exhausted { limit: l, setting, .. })
            if l == u64::from(limit) && !setting.is_empty()),
        "{answer:?}"
    );
    w.release(&first);
    bind(w).expect("room for another one");
    Applies::Yes
}

fn too_many_entries_are_refused<N: Ni>(w: &mut World<N>) -> Applies {
    let limit = w.net(0).limits().match_entries;
    if limit > 1 << 17 {
        return Applies::No(format!("this case doesn't create {limit} entries"));
    }
    w.listen(0);
    let region = w.region(0, 4096);
    let first = w.append(0, over(&region));
    for _ in 1..limit {
        w.append(0, over(&region));
    }
    let answer = w.net(0).me_append(PT, over(&region));
    assert!(
        matches!(answer, Err(NiError::Exhausted { limit: l, setting, .. })
            if l == u64::from(limit) && !setting.is_empty()),
        "{answer:?}"
    );
    w.until("one entry is unlinked", |w| {
        w.net(0).me_unlink(first).expect("me_unlink") == Unlink::Done
    });
    w.append(0, over(&region));
    Applies::Yes
}

fn too_many_queues_are_refused<N: Ni>(w: &mut World<N>) {
    let limit = w.net(0).limits().event_queues;
    for _ in 0..limit {
        w.net(0).eq_create(8).expect("eq_create");
    }
    let answer = w.net(0).eq_create(8);
    assert!(
        matches!(answer, Err(NiError::Exhausted { limit: l, .. }) if l == u64::from(limit)),
        "{answer:?}"
    );
}
