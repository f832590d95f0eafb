//! The life cycle of entries: which of them stay linked, which are unlinked, and the events that
//! report it.

use conduit_core::ni::{MatchEntry, MeEvents, MeOptions, Ni, Outcome, Put};

use super::entry::{PT, atomic_on, catch_basin, get_from, managed, over, piece, put_to};
use super::{Peek, Seen, World, theme};

theme! { "entries":
    use_once_entry_takes_one_message(2)
        "A use-once entry unlinks itself after its first match; the next message goes to the next entry.";
    persistent_entry_takes_any_number(2)
        "An entry without use-once stays until it is unlinked.";
    catch_basin_takes_what_others_leave(2)
        "An entry without memory that may truncate takes the header of any message; at the end of the list, only of messages that no other entry takes.";
    overflow_entry_stands_behind(2)
        "An overflow entry takes only messages that no other entry takes, including entries appended after it.";
    unlinked_entry_takes_nothing(2)
        "An unlinked entry takes no more messages, and unlinking raises no event.";
    entries_may_be_appended_under_traffic(2)
        "Entries may be appended while messages arrive; later messages match them.";
    events_can_be_switched_off(2)
        "An entry raises only the events that its options enable.";
}

fn use_once_entry_takes_one_message<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    for tag in 0..3 {
        let entry = piece(&region, 64 * tag as usize, 64);
        w.append(
            1,
            MatchEntry {
                options: entry.options | MeOptions::USE_ONCE,
                tag,
                ..entry
            },
        );
    }
    for i in 0..3_u8 {
        let md = w.source(0, &[i + 1; 16]);
        w.put_and_wait(&md, &put_to(1, &md));
        assert_eq!(region.peek(64 * usize::from(i), 16), [i + 1; 16]);
    }
    let md = w.source(0, &[9; 16]);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch, "all entries are used up");
    w.until("each entry has raised Unlinked", |w| {
        (0..3).all(|tag| w.count(1, |event| *event == Seen::Unlinked { tag }) == 1)
    });
}

fn persistent_entry_takes_any_number<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    w.append(1, over(&region));
    let md = w.source(0, &[3; 4]);
    for i in 0..300 {
        let put = Put {
            remote_offset: 4 * i,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    }
    assert_eq!(region.peek(0, 1200), [3; 1200]);
    assert_eq!(w.wait_puts(1, 300).len(), 300);
    assert_eq!(
        w.count(1, |event| matches!(event, Seen::Unlinked { .. })),
        0
    );
}

fn catch_basin_takes_what_others_leave<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(
        1,
        MatchEntry {
            match_bits: 5,
            tag: 1,
            ..managed(4096, 64)
        },
    );
    w.append(
        1,
        MatchEntry {
            tag: 2,
            ..catch_basin()
        },
    );
    let md = w.source(0, &[4; 100]);
    for match_bits in [5, 6, 5, u64::MAX] {
        let put = Put {
            match_bits,
            hdr_data: !match_bits,
            ..put_to(1, &md)
        };
        let end = w.put_and_wait(&md, &put);
        let length = if match_bits == 5 { 100 } else { 0 };
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
    }
    let puts = w.wait_puts(1, 4);
    assert_eq!(puts.iter().filter(|put| put.tag == 1).count(), 2);
    for put in &puts {
        assert_eq!(put.hdr_data, !put.match_bits);
        assert_eq!(put.requested, 100);
        if put.tag == 2 {
            assert_eq!((put.length, put.data.len()), (0, 0), "headers only");
        }
    }
}

fn overflow_entry_stands_behind<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let behind = catch_basin();
    let behind = MatchEntry {
        options: behind.options | MeOptions::OVERFLOW,
        tag: 9,
        ..behind
    };
    w.append(1, behind);
    for tag in 1..4 {
        w.append(
            1,
            MatchEntry {
                tag,
                ..managed(128, 64)
            },
        );
    }
    let md = w.source(0, &[4; 64]);
    for _ in 0..8 {
        w.put_and_wait(&md, &put_to(1, &md));
    }
    let tags: Vec<_> = w.wait_puts(1, 8).iter().map(|put| put.tag).collect();
    let in_front = tags.iter().filter(|tag| **tag < 9).count();
    assert!(
        in_front >= 6,
        "the three entries have room for two messages each: {tags:?}"
    );
    // This entry is appended last, but it comes before the overflow entry.
    w.append(
        1,
        MatchEntry {
            tag: 4,
            ..managed(128, 64)
        },
    );
    w.put_and_wait(&md, &put_to(1, &md));
    assert!(w.wait_puts(1, 9).iter().any(|put| put.tag == 4));
}

fn unlinked_entry_takes_nothing<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let first = w.append(
        1,
        MatchEntry {
            tag: 1,
            ..piece(&region, 0, 64)
        },
    );
    let second = w.append(
        1,
        MatchEntry {
            tag: 2,
            ..piece(&region, 64, 64)
        },
    );
    let md = w.source(0, &[6; 8]);
    w.unlink(1, first);
    assert_eq!(w.put_and_wait(&md, &put_to(1, &md)).outcome, Outcome::Done);
    assert_eq!(w.wait_puts(1, 1)[0].tag, 2);
    w.unlink(1, second);
    let end = w.put_and_wait(&md, &put_to(1, &md));
    assert_eq!(end.outcome, Outcome::NoMatch);
    w.settle();
    assert_eq!(w.events(1).count(), 1, "unlinking is silent");
    assert_eq!(region.peek(0, 8), [0; 8]);
}

fn entries_may_be_appended_under_traffic<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let md = w.source(0, &[2; 40]);
    let mut done = 0;
    for token in 0..40 {
        let put = Put {
            match_bits: token,
            token,
            ..put_to(1, &md)
        };
        // The put is still in flight when its entry is linked, so the contract permits either
        // outcome.
        w.put(0, &put);
        w.append_at(
            1,
            PT,
            MatchEntry {
                match_bits: token,
                tag: token,
                ..managed(1024, 64)
            },
        );
        if w.end_of(0, token).outcome == Outcome::Done {
            done += 1;
        }
        let end = w.put_and_wait(&md, &put);
        assert_eq!(
            end.outcome,
            Outcome::Done,
            "the message's entry is linked by now"
        );
        done += 1;
    }
    let puts = w.wait_puts(1, done);
    assert_eq!(puts.len(), done);
    assert!(puts.iter().all(|put| put.tag == put.match_bits));
}

fn events_can_be_switched_off<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let region = w.region(1, 4096);
    let entry = MatchEntry {
        events: MeEvents::empty(),
        ..over(&region)
    };
    w.append(1, entry);
    w.append(
        1,
        MatchEntry {
            match_bits: 1,
            options: MeOptions::PUT | MeOptions::USE_ONCE,
            events: MeEvents::LINK,
            tag: 1,
            ..entry
        },
    );
    w.append(
        1,
        MatchEntry {
            match_bits: 2,
            options: MeOptions::PUT | MeOptions::USE_ONCE,
            events: MeEvents::OPERATION,
            tag: 2,
            ..entry
        },
    );
    let md = w.source(0, &[1; 16]);
    for match_bits in 0..3 {
        let put = Put {
            match_bits,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    }
    w.get_and_wait(&md, &get_from(1, &md));
    w.atomic_and_wait(0, &atomic_on(1, md.eq));
    w.until("the two enabled events", |w| w.events(1).count() == 2);
    w.settle();
    assert_eq!(w.count(1, |event| *event == Seen::Unlinked { tag: 1 }), 1);
    assert_eq!(
        w.count(1, |event| matches!(event, Seen::Put(put) if put.tag == 2)),
        1
    );
    assert_eq!(w.events(1).count(), 2, "only the enabled events");
}
