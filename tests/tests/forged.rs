//! Messages that a broken peer may send to an engine. The engine ends the job with an error, or
//! delivers a message that is valid.

use am::handlers::{Entry, Registration};
use am::{Body, Category, Flags, Header, Long, MAX_ARGS, NO_CHUNK, NO_LID, Role, select};
use conduit_core::engine::{Engine, Handler};
use conduit_core::messages::Payload;
use conduit_core::ni::{Exchange, Inject, Ni, PtIndex, Submit};
use conduit_core::settings::Settings;
use conduit_core::threads::{Mode, Par, Seq};
use conduit_shm::job::in_process;
use conduit_tests::model::turns::{self, InTurn, Meeting};
use conduit_tests::small::{network, settings};

/// The indices for requests and for replies.
const QUEUES: [(PtIndex, Role); 2] = [(PtIndex(1), Role::Request), (PtIndex(2), Role::Reply)];
/// The selector of a reply that goes to no chunk.
const REPLY_BUFFER: u8 = 6;
const HANDLER: u8 = 200;
const SEGMENT: usize = 4096;
const JOBS: u64 = 400;
const MESSAGES: usize = 40;
/// The limit of turns for a job.
const TURNS: u64 = 1_000_000;

/// A message with the fields that travel.
#[derive(Clone)]
struct Forged {
    index: PtIndex,
    match_bits: u64,
    hdr_data: u64,
    body: Vec<u8>,
}

/// The library's own messages for puts and gets of ranges: their handlers, categories, roles, and
/// numbers of arguments.
const RANGES: [(u8, Category, Role, usize); 5] = [
    (16, Category::Medium, Role::Request, 2),
    (17, Category::Medium, Role::Request, 2),
    (18, Category::Short, Role::Reply, 1),
    (19, Category::Medium, Role::Reply, 1),
    (20, Category::Medium, Role::Request, 1),
];

/// Returns one of [`RANGES`], with a list of ranges that may lie in the segment.
fn forge_ranges(random: &mut fastrand::Rng) -> Forged {
    let (handler, category, role, nargs) = RANGES[random.usize(..RANGES.len())];
    let data = random.usize(..100);
    let args = match handler {
        20 => [u32::from(HANDLER), 0],
        _ => [random.u32(..3), data as u32],
    };
    let header = Header {
        flags: Flags::of(category, role) | Flags::NO_CHUNK,
        handler,
        nargs: nargs as u8,
        credit: u8::from(role == Role::Request),
        chunk: NO_CHUNK,
        arg0: args[0],
        lid: NO_LID,
    };
    let mut body = vec![0; Body::args_len(nargs)];
    Body::write_args(&args[..nargs], &mut body);
    if category == Category::Medium {
        if handler != 17 {
            body.resize(body.len() + data, 7);
        }
        // One range of all bytes, or several, forwards or backwards.
        let place = random.u8(..128);
        match data % 4 {
            0 if handler <= 17 => body.extend([4 << 1 | 1, place, data as u8 / 4, random.u8(..20)]),
            _ if handler <= 17 => body.extend([(data as u8) << 1, place]),
            _ => {}
        }
    }
    let select = match role {
        Role::Request => select::REQ_RB,
        Role::Reply => REPLY_BUFFER,
    };
    let (match_bits, hdr_data) = header.encode(select);
    Forged {
        index: QUEUES[usize::from(role == Role::Reply)].0,
        match_bits,
        hdr_data,
        body,
    }
}

/// Returns a message that may or may not be valid.
fn forge(random: &mut fastrand::Rng) -> Forged {
    if random.u32(..3) == 0 {
        return forge_ranges(random);
    }
    let (index, role) = QUEUES[random.usize(..QUEUES.len())];
    let category = [Category::Short, Category::Medium, Category::Long][random.usize(..3)];
    let mut flags = Flags::of(category, role) | Flags::NO_CHUNK;
    if category == Category::Long {
        flags |= [Flags::DEST_IN_PLACE, Flags::PACKED, Flags::empty()][random.usize(..3)];
    }
    let nargs = random.usize(..=MAX_ARGS);
    let header = Header {
        flags,
        handler: HANDLER,
        nargs: nargs as u8,
        credit: u8::from(role == Role::Request),
        chunk: NO_CHUNK,
        arg0: random.u32(..),
        lid: match flags.has_separate_data() {
            true => random.u32(1..4),
            false => NO_LID,
        },
    };
    let mut body = vec![0; Body::args_len(nargs)];
    let length = random.usize(..200);
    if category == Category::Long {
        let long = Long {
            dest: random.u64(..2 * SEGMENT as u64 / 3),
            length: length as u64,
        };
        body.extend_from_slice(&long.encode());
    }
    if category == Category::Medium || flags.contains(Flags::PACKED) {
        body.resize(body.len() + length, 7);
    }
    let select = match role {
        Role::Request => select::REQ_RB,
        Role::Reply => REPLY_BUFFER,
    };
    let (match_bits, hdr_data) = header.encode(select);
    Forged {
        index,
        match_bits,
        hdr_data,
        body,
    }
}

/// Changes one field of a message.
fn spoil(forged: &mut Forged, random: &mut fastrand::Rng) {
    match random.u32(..6) {
        0 => forged.match_bits ^= 1 << random.u32(4..64),
        1 => forged.hdr_data ^= 1 << random.u32(..64),
        2 => forged.body.truncate(random.usize(..=forged.body.len())),
        3 => forged
            .body
            .resize(forged.body.len() + random.usize(..100), 9),
        _ if forged.body.is_empty() => {}
        _ => {
            let at = random.usize(..forged.body.len());
            forged.body[at] ^= 1 << random.u32(..8);
        }
    }
}

fn handler<M: Mode>() -> Handler<InTurn, M> {
    Handler::new(|call| {
        assert!(call.args().len() <= MAX_ARGS);
        match call.payload() {
            Payload::None => {}
            // The payload lies completely within the message.
            Payload::Medium(bytes) => assert!(bytes.iter().all(|byte| *byte < 255)),
            Payload::Long { offset, length } => {
                assert!(length == 0 || offset + length <= SEGMENT, "{call:?}");
            }
        }
    })
}

/// Runs one rank: rank 1 sends forged messages, rank 0 is an ordinary engine.
fn one_rank<M: Mode>(end: InTurn, mut meeting: Meeting, seed: u64) -> Result<(), String> {
    let text = |error: conduit_core::kernel::Error| error.to_string();
    let settings = Settings {
        checks: seed.is_multiple_of(2),
        ..settings()
    };
    let engine = Engine::<InTurn, M>::start(end, &mut meeting, &settings).map_err(text)?;
    let mut handlers = [Registration {
        id: HANDLER,
        entry: Entry::new(handler()),
    }];
    engine
        .memory()
        .attach(&mut meeting, &mut handlers, SEGMENT)
        .map_err(text)?;
    let mut random = fastrand::Rng::with_seed(seed);
    if engine.rank() == 0 {
        for _ in 0..2000 {
            // An error is the expected end.
            if engine.poll().is_err() {
                break;
            }
        }
        return Ok(());
    }
    let mut forged = forge(&mut random);
    for _ in 0..MESSAGES {
        // Most messages resemble the one before, to use the fast path on arrival.
        if random.u32(..4) == 0 {
            forged = forge(&mut random);
        }
        let mut sent = forged.clone();
        if random.u32(..12) == 0 {
            spoil(&mut sent, &mut random);
        }
        let inject = Inject {
            target: 0,
            index: sent.index,
            exchange: Exchange::OneWay,
            match_bits: sent.match_bits,
            hdr_data: sent.hdr_data,
            head: &[],
            body: &sent.body,
        };
        let posted = engine
            .job()
            .network()
            .inject(&inject)
            .map_err(|error| error.to_string())?;
        if posted == Submit::Again {
            break;
        }
    }
    Ok(())
}

fn run<M: Mode>(seed: u64) {
    let ends = in_process::<M>(2, &network()).expect("the network starts");
    let ran = turns::run(ends, seed, TURNS, move |end, meeting| {
        one_rank::<M>(end, meeting, seed)
    });
    ran.unwrap_or_else(|reason| panic!("{} seed {seed}: {reason}", M::NAME));
}

#[test]
fn forged_messages_end_the_job_or_make_sense() {
    for seed in 0..JOBS {
        // With and without checks.
        match seed & 2 {
            0 => run::<Seq>(seed),
            _ => run::<Par>(seed),
        }
    }
}
