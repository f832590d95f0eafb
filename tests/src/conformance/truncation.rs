//! Messages that don't fit into an entry.

use conduit_core::ni::{MatchEntry, MeMemory, MeOptions, Ni, Outcome, Put};

use super::entry::{catch_basin, get_from, managed, pattern, piece, put_to};
use super::{Peek, World, theme};

theme! { "truncation":
    put_is_cut_to_the_entry(2)
        "With TRUNCATE a put that doesn't fit is truncated, its event gives the placed and sent lengths, and nothing is written beyond the entry.";
    put_is_cut_at_an_offset(2)
        "The room left counts from the offset within the entry.";
    get_is_cut_to_the_entry(2)
        "With TRUNCATE a get that doesn't fit moves the bytes that the entry has and leaves the rest of its destination unchanged.";
    put_that_does_not_fit_goes_to_the_next(2)
        "Without TRUNCATE a message that doesn't fit doesn't match, and the next entry is tried.";
    put_that_fits_nowhere_is_no_match(2)
        "A put that fits no entry ends with NoMatch and moves nothing.";
    get_that_does_not_fit_goes_to_the_next(2)
        "A get that doesn't fit is matched against the next entry in the same way.";
    managed_message_is_cut_to_what_is_left(2)
        "A managed entry with TRUNCATE truncates a message to the room that is left in it.";
    managed_message_goes_to_an_entry_with_room(2)
        "A managed entry with too little room left is skipped, but it stays linked for smaller messages.";
    nothing_fits_into_no_memory(2)
        "An entry without memory takes a put without bytes, and one with bytes only if it may truncate.";
}

fn put_is_cut_to_the_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let entry = piece(&region, 128, 100);
    w.append(
        1,
        MatchEntry {
            options: entry.options | MeOptions::TRUNCATE,
            ..entry
        },
    );
    let bytes = pattern(1, 300);
    let md = w.source(0, &bytes);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::Done, 100));
    let put = w.wait_puts(1, 1).remove(0);
    assert_eq!((put.length, put.requested, put.offset), (100, 300, 0));
    assert_eq!(region.peek(128, 100), bytes[..100]);
    assert_eq!(region.peek(0, 128), [0; 128]);
    assert_eq!(region.peek(228, 500), [0; 500]);
}

fn put_is_cut_at_an_offset<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let entry = piece(&region, 0, 100);
    w.append(
        1,
        MatchEntry {
            options: entry.options | MeOptions::TRUNCATE,
            ..entry
        },
    );
    let bytes = pattern(2, 50);
    let md = w.source(0, &bytes);
    for (remote_offset, fits) in [(0, 50), (50, 50), (60, 40), (99, 1)] {
        region.poke(0, &[0; 200]);
        let put = Put {
            remote_offset: remote_offset as u64,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, fits));
        let mut expected = vec![0; 200];
        expected[remote_offset..remote_offset + fits].copy_from_slice(&bytes[..fits]);
        assert_eq!(region.peek(0, 200), expected, "at {remote_offset}");
    }
}

fn get_is_cut_to_the_entry<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    region.poke(0, &pattern(3, 4096));
    let entry = piece(&region, 64, 100);
    w.append(
        1,
        MatchEntry {
            options: entry.options | MeOptions::TRUNCATE,
            ..entry
        },
    );
    let md = w.source(0, &[0xEE; 200]);
    let end = w.get_and_wait(&md, &get_from(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::Done, 100));
    assert_eq!(md.peek(0, 100), region.peek(64, 100));
    assert_eq!(md.peek(100, 100), [0xEE; 100]);
}

fn put_that_does_not_fit_goes_to_the_next<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(
        1,
        MatchEntry {
            tag: 1,
            ..piece(&region, 0, 64)
        },
    );
    w.append(
        1,
        MatchEntry {
            tag: 2,
            ..piece(&region, 64, 128)
        },
    );
    let md = w.source(0, &pattern(4, 128));
    for (length, offset, tag) in [(64, 0, 1), (65, 0, 2), (60, 5, 2), (128, 0, 2), (59, 5, 1)] {
        let put = Put {
            length,
            remote_offset: offset,
            ..put_to(1, &md)
        };
        w.clear_log();
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        let seen = w.wait_puts(1, 1).remove(0);
        assert_eq!(
            (seen.tag, seen.length, seen.offset),
            (tag, length, offset),
            "a put of {length} bytes to offset {offset}"
        );
    }
}

fn put_that_fits_nowhere_is_no_match<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, piece(&region, 0, 64));
    w.append(
        1,
        MatchEntry {
            match_bits: 0,
            ..managed(128, 1)
        },
    );
    let md = w.source(0, &[1; 129]);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::NoMatch, 0));
    w.settle();
    assert_eq!(region.bytes(), vec![0; region.len]);
    assert_eq!(w.events(1).count(), 0);
    let put = Put {
        length: 128,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
}

fn get_that_does_not_fit_goes_to_the_next<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    region.poke(0, &pattern(5, 1024));
    w.append(1, piece(&region, 0, 64));
    w.append(1, piece(&region, 64, 128));
    let md = w.source(0, &[0; 100]);
    let end = w.get_and_wait(&md, &get_from(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::Done, 100));
    assert_eq!(md.bytes(), region.peek(64, 100));
}

fn managed_message_is_cut_to_what_is_left<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            options: MeOptions::PUT | MeOptions::TRUNCATE,
            ..managed(256, 1)
        },
    );
    let bytes = pattern(6, 200);
    let md = w.source(0, &bytes);
    // A message of 200 bytes counts for 256 bytes, so one message fills the entry, and the second
    // entry takes the next message.
    w.append(
        1,
        MatchEntry {
            options: MeOptions::PUT | MeOptions::TRUNCATE,
            tag: 1,
            ..managed(128, 1)
        },
    );
    for length in [200, 128] {
        let end = w.put_and_wait(&md, &put_to(1, &md));
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
    }
    for put in w.wait_puts(1, 2) {
        let length = if put.tag == 0 { 200 } else { 128 };
        assert_eq!((put.length, put.requested), (length, 200));
        assert_eq!(put.data, bytes[..length]);
    }
}

fn managed_message_goes_to_an_entry_with_room<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    for tag in 0..2 {
        w.append(
            1,
            MatchEntry {
                tag,
                ..managed(512, 64)
            },
        );
    }
    let md = w.source(0, &pattern(7, 512));
    for (length, tag) in [(320, 0), (256, 1), (64, 0), (128, 0)] {
        let put = Put {
            length,
            ..put_to(1, &md)
        };
        w.clear_log();
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        let seen = w.wait_puts(1, 1).remove(0);
        assert_eq!(seen.tag, tag, "{length} bytes");
        assert_eq!(seen.data, md.peek(0, length));
    }
}

fn nothing_fits_into_no_memory<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            memory: MeMemory::Nothing,
            options: MeOptions::PUT,
            ..catch_basin()
        },
    );
    let md = w.source(0, &[1]);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch);
    let empty = Put {
        length: 0,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &empty).outcome, Outcome::Done);
    w.append(1, catch_basin());
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!((end.outcome, end.length), (Outcome::Done, 0));
    let mut requested: Vec<_> = (w.wait_puts(1, 2).iter())
        .map(|put| put.requested)
        .collect();
    requested.sort_unstable();
    assert_eq!(requested, [0, 1]);
}
