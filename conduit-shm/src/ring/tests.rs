//! Tests that compare the ring with a queue as its model, and tests with real threads.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::{
    Consumer, Discipline, Extent, Frame, KIND_SKIP, Next, Producer, SLOT, Slots, publish_reply, tag,
};
use conduit_portals::sync::{AtomicU64, Ordering};

const WORDS: usize = SLOT / 8;
const KIND: u8 = 3;
/// The frame of a reply.
const ANSWER: Frame = Frame::new(1, 5, 8);

/// The ring's memory in a test. All words are atomics, so that an error in the ring shows as wrong
/// values rather than as undefined behaviour.
#[derive(Debug, Clone)]
struct Memory {
    head: Arc<AtomicU64>,
    tail: Arc<AtomicU64>,
    words: Arc<Vec<AtomicU64>>,
}

impl Memory {
    fn new(shift: u32) -> Self {
        let words = (0..WORDS << shift).map(|_| AtomicU64::new(0)).collect();
        Self {
            head: Arc::new(AtomicU64::new(0)),
            tail: Arc::new(AtomicU64::new(0)),
            words: Arc::new(words),
        }
    }
}

impl Slots for Memory {
    fn word(&self, slot: usize) -> &AtomicU64 {
        &self.words[slot * WORDS]
    }
    fn head(&self) -> &AtomicU64 {
        &self.head
    }
    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }
    fn warm(&self, count: usize) {
        assert!(count * WORDS <= self.words.len());
    }
    fn claim(&self, slot: usize) {
        self.words[slot * WORDS + WORDS - 1].store(u64::MAX, Ordering::Relaxed);
    }
}

/// Sends a message with `payload` behind its first word. The payload includes the first words of
/// the message's other slots.
fn send(producer: &Producer<Memory>, slots: u32, payload: &[u64]) -> bool {
    assert_eq!(payload.len(), slots as usize * WORDS - 1);
    producer.claim_ahead();
    let Some(reserved) = producer.reserve(slots) else {
        return false;
    };
    let first = producer.slot(reserved);
    let mut frame = Frame::new(slots as u16, KIND, 9);
    let reserved_tags = producer.reserved_tags(reserved);
    let mut begins = payload[WORDS - 1..].iter().step_by(WORDS);
    if begins.all(|&word| !reserved_tags.is_in(word)) {
        frame = frame.clean();
    }
    for (i, &word) in payload.iter().enumerate() {
        producer.slots().words[first * WORDS + 1 + i].store(word, Ordering::Relaxed);
    }
    producer.commit(reserved, frame);
    true
}

fn read(consumer: &Consumer<Memory>, slot: usize, frame: Frame) -> Vec<u64> {
    assert_eq!((frame.kind, frame.index), (KIND, 9));
    let end = (slot + usize::from(frame.slots())) * WORDS;
    let words = &consumer.slots().words[slot * WORDS + 1..end];
    words.iter().map(|w| w.load(Ordering::Relaxed)).collect()
}

/// Receives up to `most` messages with the same frame as the next one.
fn receive_row(consumer: &mut Consumer<Memory>, most: u32) -> Vec<Vec<u64>> {
    let mut payloads = Vec::new();
    let Some((_, frame)) = consumer.peek().filter(|(_, frame)| frame.kind != KIND_SKIP) else {
        return payloads;
    };
    let mut run = consumer.run(frame);
    for _ in 0..most {
        let Some(slot) = consumer.peek_run(&run) else {
            break;
        };
        run.pass();
        payloads.push(read(consumer, slot, frame));
        consumer.release_last(&mut run);
    }
    consumer.release_run(run);
    assert!(!payloads.is_empty(), "peek found a message");
    payloads
}

/// Sends a message of one slot that offers its slot for a reply.
fn offer(producer: &Producer<Memory>, payload: u64) -> bool {
    let Some(reserved) = producer.reserve(1) else {
        return false;
    };
    let first = producer.slot(reserved) * WORDS;
    for word in &producer.slots().words[first + 1..first + WORDS] {
        word.store(payload, Ordering::Relaxed);
    }
    producer.offer();
    producer.commit(reserved, Frame::new(1, KIND, 9));
    true
}

/// Replies to the message at the head.
fn write_reply(consumer: &Consumer<Memory>, payload: u64) {
    let first = consumer.slot as usize * WORDS;
    for word in &consumer.slots().words[first + 1..first + WORDS] {
        word.store(payload, Ordering::Relaxed);
    }
    publish_reply(consumer.slots().word(consumer.slot as usize), ANSWER);
}

/// Returns the reply's payload, if the reply has arrived.
fn replied(producer: &Producer<Memory>) -> Option<u64> {
    let (slot, frame) = producer.reply()?;
    assert_eq!(frame, ANSWER);
    let words = &producer.slots().words[slot * WORDS + 1..(slot + 1) * WORDS];
    let payload = words[0].load(Ordering::Relaxed);
    assert!(
        words
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == payload)
    );
    Some(payload)
}

fn receive(consumer: &mut Consumer<Memory>) -> Option<Vec<u64>> {
    match consumer.next() {
        Next::Empty => None,
        Next::Broken => panic!("malformed frame"),
        Next::Message { slot, frame } => {
            let payload = read(consumer, slot, frame);
            consumer.release(frame);
            Some(payload)
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Sends a message. The fields are its number of slots, and the lap whose tag fills the
    /// payload, counted from the current lap.
    Send(u32, u32),
    Abandon(u32),
    Receive(u32),
    ReceiveRow(u32),
    /// Sends this many messages of one slot and receives each at once, so that laps end as early as
    /// they can.
    PingPong(u32),
    /// Offers a slot, if one thread sends and no reply is outstanding.
    Offer,
    /// Receives a message, and replies to it if its slot is offered.
    Reply,
    TakeReply,
    /// Checks whether a reply is outstanding.
    Wonder,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u32..=8, 0_u32..12).prop_map(|(n, lap)| Step::Send(n, lap)),
        1 => (1_u32..=8).prop_map(Step::Abandon),
        2 => (1_u32..6).prop_map(Step::Receive),
        2 => (1_u32..20).prop_map(Step::ReceiveRow),
        1 => (1_u32..60).prop_map(Step::PingPong),
        2 => Just(Step::Offer),
        2 => Just(Step::Reply),
        1 => Just(Step::TakeReply),
        1 => Just(Step::Wonder),
    ]
}

/// Returns an extent. If several processes send, the extent has no early wraps.
fn extent(discipline: Discipline, shift: u32, part: u32) -> Extent {
    let part = if discipline == Discipline::Shared {
        shift
    } else {
        part.min(shift)
    };
    Extent { shift, part }
}

fn whole(shift: u32) -> Extent {
    Extent { shift, part: shift }
}

fn discipline() -> impl Strategy<Value = Discipline> {
    prop_oneof![
        Just(Discipline::Thread),
        Just(Discipline::Process),
        Just(Discipline::Shared),
    ]
}

proptest! {
    #[test]
    fn delivers_what_was_sent_in_order(
        discipline in discipline(),
        shift in 2_u32..6,
        part in 1_u32..6,
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let extent = extent(discipline, shift, part);
        let memory = Memory::new(shift);
        let producers = [
            Producer::new(memory.clone(), extent, discipline),
            Producer::new(memory.clone(), extent, discipline),
        ];
        let mut consumer = Consumer::new(memory, extent);
        let mut model: VecDeque<Vec<u64>> = VecDeque::new();
        // The payload of the outstanding offer, and that of its reply.
        let (mut offered, mut reply) = (None, None);
        for (i, step) in steps.into_iter().enumerate() {
            // A second producer takes part only if the ring is shared.
            let producer = &producers[if discipline == Discipline::Shared { i % 2 } else { 0 }];
            match step {
                Step::Send(n, lap) => {
                    let n = n.min(producer.max_slots());
                    // The payload consists of tags of the coming laps.
                    let lap = lap + (consumer.position() >> shift) as u32;
                    let tag = tag(u64::from(lap) << shift, shift);
                    let payload = vec![tag.into(); n as usize * WORDS - 1];
                    if send(producer, n, &payload) {
                        model.push_back(payload);
                    } else {
                        // A message may be refused only if there is a message to receive, a slot to
                        // release or a reply to take.
                        prop_assert!(
                            !model.is_empty()
                                || consumer.slot != consumer.published
                                || consumer.is_ready()
                                || reply.is_some()
                        );
                    }
                }
                Step::Offer => {
                    let content = 1 << 40 | i as u64;
                    if discipline == Discipline::Thread && offered.is_none() && offer(producer, content) {
                        offered = Some(vec![content; WORDS - 1]);
                        model.extend(offered.clone());
                    }
                }
                Step::Reply => {
                    if let Next::Message { slot, frame } = consumer.next() {
                        let found = read(&consumer, slot, frame);
                        if offered.as_ref() == Some(&found) && reply.is_none() {
                            reply = Some(i as u64);
                            write_reply(&consumer, i as u64);
                        }
                        consumer.release(frame);
                        prop_assert_eq!(Some(found), model.pop_front());
                    }
                }
                Step::TakeReply => {
                    prop_assert_eq!(replied(producer), reply);
                    if reply.take().is_some() {
                        producer.end_offer();
                        offered = None;
                    }
                }
                Step::Wonder => {
                    let passed = offered.as_ref().is_some_and(|message| !model.contains(message));
                    let told = passed && consumer.slot == consumer.published;
                    if offered.is_none() || (told && reply.is_none()) {
                        prop_assert!(producer.has_no_reply());
                        offered = None;
                    } else if !passed || reply.is_some() {
                        prop_assert!(!producer.has_no_reply());
                    }
                }
                Step::Abandon(n) => {
                    let n = n.min(producer.max_slots());
                    if let Some(reserved) = producer.reserve(n) {
                        producer.abandon(reserved, n);
                    }
                }
                Step::Receive(n) => {
                    for _ in 0..n {
                        prop_assert_eq!(receive(&mut consumer), model.pop_front());
                    }
                }
                Step::PingPong(n) => {
                    for count in 0..u64::from(n) {
                        let payload = vec![count; WORDS - 1];
                        if !send(producer, 1, &payload) {
                            break;
                        }
                        model.push_back(payload);
                        while let Some(expected) = model.pop_front() {
                            prop_assert_eq!(receive(&mut consumer), Some(expected));
                        }
                        prop_assert_eq!(receive(&mut consumer), None);
                    }
                }
                Step::ReceiveRow(n) => {
                    for payload in receive_row(&mut consumer, n) {
                        prop_assert_eq!(Some(payload), model.pop_front());
                    }
                }
            }
        }
        while let Some(expected) = model.pop_front() {
            prop_assert_eq!(receive(&mut consumer), Some(expected));
        }
        prop_assert_eq!(receive(&mut consumer), None);
        prop_assert_eq!(replied(&producers[0]), reply);
        if reply.is_some() {
            producers[0].end_offer();
        }
        // The ring is empty and its head is published, so the largest message fits, wherever the
        // tail is.
        let n = producers[0].max_slots();
        let (fits, again) = (producers[0].reserve(n), producers[1].max_slots());
        prop_assert!(fits.is_some());
        prop_assert_eq!(n, again);
    }

    #[test]
    fn frames_survive_their_word(slots: u16, kind: u8, index: u8) {
        let frame = Frame::new(slots, kind, index);
        prop_assert_eq!(Frame::from_bits(frame.to_bits()), frame);
    }

    #[test]
    fn tags_of_neighbouring_laps_differ(position: u64, shift in 2_u32..20) {
        prop_assert_ne!(tag(position, shift), 0);
        prop_assert_ne!(tag(position, shift), tag(position.wrapping_add(1 << shift), shift));
    }
}

#[test]
fn a_frame_beyond_the_ring_is_broken() {
    for slots in [0, 5, u16::MAX] {
        let memory = Memory::new(2);
        let producer = Producer::new(memory.clone(), whole(2), Discipline::Thread);
        let mut consumer = Consumer::new(memory.clone(), whole(2));
        let reserved = producer.reserve(1).unwrap();
        let frame = Frame::new(slots, KIND_SKIP, 0);
        producer.commit(reserved, frame);
        assert_eq!(consumer.next(), Next::Broken);
        assert_eq!(consumer.next(), Next::Broken);
    }
}

#[test]
fn nothing_comes_past_a_hole() {
    let memory = Memory::new(3);
    let first = Producer::new(memory.clone(), whole(3), Discipline::Shared);
    let second = Producer::new(memory.clone(), whole(3), Discipline::Shared);
    let mut consumer = Consumer::new(memory, whole(3));
    let hole = first.reserve(1).unwrap();
    assert!(send(&second, 1, &[5; WORDS - 1]));
    assert_eq!(receive(&mut consumer), None);
    first.abandon(hole, 1);
    assert_eq!(receive(&mut consumer), Some(vec![5; WORDS - 1]));
}

/// Lets each producer send its number and a count in messages of 1 to 3 slots, and checks that each
/// producer's messages arrive in order.
fn flood(
    discipline: Discipline,
    threads: u64,
    ends: &[Arc<Producer<Memory>>],
    memory: Memory,
    extent: Extent,
) {
    const EACH: u64 = 20_000;
    let mut consumer = Consumer::new(memory, extent);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let producer = ends[thread as usize % ends.len()].clone();
            scope.spawn(move || {
                for count in 0..EACH {
                    let slots = 1 + (count % 3) as u32;
                    let mut payload = vec![count; slots as usize * WORDS - 1];
                    payload[0] = thread;
                    while !send(&producer, slots, &payload) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = vec![0; threads as usize];
        for _ in 0..threads * EACH {
            let payload = loop {
                match receive(&mut consumer) {
                    Some(payload) => break payload,
                    None => std::thread::yield_now(),
                }
            };
            let count = &mut next[payload[0] as usize];
            assert_eq!(payload.len(), (1 + *count as usize % 3) * WORDS - 1);
            assert!(
                payload[1..].iter().all(|word| word == count),
                "{discipline:?}"
            );
            *count += 1;
        }
    });
    assert_eq!(receive(&mut consumer), None);
}

/// Extents of rings without and with early wraps.
const EXTENTS: [Extent; 3] = [
    Extent { shift: 4, part: 4 },
    Extent { shift: 4, part: 2 },
    Extent { shift: 6, part: 3 },
];

#[test]
fn one_thread_floods() {
    for extent in EXTENTS {
        let memory = Memory::new(extent.shift);
        let producer = Arc::new(Producer::new(memory.clone(), extent, Discipline::Thread));
        flood(Discipline::Thread, 1, &[producer], memory, extent);
    }
}

#[test]
fn threads_of_a_process_flood() {
    for extent in EXTENTS {
        let memory = Memory::new(extent.shift);
        let producer = Arc::new(Producer::new(memory.clone(), extent, Discipline::Process));
        flood(Discipline::Process, 3, &[producer], memory, extent);
    }
}

#[test]
fn processes_flood() {
    let memory = Memory::new(4);
    let producer = || Arc::new(Producer::new(memory.clone(), whole(4), Discipline::Shared));
    flood(
        Discipline::Shared,
        3,
        &[producer(), producer(), producer()],
        memory.clone(),
        whole(4),
    );
}

/// Checks that messages that are received one by one use only the beginning of a lap, that a flood
/// continues behind it, and that an epoch's last lap does not wrap early.
#[test]
fn laps_end_early_while_the_ring_is_empty() {
    let extent = Extent { shift: 4, part: 2 };
    let memory = Memory::new(4);
    let producer = Producer::new(memory.clone(), extent, Discipline::Thread);
    let mut consumer = Consumer::new(memory, extent);
    // The number of messages in each lap.
    let mut laps = vec![];
    while laps.len() < 10 {
        assert!(send(&producer, 1, &[1; WORDS - 1]));
        assert!(receive(&mut consumer).is_some());
        assert!(receive(&mut consumer).is_none());
        match consumer.slot {
            1 => laps.push(1),
            _ => *laps.last_mut().unwrap() += 1,
        }
    }
    assert_eq!(laps[..9], [4, 4, 4, 16, 4, 4, 4, 16, 4]);
    // From now on nothing is received, so the lap does not wrap early.
    let sent = (0..20).take_while(|_| send(&producer, 1, &[1; WORDS - 1]));
    assert!(sent.count() > 4);
}

/// Checks that if the target has not polled since a lap ended, the ring still has room for a burst
/// that fills all its slots except the marker's slot and the slot before it.
#[test]
fn a_turn_leaves_room_for_a_burst() {
    for discipline in [Discipline::Thread, Discipline::Process] {
        for slots in [1, 2, 3] {
            let extent = Extent { shift: 6, part: 3 };
            let memory = Memory::new(6);
            let producer = Producer::new(memory.clone(), extent, discipline);
            let mut consumer = Consumer::new(memory, extent);
            for _ in 0..4 {
                assert!(send(&producer, 1, &[1; WORDS - 1]));
                assert!(receive(&mut consumer).is_some());
                assert!(receive(&mut consumer).is_none());
            }
            let payload = |count: usize| vec![count as u64; slots as usize * WORDS - 1];
            let sent = (0..)
                .take_while(|&count| send(&producer, slots, &payload(count)))
                .count();
            // There is room before the marker and behind it.
            let most = 3 / slots as usize + 59 / slots as usize;
            assert!(consumer.is_ready(), "the lap has ended");
            assert_eq!(sent, most, "{slots} slots");
            for count in 0..sent {
                assert_eq!(receive(&mut consumer), Some(payload(count)));
            }
            assert_eq!(receive(&mut consumer), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]
    /// Checks that after a larger message was refused, as many messages find room as if the larger
    /// message had never been tried.
    #[test]
    fn what_is_refused_takes_no_room(
        discipline in discipline(),
        passed in proptest::collection::vec(1_usize..64, 0..6),
        waiting in 0_usize..64,
        refused in 2_u32..=32,
    ) {
        let room = |refused: Option<u32>| {
            let extent = extent(discipline, 6, 3);
            let memory = Memory::new(6);
            let producer = Producer::new(memory.clone(), extent, discipline);
            let mut consumer = Consumer::new(memory, extent);
            for &burst in &passed {
                for _ in 0..burst {
                    send(&producer, 1, &[1; WORDS - 1]);
                }
                while receive(&mut consumer).is_some() {}
            }
            let sent = (0..waiting).take_while(|_| send(&producer, 1, &[1; WORDS - 1])).count();
            if let Some(slots) = refused && send(&producer, slots, &vec![1; slots as usize * WORDS - 1]) {
                return None;
            }
            let more = (0..).take_while(|_| send(&producer, 1, &[1; WORDS - 1])).count();
            Some(sent + more)
        };
        if let Some(after) = room(Some(refused)) {
            prop_assert_eq!(Some(after), room(None));
        }
    }
}
