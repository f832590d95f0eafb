//! Several threads of each rank at once, under chaos: a network as weak as the contract allows,
//! over shared memory and over UDP, with and without packet faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use am::handlers::{Entry, Registration};
use conduit_core::atomics::AtomicRequest;
use conduit_core::barrier::Value;
use conduit_core::engine::{Call, Engine, Handler};
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::ni::{AtomicOp, AtomicType, Ni};
use conduit_core::rma::Class;
use conduit_core::settings::Settings;
use conduit_core::threads::Par;
use conduit_shm::job::{self, ShmConfig};
use conduit_tests::chaos::{Chaos, Disorder};
use conduit_tests::{small, udp};
use conduit_udp::job::{UdpConfig, in_process};
use pmi::bootstrap::Bootstrap as _;
use pmi::threads::Thread;

const RANKS: u32 = 2;
const THREADS: u32 = 3;
const ROUNDS: u32 = 40;
/// Bytes for each thread of each rank in each segment.
const SHARE: usize = 2048;
/// The offset of the segment's counter.
const COUNTER: usize = (RANKS * THREADS) as usize * SHARE;

/// The handler of requests, which replies to every other one.
const REQUEST: u8 = 200;
const REPLY: u8 = 201;

type Result<T> = std::result::Result<T, conduit_core::kernel::Error>;

/// The numbers of requests and replies that a rank has received.
#[derive(Default)]
struct Come {
    requests: AtomicU64,
    replies: AtomicU64,
}

fn handlers<N: Ni + 'static>(come: &Arc<Come>) -> Vec<Registration<Handler<N, Par>>> {
    let make = |id: u8, work: fn(&Call<'_, N, Par>, &Come)| {
        let come = Arc::clone(come);
        let handler: Handler<N, Par> = Handler::new(move |call| work(call, &come));
        Registration {
            id,
            entry: Entry::new(handler),
        }
    };
    vec![
        make(REQUEST, |call, come| {
            come.requests.fetch_add(1, Relaxed);
            if call.args()[0] % 2 == 0 {
                call.reply_short(REPLY, &[]).expect("the first reply");
            }
        }),
        make(REPLY, |_, come| {
            come.replies.fetch_add(1, Relaxed);
        }),
    ]
}

fn bytes(seed: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed.into());
    std::iter::repeat_with(|| random.u8(..))
        .take(1500)
        .collect()
}

/// Runs one thread's operations.
fn thread<N: Ni>(engine: &Engine<N, Par>, number: u32) -> Result<()> {
    let at = (engine.rank() * THREADS + number) as usize * SHARE;
    let add = AtomicRequest {
        op: AtomicOp::Add,
        ty: AtomicType::U64,
        operand: 1,
        comparand: 0,
    };
    for round in 0..ROUNDS {
        for to in 0..RANKS {
            let bytes = bytes(round << 8 | to << 4 | number);
            let handle =
                engine
                    .rma()
                    .put_nb(to, at, &bytes[..700], Completion::Handle, Blocking::Wait)?;
            engine.rma().put_nb(
                to,
                at + 700,
                &bytes[700..],
                Completion::Implicit,
                Blocking::Wait,
            )?;
            engine
                .messages()
                .request_short(to, REQUEST, &[round], Blocking::Wait)?;
            engine.atomics().atomic(to, COUNTER, add)?;
            if let Some(handle) = handle {
                engine.rma().wait(handle)?;
            }
            engine.rma().wait_implicit(Class::all())?;
            let mut found = vec![0; bytes.len()];
            engine.rma().get(&mut found, to, at)?;
            assert!(found == bytes, "round {round} to rank {to}");
        }
    }
    Ok(())
}

fn rank<N: Ni + Send + Sync + 'static>(
    end: N,
    mut launcher: Thread,
    done: &AtomicU32,
    settings: &Settings,
) -> Result<()> {
    let engine = Engine::<N, Par>::start(end, &mut launcher, settings)?;
    let come = Arc::new(Come::default());
    engine
        .memory()
        .attach(&mut launcher, &mut handlers(&come), COUNTER + 8)?;
    let ended: Result<Vec<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn({
                    let engine = &engine;
                    move || thread(engine, number)
                })
            })
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        joined.collect()
    });
    ended?;
    let sent = u64::from(RANKS * THREADS * ROUNDS);
    engine.wait_until(|| {
        come.requests.load(Relaxed) == sent && come.replies.load(Relaxed) == sent / 2
    })?;
    engine.barriers().barrier(Value::Anonymous)?;
    assert_eq!(engine.rma().get_value(engine.rank(), COUNTER, 8)?, sent);
    // Others may still need messages that this rank has to forward.
    let mut is_done = false;
    while done.load(Relaxed) < RANKS {
        engine.poll()?;
        if !is_done && engine.is_quiet()? {
            is_done = true;
            done.fetch_add(1, Relaxed);
        }
    }
    Ok(())
}

fn run<N: Ni + Send + Sync + 'static>(ends: Vec<N>, seed: u64) {
    let settings = Settings {
        checks: seed.is_multiple_of(2),
        shuffle: (seed > 2).then_some(seed as u32),
        spin: Some(1),
        yields: 100,
        ..small::settings()
    };
    // The number of ranks that are done.
    let done = AtomicU32::new(0);
    let ends = Chaos::job(ends, Disorder::seeded(seed));
    std::thread::scope(|scope| {
        for (launcher, end) in pmi::threads::job(RANKS).into_iter().zip(ends) {
            let (done, settings) = (&done, &settings);
            scope.spawn(move || {
                let number = launcher.rank();
                let run = || rank(end, launcher, done, settings);
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
                if !matches!(ended, Ok(Ok(()))) {
                    // The others would wait for this rank forever.
                    eprintln!("rank {number}, seed {seed}: {:?}", ended.map_err(drop));
                    std::process::exit(101);
                }
            });
        }
    });
}

#[test]
fn over_shared_memory() {
    for (seed, windows) in [(1, false), (2, true), (3, false), (4, true)] {
        let config = ShmConfig {
            windows,
            ..small::network()
        };
        let ends = job::in_process::<Par>(RANKS, &config);
        run(ends.expect("the network starts"), seed);
    }
}

#[test]
fn over_udp() {
    for (seed, faults) in [
        (1, udp::faults(1)),
        (2, Default::default()),
        (3, udp::faults(3)),
        (4, Default::default()),
    ] {
        let mut config = UdpConfig {
            faults,
            ..udp::config(1500)
        };
        config.portals.max_managed = 1024;
        config.portals.inject_size = 1024;
        let ends = in_process::<Par>(RANKS, &config);
        run(ends.expect("the network starts"), seed);
    }
}
