//! Locally managed entries: how they fill up, how the next entry takes over, and how their space is
//! returned.

use conduit_core::ni::{Ack, MatchEntry, MeEvents, MeOptions, Ni, Outcome, Put, Unlink};

use super::entry::{managed, pattern, put_to};
use super::{Applies, Peek, Record, Seen, World, theme};

theme! { "managed":
    data_is_shown_in_place(2)
        "A managed entry's bytes are passed to the sink during delivery, complete and aligned to 16 bytes.";
    remote_offset_is_ignored(2)
        "The initiator's offset is ignored by managed entries.";
    messages_do_not_overlap(2)
        "Messages lie within the entry's memory and don't overlap.";
    entry_unlinks_when_little_is_left(2)
        "The entry unlinks itself when fewer than min_free bytes are left, with each message rounded up to a multiple of 64.";
    next_entry_goes_on(2)
        "When an entry is full, the next one in the list takes over, and no message is lost.";
    free_comes_after_the_data(2)
        "Free is the last event of an unlinked entry, so none of its puts is delivered afterwards.";
    space_can_be_given_again(2)
        "After its Free, an entry's space may be appended again, any number of times.";
    use_once_managed_entry(2)
        "A use-once managed entry unlinks after one message and is freed after that message's delivery.";
    link_events_can_be_switched_off(2)
        "Without LINK an entry unlinks itself silently.";
    zero_length_messages_arrive(2)
        "A message without bytes also arrives at a managed entry, with its header.";
    largest_managed_message(2)
        "The largest put to a managed entry (max_managed) arrives whole.";
    many_ranks_fill_one_entry(5)
        "Concurrent messages of several ranks to one entry don't overwrite each other.";
    unlinking_a_filled_entry(2)
        "A managed entry can be unlinked by its owner while it holds messages, and acknowledged messages are still delivered.";
}

fn data_is_shown_in_place<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(65536, 2048));
    let bytes = pattern(1, 2048);
    let md = w.source(0, &bytes);
    let lengths = [
        1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 1000, 1024, 2048,
    ];
    for (i, &length) in lengths.iter().enumerate() {
        let put = Put {
            length,
            hdr_data: i as u64,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
    }
    let puts = w.wait_puts(1, lengths.len());
    for put in &puts {
        let length = lengths[put.hdr_data as usize];
        assert_eq!((put.length, put.requested), (length, length));
        assert_eq!(put.data, bytes[..length], "{length} bytes");
        assert!(put.aligned, "{length} bytes are not aligned to 16 bytes");
    }
}

fn remote_offset_is_ignored<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(4096, 64));
    let md = w.source(0, b"anywhere");
    for remote_offset in [1, 4096, 1 << 40, u64::MAX] {
        let put = Put {
            remote_offset,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    }
    for put in w.wait_puts(1, 4) {
        assert_eq!(put.data, b"anywhere");
        assert!(put.offset < 4096, "{put:?}");
    }
}

fn messages_do_not_overlap<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, managed(8192, 200));
    let md = w.source(0, &pattern(2, 200));
    let mut count = 0;
    for i in 0..30 {
        let put = Put {
            length: 1 + 37 * i % 200,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        count += 1;
    }
    let mut pieces: Vec<_> = w
        .wait_puts(1, count)
        .iter()
        .map(|put| (put.offset, put.offset + put.length as u64))
        .collect();
    pieces.sort_unstable();
    assert!(pieces.iter().all(|piece| piece.1 <= 8192), "{pieces:?}");
    for pair in pieces.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{pair:?} overlap");
    }
}

fn entry_unlinks_when_little_is_left<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    // Each message of one byte counts for 64 bytes. Of 640 bytes, 192 are left after the seventh
    // message, and 128 after the eighth.
    w.append(1, managed(640, 192));
    let md = w.source(0, &[1]);
    for i in 1..=8 {
        let end = w.put_and_wait(&md, &put_to(1, &md));
        assert_eq!(end.outcome, Outcome::Done, "message {i}");
        if i == 7 {
            w.settle();
            let told = w.count(1, |event| matches!(event, Seen::Unlinked { .. }));
            assert_eq!(
                told, 0,
                "the entry has at least 192 bytes left, which is enough"
            );
        }
    }
    w.until("the entry has unlinked itself and is free", |w| {
        w.count(1, |event| *event == Seen::Unlinked { tag: 0 }) == 1
            && w.count(1, |event| *event == Seen::Free { tag: 0 }) == 1
    });
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch, "it is out of the list");
}

fn next_entry_goes_on<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    for tag in 0..4 {
        w.append(
            1,
            MatchEntry {
                tag,
                ..managed(1024, 128)
            },
        );
    }
    let bytes = pattern(3, 128);
    let md = w.source(0, &bytes);
    let mut sent = 0;
    loop {
        let put = Put {
            hdr_data: sent,
            ..put_to(1, &md)
        };
        match w.put_and_wait(&md, &put).outcome {
            Outcome::Done => sent += 1,
            Outcome::NoMatch => break,
            outcome @ Outcome::OutOfRange => panic!("{outcome:?}"),
        }
    }
    assert_eq!(sent, 32, "four entries have room for eight messages each");
    let puts = w.wait_puts(1, 32);
    for put in &puts {
        assert_eq!(
            put.tag,
            put.hdr_data / 8,
            "the entries must be used in list order"
        );
        assert_eq!(put.data, bytes);
    }
}

fn free_comes_after_the_data<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    for tag in 0..6 {
        w.append(
            1,
            MatchEntry {
                tag,
                ..managed(1024, 256)
            },
        );
    }
    let md = w.source(0, &pattern(4, 256));
    for token in 0..24 {
        let put = Put {
            token,
            ..put_to(1, &md)
        };
        w.put(0, &put);
    }
    w.until("all entries are free", |w| {
        w.count(1, |event| matches!(event, Seen::Free { .. })) == 6
    });
    w.settle();
    let events: Vec<_> = w.events(1).collect();
    for tag in 0..6 {
        let place = |like: &dyn Fn(&Seen) -> bool| {
            let mut all = events.iter().enumerate().filter(|(_, event)| like(event));
            let last = all.next_back().map(|(at, _)| at);
            (last, all.count() + usize::from(last.is_some()))
        };
        let (free, frees) = place(&|event| *event == Seen::Free { tag });
        let (_, unlinks) = place(&|event| *event == Seen::Unlinked { tag });
        let (put, puts) = place(&|event| matches!(event, Seen::Put(put) if put.tag == tag));
        assert_eq!((frees, unlinks, puts), (1, 1, 4), "entry {tag}");
        assert!(put < free, "entry {tag} was freed before its last message");
    }
}

fn space_can_be_given_again<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let entry = |tag| MatchEntry {
        tag,
        ..managed(1024, 256)
    };
    for tag in 0..3 {
        w.append(1, entry(tag));
    }
    let bytes = pattern(5, 256);
    let md = w.source(0, &bytes);
    let (mut delivered, mut again) = (0, 0);
    for i in 0..400_u64 {
        let length = 1 + (i as usize * 101) % 256;
        let put = Put {
            length,
            hdr_data: length as u64,
            ..put_to(1, &md)
        };
        // All entries may be full until their owner appends them again.
        w.until("a message finds room", |w| {
            let outcome = w.put_and_wait(&md, &put).outcome;
            let freed: Vec<u64> = (w.log().iter())
                .filter_map(|record| match record {
                    Record {
                        event: Seen::Free { tag },
                        ..
                    } => Some(*tag),
                    _ => None,
                })
                .collect();
            for put in w.puts(1) {
                assert_eq!(put.data, bytes[..put.hdr_data as usize]);
                delivered += 1;
            }
            w.clear_log();
            for tag in freed {
                again += 1;
                w.append(1, entry(tag));
            }
            outcome == Outcome::Done
        });
    }
    w.until("the last message", |w| delivered + w.puts(1).len() == 400);
    assert!(
        again >= 50,
        "entries were appended again only {again} times"
    );
}

fn use_once_managed_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    for tag in 0..2 {
        w.append(
            1,
            MatchEntry {
                options: MeOptions::PUT | MeOptions::USE_ONCE,
                tag,
                ..managed(4096, 64)
            },
        );
    }
    let md = w.source(0, b"once");
    for outcome in [Outcome::Done, Outcome::Done, Outcome::NoMatch] {
        assert_eq!(w.put_and_wait(&md, &put_to(1, &md)).outcome, outcome);
    }
    w.until("both entries are unlinked and free", |w| {
        (0..2).all(|tag| {
            w.count(1, |event| *event == Seen::Unlinked { tag }) == 1
                && w.count(1, |event| *event == Seen::Free { tag }) == 1
        })
    });
    let mut tags: Vec<_> = w.puts(1).iter().map(|put| put.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0, 1]);
}

fn link_events_can_be_switched_off<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            events: MeEvents::OPERATION,
            ..managed(256, 64)
        },
    );
    let md = w.source(0, &[1; 64]);
    for _ in 0..4 {
        w.put_and_wait(&md, &put_to(1, &md));
    }
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch);
    w.wait_puts(1, 4);
    w.settle();
    assert_eq!(w.events(1).count(), 4, "puts only");
}

fn zero_length_messages_arrive<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            ignore_bits: u64::MAX,
            ..managed(65536, 64)
        },
    );
    let md = w.source(0, &[]);
    for i in 0..100 {
        let put = Put {
            match_bits: i,
            hdr_data: i << 50,
            token: i,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, 0));
    }
    let puts = w.wait_puts(1, 100);
    for i in 0..100 {
        let put = puts.iter().find(|put| put.match_bits == i).expect("each");
        assert_eq!((put.hdr_data, put.length, put.requested), (i << 50, 0, 0));
    }
}

fn largest_managed_message<N: Ni>(w: &mut World<N>) -> Applies {
    const TRIED: usize = 64 << 20;
    let largest = w.net(0).reach(1).max_managed;
    if largest > TRIED {
        return Applies::No(format!(
            "max_managed is {largest}, more than this case allocates"
        ));
    }
    w.listen(1);
    w.append(1, managed(largest.next_multiple_of(64), 1));
    let bytes = pattern(6, largest);
    let md = w.source(0, &bytes);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::Done, largest));
    let put = w.wait_puts(1, 1).remove(0);
    assert!(put.data == bytes, "{largest} bytes arrived changed");
    Applies::Yes
}

fn many_ranks_fill_one_entry<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    w.append(0, managed(1 << 18, 512));
    let bytes: Vec<_> = (1..5).map(|rank| pattern(rank, 512)).collect();
    let mds: Vec<_> = (1..5)
        .map(|rank| w.source(rank, &bytes[rank as usize - 1]))
        .collect();
    for i in 0..100 {
        for md in &mds {
            let put = Put {
                length: 1 + (i * 7 + md.rank as usize) % 512,
                ack: Ack::Local,
                ..put_to(0, md)
            };
            w.put(md.rank, &put);
        }
        w.turn();
    }
    for put in w.wait_puts(0, 400) {
        assert_eq!(put.data, bytes[put.source as usize - 1][..put.length]);
    }
    for rank in 1..5 {
        w.until("every source may be reused", |w| {
            w.events(rank).count() == 100
        });
    }
}

fn unlinking_a_filled_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let me = w.append(1, managed(8192, 64));
    let md = w.source(0, &[0x5A; 64]);
    w.freeze(1);
    let mut posted = 0;
    for token in 0..8 {
        let put = Put {
            ack: Ack::Local,
            token,
            ..put_to(1, &md)
        };
        posted += usize::from(w.try_put(0, &put));
    }
    // The target has not polled yet, so the entry may still be in use.
    let answer = w.net(1).me_unlink(me).expect("me_unlink");
    w.thaw(1);
    if answer == Unlink::InUse {
        w.unlink(1, me);
    }
    w.until("the operations end at their initiator", |w| {
        w.events(0).count() == posted
    });
    w.settle();
    let puts = w.puts(1);
    assert!(puts.len() <= posted);
    assert!(puts.iter().all(|put| put.data == md.bytes()), "intact");
    let late = Put {
        token: 100,
        ..put_to(1, &md)
    };
    let end = w.put_and_wait(&md, &late);
    assert_eq!(end.outcome, Outcome::NoMatch);
}
