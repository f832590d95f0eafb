//! Tests of replies in the slots of their requests. They check which replies use the slots, and
//! that no message is lost or delivered twice.

use std::sync::atomic::{AtomicU64, Ordering};

use conduit_core::threads::Lock;

use super::super::message::{PUT, PUT_COMPACT};
use super::super::reply_slots::MOST;
use super::*;
use crate::ring::{Frame, Slots, publish_reply};

/// Returns two ends with entries for messages. The ends have already exchanged messages, because a
/// reply slot is used only for indices that have been used.
fn met() -> (End<Seq>, End<Seq>) {
    let (a, b) = pair(&small());
    for end in [&a, &b] {
        append(end);
    }
    for (from, to) in [(&a, 1), (&b, 0)] {
        assert_eq!(from.ni.inject(&inject(to, &[])), Ok(Submit::Posted));
    }
    assert_eq!((a.poll().len(), b.poll().len()), (1, 1));
    (a, b)
}

fn append(end: &End<Seq>) {
    let memory = MeMemory::Managed {
        bytes: 1 << 30,
        min_free: 0,
    };
    end.append(memory, MeOptions::PUT);
}

fn asking(bytes: &[u8]) -> Inject<'_> {
    Inject {
        exchange: Exchange::ExpectsReply,
        ..inject(1, bytes)
    }
}

fn reply(bytes: &[u8], hdr_data: u64) -> Inject<'_> {
    Inject {
        match_bits: 15,
        hdr_data,
        exchange: Exchange::IsReply,
        ..inject(0, bytes)
    }
}

impl End<Seq> {
    /// Returns the position in the ring from a peer, which counts the peer's messages and Skips.
    fn taken_from(&self, peer: Rank) -> u64 {
        let queue = self.ni.queues[usize::from(self.eq.0)].get().unwrap();
        let inbox = queue.inbox.try_lock().unwrap();
        inbox.rings[peer as usize].ring.position()
    }

    /// Polls once, and answers each message with `replies`. Returns the events.
    fn poll_and_answer(&self, replies: &[Inject<'_>]) -> Vec<Seen> {
        let mut all = Vec::new();
        self.ni.poll(self.eq, 3, |event| {
            for reply in replies {
                assert_eq!(self.ni.inject(reply), Ok(Submit::Posted));
            }
            all.push(seen(event));
        });
        all
    }
}

/// Returns whether an event is that of a message from `source` with these bytes and this header
/// data.
fn came(event: &Seen, source: Rank, bytes: &[u8], hdr: u64) -> bool {
    matches!(event, Seen::Put { source: from, hdr_data, data, .. }
        if (*from, *hdr_data, &data[..]) == (source, hdr, bytes))
}

#[test]
fn short_answers_come_back_in_the_slot() {
    let (a, b) = met();
    let rings = a.taken_from(1);
    for i in 0..500 {
        // Some messages fill their slots. Messages must not change while they are delivered.
        let (asked, replied) = (pattern(i % (MOST + 1), 1), pattern(i * 7 % (MOST + 1), 2));
        assert_eq!(a.ni.inject(&asking(&asked)), Ok(Submit::Posted));
        assert!(a.ni.ready().is_empty() && a.poll().is_empty());
        let request = b.poll_and_answer(&[reply(&replied, i as u64)]);
        assert!(
            request.len() == 1 && came(&request[0], 0, &asked, 6),
            "{request:?}"
        );
        assert!(a.ni.ready().intersects(Ready::queue(a.eq)));
        let got = a.poll();
        assert!(
            got.len() == 1 && came(&got[0], 1, &replied, i as u64),
            "{got:?}"
        );
        assert!(matches!(got[0], Seen::Put { match_bits: 15, .. }));
    }
    assert_eq!(a.taken_from(1), rings, "no reply came through the ring");
    assert_eq!(b.taken_from(0) - 1, 500);
}

/// Checks that a message that offers its slot is delivered whole on the general path, which reads
/// the slot itself. A message takes the general path if its entry takes only one message.
#[test]
fn what_asks_and_goes_the_general_way_is_whole() {
    let (a, b) = pair(&small());
    for _ in 0..3 {
        let memory = MeMemory::Managed {
            bytes: 4096,
            min_free: 4096,
        };
        b.append(memory, MeOptions::PUT);
    }
    for seed in 1..4 {
        let bytes = pattern(MOST, seed);
        assert_eq!(a.ni.inject(&asking(&bytes)), Ok(Submit::Posted));
        let all = b.poll();
        let came = all.iter().filter(|event| came(event, 0, &bytes, 6));
        assert_eq!(came.count(), 1, "{all:?}");
    }
}

#[test]
fn polls_that_wait_are_told_of_from_each_question_on() {
    let (a, b) = met();
    a.ni.ready();
    assert_eq!(a.ni.reply_slots.polls(), 0, "nothing was offered");
    for polls in [1, 5, 2] {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        for _ in 0..polls {
            a.ni.ready();
            assert!(a.poll().is_empty());
        }
        assert_eq!(a.ni.reply_slots.polls(), polls);
        assert_eq!(b.poll_and_answer(&[reply(&[], 0)]).len(), 1);
        assert_eq!(a.poll().len(), 1);
    }
    // Polls after the reply was seen don't count either. A composite network makes such polls.
    assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
    a.ni.ready();
    assert_eq!(b.poll_and_answer(&[reply(&[], 0)]).len(), 1);
    for _ in 0..3 {
        assert!(!a.ni.ready().is_empty());
    }
    assert_eq!(a.ni.reply_slots.polls(), 2);
    assert_eq!(a.poll().len(), 1);
    // Replies that the second poll finds were just missed.
    let steps = |end: &End<Seq>| end.ni.reply_slots.steps();
    let before = steps(&a);
    for _ in 0..10 {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        for _ in 0..2 {
            a.ni.ready();
        }
        assert_eq!(b.poll_and_answer(&[reply(&[], 0)]).len(), 1);
        assert_eq!(a.poll().len(), 1);
    }
    assert!(steps(&a) > before + 10, "{before}, {}", steps(&a));
    // If a rank begins to wait after the reply has arrived, the delay does not change.
    let before = steps(&a);
    for _ in 0..100 {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        assert_eq!(b.poll_and_answer(&[reply(&[], 0)]).len(), 1);
        a.ni.ready();
        assert_eq!(a.poll().len(), 1);
    }
    assert_eq!(steps(&a), before);
}

#[test]
fn others_go_by_the_ring() {
    let long = pattern(MOST + 1, 1);
    for (what, asked, replies, slots) in [
        ("too long", asking(&[1]), vec![reply(&long, 0)], 2),
        ("not asked", inject(1, &[1]), vec![reply(&[2], 0)], 1),
        ("several slots", asking(&long), vec![reply(&[2], 0)], 1),
        ("a second one", asking(&[1]), vec![reply(&[2], 0); 2], 1),
    ] {
        let (a, b) = met();
        let before = a.taken_from(1);
        assert_eq!(a.ni.inject(&asked), Ok(Submit::Posted));
        assert_eq!(b.poll_and_answer(&replies).len(), 1);
        assert_eq!(a.poll().len(), replies.len(), "{what}");
        assert_eq!(a.taken_from(1) - before, slots, "{what}");
    }
}

/// Checks that nothing is lost or delivered twice if there are messages of all kinds between
/// offers, and replies that wait for a long time.
#[test]
fn answers_wait_while_other_messages_go_on() {
    let (a, b) = met();
    let (mut asked, mut delivered, mut replied, mut came) = (0, 0, 0, 0);
    let mut waited = 0;
    for i in 0..20_000_usize {
        let bytes = pattern(i % 120, 3);
        let message = Inject {
            exchange: match i % 3 {
                0 => Exchange::OneWay,
                _ => Exchange::ExpectsReply,
            },
            ..inject(1, &bytes)
        };
        match a.ni.inject(&message).unwrap() {
            Submit::Posted => asked += 1,
            // The first reply is taken only when there is no more room.
            Submit::Again => {
                waited += 1;
                came += a.poll().len();
            }
        }
        if i % 4 == 0 {
            let replies = vec![reply(&[4; 8], 1); i / 4 % 3];
            let found = b.poll_and_answer(&replies).len();
            delivered += found;
            replied += found * replies.len();
        }
    }
    assert!(waited > 0);
    while delivered < asked {
        delivered += b.poll().len();
    }
    while came < replied {
        came += a.poll().len();
    }
    assert_eq!((a.poll(), b.poll()), (vec![], vec![]));
    assert_eq!((delivered, came), (asked, replied));
}

#[test]
fn questions_in_vain_become_rare() {
    let (a, b) = met();
    let mut questions = 0;
    for _ in 0..2000 {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        questions += u32::from(a.ni.reply_slots.is_offering());
        assert_eq!(b.poll().len(), 1);
        // The second poll publishes that the message has been passed.
        b.poll();
    }
    assert!((5..200).contains(&questions), "{questions}");
    // An offer that brings a reply makes offers frequent again.
    let before = a.taken_from(1);
    for i in 0..5000 {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        b.poll_and_answer(&[reply(&[], i)]);
        b.poll();
        assert_eq!(a.poll().len(), 1);
    }
    assert!(a.taken_from(1) - before < 4500);
}

#[test]
fn an_answer_goes_to_the_queue_of_its_index() {
    const OTHER: PtIndex = PtIndex(2);
    let (a, b) = met();
    let other = a.ni.eq_create(64).unwrap();
    a.ni.pt_open(OTHER, Some(other)).unwrap();
    let entry = MatchEntry {
        memory: MeMemory::Managed {
            bytes: 1 << 20,
            min_free: 0,
        },
        match_bits: 0,
        ignore_bits: u64::MAX,
        source: None,
        options: MeOptions::PUT,
        events: MeEvents::all(),
        tag: 78,
    };
    a.ni.me_append(OTHER, entry).unwrap();
    let elsewhere = |i| Inject {
        index: OTHER,
        ..reply(&[5], i)
    };
    // After this message, `b` knows that the index is open.
    assert_eq!(b.ni.inject(&elsewhere(0)), Ok(Submit::Posted));
    assert_eq!(a.ni.poll(other, 3, |_| ()), 1);
    // The polls that find nothing free the rings.
    assert_eq!(a.ni.poll(other, 3, |_| ()), 0);
    assert!(a.poll().is_empty());
    for i in 0..20 {
        // The queues are used in no particular order, so that the last queue does not predict the
        // next one.
        for there in [other, a.eq, a.eq, other, other] {
            let replies = match there == other {
                true => [elsewhere(i)],
                false => [reply(&[6], i)],
            };
            assert_eq!(a.ni.inject(&asking(&[1])), Ok(Submit::Posted));
            assert_eq!(b.poll_and_answer(&replies).len(), 1);
            assert_eq!(a.ni.ready(), Ready::queue(there));
            let wrong = if there == other { a.eq } else { other };
            assert_eq!(a.ni.poll(wrong, 3, |_| ()), 0);
            assert_eq!(a.ni.poll(there, 3, |_| ()), 1);
            assert!(a.ni.ready().is_empty());
        }
    }
}

/// Checks that a reply that raises no event is still taken.
#[test]
fn an_answer_may_go_to_an_index_without_a_queue() {
    const QUIET: PtIndex = PtIndex(2);
    let (a, b) = met();
    a.ni.pt_open(QUIET, None).unwrap();
    let quiet = Inject {
        index: QUIET,
        ..reply(&[5], 1)
    };
    assert_eq!(b.ni.inject(&quiet), Ok(Submit::Posted));
    a.ni.progress();
    a.ni.progress();
    for i in 1..20 {
        assert_eq!(a.ni.inject(&asking(&[1])), Ok(Submit::Posted));
        assert_eq!(b.poll_and_answer(&[quiet]).len(), 1);
        assert_eq!(a.ni.ready(), Ready::PROGRESS);
        assert!(a.poll().is_empty());
        a.ni.progress();
        assert!(a.ni.ready().is_empty());
        assert_eq!(a.ni.statistics().dropped, i + 1);
    }
}

/// Checks replies of which the first uses up an entry, so that the others match none.
#[test]
fn an_answer_may_be_an_entrys_last() {
    let (a, b) = pair(&small());
    append(&b);
    assert_eq!(a.ni.inject(&inject(1, &[])), Ok(Submit::Posted));
    let memory = MeMemory::Managed {
        bytes: 4096,
        min_free: 4096 - 128,
    };
    a.append(memory, MeOptions::PUT);
    assert_eq!(b.ni.inject(&inject(0, &[0; 8])), Ok(Submit::Posted));
    assert_eq!((a.poll().len(), b.poll().len()), (1, 1));
    let before = a.taken_from(1);
    let mut events = Vec::new();
    for i in 0..3 {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        b.poll_and_answer(&[reply(&[3; 16], i)]);
        // Events arrive one at a time, because events that a reply defers wait for the next poll.
        for _ in 0..4 {
            let before = events.len();
            let told = a.ni.poll(a.eq, 1, |event| events.push(seen(event)));
            assert_eq!(events.len() - before, told as usize);
        }
    }
    let puts = events
        .iter()
        .filter(|event| matches!(event, Seen::Put { .. }));
    let puts = puts.count();
    assert!(puts > 0);
    assert_eq!(
        events[puts..],
        [Seen::Unlinked(77), Seen::Free(77)],
        "{events:?}"
    );
    assert_eq!(a.taken_from(1), before);
    assert!(a.ni.ready().is_empty());
    // The other replies matched nothing.
    assert_eq!(a.ni.statistics().dropped as usize, 3 - puts);
}

/// Checks that a rank looks for a reply before it sleeps, and that a reply wakes the rank.
#[test]
fn an_answer_is_not_slept_through() {
    let (a, b) = met();
    assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
    assert!(!a.ni.is_anything_ready());
    let doorbell = &a.ni.own().control().doorbell;
    doorbell.sleeping.store(1, Ordering::SeqCst);
    b.poll_and_answer(&[reply(&[], 1)]);
    assert_eq!(doorbell.sleeping.load(Ordering::SeqCst), 0, "rung");
    assert!(a.ni.is_anything_ready());
    assert_eq!(a.poll().len(), 1);
    assert!(!a.ni.is_anything_ready());
}

/// Checks that replies use the slots even if laps end early.
#[test]
fn every_exchange_goes_by_the_slot() {
    let (a, b) = met();
    let rings = a.taken_from(1);
    for i in 0..20_000 {
        assert_eq!(a.ni.inject(&asking(&[1])), Ok(Submit::Posted));
        assert_eq!(b.poll_and_answer(&[reply(&[2], i)]).len(), 1);
        // This poll publishes the head, so laps end early.
        assert!(b.poll().is_empty());
        assert_eq!(a.poll().len(), 1);
    }
    assert_eq!(a.taken_from(1), rings);
}

/// Checks that a rank that gets a reply in each poll still receives messages from other ranks.
#[test]
fn answers_keep_nobody_else_waiting() {
    let mut ends = world::<Seq>(3, &small());
    let (c, b, a) = (ends.remove(2), ends.remove(1), ends.remove(0));
    append(&a);
    append(&b);
    for end in [&b, &c] {
        assert_eq!(end.ni.inject(&inject(0, &[])), Ok(Submit::Posted));
    }
    assert_eq!(a.poll().len(), 2);
    assert_eq!(c.ni.inject(&inject(0, &[7; 5])), Ok(Submit::Posted));
    let mut polls = 0;
    loop {
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        b.poll_and_answer(&[reply(&[], 1)]);
        let mut heard = false;
        a.ni.poll(a.eq, 3, |event| {
            heard |= matches!(seen(event), Seen::Put { source: 2, .. })
        });
        if heard {
            break;
        }
        polls += 1;
        assert!(polls < 20);
    }
}

/// Checks that the next request may be sent while a reply is delivered.
#[test]
fn an_answer_may_lead_to_the_next_question() {
    let (a, b) = met();
    let rings = a.taken_from(1);
    assert_eq!(a.ni.inject(&asking(&[1; 32])), Ok(Submit::Posted));
    for i in 0..100 {
        b.poll_and_answer(&[reply(&[2; 32], i)]);
        let told = a.ni.poll(a.eq, 1, |event| {
            assert_eq!(a.ni.inject(&asking(&[1; 32])), Ok(Submit::Posted));
            assert!(came(&seen(event), 1, &[2; 32], i));
        });
        assert_eq!(told, 1);
    }
    assert_eq!(a.taken_from(1), rings);
}

/// Checks that a sink that panics loses at most its own message.
#[test]
fn a_panic_in_a_sink_leaves_the_ring_usable() {
    for replies in [true, false] {
        let (a, b) = met();
        assert_eq!(a.ni.inject(&asking(&[1])), Ok(Submit::Posted));
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            b.ni.poll(b.eq, 1, |_| {
                if replies {
                    assert_eq!(b.ni.inject(&reply(&[2], 1)), Ok(Submit::Posted));
                }
                panic!("as a handler may");
            })
        }));
        assert!(panicked.is_err());
        // The delivery of the message has ended, so `b`'s next message does not go into the
        // message's slot.
        assert_eq!(b.ni.inject(&reply(&[3], 2)), Ok(Submit::Posted));
        assert_eq!(a.poll().len(), 1 + usize::from(replies));
        assert_eq!(a.ni.inject(&inject(1, &[4])), Ok(Submit::Posted));
        assert_eq!(b.poll().len(), 1 + usize::from(!replies));
    }
}

/// Checks the case in which the ring itself has detected that the reply is missing, and the slot
/// now contains bytes that look like a reply.
#[test]
fn nothing_is_awaited_where_nobody_asks() {
    let (a, b) = met();
    assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
    assert_eq!(b.poll().len(), 1);
    let tag = {
        let queue = b.ni.queues[usize::from(b.eq.0)].get().unwrap();
        let inbox = queue.inbox.try_lock().unwrap();
        inbox.rings[0].ring.awaited().unwrap().1
    };
    let looks: Vec<u8> = (0..200 / 4)
        .flat_map(|_| (tag & !(1 << 31)).to_ne_bytes())
        .collect();
    for _ in 0..2000 {
        assert_eq!(a.ni.inject(&inject(1, &looks)), Ok(Submit::Posted));
        assert_eq!(b.poll().len(), 1);
        a.poll();
        assert!(a.ni.ready().is_empty());
    }
}

/// Checks the modes, rings and targets for which there are no reply slots.
#[test]
fn others_ask_in_vain() {
    fn ask_and_answer<M: Mode>(config: &ShmConfig, target: Rank) {
        let ends = world::<M>(2, config);
        for end in &ends {
            let memory = MeMemory::Managed {
                bytes: 1 << 30,
                min_free: 0,
            };
            end.append(memory, MeOptions::PUT);
        }
        let (a, b) = (&ends[0], &ends[target as usize]);
        for _ in 0..20 {
            let request = Inject {
                target,
                ..asking(&[1])
            };
            assert_eq!(a.ni.inject(&request), Ok(Submit::Posted));
            assert!(!a.ni.reply_slots.is_offering());
            let mut asked = 0;
            b.ni.poll(b.eq, 1, |_| {
                asked += 1;
                assert_eq!(b.ni.inject(&reply(&[2], 1)), Ok(Submit::Posted));
            });
            assert_eq!((asked, a.poll().len()), (1, 1));
        }
    }
    let shared = ShmConfig {
        shared_ring_above: 0,
        ..small()
    };
    ask_and_answer::<Seq>(&shared, 1);
    ask_and_answer::<Seq>(&small(), 0);
    ask_and_answer::<conduit_core::threads::Par>(&small(), 1);
}

/// Writes a malformed reply with this frame. If `second_word` is given, it replaces the word of the
/// request that holds the length and the source.
fn write_nonsense(b: &End<Seq>, frame: Frame, second_word: Option<u64>) {
    let queue = b.ni.queues[usize::from(b.eq.0)].get().unwrap();
    let inbox = queue.inbox.try_lock().unwrap();
    let ring = &inbox.rings[0].ring;
    let (slot, _) = ring.peek().unwrap();
    if let Some(value) = second_word {
        // SAFETY: the address is that of the slot's second word.
        let second = unsafe { &*ring.slots().address(slot).add(8).cast::<AtomicU64>() };
        second.store(value, Ordering::Relaxed);
    }
    publish_reply(ring.slots().word(slot), frame);
}

#[test]
fn nonsense_is_counted_and_passed_over() {
    let right = Frame::new(1, PUT_COMPACT, PT.0);
    for (frame, second_word) in [
        (Frame::new(2, PUT_COMPACT, PT.0), None),
        (Frame::new(1, PUT, PT.0), None),
        (Frame::new(1, PUT_COMPACT, 200), None),
        (right, Some(2_u64 << 32)),
        (right, Some(1 << 32 | 33)),
    ] {
        let (a, b) = met();
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        write_nonsense(&b, frame, second_word);
        assert!(!a.ni.ready().is_empty());
        assert!(a.poll().is_empty());
        assert_eq!(a.ni.bad_peer(), Some(1));
        assert!(a.ni.ready().is_empty());
    }
}

#[test]
fn slots_are_not_offered_where_that_is_turned_off() {
    for reply_slots in [false, true] {
        let (a, b) = pair(&ShmConfig {
            reply_slots,
            ..small()
        });
        [&a, &b].into_iter().for_each(append);
        assert_eq!(a.ni.inject(&asking(&[])), Ok(Submit::Posted));
        assert_eq!(a.ni.reply_slots.is_offering(), reply_slots);
        assert_eq!(b.poll().len(), 1);
    }
}
