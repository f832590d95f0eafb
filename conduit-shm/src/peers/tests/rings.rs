//! Tests that check traffic through the rings against queues as the model.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// The next action of a test.
#[derive(Debug, Clone)]
enum Step {
    /// The sender sends a copied fragment with this many bytes of header and payload.
    Copied(usize, usize),
    /// The sender queues a fragment to be read, with this many bytes of header and payload.
    Read(usize, usize),
    /// The sender transmits.
    Transmit,
    /// The receiver takes the fragments, with or without room for each channel.
    Receive([bool; 2]),
    /// The receiver prepares to sleep.
    Sleep,
    /// The sender prepares to sleep, and wakes up.
    Doze,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (2usize..=64, 0usize..=704).prop_map(|(header, bytes)| Step::Copied(header, bytes)),
        2 => (2usize..=64, 0usize..3000).prop_map(|(header, bytes)| Step::Read(header, bytes)),
        1 => (2usize..=64, 3000usize..40_000).prop_map(|(header, bytes)| Step::Read(header, bytes)),
        2 => Just(Step::Transmit),
        3 => any::<[bool; 2]>().prop_map(Step::Receive),
        1 => Just(Step::Sleep),
        1 => Just(Step::Doze),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Checks that each accepted fragment arrives once and in order on its channel, and that no
    /// process sleeps while it has something to receive or to send.
    #[test]
    fn what_is_accepted_arrives(
        steps in prop::collection::vec(step(), 1..300),
        shift in 12u32..15,
    ) {
        let config = LocalConfig { ring: 1 << shift, ..LocalConfig::default() };
        let (mut a, mut b, to_b, to_a) = connected_with(&config);
        let mut model: [VecDeque<Message>; 2] = Default::default();
        let mut count = 0u64;
        let take = |b: &mut Process, model: &mut [VecDeque<Message>; 2]| {
            while let Some(message) = b.next(to_a) {
                let channel = usize::from(message.0[0] == b'r');
                assert_eq!(Some(message), model[channel].pop_front());
            }
        };
        for step in steps {
            count += 1;
            match step {
                Step::Copied(header, bytes) => {
                    let header = [b"c", &pattern(count, header - 1)[..]].concat();
                    let payload = pattern(count, bytes);
                    if a.send(to_b, &header, &payload).is_ok() {
                        model[0].push_back((header, payload));
                    }
                }
                Step::Read(header, bytes) => {
                    let header = [b"r", &pattern(count, header - 1)[..]].concat();
                    a.handler.sources.insert(count, pattern(count, bytes));
                    if a.send_read(to_b, &header, count).is_ok() {
                        model[1].push_back((header, pattern(count, bytes)));
                    }
                }
                Step::Transmit => a.local.transmit(&mut a.handler),
                Step::Receive(has_room) => {
                    let refused = [b'c', b'r'].into_iter().zip(has_room);
                    let refused = refused.filter(|(_, room)| !room).map(|(first, _)| first);
                    b.handler.refused = refused.collect();
                    b.local.receive(&mut b.handler);
                    take(&mut b, &mut model);
                }
                Step::Sleep => {
                    b.handler.refused.clear();
                    if b.local.prepare_sleep() && b.local.receive(&mut b.handler) {
                        // Only fragments that the receiver has already refused may be left.
                        take(&mut b, &mut model);
                    }
                }
                Step::Doze => {
                    a.local.transmit(&mut a.handler);
                    a.local.prepare_sleep();
                    a.local.receive(&mut a.handler);
                }
            }
        }
        b.handler.refused.clear();
        for _ in 0..MANY {
            a.local.transmit(&mut a.handler);
            b.local.receive(&mut b.handler);
            take(&mut b, &mut model);
            if a.local.is_idle(to_b) {
                break;
            }
        }
        prop_assert!(model.iter().all(VecDeque::is_empty));
        prop_assert!(a.failures().is_empty() && b.failures().is_empty());
    }
}
