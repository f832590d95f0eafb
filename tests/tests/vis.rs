//! Puts and gets of many ranges through the engine, several at once, over networks of every kind:
//! all bytes arrive at their places, and no others change.

use conduit_core::barrier::Value;
use conduit_core::engine::Engine;
use conduit_core::kernel::{Blocking, Completion, Handle};
use conduit_core::ni::Ni;
use conduit_core::rma::Class;
use conduit_core::rma::vis::{Block, Places, Shape};
use conduit_core::settings::Settings;
use conduit_core::threads::Seq;
use conduit_shm::job::{ShmConfig, in_process};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::model::turns::{self, InTurn, Meeting};
use conduit_tests::small::{least, network, settings, without_windows};
use conduit_tests::udp;

type Rank = Engine<InTurn, Seq>;

/// The limit of turns of all ranks together, far above what any job here needs.
const TURNS: u64 = 20_000_000;
const OPERATIONS: usize = 40;
/// Bytes of a segment that each rank writes to, and of one that all read from.
const SHARE: usize = 64 << 10;

/// Some bytes of an area, range by range. The ranges don't overlap.
#[derive(Debug, Clone)]
enum Kind {
    Vector(Vec<Block>),
    Indexed(Vec<usize>, usize),
    Strided(Vec<isize>, Vec<usize>, usize),
}

#[derive(Debug, Clone)]
struct Side {
    origin: usize,
    kind: Kind,
}

impl Side {
    /// Draws ranges of `bytes` bytes in total, in an area of [`SHARE`].
    fn draw(random: &mut fastrand::Rng, bytes: usize) -> Self {
        let lengths = [1, 2, 8, 24, 512, 4096].into_iter();
        let lengths: Vec<usize> = lengths.filter(|len| bytes.is_multiple_of(*len)).collect();
        let len = lengths[random.usize(..lengths.len())];
        let count = bytes / len;
        // Each range in its own part of the area, in any order.
        let part = SHARE / count.max(1);
        let mut starts: Vec<usize> = (0..count)
            .map(|place| place * part + random.usize(..=part - len))
            .collect();
        if random.bool() {
            random.shuffle(&mut starts);
        }
        let kind = match random.u32(..3) {
            0 => {
                let blocks = starts.iter().map(|&start| Block { start, len });
                // An empty range may be anywhere.
                let empty = Block {
                    start: usize::MAX,
                    len: 0,
                };
                Kind::Vector(blocks.chain([empty]).collect())
            }
            1 => Kind::Indexed(starts, len),
            _ => return Self::array(random, count, len),
        };
        Self { origin: 0, kind }
    }

    /// Draws an array of `elements` elements, with its dimensions laid out in any order, some of
    /// them backwards.
    fn array(random: &mut fastrand::Rng, elements: usize, element: usize) -> Self {
        let (mut counts, mut rest) = (Vec::new(), elements);
        for factor in [2, 3, 5, 7] {
            let mut count = 1;
            while rest > 0 && rest.is_multiple_of(factor) && count < 16 {
                count *= factor;
                rest /= factor;
            }
            counts.push(count);
        }
        counts.push(rest);
        random.shuffle(&mut counts);
        let mut order: Vec<usize> = (0..counts.len()).collect();
        random.shuffle(&mut order);
        let mut strides = vec![0; counts.len()];
        let (mut space, mut rest, mut origin) = (element, elements, 0);
        for dimension in order {
            let count = counts[dimension];
            // With a gap, if there is room.
            let gap = random.usize(..4) * 8;
            if (space + gap) * rest <= SHARE {
                space += gap;
            }
            strides[dimension] = space as isize;
            if count > 0 && random.bool() {
                strides[dimension] = -strides[dimension];
                origin += space * (count - 1);
            }
            space *= count;
            rest /= count.max(1);
        }
        assert!(space <= SHARE, "{space}");
        Self {
            origin,
            kind: Kind::Strided(strides, counts, element),
        }
    }

    fn places(&self, base: usize) -> Places<'_> {
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
            origin: base.wrapping_add(self.origin),
            unit: 1,
            shape,
        }
    }

    /// Returns the place of every byte, in order.
    fn bytes(&self) -> Vec<usize> {
        match &self.kind {
            Kind::Vector(blocks) => blocks
                .iter()
                .filter(|block| block.len > 0)
                .flat_map(|block| block.start..block.start + block.len)
                .collect(),
            Kind::Indexed(starts, len) => starts
                .iter()
                .flat_map(|&start| start..start + len)
                .collect(),
            Kind::Strided(strides, counts, element) => (0..counts.iter().product::<usize>())
                .flat_map(|mut number| {
                    let mut start = self.origin as isize;
                    for (&stride, &count) in strides.iter().zip(counts) {
                        start += (number % count) as isize * stride;
                        number /= count;
                    }
                    start as usize..start as usize + element
                })
                .collect(),
        }
    }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// The source and the destination of a get.
struct Get {
    source: Vec<u8>,
    here: Side,
    there: Side,
    result: Vec<u8>,
}

impl Get {
    fn check(&self, number: usize) -> Result<(), String> {
        let mut expected = vec![0xEE; SHARE];
        for (&from, &to) in self.there.bytes().iter().zip(&self.here.bytes()) {
            expected[to] = self.source[from];
        }
        if self.result != expected {
            let wrong = self.result.iter().zip(&expected);
            let wrong = wrong.filter(|(found, expected)| found != expected).count();
            return Err(format!(
                "get {number}: {wrong} bytes are wrong: {:?} from {:?}",
                self.here, self.there
            ));
        }
        Ok(())
    }
}

fn one_rank(
    end: InTurn,
    mut meeting: Meeting,
    settings: &Settings,
    seed: u64,
) -> Result<(), String> {
    let text = |error: conduit_core::kernel::Error| error.to_string();
    let engine = Rank::start(end, &mut meeting, settings).map_err(text)?;
    let (rank, size) = (engine.rank(), engine.size());
    // The share that all read from, and a share for each rank to write to.
    engine
        .memory()
        .attach(&mut meeting, &mut [], (1 + size as usize) * SHARE)
        .map_err(text)?;
    let of = |rank: u32| pattern(seed ^ u64::from(rank) << 32, SHARE);
    let base = engine.memory().segment().map_err(text)?.0;
    // SAFETY: this rank's segment, which is not used before the barrier.
    unsafe { std::slice::from_raw_parts_mut(base, SHARE) }.copy_from_slice(&of(rank));
    let barrier = || {
        engine
            .barriers()
            .barrier(Value::Anonymous)
            .map(drop)
            .map_err(text)
    };
    barrier()?;
    let share = SHARE * (1 + rank as usize);
    let mut random = fastrand::Rng::with_seed(seed * 100 + u64::from(rank));
    // The content of this rank's share of each segment.
    let mut written = vec![vec![0_u8; SHARE]; size as usize];
    let mut gets: Vec<(usize, Handle, Box<Get>)> = Vec::new();
    let mut implicit: Vec<(usize, Box<Get>)> = Vec::new();
    let finish = |(number, handle, get): (usize, Handle, Box<Get>)| {
        engine.rma().wait(handle).map_err(text)?;
        get.check(number)
    };
    for number in 0..OPERATIONS {
        let target = random.u32(..size);
        let bytes = [0, 1, 8, 24 * 7, 512 * 3, 8 * 900, 4096 * 4][random.usize(..7)];
        let (here, there) = (
            Side::draw(&mut random, bytes),
            Side::draw(&mut random, bytes),
        );
        let immediate = random.bool();
        let blocking = |tries: u32| match immediate && tries < 1000 {
            true => Blocking::Immediate,
            false => Blocking::Wait,
        };
        let completion = match random.bool() {
            true => Completion::Handle,
            false => Completion::Implicit,
        };
        if random.bool() {
            let source = pattern(number as u64, SHARE);
            let local = here.places(source.as_ptr().expose_provenance());
            let remote = there.places(share);
            let mut tries = 0;
            let handle = loop {
                // SAFETY: the source lives until the operation has been waited for.
                let started = unsafe {
                    engine
                        .rma()
                        .put_ranges_nb(target, &remote, &local, completion, blocking(tries))
                };
                if let Some(handle) = started.map_err(text)? {
                    break handle;
                }
                engine.poll().map_err(text)?;
                tries += 1;
            };
            match completion {
                Completion::Handle => engine.rma().wait(handle).map_err(text)?,
                Completion::Implicit => engine.rma().wait_implicit(Class::PUTS).map_err(text)?,
            }
            for (&from, &to) in here.bytes().iter().zip(&there.bytes()) {
                written[target as usize][to] = source[from];
            }
        } else {
            let source = of(target);
            let result = vec![0xEE; SHARE];
            let mut get = Box::new(Get {
                source,
                here,
                there,
                result,
            });
            let to = get.result.as_mut_ptr().expose_provenance();
            let mut tries = 0;
            let handle = loop {
                let (local, remote) = (get.here.places(to), get.there.places(0));
                // SAFETY: the result lives, and is not touched, until the operation has been waited
                // for.
                let started = unsafe {
                    engine
                        .rma()
                        .get_ranges_nb(&local, target, &remote, completion, blocking(tries))
                };
                if let Some(handle) = started.map_err(text)? {
                    break handle;
                }
                engine.poll().map_err(text)?;
                tries += 1;
            };
            match completion {
                Completion::Handle => gets.push((number, handle, get)),
                Completion::Implicit => implicit.push((number, get)),
            }
        }
        while !gets.is_empty() && random.u32(..3) == 0 {
            finish(gets.swap_remove(random.usize(..gets.len())))?;
        }
        if random.u32(..8) == 0 {
            engine.rma().wait_implicit(Class::GETS).map_err(text)?;
            for (number, get) in implicit.drain(..) {
                get.check(number)?;
            }
        }
    }
    gets.into_iter().try_for_each(finish)?;
    engine.rma().wait_implicit(Class::all()).map_err(text)?;
    implicit
        .iter()
        .try_for_each(|(number, get)| get.check(*number))?;
    barrier()?;
    // Each rank checks what it has written to all.
    for (target, expected) in (0..size).zip(&written) {
        let mut found = vec![0; SHARE];
        engine.rma().get(&mut found, target, share).map_err(text)?;
        if found != *expected {
            return Err(format!("wrong bytes from rank {rank} on rank {target}"));
        }
    }
    for _ in 0..2 {
        let mut fault = Ok(());
        meeting.leave(|| fault = engine.poll().map_err(text));
        fault?;
        while !engine.is_quiet().map_err(text)? {
            engine.poll().map_err(text)?;
        }
    }
    Ok(())
}

/// Runs jobs of several sizes over the networks that `make` starts for a number of ranks and a
/// seed.
fn over<N: Ni + 'static>(settings: &Settings, make: impl Fn(u32, u64) -> Vec<N>) {
    for (ranks, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        let settings = settings.clone();
        let ran = turns::run(make(ranks, seed), seed, TURNS, move |end, meeting| {
            one_rank(end, meeting, &settings, seed)
        });
        ran.unwrap_or_else(|reason| panic!("{ranks} ranks, seed {seed}: {reason}"));
    }
}

fn by_messages(ranks: u32, inject_size: usize) -> Vec<conduit_shm::job::Shm<Seq>> {
    let config = ShmConfig {
        windows: false,
        inject_size,
        ..network()
    };
    in_process(ranks, &config).expect("the network starts")
}

#[test]
fn ranges_of_mapped_memory() {
    let ends = |ranks, _| in_process::<Seq>(ranks, &network()).expect("the network starts");
    over(&settings(), ends);
}

#[test]
fn ranges_by_messages() {
    for settings in without_windows() {
        let settings = Settings {
            windows: false,
            ..settings
        };
        let inject = if settings.inject { 1024 } else { 0 };
        over(&settings, |ranks, _| by_messages(ranks, inject));
    }
}

#[test]
fn ranges_in_disorder() {
    let settings = Settings {
        windows: false,
        ..settings()
    };
    over(&settings, |ranks, seed| {
        Chaos::job(by_messages(ranks, 1024), Disorder::seeded(seed))
    });
}

#[test]
fn ranges_over_fragments_in_disorder() {
    for settings in [settings(), least()] {
        for direct in [false, true] {
            over(&settings, |ranks, seed| {
                udp::in_disorder(ranks, seed, direct)
            });
        }
    }
}
