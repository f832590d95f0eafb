//! Compares transfers by random descriptions with a byte-by-byte reference.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::rma::vis::runs::{Run, Runs, overlapping};
use crate::rma::vis::wire::{Encoder, Malformed, walk};
use crate::rma::vis::{Block, Message, Outside, Pieces, Places, Room, Shape, copy_all};

/// A description that owns its lists.
#[derive(Debug, Clone)]
enum Kind {
    Vector(Vec<Block>),
    Indexed(Vec<usize>, usize),
    Strided(Vec<isize>, Vec<usize>, usize),
}

#[derive(Debug, Clone)]
struct Side {
    origin: usize,
    unit: usize,
    kind: Kind,
}

/// The number of bytes of the memory in which sides lie.
const MEMORY: usize = 20_000;

impl Side {
    fn places(&self) -> Places<'_> {
        let shape = match &self.kind {
            Kind::Vector(blocks) => Shape::Vector(blocks),
            Kind::Indexed(starts, len) => Shape::Indexed { starts, len: *len },
            Kind::Strided(strides, counts, element) => Shape::Strided {
                strides,
                counts,
                element: *element,
            },
        };
        Places {
            origin: self.origin,
            unit: self.unit,
            shape,
        }
    }

    /// Returns the address of every byte, in order.
    fn bytes(&self) -> Vec<usize> {
        let (origin, unit) = (self.origin as isize, self.unit as isize);
        let mut all = Vec::new();
        let mut add = |start: isize, len: usize| {
            let first = origin + start * unit;
            all.extend((first..first + (len * self.unit) as isize).map(|at| at as usize));
        };
        match &self.kind {
            Kind::Vector(blocks) => {
                for block in blocks {
                    add(block.start as isize, block.len);
                }
            }
            Kind::Indexed(starts, len) => {
                for &start in starts {
                    add(start as isize, *len);
                }
            }
            Kind::Strided(strides, counts, element) => {
                let elements: usize = counts.iter().product();
                for mut number in 0..elements {
                    let mut start = 0;
                    for (&stride, &count) in strides.iter().zip(counts) {
                        start += (number % count) as isize * stride;
                        number /= count;
                    }
                    add(start, *element);
                }
            }
        }
        all
    }
}

/// Generates an array whose elements are often adjacent. Some counts are 0 or 1.
fn strided() -> impl Strategy<Value = (Vec<isize>, Vec<usize>, usize)> {
    let dimension = (0..6_usize, -40..40_isize, prop::bool::weighted(0.4));
    (vec(dimension, 0..5), 0..6_usize).prop_map(|(dimensions, element)| {
        let mut packed = element as isize;
        let (mut strides, mut counts) = (Vec::new(), Vec::new());
        for (count, stride, follows) in dimensions {
            let count = if count == 0 && stride % 8 != 0 {
                2
            } else {
                count
            };
            strides.push(if follows { packed } else { stride });
            packed = packed.saturating_mul(count as isize);
            counts.push(count);
        }
        (strides, counts, element)
    })
}

/// Generates a side whose origin is in the middle of the memory, because strides may be negative.
fn side() -> impl Strategy<Value = Side> {
    let kind = prop_oneof![
        vec((0..200_usize, 0..12_usize), 0..12).prop_map(|blocks| {
            let blocks = blocks.into_iter();
            Kind::Vector(blocks.map(|(start, len)| Block { start, len }).collect())
        }),
        (vec(0..60_usize, 0..12), 0..9_usize).prop_map(|(starts, len)| Kind::Indexed(starts, len)),
        strided().prop_map(|(strides, counts, element)| Kind::Strided(strides, counts, element)),
    ];
    (kind, 1..4_usize).prop_map(|(kind, unit)| Side {
        origin: MEMORY / 2,
        unit,
        kind,
    })
}

/// Generates two sides with the same number of bytes. The second has other strides than the first,
/// or has ranges that are cut anywhere.
fn sides() -> impl Strategy<Value = (Side, Side)> {
    (side(), any::<bool>(), vec(-50..50_isize, 5), any::<u64>()).prop_map(
        |(one, alike, strides, seed)| {
            let other = match &one.kind {
                Kind::Strided(_, counts, element) if alike => Side {
                    kind: Kind::Strided(strides[..counts.len()].to_vec(), counts.clone(), *element),
                    ..one.clone()
                },
                _ => cut(one.bytes().len(), seed),
            };
            (one, other)
        },
    )
}

/// Generates ranges with `bytes` bytes in total.
fn cut(bytes: usize, mut seed: u64) -> Side {
    let mut draw = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let (mut blocks, mut left) = (Vec::new(), bytes);
    while left > 0 {
        let len = (1 + draw(40)).min(left);
        let start = match blocks.last() {
            Some(Block { start, len }) if draw(3) == 0 => start + len,
            _ => draw(MEMORY / 2),
        };
        blocks.push(Block { start, len });
        left -= len;
    }
    let end = blocks.iter().map(|block| block.start + block.len).max();
    assert!(end.unwrap_or(0) <= MEMORY, "{end:?}");
    Side {
        origin: 0,
        unit: 1,
        kind: Kind::Vector(blocks),
    }
}

fn spread(runs: impl Iterator<Item = Run>) -> Vec<usize> {
    runs.flat_map(|run| run.start..run.start + run.len)
        .collect()
}

/// Returns the locations of all bytes in a list, and the length of the list.
fn listed(encoder: &mut Encoder, data: usize) -> (Vec<usize>, usize) {
    let list = encoder.finish();
    let mut all = Vec::new();
    walk(list, MEMORY, data, |group, at| {
        assert_eq!(at, all.len());
        for run in 0..group.count {
            let start = group.start as i64 + group.stride * run as i64;
            all.extend((start as usize)..start as usize + group.len as usize);
        }
        Ok::<_, Malformed>(())
    })
    .unwrap();
    (all, list.len())
}

proptest! {
    #[test]
    fn runs_are_the_bytes_of_their_places(side in side()) {
        let places = side.places();
        let bytes = side.bytes();
        prop_assert_eq!(places.bytes(), Some(bytes.len()));
        let runs: Vec<Run> = Runs::new(&places).collect();
        prop_assert!(runs.iter().all(|run| run.len > 0));
        if !matches!(side.kind, Kind::Strided(..)) {
            prop_assert!(runs.windows(2).all(|pair| pair[0].start + pair[0].len != pair[1].start));
        }
        prop_assert_eq!(spread(runs.into_iter()), bytes);
    }

    #[test]
    fn a_range_is_outside_when_one_of_its_bytes_is(side in side(), limit in 0..MEMORY) {
        let end = side.bytes().iter().max().map_or(0, |last| last + 1);
        prop_assert_eq!(side.places().check(limit).is_ok(), end <= limit);
        prop_assert!(side.places().check(end).is_ok());
        prop_assert!(end == 0 || side.places().check(end - 1).is_err());
        let beyond = Side { origin: 1, ..side.clone() };
        let fits = beyond.bytes().iter().all(|&at| at < MEMORY);
        prop_assert_eq!(beyond.places().check(MEMORY).is_ok(), fits);
    }

    #[test]
    fn ranges_overlap_when_a_byte_is_in_two(side in side()) {
        let mut bytes = side.bytes();
        bytes.sort_unstable();
        let twice = bytes.windows(2).any(|pair| pair[0] == pair[1]);
        prop_assert_eq!(overlapping(&side.places()).is_some(), twice);
    }

    #[test]
    fn pieces_lie_in_one_piece_on_both_sides((one, other) in sides()) {
        let pieces: Vec<_> = Pieces::new(&one.places(), &other.places()).collect();
        let here = pieces.iter().map(|piece| Run { start: piece.local, len: piece.len });
        let there = pieces.iter().map(|piece| Run { start: piece.remote, len: piece.len });
        prop_assert_eq!(spread(here), one.bytes());
        prop_assert_eq!(spread(there), other.bytes());
    }

    #[test]
    fn a_copy_is_one_byte_by_byte((one, other) in sides()) {
        let source: Vec<u8> = (0..MEMORY).map(|at| (at % 251) as u8).collect();
        let mut expected = vec![255; MEMORY];
        for (&from, &to) in one.bytes().iter().zip(&other.bytes()) {
            expected[to] = source[from];
        }
        let mut found = vec![255_u8; MEMORY];
        let at = |base: usize, side: &Side| base + side.origin;
        let to = Places { origin: at(found.as_mut_ptr().expose_provenance(), &other), ..other.places() };
        let from = Places { origin: at(source.as_ptr().expose_provenance(), &one), ..one.places() };
        // SAFETY: the ranges lie within `found` and `source`, for whose length the sides were
        // generated.
        unsafe { copy_all(&to, &from) };
        prop_assert!(found == expected);
    }

    /// Messages contain every byte exactly once, in order, and none exceeds its room.
    #[test]
    fn messages_are_all_pieces((one, other) in sides(), payload in 300..2000_usize, shared: bool) {
        let room = Room { payload, shared };
        let mut pieces = Pieces::new(&one.places(), &other.places());
        let mut message = Message::default();
        let mut all = Vec::new();
        loop {
            message.clear();
            let mut large = Vec::new();
            while let Some(piece) = message.fill(&mut pieces, room) {
                large.push(piece);
            }
            if message.data == 0 && large.is_empty() {
                break;
            }
            let (there, list) = listed(&mut message.remote, message.data);
            let carried = if shared { message.data } else { 0 };
            prop_assert!(list + carried <= payload);
            prop_assert!(message.data <= payload);
            prop_assert!(large.iter().all(|piece| piece.len >= room.large()));
            all.extend(there);
            let here = listed(&mut message.local, if shared { 0 } else { message.data }).0;
            prop_assert_eq!(here.len(), if shared { 0 } else { message.data });
            all.extend(large.iter().flat_map(|piece| piece.remote..piece.remote + piece.len));
            if message.data == 0 {
                break;
            }
        }
        let mut expected = other.bytes();
        all.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }

    #[test]
    fn a_list_is_its_runs(side in side()) {
        let mut encoder = Encoder::default();
        Runs::new(&side.places()).for_each(|run| encoder.push(run));
        let bytes = side.bytes();
        let end = bytes.iter().max().map_or(0, |last| last + 1);
        let list = encoder.finish().to_vec();
        let walked = |own| walk(&list, own, bytes.len(), |_, _| Ok(()));
        prop_assert_eq!(walked(end), Ok(()));
        if end > 0 {
            prop_assert_eq!(walked(end - 1), Err(Malformed::Outside { own: end - 1 }));
        }
        prop_assert_eq!(listed(&mut encoder, bytes.len()).0, bytes);
    }

    /// For arbitrary input from a peer, no group lies outside the segment or exceeds the data.
    #[test]
    fn any_bytes_are_a_list_or_none(list in vec(any::<u8>(), 0..60), own in 0..5000_usize, data in 0..5000_usize) {
        let mut end = 0;
        let walked = walk(&list, own, data, |group, at| {
            assert_eq!(at, end);
            end += (group.len * group.count) as usize;
            assert!(end <= data);
            for run in [0, group.count - 1] {
                let start = i128::from(group.start) + i128::from(group.stride) * i128::from(run);
                assert!(start >= 0 && start + i128::from(group.len) <= own as i128);
            }
            Ok::<_, Malformed>(())
        });
        prop_assert!(walked.is_err() || end == data);
    }

    /// The same holds for valid lists with one changed byte.
    #[test]
    fn a_changed_list_stays_inside(side in side(), at: prop::sample::Index, bits: u8) {
        let mut encoder = Encoder::default();
        Runs::new(&side.places()).for_each(|run| encoder.push(run));
        let mut list = encoder.finish().to_vec();
        if !list.is_empty() {
            let at = at.index(list.len());
            list[at] ^= bits;
        }
        let data = side.bytes().len();
        let mut end = 0;
        let _ = walk(&list, MEMORY, data, |group, at| {
            assert_eq!(at, end);
            end += (group.len * group.count) as usize;
            assert!(end <= data);
            for run in 0..group.count {
                let start = i128::from(group.start) + i128::from(group.stride) * i128::from(run);
                assert!(start >= 0 && start + i128::from(group.len) <= MEMORY as i128);
            }
            Ok::<_, Malformed>(())
        });
    }
}

#[test]
fn rows_cost_a_few_bytes_whatever_their_length() {
    let list = |strides: &[isize], counts: &[usize]| {
        let places = Places {
            origin: 0,
            unit: 1,
            shape: Shape::Strided {
                strides,
                counts,
                element: 8,
            },
        };
        let mut encoder = Encoder::default();
        Runs::new(&places).for_each(|run| encoder.push(run));
        encoder.finish().len()
    };
    assert_eq!(list(&[8000], &[1000]), 6);
    // In a plane of a cube, a row becomes a progression of its own only if it does not continue the
    // previous row.
    assert_eq!(list(&[64, 64_000], &[1000, 5]), 6);
    assert!(list(&[64, 70_000], &[100, 50]) <= 50 * 8);
}

#[test]
fn a_piece_of_just_so_many_bytes_is_large() {
    for shared in [true, false] {
        let room = Room {
            payload: 1000,
            shared,
        };
        for (len, is_large) in [(room.large() - 1, false), (room.large(), true)] {
            let block = [Block { start: 8, len }];
            let places = Places {
                origin: 0,
                unit: 1,
                shape: Shape::Vector(&block),
            };
            let mut message = Message::default();
            let found = message.fill(&mut Pieces::new(&places, &places), room);
            assert_eq!(found.map(|piece| piece.len), is_large.then_some(len));
            assert_eq!(message.data, if is_large { 0 } else { len });
        }
    }
}

#[test]
fn a_dimension_of_one_element_is_none() {
    let places = Places {
        origin: 100,
        unit: 1,
        shape: Shape::Strided {
            strides: &[999, 8, -7, 50],
            counts: &[1, 4, 1, 2],
            element: 8,
        },
    };
    let runs: Vec<Run> = Runs::new(&places).collect();
    let expected = [100, 150].map(|start| Run { start, len: 32 });
    assert_eq!(runs, expected);
}

#[test]
fn arrays_of_other_units_are_no_alike_ones() {
    let source: Vec<u8> = (0..32).collect();
    let mut found = [255_u8; 32];
    let counts = [3];
    let places = |origin, unit, strides, element| Places {
        origin,
        unit,
        shape: Shape::Strided {
            strides,
            counts: &counts,
            element,
        },
    };
    let to = places(found.as_mut_ptr().expose_provenance(), 2, &[3], 1);
    let from = places(source.as_ptr().expose_provenance(), 1, &[5], 2);
    // SAFETY: the ranges lie within `found` and `source`.
    unsafe { copy_all(&to, &from) };
    let mut expected = [255; 32];
    for row in 0..3 {
        expected[row * 6..][..2].copy_from_slice(&source[row * 5..][..2]);
    }
    assert_eq!(found, expected);
}

#[test]
fn what_has_no_number_of_bytes_has_none() {
    let places = |unit, strides, counts| Places {
        origin: 0,
        unit,
        shape: Shape::Strided {
            strides,
            counts,
            element: 8,
        },
    };
    assert_eq!(places(1, &[8, 8], &[usize::MAX, 2]).bytes(), None);
    assert_eq!(places(1, &[8, 8], &[usize::MAX, 0]).bytes(), Some(0));
    assert_eq!(places(8, &[8], &[usize::MAX / 16]).bytes(), None);
    assert_eq!(places(1, &[8], &[2, 3]).bytes(), None);
    assert_eq!(places(1, &[], &[]).bytes(), Some(8));
    // An array that wraps around the whole address space is outside every limit, wherever it
    // begins.
    let around = places(1, &[isize::MAX, isize::MIN], &[3, 3]);
    assert!(around.check(usize::MAX).is_err());
    assert!(places(1, &[isize::MIN], &[usize::MAX]).check(1).is_err());
    let below = Places {
        origin: 4_usize.wrapping_neg(),
        ..places(1, &[], &[])
    };
    let outside = Outside {
        start: 4_usize.wrapping_neg(),
        len: 8,
    };
    assert_eq!(below.check(usize::MAX), Err(outside));
}
