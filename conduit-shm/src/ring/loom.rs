//! Tests of the ring under the model checker, which tries every interleaving and every value that
//! the orderings allow a load to return.
//!
//! A slot consists of its first word and an unsynchronised cell for the payload. The checker
//! reports any concurrent access to the cell that the ring's own orderings don't exclude.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p pgas-conduit-shm --release --lib loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::{Consumer, Discipline, Extent, Frame, Next, Producer, Slots, publish_reply, tag};
use conduit_portals::sync::{AtomicU64, Ordering};

#[derive(Debug)]
struct Slot {
    word: AtomicU64,
    payload: UnsafeCell<u32>,
}

#[derive(Debug)]
struct Memory {
    head: AtomicU64,
    tail: AtomicU64,
    slots: Vec<Slot>,
}

fn memory(capacity: usize) -> Arc<Memory> {
    let slot = || Slot {
        word: AtomicU64::new(0),
        payload: UnsafeCell::new(0),
    };
    Arc::new(Memory {
        head: AtomicU64::new(0),
        tail: AtomicU64::new(0),
        slots: (0..capacity).map(|_| slot()).collect(),
    })
}

impl Slots for Arc<Memory> {
    fn word(&self, slot: usize) -> &AtomicU64 {
        &self.slots[slot].word
    }
    fn head(&self) -> &AtomicU64 {
        &self.head
    }
    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }
    fn warm(&self, _count: usize) {}
    fn claim(&self, slot: usize) {
        // SAFETY: the caller guarantees that the slot is free and that no other producer uses it,
        // which the checker verifies.
        self.slots[slot]
            .payload
            .with_mut(|payload| unsafe { *payload = u32::MAX });
    }
}

const KIND: u8 = 7;

/// Sends a message of `values.len()` slots. The first word of each slot after the first becomes
/// `stale`. The message is clean unless `stale` is a reserved tag.
fn send(producer: &Producer<Arc<Memory>>, values: &[u32], stale: u32) -> bool {
    producer.claim_ahead();
    let Some(reserved) = producer.reserve(values.len() as u32) else {
        return false;
    };
    let first = producer.slot(reserved);
    let mut frame = Frame::new(values.len() as u16, KIND, 0);
    if !producer.reserved_tags(reserved).is_in(stale.into()) {
        frame = frame.clean();
    }
    for (i, &value) in values.iter().enumerate() {
        let slot = &producer.slots().slots[first + i];
        // SAFETY: the slot is reserved for this producer, which the checker verifies.
        slot.payload.with_mut(|payload| unsafe { *payload = value });
        if i > 0 {
            slot.word.store(stale.into(), Ordering::Relaxed);
        }
    }
    producer.commit(reserved, frame);
    true
}

fn send_waiting(producer: &Producer<Arc<Memory>>, values: &[u32], stale: u32) {
    while !send(producer, values, stale) {
        thread::yield_now();
    }
}

fn receive(consumer: &mut Consumer<Arc<Memory>>) -> Option<Vec<u32>> {
    match consumer.next() {
        Next::Empty => None,
        Next::Broken => panic!("malformed frame"),
        Next::Message { slot, frame } => {
            assert_eq!(frame.kind, KIND);
            let read = |s: usize| {
                let slot = &consumer.slots().slots[s];
                // SAFETY: the message is committed and not yet released, which the checker
                // verifies.
                slot.payload.with(|payload| unsafe { *payload })
            };
            let values = (slot..slot + usize::from(frame.slots()))
                .map(read)
                .collect();
            consumer.release(frame);
            Some(values)
        }
    }
}

fn receive_waiting(consumer: &mut Consumer<Arc<Memory>>) -> Vec<u32> {
    loop {
        match receive(consumer) {
            Some(values) => return values,
            None => thread::yield_now(),
        }
    }
}

/// Returns the two ends of a ring with one producing thread.
fn ends(extent: Extent) -> (Producer<Arc<Memory>>, Consumer<Arc<Memory>>) {
    let memory = memory(1 << extent.shift);
    let producer = Producer::new(memory.clone(), extent, Discipline::Thread);
    (producer, Consumer::new(memory, extent))
}

fn whole(shift: u32) -> Extent {
    Extent { shift, part: shift }
}

fn checker(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

#[test]
fn loom_two_processes_share_a_ring_that_wraps() {
    checker(2).check(|| {
        let memory = memory(4);
        // The consumer has passed three of four slots, so one of the two messages does not fit
        // before the ring's end and needs a Skip.
        let first = Producer::new(memory.clone(), whole(2), Discipline::Shared);
        let mut consumer = Consumer::new(memory.clone(), whole(2));
        for value in 1..=3 {
            assert!(send(&first, &[value], 0));
            assert_eq!(receive(&mut consumer), Some(vec![value]));
        }
        assert_eq!(receive(&mut consumer), None);
        let second = Producer::new(memory.clone(), whole(2), Discipline::Shared);
        let one = thread::spawn(move || send_waiting(&first, &[10, 11], tag(4, 2)));
        let two = thread::spawn(move || send_waiting(&second, &[20], 0));
        let mut got = [
            receive_waiting(&mut consumer),
            receive_waiting(&mut consumer),
        ];
        got.sort();
        assert_eq!(got, [vec![10, 11], vec![20]]);
        one.join().unwrap();
        two.join().unwrap();
        assert_eq!(receive(&mut consumer), None);
    });
}

#[test]
fn loom_threads_of_a_process_share_their_tail() {
    checker(2).check(|| {
        let memory = memory(4);
        let producer = Arc::new(Producer::new(memory.clone(), whole(2), Discipline::Process));
        let mut consumer = Consumer::new(memory.clone(), whole(2));
        let other = producer.clone();
        // Together, the messages take five slots, but the ring has four. One of the threads may
        // learn of the free slot from the other.
        let thread = thread::spawn(move || {
            send_waiting(&other, &[20], 0);
            send_waiting(&other, &[21], 0);
        });
        let consuming = thread::spawn(move || {
            let mut got = Vec::new();
            while got.len() < 5 {
                got.extend(receive_waiting(&mut consumer));
            }
            got
        });
        for value in 10..13 {
            send_waiting(&producer, &[value], 0);
        }
        thread.join().unwrap();
        let mut got = consuming.join().unwrap();
        got.sort();
        assert_eq!(got, [10, 11, 12, 20, 21]);
    });
}

#[test]
fn loom_a_thread_learns_of_free_slots_from_another() {
    checker(4).check(|| {
        let memory = memory(2);
        let producer = Arc::new(Producer::new(memory.clone(), whole(1), Discipline::Process));
        let mut consumer = Consumer::new(memory.clone(), whole(1));
        assert!(send(&producer, &[1], 0));
        assert!(send(&producer, &[2], 0));
        // The ring is full. Both slots are freed at some time. Whichever thread checks first, the
        // other thread may write the second slot without having read the head itself.
        let other = producer.clone();
        let thread = thread::spawn(move || send(&other, &[20], 0));
        let consuming = thread::spawn(move || {
            assert_eq!(receive(&mut consumer), Some(vec![1]));
            assert_eq!(receive(&mut consumer), Some(vec![2]));
        });
        send(&producer, &[10], 0);
        thread.join().unwrap();
        consuming.join().unwrap();
    });
}

#[test]
fn loom_stale_words_are_no_commits() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(2));
        let sending = thread::spawn(move || {
            // The second slot of each message holds the tag that is awaited in that slot in the
            // next lap.
            send_waiting(&producer, &[1, 2], tag(4, 2));
            send_waiting(&producer, &[3, 4], tag(4, 2));
            send_waiting(&producer, &[5], 0);
            send_waiting(&producer, &[6], 0);
        });
        assert_eq!(receive_waiting(&mut consumer), [1, 2]);
        assert_eq!(receive_waiting(&mut consumer), [3, 4]);
        assert_eq!(receive_waiting(&mut consumer), [5]);
        assert_eq!(receive_waiting(&mut consumer), [6]);
        assert_eq!(receive(&mut consumer), None);
        sending.join().unwrap();
    });
}

#[test]
fn loom_words_under_a_skip_are_no_commits() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(2));
        let sending = thread::spawn(move || {
            send_waiting(&producer, &[1], 0);
            // This message takes slots 1 and 2. Then slot 3 is skipped.
            send_waiting(&producer, &[2, 3], tag(4, 2));
            send_waiting(&producer, &[4, 5], tag(8, 2));
            send_waiting(&producer, &[6], 0);
        });
        assert_eq!(receive_waiting(&mut consumer), [1]);
        assert_eq!(receive_waiting(&mut consumer), [2, 3]);
        assert_eq!(receive_waiting(&mut consumer), [4, 5]);
        assert_eq!(receive_waiting(&mut consumer), [6]);
        assert_eq!(receive(&mut consumer), None);
        sending.join().unwrap();
    });
}

#[test]
fn loom_a_full_ring_is_handed_over() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(1));
        assert!(send(&producer, &[1], 0));
        assert!(send(&producer, &[2], 0));
        assert!(!send(&producer, &[3], 0));
        let sending = thread::spawn(move || {
            send_waiting(&producer, &[3], 0);
            send_waiting(&producer, &[4], 0);
        });
        for value in 1..=4 {
            assert_eq!(receive_waiting(&mut consumer), [value]);
        }
        sending.join().unwrap();
    });
}

#[test]
fn loom_a_row_is_read_before_its_slots_are_free() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(1));
        let sending = thread::spawn(move || {
            for value in 1..=3 {
                send_waiting(&producer, &[value], 0);
            }
        });
        let mut last = 0;
        while last < 3 {
            let Some((_, frame)) = consumer.peek() else {
                consumer.publish();
                thread::yield_now();
                continue;
            };
            let mut run = consumer.run(frame);
            while let Some(slot) = consumer.peek_run(&run) {
                run.pass();
                let slot = &consumer.slots().slots[slot];
                // SAFETY: the message is committed and not yet released, which the checker
                // verifies.
                let value = slot.payload.with(|payload| unsafe { *payload });
                assert_eq!(value, last + 1);
                last = value;
            }
            consumer.release_run(run);
        }
        sending.join().unwrap();
    });
}

/// Checks that a lap may end after two of four slots, if the producer finds the ring empty at that
/// point.
#[test]
fn loom_laps_end_before_the_ring_does() {
    checker(3).check(|| {
        let (producer, mut consumer) = ends(Extent { shift: 2, part: 1 });
        assert!(send(&producer, &[1, 2], tag(4, 2)));
        assert_eq!(receive(&mut consumer), Some(vec![1, 2]));
        let sending = thread::spawn(move || {
            for value in 3..=6 {
                send_waiting(&producer, &[value], 0);
            }
        });
        for value in 3..=6 {
            assert_eq!(receive_waiting(&mut consumer), [value]);
        }
        assert_eq!(receive(&mut consumer), None);
        sending.join().unwrap();
    });
}

#[test]
fn loom_one_thread_ends_a_lap_and_another_goes_on() {
    checker(2).check(|| {
        let memory = memory(4);
        let extent = Extent { shift: 2, part: 1 };
        let producer = Arc::new(Producer::new(memory.clone(), extent, Discipline::Process));
        let mut consumer = Consumer::new(memory.clone(), extent);
        for value in 1..=2 {
            assert!(send(&producer, &[value], 0));
            assert_eq!(receive(&mut consumer), Some(vec![value]));
        }
        assert_eq!(receive(&mut consumer), None);
        let other = producer.clone();
        let thread = thread::spawn(move || send_waiting(&other, &[20], 0));
        let consuming = thread::spawn(move || {
            let mut got: Vec<_> = (0..2).map(|_| receive_waiting(&mut consumer)).collect();
            got.sort();
            assert_eq!(got, [[10], [20]]);
            assert_eq!(receive(&mut consumer), None);
        });
        send_waiting(&producer, &[10], 0);
        thread.join().unwrap();
        consuming.join().unwrap();
    });
}

/// While the consumer stands before a wrap marker, the producer uses slots behind the marker that
/// the consumer read in the previous lap. This must be sound even for a thread that has not itself
/// read the head.
#[test]
fn loom_all_of_a_lap_is_free_behind_a_wrap_marker() {
    checker(2).check(|| {
        let memory = memory(4);
        let extent = Extent { shift: 2, part: 1 };
        let producer = Arc::new(Producer::new(memory.clone(), extent, Discipline::Process));
        let mut consumer = Consumer::new(memory, extent);
        // These messages fill lap 0, and then lap 1 up to where it can end.
        assert!(send(&producer, &[1, 2], 0));
        assert!(send(&producer, &[3, 4], 0));
        assert_eq!(receive(&mut consumer), Some(vec![1, 2]));
        assert_eq!(receive(&mut consumer), Some(vec![3, 4]));
        assert_eq!(receive(&mut consumer), None);
        assert!(send(&producer, &[5, 6], 0));
        let consuming = thread::spawn(move || {
            assert_eq!(receive_waiting(&mut consumer), [5, 6]);
            let mut got: Vec<_> = (0..2).map(|_| receive_waiting(&mut consumer)).collect();
            got.sort();
            assert_eq!(got, [[10], [20]]);
            assert_eq!(receive(&mut consumer), None);
        });
        let other = producer.clone();
        let sending = thread::spawn(move || send_waiting(&other, &[20], 0));
        send_waiting(&producer, &[10], 0);
        sending.join().unwrap();
        consuming.join().unwrap();
    });
}

/// Checks that a slot that a wrap marker has passed over does not hold an awaited tag when a later
/// lap reaches the slot.
#[test]
fn loom_what_a_turn_passes_over_is_no_commit() {
    checker(3).check(|| {
        let (producer, mut consumer) = ends(Extent { shift: 2, part: 1 });
        // In lap 0, the messages take slots 0 and 1, then 2 and 3. Slot 3 holds the tag that lap 2
        // awaits there.
        assert!(send(&producer, &[1, 2], 0));
        assert!(send(&producer, &[3, 4], tag(8, 2)));
        assert_eq!(receive(&mut consumer), Some(vec![1, 2]));
        assert_eq!(receive(&mut consumer), Some(vec![3, 4]));
        assert_eq!(receive(&mut consumer), None);
        // Lap 1 ends behind slot 1.
        assert!(send(&producer, &[5, 6], 0));
        assert_eq!(receive(&mut consumer), Some(vec![5, 6]));
        assert_eq!(receive(&mut consumer), None);
        let sending = thread::spawn(move || {
            for value in 7..=10 {
                send_waiting(&producer, &[value], 0);
            }
        });
        for value in 7..=10 {
            assert_eq!(receive_waiting(&mut consumer), [value]);
        }
        assert_eq!(receive(&mut consumer), None);
        sending.join().unwrap();
    });
}

/// Sends a message of one slot that offers its slot for a reply.
fn offer(producer: &Producer<Arc<Memory>>, value: u32) {
    let reserved = producer.reserve(1).expect("a free slot");
    let slot = &producer.slots().slots[producer.slot(reserved)];
    // SAFETY: the slot is reserved for this producer, which the checker verifies.
    slot.payload.with_mut(|payload| unsafe { *payload = value });
    producer.offer();
    producer.commit(reserved, Frame::new(1, KIND, 0));
}

/// Receives a message, and writes a reply into its slot.
fn reply(consumer: &mut Consumer<Arc<Memory>>, value: u32) -> u32 {
    loop {
        if let Some((slot, frame)) = consumer.peek() {
            let cell = &consumer.slots().slots[slot].payload;
            // SAFETY: the message is committed and not yet released, which the checker verifies.
            let offered = cell.with(|payload| unsafe { *payload });
            // SAFETY: the message is committed and not yet released, and its producer does not
            // access the slot until the reply is published, which the checker verifies.
            cell.with_mut(|payload| unsafe { *payload = value });
            publish_reply(consumer.slots().word(slot), Frame::new(1, KIND, 0));
            consumer.release(frame);
            return offered;
        }
        thread::yield_now();
    }
}

/// Takes a reply if it has arrived.
fn take_reply(producer: &Producer<Arc<Memory>>) -> Option<u32> {
    let (slot, _) = producer.reply()?;
    let cell = &producer.slots().slots[slot].payload;
    // SAFETY: the reply is published and not yet taken, which the checker verifies.
    let value = cell.with(|payload| unsafe { *payload });
    producer.end_offer();
    Some(value)
}

#[test]
fn loom_an_answer_comes_back_in_its_slot() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(1));
        let asking = thread::spawn(move || {
            offer(&producer, 1);
            while take_reply(&producer) != Some(11) {
                thread::yield_now();
            }
            // The next messages reach the same slot again, in the next lap.
            send_waiting(&producer, &[2], 0);
            send_waiting(&producer, &[3], 0);
        });
        assert_eq!(reply(&mut consumer, 11), 1);
        assert_eq!(receive_waiting(&mut consumer), [2]);
        assert_eq!(receive_waiting(&mut consumer), [3]);
        asking.join().unwrap();
    });
}

/// Checks that a slot that was offered for a reply is not written again before the reply has been
/// taken, even if the ring is full.
#[test]
fn loom_an_answer_stays_until_it_is_taken() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(1));
        let asking = thread::spawn(move || {
            offer(&producer, 1);
            let mut reply = None;
            for value in 2..=3 {
                while !send(&producer, &[value], 0) {
                    reply = reply.or_else(|| take_reply(&producer));
                    thread::yield_now();
                }
            }
            while reply.is_none() {
                reply = take_reply(&producer);
                thread::yield_now();
            }
            assert_eq!(reply, Some(11));
        });
        assert_eq!(reply(&mut consumer, 11), 1);
        assert_eq!(receive_waiting(&mut consumer), [2]);
        assert_eq!(receive_waiting(&mut consumer), [3]);
        asking.join().unwrap();
    });
}

/// Checks that the head shows if there is no reply, and that the slot then becomes free.
#[test]
fn loom_a_message_that_was_passed_has_no_answer() {
    loom::model(|| {
        let (producer, mut consumer) = ends(whole(1));
        let asking = thread::spawn(move || {
            offer(&producer, 1);
            while !producer.has_no_reply() {
                thread::yield_now();
            }
            offer(&producer, 2);
            while take_reply(&producer) != Some(11) {
                thread::yield_now();
            }
            send_waiting(&producer, &[3], 0);
        });
        assert_eq!(receive_waiting(&mut consumer), [1]);
        consumer.publish();
        assert_eq!(reply(&mut consumer, 11), 2);
        assert_eq!(receive_waiting(&mut consumer), [3]);
        asking.join().unwrap();
    });
}

/// Hands a ring over. The first producer sends `before` and leaves; then the second producer sends
/// `after`.
fn change_hands(
    extent: Extent,
    before: &'static [&'static [u32]],
    after: &'static [&'static [u32]],
    stale: u32,
) {
    let memory = memory(1 << extent.shift);
    let first = Producer::new(memory.clone(), extent, Discipline::Thread);
    let second = Producer::new(memory.clone(), extent, Discipline::Thread);
    let mut consumer = Consumer::new(memory, extent);
    let leaving = thread::spawn(move || {
        before
            .iter()
            .for_each(|values| send_waiting(&first, values, stale));
        while !first.is_drained() {
            thread::yield_now();
        }
        // Starting this thread stands for the messages by which the owner takes a lane back and
        // offers it to another rank.
        thread::spawn(move || {
            second.resume();
            after
                .iter()
                .for_each(|values| send_waiting(&second, values, stale));
        })
    });
    for values in before.iter().chain(after) {
        assert_eq!(receive_waiting(&mut consumer), *values);
    }
    assert_eq!(receive(&mut consumer), None);
    leaving.join().unwrap().join().unwrap();
}

/// Lets a second producer take over, which reaches the ring's end and slots whose words look like
/// the next lap's tags.
#[test]
fn loom_a_ring_changes_hands() {
    checker(2).check(|| change_hands(whole(1), &[&[1]], &[&[2], &[3]], 0));
    checker(2).check(|| change_hands(whole(2), &[&[1, 2], &[3]], &[&[4, 5], &[6]], tag(4, 2)));
}

/// Lets a second producer take over a ring whose laps end early. The second producer does not know
/// the first producer's wrap markers.
#[test]
fn loom_a_ring_changes_hands_in_a_short_lap() {
    let extent = Extent { shift: 2, part: 1 };
    checker(2).check(move || change_hands(extent, &[&[1], &[2], &[3]], &[&[4], &[5]], 0));
}

/// Checks that a ring is not left while a reply waits in one of its slots.
#[test]
fn loom_a_ring_with_an_answer_is_not_left() {
    checker(2).check(|| {
        let memory = memory(2);
        let first = Producer::new(memory.clone(), whole(1), Discipline::Thread);
        let second = Producer::new(memory.clone(), whole(1), Discipline::Thread);
        let mut consumer = Consumer::new(memory, whole(1));
        let asking = thread::spawn(move || {
            offer(&first, 1);
            let mut reply = None;
            while !first.is_drained() {
                reply = reply.or_else(|| take_reply(&first));
                thread::yield_now();
            }
            assert_eq!(
                reply,
                Some(11),
                "the reply was taken before the ring was left"
            );
            second.resume();
            send_waiting(&second, &[2], 0);
            send_waiting(&second, &[3], 0);
        });
        assert_eq!(reply(&mut consumer, 11), 1);
        assert_eq!(receive_waiting(&mut consumer), [2]);
        assert_eq!(receive_waiting(&mut consumer), [3]);
        asking.join().unwrap();
    });
}
