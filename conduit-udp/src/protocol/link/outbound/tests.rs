//! Compares the window's bookkeeping with a plain list of segments.

use super::*;
use crate::protocol::link::inbound::Inbound;
use crate::protocol::packet::{Acks, FLAG_COMMAND, Reader};
use proptest::prelude::*;
use std::collections::BTreeMap;

const FIRST: u64 = (1 << 24) - 30;

/// Returns an acknowledgement as it is sent on the wire.
fn written(inbound: &Inbound, credits: u16) -> Vec<u8> {
    let mut bytes = vec![0; 5];
    bytes.extend(&sequence::low(inbound.next()).to_le_bytes()[..3]);
    bytes.extend(credits.to_le_bytes());
    bytes.push(inbound.words() as u8);
    for index in 0..inbound.words() {
        bytes.extend(inbound.word(index).to_le_bytes());
    }
    bytes
}

fn take(
    outbound: &mut Outbound,
    now: Nanos,
    bytes: &[u8],
    each: impl FnMut(Content),
) -> Result<Progress, &'static str> {
    let acks = Acks::read(FLAG_COMMAND, &mut Reader(bytes)).unwrap();
    outbound.acknowledge(
        now,
        acks.channels[0].unwrap(),
        true,
        MAX_WINDOW,
        u64::MAX >> 33,
        each,
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Sent,
    Lost,
    Acknowledged,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn each_segment_is_acknowledged_once(steps in prop::collection::vec((0u8..8, 0u64..300), 1..250)) {
        let mut outbound = Outbound::new(FIRST, MAX_WINDOW);
        let mut inbound = Inbound::new(FIRST);
        let mut rtt = RttEstimator::default();
        rtt.sample(1, 100, 0);
        let mut segments = BTreeMap::new();
        let (mut under_way, mut old, mut now) = (Vec::new(), Vec::new(), 1000);
        for (what, number) in steps {
            now += number;
            match what {
                0..=2 => {
                    for _ in 0..=number % 40 {
                        if !outbound.is_open(MAX_WINDOW) {
                            break;
                        }
                        let length = 100 + segments.len() as u16 % 50;
                        let index = segments.len() as u32;
                        let sequence = outbound.send(now, 0, Content { at: 7, index, length });
                        prop_assert_eq!(sequence, FIRST + u64::from(index));
                        segments.insert(index, (length, Expected::Sent));
                        under_way.push(sequence);
                    }
                }
                3 | 4 => {
                    // Some segments arrive and some are lost, in no particular order.
                    for _ in 0..=number % 30 {
                        if !under_way.is_empty() {
                            let sequence = under_way.remove((number as usize * 31) % under_way.len().min(9));
                            let new = !matches!(inbound.classify(sequence), crate::protocol::link::inbound::Arrival::Duplicate);
                            if number % 5 > 0 && new {
                                inbound.mark(sequence);
                            }
                        }
                    }
                }
                5 | 6 => {
                    let bytes = written(&inbound, 4096);
                    old.push(bytes.clone());
                    let bytes = if what == 5 { bytes } else { old[number as usize % old.len()].clone() };
                    let mut count = 0;
                    let progress = take(&mut outbound, now, &bytes, |content| {
                        count += 1;
                        let segment = segments.get_mut(&content.index).unwrap();
                        assert_ne!(segment.1, Expected::Acknowledged);
                        *segment = (content.length, Expected::Acknowledged);
                    }).unwrap();
                    prop_assert_eq!(progress.segments, count);
                    outbound.detect_lost(now, &rtt, |_| {});
                }
                _ => {
                    if number % 3 == 0 {
                        outbound.on_timeout(now);
                    }
                    while let Some((sequence, content)) = outbound.peek_lost() {
                        prop_assert_eq!(sequence, FIRST + u64::from(content.index));
                        prop_assert_ne!(segments[&content.index].1, Expected::Acknowledged);
                        outbound.resend(now, 0, sequence);
                        under_way.push(sequence);
                    }
                }
            }
            // Find the lost segments in the slots. Each of them must be unacknowledged.
            for (&index, segment) in &mut segments {
                if segment.1 != Expected::Acknowledged {
                    let state = outbound.slot(FIRST + u64::from(index)).state;
                    segment.1 = if state == SegmentState::Lost { Expected::Lost } else { Expected::Sent };
                    prop_assert_ne!(state, SegmentState::Acknowledged);
                }
            }
            let sum = |state| segments.values().filter(|segment| segment.1 == state).count();
            let in_flight: u32 = segments.values().filter(|segment| segment.1 == Expected::Sent).map(|segment| u32::from(segment.0)).sum();
            prop_assert_eq!(outbound.in_flight(), in_flight);
            prop_assert_eq!(outbound.lost as usize, sum(Expected::Lost));
            prop_assert!(outbound.slots.len() <= 4096 && outbound.log.len() <= 8192);
        }
        // Retransmitting until nothing is missing must settle everything, whatever has happened.
        for _ in 0..segments.len() + 1 {
            outbound.on_timeout(now);
            while let Some((sequence, _)) = outbound.peek_lost() {
                outbound.resend(now, 0, sequence);
                if !matches!(inbound.classify(sequence), crate::protocol::link::inbound::Arrival::Duplicate) {
                    inbound.mark(sequence);
                }
            }
            take(&mut outbound, now, &written(&inbound, 1), |_| {}).unwrap();
            now += 1000;
            outbound.detect_lost(now, &rtt, |_| {});
        }
        prop_assert_eq!((outbound.outstanding(), outbound.in_flight(), outbound.lost), (0, 0, 0));
        outbound.shrink();
        prop_assert_eq!(outbound.memory(), 0);
    }
}

fn sent(count: u32) -> Outbound {
    let mut outbound = Outbound::new(0, 64);
    for index in 0..count {
        outbound.send(
            1000 + u64::from(index),
            1,
            Content {
                at: 0,
                index,
                length: 10,
            },
        );
    }
    outbound
}

fn lost(outbound: &mut Outbound, now: Nanos) -> Vec<LossTrigger> {
    let mut rtt = RttEstimator::default();
    rtt.sample(1, 1000, 0);
    let mut causes = Vec::new();
    outbound.detect_lost(now, &rtt, |trigger| causes.push(trigger));
    causes
}

/// Returns an acknowledgement of these segments. Segment 0 is missing.
fn come(sequences: &[u64]) -> Vec<u8> {
    let mut inbound = Inbound::new(0);
    for &sequence in sequences {
        inbound.mark(sequence);
    }
    written(&inbound, 64)
}

#[test]
fn three_later_ones_make_a_segment_lost_or_much_time_after_one() {
    let mut outbound = sent(5);
    take(&mut outbound, 1100, &come(&[1, 2]), |_| {}).unwrap();
    assert_eq!(lost(&mut outbound, 1100), []);
    let mut rtt = RttEstimator::default();
    rtt.sample(1, 1000, 0);
    assert_eq!(outbound.loss_time(&rtt), Some(1000 + 1250));
    assert_eq!(lost(&mut outbound, 2249), []);
    assert_eq!(lost(&mut outbound, 2250), [LossTrigger::TimeThreshold]);
    let mut outbound = sent(5);
    take(&mut outbound, 1100, &come(&[3]), |_| {}).unwrap();
    assert_eq!(lost(&mut outbound, 1100), [LossTrigger::PacketThreshold]);
    assert_eq!(outbound.peek_lost().unwrap().0, 0);
    // The retransmission is the newest transmission, so no other one has overtaken it.
    outbound.resend(1200, 9, 0);
    assert_eq!(lost(&mut outbound, 1300), []);
}

#[test]
fn an_acknowledgement_of_the_first_sending_says_nothing_of_what_followed() {
    for (newest, causes) in [
        (8, vec![]),
        (
            9,
            vec![LossTrigger::PacketThreshold, LossTrigger::PacketThreshold],
        ),
    ] {
        let mut outbound = sent(5);
        outbound.on_timeout(1150);
        outbound.resend(1200, 9, 0);
        let bytes = come(&[0]);
        let acks = Acks::read(FLAG_COMMAND, &mut Reader(&bytes)).unwrap();
        let ack = acks.channels[0].unwrap();
        outbound
            .acknowledge(1210, ack, true, 64, newest, |_| {})
            .unwrap();
        assert_eq!(lost(&mut outbound, 1210), causes);
    }
}

#[test]
fn what_was_not_sent_cannot_be_acknowledged() {
    for bytes in [come(&[0, 1, 2, 3, 4]), come(&[4]), come(&[200])] {
        assert!(take(&mut sent(4), 1100, &bytes, |_| {}).is_err());
    }
    assert!(take(&mut sent(4), 1100, &come(&[0, 1, 2, 3]), |_| {}).is_ok());
}

#[test]
fn only_what_was_sent_once_is_a_sample() {
    let mut outbound = sent(3);
    assert_eq!(
        take(&mut outbound, 1500, &come(&[0]), |_| {})
            .unwrap()
            .sample,
        Some(500)
    );
    outbound.on_timeout(1150);
    outbound.resend(1600, 9, 1);
    assert_eq!(
        take(&mut outbound, 1700, &come(&[0, 1]), |_| {})
            .unwrap()
            .sample,
        None
    );
}

#[test]
fn credits_and_window_close_it() {
    let mut outbound = Outbound::new(0, 3);
    for index in 0..3 {
        assert!(outbound.is_open(8));
        outbound.send(
            1,
            1,
            Content {
                at: 0,
                index,
                length: 1,
            },
        );
    }
    assert!(!outbound.is_open(8) && !outbound.is_starved());
    let bytes = |sequences: &[u64], credits| {
        let mut inbound = Inbound::new(0);
        sequences
            .iter()
            .for_each(|&sequence| inbound.mark(sequence));
        written(&inbound, credits)
    };
    take(&mut outbound, 2, &bytes(&[0, 1, 2], 0), |_| {}).unwrap();
    assert!(!outbound.is_open(8) && outbound.is_starved());
    take(&mut outbound, 2, &bytes(&[0, 1, 2], 10), |_| {}).unwrap();
    assert!(outbound.is_open(8) && !outbound.is_open(0));
    assert_eq!(outbound.credits(), 10);
}
