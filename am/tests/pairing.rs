//! Tests of the pairing of the halves of longs, with a `HashMap` as the reference.

use std::collections::HashMap;

use am::lid::{LidCache, LidGenerator, Pairing};
use am::{LID_MASK, NO_LID, Rank};
use proptest::prelude::*;

/// The halves that are waiting in the reference. A value is a header's number, or `None` for data.
type Reference = HashMap<(Rank, u32), Option<u32>>;

fn arrive(
    reference: &mut Reference,
    capacity: usize,
    key: (Rank, u32),
    half: Option<u32>,
) -> Pairing<u32> {
    match reference.get(&key).copied() {
        Some(waiting) if waiting.is_some() == half.is_some() => Pairing::Duplicate(half),
        Some(waiting) => {
            reference.remove(&key);
            Pairing::Ready(half.or(waiting).unwrap())
        }
        None if reference.len() == capacity => Pairing::Full(half),
        None => {
            reference.insert(key, half);
            Pairing::Wait
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn halves_pair_as_in_a_map(
        capacity in 0usize..40,
        events in prop::collection::vec((0u32..4, 1u32..24, 0u8..41), 1..600),
        // The base and stride of the LIDs are chosen so that LIDs collide in many ways.
        base in 0..LID_MASK,
        stride in 1..1u32 << 16,
    ) {
        let mut cache = LidCache::new(capacity);
        let mut reference = Reference::new();
        for (number, (source, lid, kind)) in events.into_iter().enumerate() {
            let (source, lid) = (source * 0x4000_0001, (base + lid * stride) & LID_MASK);
            let number = number as u32;
            match kind {
                0 => {
                    let before = reference.len();
                    reference.retain(|&(of, _), _| of != source);
                    prop_assert_eq!(cache.forget(source), before - reference.len());
                }
                1..=20 => prop_assert_eq!(
                    cache.arrive_header(source, lid, number),
                    arrive(&mut reference, capacity, (source, lid), Some(number)),
                ),
                _ => prop_assert_eq!(
                    cache.arrive_data(source, lid),
                    arrive(&mut reference, capacity, (source, lid), None),
                ),
            }
            prop_assert_eq!(cache.len(), reference.len());
            prop_assert_eq!(cache.is_empty(), reference.is_empty());
        }
        // Every half that is still waiting must be found.
        for ((source, lid), half) in reference {
            let paired = match half {
                Some(header) => cache.arrive_data(source, lid) == Pairing::Ready(header),
                None => cache.arrive_header(source, lid, 77) == Pairing::Ready(77),
            };
            prop_assert!(paired);
        }
        prop_assert!(cache.is_empty());
    }

    #[test]
    fn a_senders_longs_are_paired_in_whatever_order_they_arrive(
        halves in (1u32..200).prop_flat_map(|n| Just((0..2 * n).collect::<Vec<_>>()).prop_shuffle()),
    ) {
        let mut cache = LidCache::new(halves.len() / 2);
        let mut ready = 0;
        for half in &halves {
            let (lid, header) = (half / 2 + 1, half % 2 == 0);
            match if header { cache.arrive_header(3, lid, lid) } else { cache.arrive_data(3, lid) } {
                Pairing::Wait => {}
                Pairing::Ready(header) => {
                    prop_assert_eq!(header, lid);
                    ready += 1;
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(ready * 2, halves.len());
        prop_assert!(cache.is_empty());
    }
}

#[test]
fn a_full_cache_gives_the_header_back_and_still_pairs() {
    let mut cache = LidCache::new(2);
    assert_eq!(cache.capacity(), 2);
    assert_eq!(cache.arrive_header(0, 1, 'a'), Pairing::Wait);
    assert_eq!(cache.arrive_data(0, 2), Pairing::Wait);
    assert_eq!(cache.arrive_header(0, 3, 'c'), Pairing::Full(Some('c')));
    assert_eq!(
        cache.arrive_header(0, 1, 'z'),
        Pairing::Duplicate(Some('z'))
    );
    assert_eq!(cache.arrive_data(0, 1), Pairing::Ready('a'));
    assert_eq!(cache.arrive_header(0, 3, 'c'), Pairing::Wait);
}

#[test]
fn lids_are_never_zero_and_start_over_after_24_bits() {
    let mut generator = LidGenerator::new();
    for expected in 1..=LID_MASK {
        assert_eq!(generator.generate(), expected);
    }
    assert_ne!(generator.generate(), NO_LID);
    assert_eq!(generator.generate(), 2);
}
