//! Checks the barrier's invariants in a simulated job whose messages are delayed and reordered at
//! random.

use super::*;
use proptest::prelude::*;

/// A small generator (SplitMix64), so that a seed determines a schedule.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn value(&mut self, ids: usize) -> Value {
        match self.below(10 * ids) {
            0 => Value::Mismatch(Calls::BARRIER),
            1 => Value::Quiesce,
            3 => Value::Finish,
            n if n % 2 == 0 => Value::Anonymous,
            _ => Value::Named(self.below(ids) as u32),
        }
    }
}

struct Message {
    target: usize,
    cell: usize,
    word: u64,
    /// The sender's epoch in full. The word has only the low 24 bits.
    epoch: u64,
}

struct World {
    ranks: Vec<Barrier>,
    cells: Vec<Vec<u64>>,
    /// The epoch last stored to each cell.
    stored: Vec<Vec<u64>>,
    flying: Vec<Message>,
    first_epoch: u64,
}

impl World {
    fn new(size: u32, radix: u32, first_epoch: u64) -> Self {
        let cells = cell_count(size, radix);
        let mut ranks: Vec<_> = (0..size).map(|r| Barrier::new(r, size, radix)).collect();
        for rank in &mut ranks {
            assert_eq!(rank.cells(), cells);
            rank.epoch = first_epoch - 1;
        }
        Self {
            cells: vec![vec![0; cells]; ranks.len()],
            stored: vec![vec![0; cells]; ranks.len()],
            flying: Vec::new(),
            ranks,
            first_epoch,
        }
    }

    fn notify(&mut self, rank: usize, value: Value) -> Result<(), BarrierError> {
        let epoch = self.ranks[rank].epoch + 1;
        let flying = &mut self.flying;
        self.ranks[rank].notify(value, |target, cell, word| {
            assert_ne!(target as usize, rank);
            flying.push(Message {
                target: target as usize,
                cell,
                word,
                epoch,
            });
        })
    }

    fn advance(&mut self, rank: usize) -> bool {
        let (cells, flying) = (&self.cells[rank], &mut self.flying);
        let epoch = self.ranks[rank].epoch;
        let complete = self.ranks[rank].advance(
            |cell| cells[cell],
            |target, cell, word| {
                assert_ne!(target as usize, rank);
                flying.push(Message {
                    target: target as usize,
                    cell,
                    word,
                    epoch,
                });
            },
        );
        if complete {
            let behind = self
                .ranks
                .iter()
                .filter(|other| other.epoch < epoch)
                .count();
            assert_eq!(
                behind, 0,
                "rank {rank} completed {epoch} before {behind} notified"
            );
        }
        complete
    }

    /// Stores one of the messages in flight, and checks that the receiver no longer needs the
    /// cell's previous word.
    fn deliver(&mut self, index: usize) {
        let Message {
            target,
            cell,
            word,
            epoch,
        } = self.flying.swap_remove(index);
        assert!(
            self.ranks[target].layout().at(cell).is_some(),
            "padding is never written"
        );
        let before = &mut self.stored[target][cell];
        if epoch < self.first_epoch + 2 {
            assert_eq!(*before, 0, "stored twice in epoch {epoch}");
        } else {
            assert_eq!(*before, epoch - 2, "the cell expects epoch {epoch}");
        }
        let receiver = &self.ranks[target];
        assert!(
            receiver.epoch >= epoch - 1,
            "sent more than one barrier ahead"
        );
        *before = epoch;
        self.cells[target][cell] = word;
    }

    /// Delivers all messages and advances all ranks until nothing changes.
    fn settle(&mut self) {
        loop {
            for rank in 0..self.ranks.len() {
                self.advance(rank);
            }
            if self.flying.is_empty() {
                return;
            }
            while !self.flying.is_empty() {
                self.deliver(0);
            }
        }
    }
}

/// Runs `epochs` barriers to completion under a random schedule, and checks every outcome.
fn run(size: u32, radix: u32, first_epoch: u64, epochs: usize, ids: usize, seed: u64) {
    let mut random = Random(seed);
    let mut world = World::new(size, radix, first_epoch);
    let n = size as usize;
    let values: Vec<Vec<Value>> = (0..epochs)
        .map(|_| (0..n).map(|_| random.value(ids)).collect())
        .collect();
    let expected: Vec<BarrierOutcome> = values
        .iter()
        .map(|row| row.iter().copied().reduce(Value::merge).unwrap().into())
        .collect();
    // Some schedules favour delivery, others let messages pile up. One rank gets every other turn.
    let delivery = 1 + random.below(9);
    let favourite = random.below(n);
    let mut finished = vec![0; n];
    let mut steps = 0;
    while finished.iter().any(|&count| count < epochs) {
        steps += 1;
        assert!(steps < 3_000_000, "the barriers did not end: {finished:?}");
        if !world.flying.is_empty() && random.below(10) < delivery {
            let index = random.below(world.flying.len());
            world.deliver(index);
            continue;
        }
        let rank = if random.below(2) == 0 {
            favourite
        } else {
            random.below(n)
        };
        if !world.ranks[rank].is_notified() {
            if finished[rank] < epochs {
                world.notify(rank, values[finished[rank]][rank]).unwrap();
            }
            continue;
        }
        let complete = world.advance(rank);
        assert_eq!(complete, !world.ranks[rank].is_pending());
        let value = values[finished[rank]][rank];
        let outcome = world.ranks[rank].finish(value).unwrap();
        assert_eq!(outcome.is_some(), complete);
        if let Some(outcome) = outcome {
            assert_eq!(outcome, expected[finished[rank]], "rank {rank}");
            assert_eq!(world.ranks[rank].last(), Some(outcome));
            finished[rank] += 1;
        }
    }
    assert!(world.flying.is_empty(), "every message was needed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_rank_sees_the_merge_of_all(
        size in 1..=40_u32, radix in 2..=16_u32, epochs in 1..8_usize, ids in 1..4_usize, seed: u64,
    ) {
        run(size, radix, 1, epochs, ids, seed);
    }

    #[test]
    fn epochs_wrap(size in 1..=20_u32, radix in 2..=16_u32, seed: u64) {
        run(size, radix, (1 << 24) - 4, 8, 1, seed);
    }

    #[test]
    fn nobody_completes_without_the_last(
        size in 2..=40_u32, radix in 2..=16_u32, late: proptest::sample::Index, before in 0..3,
    ) {
        let late = late.index(size as usize);
        let mut world = World::new(size, radix, 1);
        for _ in 0..before {
            for rank in 0..size as usize {
                world.notify(rank, Value::Anonymous).unwrap();
            }
            world.settle();
            for rank in &mut world.ranks {
                prop_assert!(rank.finish(Value::Anonymous).unwrap().is_some());
            }
        }
        for rank in (0..size as usize).filter(|rank| *rank != late) {
            world.notify(rank, Value::Anonymous).unwrap();
        }
        world.settle();
        for (rank, machine) in world.ranks.iter_mut().enumerate() {
            prop_assert_eq!(machine.is_pending(), rank != late);
            if rank != late {
                prop_assert_eq!(machine.finish(Value::Anonymous), Ok(None));
            }
        }
        // Each rank waits for another rank. Following these links leads to the late rank.
        let mut rank = (late + 1) % size as usize;
        for _ in 0..size {
            if rank == late {
                break;
            }
            rank = world.ranks[rank].waits_for().unwrap() as usize;
        }
        prop_assert_eq!(rank, late);
        world.notify(late, Value::Anonymous).unwrap();
        world.settle();
        prop_assert!(world.ranks.iter().all(|rank| rank.is_notified() && !rank.is_pending()));
    }

    #[test]
    fn a_layout_has_a_place_for_each_cell(size in 1..5000_u32, radix in 0..20_u32) {
        let layout = Layout::new(size, radix);
        let mut cells = 0;
        for parity in 0..2 {
            for round in 0..layout.rounds() {
                for slot in 1..=layout.fan_out(layout.distance(round)) {
                    let cell = CellIndex { parity, round, slot };
                    let position = layout.position(cell);
                    prop_assert_eq!(layout.at(position), Some(cell));
                    prop_assert_eq!((position + 1 - slot as usize) % 8, 0, "a round starts a cache line");
                    cells += 1;
                }
            }
        }
        let used = (0..layout.cells()).filter(|position| layout.at(*position).is_some()).count();
        prop_assert_eq!(used, cells);
        prop_assert_eq!(layout.at(layout.cells()), None);
    }
}

#[test]
fn one_rank_is_heard_by_all() {
    for size in 1..=40 {
        for radix in 2..=16 {
            for speaker in 0..size as usize {
                let mut world = World::new(size, radix, 1);
                for rank in 0..size as usize {
                    let value = if rank == speaker {
                        Value::named(-7)
                    } else {
                        Value::Anonymous
                    };
                    world.notify(rank, value).unwrap();
                }
                world.settle();
                let heard = BarrierOutcome::Match(Some((-7_i32).cast_unsigned()));
                for rank in &world.ranks {
                    assert_eq!(rank.last(), Some(heard), "{size} ranks, radix {radix}");
                }
            }
        }
    }
}

#[test]
fn the_largest_job_has_a_layout() {
    for radix in 2..=16 {
        let layout = Layout::new(u32::MAX, radix);
        assert!(u64::from(radix).pow(layout.rounds()) >= u64::from(u32::MAX));
        let machine = Barrier::new(u32::MAX - 1, u32::MAX, radix);
        let mut sent = 0;
        let mut machine = Barrier {
            epoch: 6,
            ..machine
        };
        machine
            .notify(Value::Anonymous, |_, _, _| sent += 1)
            .unwrap();
        // Every cell holds a word of this epoch, so the machine completes all rounds, and every
        // target exists.
        let complete = machine.advance(
            |_| Value::Anonymous.word(7),
            |target, cell, _| {
                assert!(target < u32::MAX - 1 && layout.at(cell).is_some());
                sent += 1;
            },
        );
        assert!(complete);
        assert_eq!(
            sent * 2,
            (0..layout.cells())
                .filter(|p| layout.at(*p).is_some())
                .count()
        );
    }
}

#[test]
fn calls_out_of_order_are_refused() {
    let mut machine = Barrier::new(0, 1, 8);
    let none = BarrierError::NoNotify { rank: 0 };
    assert_eq!(machine.finish(Value::Anonymous), Err(none));
    assert_eq!(machine.last(), None);
    assert!(!machine.advance(|_| 0, |_, _, _| ()));
    machine
        .notify(Value::Named(1), |_, _, _| panic!("no other rank exists"))
        .unwrap();
    let twice = BarrierError::NotifyTwice { rank: 0 };
    assert_eq!(machine.notify(Value::Named(2), |_, _, _| ()), Err(twice));
    let between = BarrierError::Between { rank: 0 };
    assert_eq!(machine.notify(Value::Finish, |_, _, _| ()), Err(between));
    assert!(
        machine.advance(|_| 0, |_, _, _| ()),
        "complete stays complete"
    );
    let one = BarrierOutcome::Match(Some(1));
    assert_eq!(
        machine.finish(Value::Named(1)),
        Ok(Some(one)),
        "the second notify changed nothing"
    );
    assert_eq!(machine.finish(Value::Named(1)), Err(none));
}

#[test]
fn wait_checks_its_id_against_what_was_agreed() {
    use BarrierOutcome::Match;
    use Value::{Anonymous, Finish, Named, Quiesce};
    const MISMATCH: Value = Value::Mismatch(Calls::BARRIER);
    let mismatch = BarrierOutcome::Mismatch;
    let ids = mismatch(Calls::BARRIER);
    let cases = [
        (Anonymous, Anonymous, Match(None)),
        (Anonymous, Named(3), Match(None)),
        (Named(3), Anonymous, Match(Some(3))),
        (Named(3), Named(3), Match(Some(3))),
        (Named(3), Named(4), ids),
        (MISMATCH, Anonymous, ids),
        (MISMATCH, Named(3), ids),
        (Anonymous, MISMATCH, ids),
        (Finish, Finish, Match(None)),
        (Quiesce, Named(3), mismatch(Calls::QUIESCE | Calls::BARRIER)),
    ];
    for (notified, waited, outcome) in cases {
        let mut machine = Barrier::new(0, 1, 8);
        machine.notify(notified, |_, _, _| ()).unwrap();
        assert_eq!(
            machine.finish(waited),
            Ok(Some(outcome)),
            "{notified:?}, {waited:?}"
        );
        assert_eq!(
            machine.last(),
            Some(notified.into()),
            "independent of the value passed to wait"
        );
    }
}
