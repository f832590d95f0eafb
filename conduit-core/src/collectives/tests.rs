//! Runs teams whose messages are delayed and reordered at random, and compares their results with a
//! serial reference.

use proptest::prelude::*;

use super::*;

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
}

/// One rank's memory in an operation.
#[derive(Debug)]
struct Memory {
    /// The source, or `None` if `result` is also the source.
    source: Option<Vec<u8>>,
    result: Vec<u8>,
    element: usize,
    in_order: bool,
}

/// Composes two functions `x -> a x + b` on numbers below 16, each encoded in one byte. The
/// composition is not commutative.
fn after(left: u8, right: u8) -> u8 {
    let (a, b) = (left >> 4, left & 15);
    let (c, d) = (right >> 4, right & 15);
    (a * c) << 4 | (a.wrapping_mul(d).wrapping_add(b)) & 15
}

impl Operand for Memory {
    fn source(&self, offset: usize, len: usize) -> &[u8] {
        &self.source.as_ref().unwrap_or(&self.result)[offset..][..len]
    }
    fn result(&self, offset: usize, len: usize) -> &[u8] {
        &self.result[offset..][..len]
    }
    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.result[offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn copy(&mut self, from: usize, to: usize, len: usize) {
        match &self.source {
            Some(source) => self.result[to..][..len].copy_from_slice(&source[from..][..len]),
            None => assert_eq!(from, to, "in place, a rank's own block is where it belongs"),
        }
    }
    fn reduce(&mut self, left: &[u8], right: &mut [u8]) {
        assert_eq!(left.len(), right.len());
        assert!(!left.is_empty());
        for (left, right) in left
            .chunks(self.element)
            .zip(right.chunks_mut(self.element))
        {
            assert_eq!(left.len(), self.element, "an element was split");
            let (left, right_value) = (value(left), value(right));
            let sum = match self.in_order {
                true => after(left, right_value),
                false => left.wrapping_add(right_value),
            };
            right
                .iter_mut()
                .zip(0..)
                .for_each(|(byte, place)| *byte = byte_of(sum, place));
        }
    }
}

/// Returns byte number `place` of the element for `value`, a number below 256. The bytes are its
/// rotations, so a split element is recognised.
fn byte_of(value: u8, place: u32) -> u8 {
    value.rotate_left(place)
}

fn value(element: &[u8]) -> u8 {
    for (&byte, place) in element.iter().zip(0..) {
        assert_eq!(byte, byte_of(element[0], place), "not an element");
    }
    element[0]
}

fn vector(seed: u64, shape: &Shape) -> Vec<u8> {
    let element = |place: usize| seed.wrapping_mul(31).wrapping_add(place as u64 * 7) as u8;
    match shape.kind.reduces() {
        false => (0..shape.count).map(element).collect(),
        true => (0..shape.count)
            .flat_map(|place| (0..shape.element as u32).map(move |at| (element(place), at)))
            .map(|(element, at)| byte_of(element, at))
            .collect(),
    }
}

#[derive(Debug)]
enum Message {
    Data { offset: u32, payload: Vec<u8> },
    Ready,
    Taken,
}

#[derive(Debug)]
struct Flying {
    source: u32,
    target: u32,
    part: u32,
    signature: u32,
    message: Message,
}

struct World {
    ranks: Vec<TeamMachine<Memory>>,
    /// The number of operations that each rank has started.
    started: Vec<usize>,
    flying: Vec<Flying>,
    /// The message that each rank is sending, and whether it has been posted.
    sending: Vec<Option<(Outgoing, bool)>>,
    /// The results, indexed by rank and operation.
    results: Vec<Vec<Option<Vec<u8>>>>,
    operations: Vec<(Shape, bool)>,
    limits: Limits,
    most_early: (usize, usize),
    /// The team rank of each job rank, a permutation.
    team_rank: Vec<u32>,
}

impl World {
    fn new(size: u32, limits: Limits, operations: Vec<(Shape, bool)>, random: &mut Random) -> Self {
        let mut members: Vec<u32> = (0..size).collect();
        for at in (1..members.len()).rev() {
            members.swap(at, random.below(at + 1));
        }
        let mut team_rank = vec![0; members.len()];
        for (rank, &job_rank) in (0..).zip(&members) {
            team_rank[job_rank as usize] = rank;
        }
        let members = Members::these(members.into());
        let first = u32::MAX - random.below(200) as u32;
        let ranks = team_rank.iter().map(|&rank| {
            let team = Team {
                id: TeamId::JOB,
                rank,
                size,
                members: members.clone(),
            };
            TeamMachine::new(team, limits).starting_at(first)
        });
        let ranks: Vec<_> = ranks.collect();
        Self {
            started: vec![0; ranks.len()],
            sending: ranks.iter().map(|_| None).collect(),
            results: vec![vec![None; operations.len()]; ranks.len()],
            ranks,
            flying: Vec::new(),
            operations,
            limits,
            most_early: (0, 0),
            team_rank,
        }
    }

    /// Returns a rank's operand. In operations of pairs, the operand is its block for each rank, or
    /// its one block for all ranks.
    fn operand(&self, rank: usize, operation: usize) -> Vec<u8> {
        let (shape, _) = &self.operations[operation];
        let blocks = match shape.kind {
            CollectiveKind::Exchange | CollectiveKind::Scatter { .. } => self.ranks.len(),
            _ => 1,
        };
        let block = |to: usize| vector((rank * 1000 + operation + to * 77) as u64, shape);
        (0..blocks).flat_map(block).collect()
    }

    fn start(&mut self, rank: usize) -> Result<(), Violation> {
        let operation = self.started[rank];
        self.started[rank] += 1;
        let (shape, in_place) = self.operations[operation];
        let own = self.operand(rank, operation);
        let at = |root| self.team_rank[rank] == root;
        let gives = match shape.kind {
            CollectiveKind::Broadcast { root } | CollectiveKind::Scatter { root } => at(root),
            _ => true,
        };
        let gets = match shape.kind {
            CollectiveKind::ReduceToOne { root } | CollectiveKind::Gather { root } => at(root),
            _ => true,
        };
        let (source, result) = if in_place && gives && gets && !shape.kind.is_of_pairs() {
            (None, own)
        } else {
            let blocks = match shape.kind {
                CollectiveKind::Exchange
                | CollectiveKind::Gather { .. }
                | CollectiveKind::GatherAll => self.ranks.len(),
                _ => 1,
            };
            // A rank that contributes nothing has no source, and a rank that receives nothing has
            // no result.
            let empty = vec![0xee; shape.bytes() * blocks];
            (
                Some(if gives { own } else { Vec::new() }),
                if gets { empty } else { Vec::new() },
            )
        };
        let memory = Memory {
            source,
            result,
            element: shape.element,
            in_order: shape.in_order,
        };
        let waits = self.waits(operation);
        self.ranks[rank].start(shape, memory, Some(operation as u64), waits)?;
        self.look(rank);
        Ok(())
    }

    /// Returns whether an operation waits for all earlier ones. Every third operation does.
    fn waits(&self, operation: usize) -> bool {
        operation % 3 == 2
    }

    /// Collects ended operations, and checks the amount of memory that a rank holds.
    fn look(&mut self, rank: usize) {
        while let Some((operation, memory)) = self.ranks[rank].ended() {
            let operation = operation as usize;
            let earlier = &self.results[rank][..operation];
            assert!(
                !self.waits(operation) || earlier.iter().all(Option::is_some),
                "the operation did not wait for the earlier ones"
            );
            let (shape, _) = &self.operations[operation];
            // No rank leaves a barrier before all ranks have reached it.
            assert!(
                shape.kind != CollectiveKind::Barrier
                    || shape.bytes() == 0
                    || self.started.iter().all(|&started| started > operation)
            );
            let operation = operation as u64;
            let before = self.results[rank][operation as usize].replace(memory.result);
            assert!(before.is_none(), "ended twice");
        }
        let (records, bytes) = self.ranks[rank].early();
        self.most_early = (self.most_early.0.max(records), self.most_early.1.max(bytes));
    }

    /// Makes a rank take its next message, then post the message or find no room for it, and then
    /// report the result to its machine. Answers may arrive between the last two steps.
    fn send(&mut self, rank: usize, goes: bool) -> Result<(), Violation> {
        let Some((outgoing, posted)) = self.sending[rank].take() else {
            self.sending[rank] = self.ranks[rank]
                .outgoing()
                .map(|outgoing| (outgoing, false));
            return Ok(());
        };
        if goes && !posted {
            let message = match outgoing.data {
                None => Message::Ready,
                Some((offset, length)) => {
                    let payload = self.ranks[rank].payload(&outgoing).to_vec();
                    assert_eq!(payload.len(), length);
                    assert!(length <= self.limits.piece);
                    Message::Data {
                        offset: offset as u32,
                        payload,
                    }
                }
            };
            self.flying.push(Flying {
                source: rank as u32,
                target: outgoing.target,
                part: outgoing.part,
                signature: outgoing.signature,
                message,
            });
            self.sending[rank] = Some((outgoing, true));
            return Ok(());
        }
        if posted {
            // A network may still read the message's bytes at this point.
            let length = outgoing.data.map_or(0, |(_, length)| length);
            assert_eq!(
                self.ranks[rank].payload(&outgoing).len(),
                length,
                "the part ended before its message was reported as sent"
            );
        }
        self.ranks[rank].sent(outgoing, posted)?;
        self.look(rank);
        Ok(())
    }

    fn deliver(&mut self, index: usize) -> Result<(), Violation> {
        let Flying {
            source,
            target,
            part,
            signature,
            message,
        } = self.flying.swap_remove(index);
        let machine = &mut self.ranks[target as usize];
        match message {
            Message::Ready => machine.on_ready(source, part, signature)?,
            Message::Taken => machine.on_taken(source, part)?,
            Message::Data { offset, payload } => {
                if machine.on_data(source, part, signature, offset, &payload)? {
                    self.flying.push(Flying {
                        source: target,
                        target: source,
                        part,
                        signature,
                        message: Message::Taken,
                    });
                }
            }
        }
        self.look(target as usize);
        Ok(())
    }

    fn can_start(&self, rank: usize) -> bool {
        self.started[rank] < self.operations.len()
    }

    /// Takes one random step. Returns false if nothing is left to do.
    fn step(&mut self, random: &mut Random, laggard: usize) -> Result<bool, Violation> {
        let ranks = self.ranks.len();
        for attempt in 0.. {
            // The laggard starts an operation only after many attempts, when probably nothing else
            // is left to do.
            let patient = attempt < 20 * ranks;
            let rank = random.below(ranks);
            match random.below(4) {
                0 if self.can_start(rank) && (rank != laggard || !patient) => {
                    self.start(rank)?;
                }
                1 if !self.flying.is_empty() => {
                    let index = random.below(self.flying.len());
                    self.deliver(index)?;
                }
                2 | 3 if self.sending[rank].is_some() || self.ranks[rank].has_outgoing() => {
                    self.send(rank, random.below(3) > 0)?;
                }
                _ if attempt > 400 * ranks => {
                    assert!(
                        self.flying.is_empty()
                            && self.sending.iter().all(Option::is_none)
                            && !self.ranks.iter().any(TeamMachine::has_outgoing)
                            && !(0..ranks).any(|rank| self.can_start(rank)),
                        "the schedule found no step, but one was possible"
                    );
                    return Ok(false);
                }
                _ => continue,
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn check(&self) {
        let size = self.ranks.len();
        for (operation, (shape, _)) in self.operations.iter().enumerate() {
            let job_rank = |rank: u32| self.team_rank.iter().position(|&at| at == rank).unwrap();
            let expected = |rank: usize| match shape.kind {
                CollectiveKind::Broadcast { root } => self.operand(job_rank(root), operation),
                CollectiveKind::Scatter { root } => {
                    let block = self.team_rank[rank] as usize * shape.bytes();
                    self.operand(job_rank(root), operation)[block..][..shape.bytes()].to_vec()
                }
                CollectiveKind::Gather { .. }
                | CollectiveKind::GatherAll
                | CollectiveKind::Exchange => {
                    let from = (0..size as u32).map(|from| self.operand(job_rank(from), operation));
                    let block = match shape.kind {
                        CollectiveKind::Exchange => self.team_rank[rank] as usize * shape.bytes(),
                        _ => 0,
                    };
                    from.flat_map(|given| given[block..][..shape.bytes()].to_vec())
                        .collect()
                }
                _ => {
                    let of = |rank: usize| self.operand(job_rank(rank as u32), operation);
                    let mut sum = of(size - 1);
                    for rank in (0..size - 1).rev() {
                        let mut memory = Memory {
                            source: None,
                            result: Vec::new(),
                            element: shape.element,
                            in_order: shape.in_order,
                        };
                        if !sum.is_empty() {
                            memory.reduce(&of(rank), &mut sum);
                        }
                    }
                    sum
                }
            };
            for rank in 0..size {
                let result = self.results[rank][operation].as_ref();
                let result = result.unwrap_or_else(|| {
                    panic!("operation {operation} has not ended at rank {rank}")
                });
                let gets = match shape.kind {
                    CollectiveKind::ReduceToOne { root } | CollectiveKind::Gather { root } => {
                        job_rank(root) == rank
                    }
                    _ => true,
                };
                if gets {
                    assert_eq!(
                        result,
                        &expected(rank),
                        "operation {operation} at rank {rank}: {shape:?}"
                    );
                }
            }
        }
        assert!(self.ranks.iter().all(TeamMachine::is_at_rest));
        let (records, bytes) = self.most_early;
        assert!(bytes <= self.limits.early, "{bytes} early bytes");
        assert!(records <= self.limits.window as usize * size + self.limits.early);
    }
}

fn shapes(size: u32, largest: usize) -> impl Strategy<Value = (Shape, bool)> {
    let kind = (0..8_u8, 0..size).prop_map(|(kind, root)| match kind {
        0 => CollectiveKind::Broadcast { root },
        1 => CollectiveKind::ReduceToOne { root },
        2 => CollectiveKind::Scatter { root },
        3 => CollectiveKind::Gather { root },
        4 => CollectiveKind::GatherAll,
        5 => CollectiveKind::Exchange,
        6 => CollectiveKind::Barrier,
        _ => CollectiveKind::ReduceToAll,
    });
    let sizes = prop_oneof![
        Just((1, 0)),
        (1..40_usize, 1..4_usize),
        (1..12_usize, 0..largest)
    ];
    let sides = (any::<bool>(), any::<bool>());
    (kind, sizes, sides).prop_map(|(kind, (element, count), (in_place, in_order))| {
        let element = if kind.reduces() { element } else { 1 };
        (
            Shape {
                kind,
                element,
                count,
                meaning: 7,
                in_order: in_order && kind == CollectiveKind::ReduceToAll,
            },
            in_place,
        )
    })
}

fn worlds() -> impl Strategy<Value = (u32, Limits, Vec<(Shape, bool)>, u64)> {
    let limits = (1..64_usize, 1..6_u32, 1..24_usize, 0..24_usize, 0..64_usize).prop_map(
        |(part, window, piece, eager, early)| Limits {
            part,
            window,
            piece,
            eager,
            early,
        },
    );
    (1..=40_u32, limits).prop_flat_map(|(size, limits)| {
        // With more ranks, operations have fewer bytes.
        let largest = (400 / size as usize).max(8);
        let operations = prop::collection::vec(shapes(size, largest), 1..8);
        (Just(size), Just(limits), operations, any::<u64>())
    })
}

fn run(size: u32, limits: Limits, operations: Vec<(Shape, bool)>, seed: u64) -> World {
    let mut random = Random(seed);
    let mut world = World::new(size, limits, operations, &mut random);
    let laggard = random.below(2 * size as usize);
    while world.step(&mut random, laggard).expect("no rank is faulty") {}
    world
}

/// Each rank waits for another rank. Following these links leads to the rank that has not started
/// the operation.
fn run_without(late: usize, size: u32, limits: Limits, shape: Shape, seed: u64) {
    let mut world = World::new(size, limits, vec![(shape, false)], &mut Random(seed));
    let ranks = 0..size as usize;
    for rank in ranks.clone().filter(|rank| *rank != late) {
        world.start(rank).unwrap();
    }
    loop {
        let outgoing = |world: &World, rank: usize| {
            world.sending[rank].is_some() || world.ranks[rank].has_outgoing()
        };
        if !world.flying.is_empty() {
            world.deliver(0).unwrap();
        } else if let Some(rank) = ranks.clone().find(|rank| outgoing(&world, *rank)) {
            world.send(rank, true).unwrap();
        } else {
            break;
        }
    }
    for start in ranks.clone().filter(|rank| *rank != late) {
        let mut rank = start;
        for _ in ranks.clone() {
            if rank == late || world.results[rank][0].is_some() {
                break;
            }
            let (_, lacks) = world.ranks[rank].lacks().unwrap();
            rank = lacks[0] as usize;
        }
        let ended = world.results[start][0].is_some();
        assert!(
            ended || rank == late,
            "rank {start} seems to wait for {rank}"
        );
    }
}

proptest! {
    #[test]
    fn whom_ranks_lack_leads_to_the_late_one(
        (size, limits, operations, seed) in worlds(), late: prop::sample::Index,
    ) {
        let (shape, _) = operations[0];
        if shape.bytes() > 0 {
            run_without(late.index(size as usize), size, limits, shape, seed);
        }
    }

    #[test]
    fn every_schedule_gives_the_serial_result((size, limits, operations, seed) in worlds()) {
        run(size, limits, operations, seed).check();
    }
}

fn machine(size: u32, limits: Limits) -> TeamMachine<Memory> {
    TeamMachine::new(Team::of_job(0, size), limits)
}

fn memory(shape: &Shape) -> Memory {
    Memory {
        source: Some(vector(1, shape).repeat(shape.steps(5))),
        result: vec![0; shape.bytes() * shape.steps(5)],
        element: shape.element,
        in_order: shape.in_order,
    }
}

/// An arbitrary message from a peer: the type of message, source, part, signature, offset and
/// payload.
type Anything = (u8, Rank, u32, u32, u32, Vec<u8>);

fn anything(shape: Shape) -> impl Strategy<Value = Anything> {
    let signature = prop_oneof![8 => Just(shape.signature(0)), 2 => Just(shape.signature(1)), 1 => any::<u32>()];
    let part = prop_oneof![8 => 0..6_u32, 1 => any::<u32>()];
    let offset = prop_oneof![8 => 0..40_u32, 1 => any::<u32>()];
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (0..4_u8, 0..7_u32, part, signature, offset, payload)
}

fn hostile() -> impl Strategy<Value = (Shape, Vec<Anything>)> {
    shapes(5, 30).prop_flat_map(|(shape, _)| {
        // With elements of one byte, arbitrary bytes are valid elements.
        let shape = Shape {
            element: 1,
            ..shape
        };
        (Just(shape), prop::collection::vec(anything(shape), 0..60))
    })
}

proptest! {
    #[test]
    fn peers_that_send_anything_are_named_and_do_no_harm((shape, messages) in hostile(), seed in any::<u64>()) {
        let mut random = Random(seed);
        let limits = Limits { part: 24, window: 3, piece: 12, eager: 8, early: 30 };
        let mut machine = machine(5, limits);
        let mut sending = Vec::new();
        for (kind, source, part, signature, offset, payload) in messages {
            let done = match kind {
                0 => machine.on_ready(source, part, signature),
                1 => machine.on_taken(source, part),
                2 if random.below(4) == 0 => machine.start(shape, memory(&shape), Some(0), random.below(3) == 0),
                _ => machine.on_data(source, part, signature, offset, &payload).map(drop),
            };
            if let Err(violation) = done {
                prop_assert!(violation.peer() < 7);
            }
            while let Some(outgoing) = machine.outgoing() {
                prop_assert!(machine.payload(&outgoing).len() <= limits.piece);
                if random.below(2) == 0 {
                    let _ = machine.sent(outgoing, random.below(2) == 0);
                } else {
                    sending.push(outgoing);
                    break;
                }
            }
            while machine.ended().is_some() {}
            let (records, bytes) = machine.early();
            prop_assert!(bytes <= limits.early && records <= 5 * limits.window as usize + limits.early);
        }
    }
}

#[test]
fn a_rank_that_starts_something_else_is_named() {
    let limits = Limits::with_messages_of(1000);
    let ours = Shape {
        kind: CollectiveKind::ReduceToAll,
        element: 8,
        count: 1,
        meaning: 3,
        in_order: false,
    };
    let theirs = [
        Shape {
            kind: CollectiveKind::ReduceToOne { root: 0 },
            ..ours
        },
        Shape { count: 2, ..ours },
        Shape {
            element: 4,
            count: 2,
            ..ours
        },
        Shape { meaning: 4, ..ours },
        Shape {
            in_order: true,
            ..ours
        },
    ];
    for theirs in theirs {
        // Either this rank's operation or the peer's message may come first.
        for early in [true, false] {
            let mut machine = machine(2, limits);
            let data = vector(2, &theirs);
            let arrive = |machine: &mut TeamMachine<Memory>| {
                machine
                    .on_data(1, 0, theirs.signature(0), 0, &data)
                    .map(drop)
            };
            let violation = if early {
                arrive(&mut machine).unwrap();
                machine.start(ours, memory(&ours), Some(0), false)
            } else {
                machine.start(ours, memory(&ours), Some(0), false).unwrap();
                arrive(&mut machine)
            };
            let violation = violation.expect_err("they differ");
            assert!(
                matches!(violation, Violation::Mismatch { peer: 1, .. }),
                "{violation}"
            );
        }
    }
}

#[test]
fn what_comes_too_early_is_refused_and_asked_for_later() {
    let limits = Limits {
        early: 8,
        ..Limits::with_messages_of(1000)
    };
    let shape = Shape {
        kind: CollectiveKind::ReduceToOne { root: 0 },
        element: 8,
        count: 1,
        meaning: 0,
        in_order: false,
    };
    let (signature, data) = (shape.signature(0), vector(2, &shape));
    let mut machine = machine(2, limits);
    assert_eq!(
        machine.on_data(1, 0, signature, 0, &data),
        Ok(true),
        "there is room for one"
    );
    assert_eq!(machine.on_data(1, 1, signature, 0, &data), Ok(false));
    for name in [10, 11] {
        machine
            .start(shape, memory(&shape), Some(name), false)
            .unwrap();
    }
    assert_eq!(machine.ended().map(|(name, _)| name), Some(10));
    assert!(machine.ended().is_none());
    let ready = machine.outgoing().unwrap();
    assert_eq!((ready.target, ready.part, ready.data), (1, 1, None));
    machine.sent(ready, true).unwrap();
    assert_eq!(machine.on_data(1, 1, signature, 0, &data), Ok(true));
    assert_eq!(machine.ended().map(|(name, _)| name), Some(11));
    assert!(machine.is_at_rest());
}

#[test]
fn the_sum_is_the_same_in_every_order_of_arrival() {
    // Floats, whose sums depend on the order of addition.
    #[derive(Debug)]
    struct Floats([u8; 8], [u8; 8]);
    impl Operand for Floats {
        fn source(&self, _: usize, _: usize) -> &[u8] {
            &self.0
        }
        fn result(&self, _: usize, _: usize) -> &[u8] {
            &self.1
        }
        fn store(&mut self, _: usize, bytes: &[u8]) {
            self.1.copy_from_slice(bytes);
        }
        fn copy(&mut self, _: usize, _: usize, _: usize) {
            self.1 = self.0;
        }
        fn reduce(&mut self, left: &[u8], right: &mut [u8]) {
            fold(DataType::F64, ReduceOp::Add).unwrap()(left, right);
        }
    }
    let shape = Shape {
        kind: CollectiveKind::ReduceToOne { root: 0 },
        element: 8,
        count: 1,
        meaning: 0,
        in_order: false,
    };
    let sum = |order: [u32; 3]| {
        let mut machine = TeamMachine::new(Team::of_job(0, 5), Limits::with_messages_of(1000));
        let own = Floats(1.0_f64.to_ne_bytes(), [0; 8]);
        machine.start(shape, own, Some(0), false).unwrap();
        for source in order {
            let value = [0.0, 1e16, -1e16, 0.0, 3.0][source as usize];
            machine
                .on_data(source, 0, shape.signature(0), 0, &f64::to_ne_bytes(value))
                .unwrap();
        }
        f64::from_ne_bytes(machine.ended().unwrap().1.1)
    };
    assert_eq!(sum([1, 2, 4]), sum([4, 2, 1]));
    assert_eq!(sum([1, 2, 4]), sum([2, 4, 1]));
}

#[test]
fn early_messages_are_bounded_and_only_members_send_them() {
    let limits = Limits {
        window: 2,
        early: 8,
        ..Limits::with_messages_of(1000)
    };
    let mut machine = machine(3, limits);
    let signature = Shape::BARRIER.signature(0);
    assert!(machine.on_ready(3, 0, signature).is_err());
    assert!(machine.on_data(3, 0, signature, 0, &[0]).is_err());
    assert_eq!(machine.early(), (0, 0));
    let most = 2 * 3 + 8;
    for part in 0..most {
        machine.on_ready(1, part, signature).unwrap();
    }
    assert!(machine.on_ready(1, most, signature).is_err());
    assert_eq!(machine.early(), (most as usize, 0));
}

#[test]
fn no_more_of_a_result_is_taken_than_it_has() {
    let limits = Limits {
        eager: 8,
        ..Limits::with_messages_of(1000)
    };
    let shape = Shape {
        kind: CollectiveKind::Broadcast { root: 1 },
        element: 1,
        count: 24,
        meaning: 0,
        in_order: false,
    };
    let mut machine = machine(2, limits);
    machine
        .start(shape, memory(&shape), Some(0), false)
        .unwrap();
    let signature = shape.signature(0);
    let mut arrive = |offset, len| machine.on_data(1, 0, signature, offset, &vec![7; len]);
    assert_eq!(arrive(0, 20), Ok(false));
    assert!(arrive(19, 5).is_err());
    assert_eq!(arrive(20, 4), Ok(false));
}
