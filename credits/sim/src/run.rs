//! A run of the simulator, and the runs with which it is compared.

use std::time::Instant;

use credits::{Dynamic, Peer, Sparse, Static, Unlimited};
use sim::Progress;

use crate::config::{Config, REFERENCE_STEPS, Scheme, Space, Subject};
use crate::report::{Effort, EqualStatic, Report, Rotation, Step, Summary, mean};
use crate::world::{SimError, World};

/// The results of one simulation of all rotations.
struct Outcome {
    rotations: Vec<Vec<Step>>,
    largest_loan: u64,
    events: u64,
    peers_kept: Option<f64>,
    seconds: f64,
}

/// Simulates a configuration.
///
/// # Errors
/// Fails if the configuration cannot be simulated, or if the flow control violates its own rules.
pub fn run(config: &Config, progress: &Progress) -> Result<Report, SimError> {
    config.check()?;
    let outcome = simulate(config, config.scheme, config.steps, progress)?;
    let reference = match config.scheme {
        Scheme::Unlimited => Some(times(&outcome)),
        _ if config.reference > 0 => Some(reference(config, progress)?),
        _ => None,
    };
    let epoch = config.scheme.tuning().epoch;
    let rotations: Vec<Rotation> = outcome
        .rotations
        .iter()
        .enumerate()
        .map(|(number, steps)| {
            let reference = reference.as_ref().map(|times| times[number]);
            Rotation::new(steps, reference, epoch)
        })
        .collect();
    let steps: Vec<Step> = outcome.rotations.into_iter().flatten().collect();
    let lent = config.scheme.credits();
    let largest_loan = lent.map(|credits| outcome.largest_loan.max(credits.into()));
    Ok(Report {
        space: config.space(),
        summary: Summary::new(&rotations, &steps, largest_loan),
        rotations,
        steps,
        equal_static: None,
        effort: Effort {
            threads: config.threads,
            seconds: outcome.seconds,
            events: outcome.events,
            events_per_second: outcome.events as f64 / outcome.seconds.max(1e-9),
            peers_kept: outcome.peers_kept,
        },
        config: config.clone(),
    })
}

/// Simulates the job without flow control. Returns the mean time of a step of each rotation.
fn reference(config: &Config, progress: &Progress) -> Result<Vec<f64>, SimError> {
    let random = config.timing.compute > 0 && config.timing.skew > 0.0;
    let steps = if random {
        config.steps
    } else {
        config.steps.min(config.reference)
    };
    simulate(config, Scheme::Unlimited, steps, progress).map(|outcome| times(&outcome))
}

fn times(outcome: &Outcome) -> Vec<f64> {
    let of = |steps: &Vec<Step>| mean(steps.iter().map(|step| step.time_ns as f64));
    let times = outcome.rotations.iter().map(of);
    times.map(|time| time.unwrap_or(0.0)).collect()
}

/// Finds approximately the fewest static credits per peer with which the first rotation reaches at
/// least `speed`, relative to no flow control.
///
/// # Errors
/// Same as [`run`].
pub fn equal_static(
    config: &Config,
    speed: f64,
    progress: &Progress,
) -> Result<Option<EqualStatic>, SimError> {
    config.check()?;
    let config = Config {
        rotations: 1,
        steps: config.steps.min(REFERENCE_STEPS),
        reference: REFERENCE_STEPS,
        ..config.clone()
    };
    let steps = config.steps;
    let reference = reference(&config, progress)?[0];
    let with = |credits: u16| -> Result<f64, SimError> {
        let scheme = Scheme::Static { credits };
        let outcome = simulate(&config, scheme, steps, progress)?;
        Ok(reference / times(&outcome)[0].max(1.0))
    };
    let least = config.scale.full_cost().max(config.cost()).into();
    // This is the maximum number of credits in flight to one peer. More credits would be useless.
    let burst = config.load.messages.min(config.timing.chunks);
    let burst = u64::from(burst) * u64::from(config.cost());
    let most = u16::try_from(burst).unwrap_or(u16::MAX).max(least);

    // The search proceeds upwards in growing strides, and then within the last stride. A plain
    // bisection could miss the smallest number, because speed does not always grow with credits: a
    // rank that may send more is served later by the ranks that it floods.
    let (mut below, mut credits) = (least - 1, least);
    let mut fastest = with(credits)?;
    while fastest < speed {
        if credits == most {
            return Ok(None);
        }
        below = credits;
        credits = (credits + (credits / 4).max(1)).min(most);
        fastest = with(credits)?;
    }
    while credits - below > 1 {
        let middle = below + (credits - below) / 2;
        let speed_there = with(middle)?;
        if speed_there >= speed {
            (credits, fastest) = (middle, speed_there);
        } else {
            below = middle;
        }
    }
    Ok(Some(EqualStatic {
        credits,
        speed: fastest,
        space: Space::new(config.ranks, config.scale, credits, 0),
    }))
}

fn simulate(
    config: &Config,
    scheme: Scheme,
    steps: u32,
    progress: &Progress,
) -> Result<Outcome, SimError> {
    let total = scheme.total(config.ranks);
    match scheme {
        Scheme::Unlimited => simulate_with(config, total, steps, progress, |_| Unlimited),
        Scheme::Static { credits } => simulate_with(config, total, steps, progress, |_| {
            Static::<Sparse<_>>::new(config.ranks, credits, 0)
        }),
        Scheme::Dynamic {
            credits,
            banked,
            tuning,
        } => simulate_with(config, total, steps, progress, |rank| {
            Dynamic::<Sparse<Peer>>::new(config.ranks, rank, credits, banked, tuning)
        }),
    }
}

fn simulate_with<F: Subject>(
    config: &Config,
    total: Option<u64>,
    steps: u32,
    progress: &Progress,
    flow: impl Fn(u32) -> F + Sync,
) -> Result<Outcome, SimError> {
    progress.expect(u64::from(config.rotations) * u64::from(steps));
    let start = Instant::now();
    let mut world = World::new(config, total, flow)?;
    let mut rotations = Vec::new();
    for rotation in 0..config.rotations {
        rotations.push(world.rotation(rotation, steps, || progress.done(1))?);
    }
    Ok(Outcome {
        rotations,
        largest_loan: world.largest_loan,
        events: world.events,
        peers_kept: world.peers_kept(),
        seconds: start.elapsed().as_secs_f64(),
    })
}
