//! Tests that compare the tracker with an exact counter.

use std::collections::BTreeMap;

use lanes::{ROWS, SAMPLE, Settings, Tracker};
use proptest::prelude::*;

const DECAY: u32 = 3;
/// The bound on the rounding error. Each round adds at most 1 to the error, and the error decays as
/// well.
const ROUNDING: u32 = 2 << DECAY;

#[derive(Default)]
struct Reference(BTreeMap<u32, u32>);

impl Reference {
    fn touch(&mut self, peer: u32, samples: u32) {
        *self.0.entry(peer).or_default() += samples * SAMPLE;
    }

    fn progress(&mut self) {
        for weight in self.0.values_mut() {
            *weight -= weight.div_ceil(1 << DECAY);
        }
        self.0.retain(|_, weight| *weight > 0);
    }

    fn weight(&self, peer: u32) -> u32 {
        self.0.get(&peer).copied().unwrap_or(0)
    }
}

fn both(rounds: &[Vec<(u32, u32)>]) -> (Tracker, Reference) {
    let (mut tracker, mut reference) = (Tracker::new(DECAY), Reference::default());
    for round in rounds {
        for &(peer, samples) in round {
            tracker.touch(peer, samples);
            if samples > 0 {
                reference.touch(peer, samples);
            }
        }
        tracker.progress();
        reference.progress();
    }
    (tracker, reference)
}

fn rounds(peers: u32) -> impl Strategy<Value = Vec<Vec<(u32, u32)>>> {
    // Some peers have much more traffic than others.
    let peer = prop_oneof![0..peers, 0..4u32];
    let round = prop::collection::vec((peer, 0u32..5), 0..60);
    prop::collection::vec(round, 0..30)
}

proptest! {
    #[test]
    fn few_peers_are_counted_exactly(rounds in rounds(ROWS as u32)) {
        let (tracker, reference) = both(&rounds);
        for peer in 0..ROWS as u32 {
            prop_assert_eq!(tracker.weight(peer), reference.weight(peer));
        }
    }

    #[test]
    fn of_many_none_is_overrated_and_no_heavy_one_is_missed(rounds in rounds(1000)) {
        let (tracker, reference) = both(&rounds);
        let total: u32 = reference.0.values().sum();
        let rows: Vec<u32> = tracker.iter().map(|(peer, _)| peer).collect();
        for peer in 0..1000 {
            let exact = reference.weight(peer);
            prop_assert!(tracker.weight(peer) <= exact + ROUNDING);
            let is_heavy = exact > total / ROWS as u32 + ROUNDING;
            prop_assert!(!is_heavy || rows.contains(&peer), "{} of {}", exact, total);
        }
    }

    #[test]
    fn to_beat_is_a_strict_order(weights in prop::array::uniform3(0u32..100_000)) {
        let settings = Settings::default();
        let [a, b, c] = weights;
        prop_assert!(!settings.beats(a, a));
        prop_assert!(!(settings.beats(a, b) && settings.beats(b, a)));
        prop_assert!(!(settings.beats(a, b) && settings.beats(b, c)) || settings.beats(a, c));
    }
}

#[test]
fn a_newcomer_rises_in_a_full_table() {
    let mut tracker = Tracker::<ROWS>::new(DECAY);
    let mut stranger = 1000;
    for _ in 0..40 {
        // In each round, as many strangers as there are rows send once each, and one peer sends
        // repeatedly.
        for sample in 0..ROWS as u32 {
            tracker.touch(stranger, 1);
            stranger += 1;
            if sample % 4 == 0 {
                tracker.touch(7, 1);
            }
        }
        tracker.progress();
    }
    let (count, heaviest) = tracker.heaviest(6 * SAMPLE);
    assert_eq!((count, heaviest[0].1), (1, 7), "{heaviest:?}");
}

#[test]
fn the_amount_counts_not_only_who_is_there() {
    let mut tracker = Tracker::<ROWS>::new(DECAY);
    for _ in 0..20 {
        tracker.touch(1, 1);
        tracker.touch(2, 12);
        tracker.progress();
    }
    assert!(Settings::default().beats(tracker.weight(2), tracker.weight(1)));
}

#[test]
fn what_is_idle_or_dead_is_forgotten() {
    let mut tracker = Tracker::<ROWS>::new(DECAY);
    tracker.touch(1, u32::MAX);
    tracker.touch(2, 1);
    tracker.forget(2);
    assert_eq!(tracker.weight(2), 0);
    for _ in 0..200 {
        tracker.progress();
    }
    assert_eq!(tracker.iter().count(), 0);
}
