//! Tests of whole simulations.

use clap::ValueEnum;
use credit_sim::{Config, Pattern, Report, Scheme, SimError, equal_static, run};
use credits::{Growth, Scale, Tuning};
use sim::Progress;

fn simulate(config: &Config) -> Report {
    run(config, &Progress::hidden()).unwrap_or_else(|error| panic!("{error}: {config:?}"))
}

/// Returns the configuration of a small job with waiting, skew and several rotations.
fn small(pattern: Pattern, ranks: u32) -> Config {
    let mut config = Config {
        scheme: Scheme::Static { credits: 12 },
        rotations: 3,
        steps: 2,
        ..Config::new(ranks, pattern)
    };
    config.load.messages = 20;
    config.timing.compute = 5_000;
    config.timing.skew = 1.0;
    config
}

fn patterns() -> impl Iterator<Item = Pattern> {
    Pattern::value_variants().iter().copied()
}

#[test]
fn the_same_seed_gives_the_same_result_with_any_number_of_threads() {
    for pattern in patterns() {
        let mut config = small(pattern, 50);
        let one = simulate(&config);
        for threads in [1, 2, 3, 7, 64] {
            config.threads = threads;
            let other = simulate(&config);
            assert_eq!(one.steps, other.steps, "{pattern:?}, {threads} threads");
            assert_eq!(one.rotations, other.rotations);
            assert_eq!(one.summary, other.summary);
        }
        config.seed += 1;
        assert_ne!(one.steps, simulate(&config).steps, "{pattern:?}");
    }
}

#[test]
fn every_request_is_sent() {
    for ranks in [1, 2, 3, 16, 50] {
        for pattern in patterns() {
            let config = small(pattern, ranks);
            let (n, messages) = (u64::from(ranks), 20);
            let others = n - 1;
            let per_step = match pattern {
                // The tori of 2 and 3 ranks, 1 x 1 x 2 and 1 x 1 x 3, have neighbours in one
                // direction only.
                Pattern::Ghost => match ranks {
                    1 => 0,
                    2 | 3 => n * 2 * messages,
                    16 => n * 6 * messages,
                    // The torus is 2 x 5 x 5.
                    50 => n * 6 * messages,
                    _ => unreachable!(),
                },
                Pattern::Tree => 2 * others * messages * u64::from(config.load.repeat),
                Pattern::Alltoall => n * others * messages,
                Pattern::Hotspot => others * messages,
                Pattern::Pairs => n / 2 * 2 * messages,
                Pattern::Oddpoll if n == 1 => 0,
                Pattern::Oddpoll => n.div_ceil(2) * 4 * messages,
                // A rank that is its own partner sends nothing.
                Pattern::Chain if n < 16 => continue,
                Pattern::Chain => n * 4 * messages,
            };
            for step in simulate(&config).steps {
                assert_eq!(step.requests, per_step, "{pattern:?}, {ranks} ranks");
            }
        }
    }
}

#[test]
fn credits_for_a_whole_burst_change_nothing() {
    for pattern in patterns() {
        let mut config = small(pattern, 27);
        config.scheme = Scheme::Unlimited;
        let unlimited = simulate(&config);
        config.scheme = Scheme::Static { credits: 80 };
        let fixed = simulate(&config);
        assert_eq!(unlimited.steps, fixed.steps, "{pattern:?}");
        assert_eq!(fixed.summary.stalls, 0, "{pattern:?}");
    }
}

#[test]
fn a_round_trip_for_each_request_takes_longer() {
    // In these patterns, each rank serves one other rank at a time.
    for pattern in [Pattern::Pairs, Pattern::Oddpoll, Pattern::Tree] {
        let mut speeds = Vec::new();
        for credits in [4, 8, 400] {
            let mut config = Config::new(27, pattern);
            config.scheme = Scheme::Static { credits };
            config.load.fan = 1;
            speeds.push(simulate(&config).summary.speed.unwrap());
        }
        assert!(speeds.is_sorted(), "{pattern:?}: {speeds:?}");
        assert!(
            speeds[0] < 0.5 && speeds[2] > 0.99,
            "{pattern:?}: {speeds:?}"
        );
    }
}

#[test]
fn few_credits_slow_ghost_zones_down() {
    let mut config = Config::new(64, Pattern::Ghost);
    config.scheme = Scheme::Static { credits: 4 };
    config.steps = 1;
    let report = simulate(&config);
    assert!(report.summary.speed.unwrap() < 0.3);
    assert!(report.summary.stalls > report.summary.requests * 9 / 10);
    // Each of six neighbours has one request of 4 credits waiting at most.
    assert!(report.summary.waiting <= 24);
    assert_eq!(report.space.unwrap().bytes, 64 * 4 * 384);
}

#[test]
fn the_fewest_static_credits_are_just_enough() {
    let config = Config::new(27, Pattern::Ghost);
    let found = equal_static(&config, 0.95, &Progress::hidden())
        .unwrap()
        .unwrap();
    let speed = |credits| {
        let config = Config {
            scheme: Scheme::Static { credits },
            rotations: 1,
            steps: 3,
            ..config.clone()
        };
        simulate(&config).summary.speed.unwrap()
    };
    assert_eq!(speed(found.credits), found.speed);
    assert!(found.speed >= 0.95 && speed(found.credits - 1) < 0.95);
    assert_eq!(
        equal_static(&config, 1.5, &Progress::hidden()).unwrap(),
        None
    );
}

#[test]
fn inattentive_ranks_need_more_credits() {
    // One of the two ranks computes longer. Meanwhile the other can either send to it or wait,
    // depending on its credits.
    let speed = |credits, compute_polls| {
        let mut config = Config::new(2, Pattern::Oddpoll);
        config.scheme = Scheme::Static { credits };
        config.timing.compute = 100_000;
        config.timing.skew = 3.0;
        config.timing.compute_polls = compute_polls;
        config.timing.serve = 50;
        config.timing.serve_credit = 0;
        config.load.fan = 1;
        config.load.messages = 400;
        simulate(&config).summary.speed.unwrap()
    };
    assert_eq!(speed(1600, 0), 1.0);
    assert!(speed(32, 0) < 0.95);
    assert!(speed(32, 1000) > speed(32, 0));
}

#[test]
fn what_cannot_be_simulated_is_refused() {
    let refused = |change: fn(&mut Config)| {
        let mut config = Config::new(8, Pattern::Ghost);
        change(&mut config);
        match run(&config, &Progress::hidden()) {
            Err(SimError::Config(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(|c| c.ranks = 0).contains("number of ranks is 0"));
    assert!(refused(|c| c.ranks = u32::MAX).contains("1 to 1000000"));
    assert!(refused(|c| c.scheme = Scheme::Static { credits: 3 }).contains("3 credits per peer"));
    assert!(refused(|c| c.load.cost = 9).contains("1 to 8"));
    assert!(refused(|c| c.load.hot = 9).contains("hot ranks"));
    assert!(refused(|c| c.timing.latency = 0).contains("latency"));
    assert!(refused(|c| c.timing.bandwidth = f64::NAN).contains("bandwidth"));
    assert!(refused(|c| c.timing.skew = -1.0).contains("skew"));
    assert!(refused(|c| c.timing.serve = u64::MAX).contains("10 s"));
    assert!(refused(|c| c.steps = 0).contains("steps"));
    assert!(refused(|c| c.rotations = 0).contains("rotations"));
    assert!(refused(|c| c.threads = 0).contains("threads"));
    let many = |c: &mut Config| {
        c.ranks = 1_000_000;
        c.scheme = Scheme::Static { credits: 50_000 };
    };
    assert!(refused(many).contains("can be counted"));
}

/// Sets dynamic credits with few credits lent to each rank, `banked` credits in the bank, and loans
/// that double.
fn moving(config: &mut Config, banked: u32, revokes_per_epoch: u32) {
    config.scheme = Scheme::Dynamic {
        credits: 4,
        banked,
        tuning: Tuning {
            growth: Growth::Doubling,
            max_per_peer: 640,
            lender_limit: 640,
            revoke_limit: 640,
            revokes_per_epoch,
            ..Tuning::default()
        },
    };
}

#[test]
fn a_pattern_that_lasts_comes_to_rest_nearly_as_fast_as_without_flow_control() {
    let mut config = Config::new(27, Pattern::Ghost);
    // The bank suffices for two sets of partners. For the third set, the first partners have to
    // give credits back.
    moving(&mut config, 9_000, 4);
    config.rotations = 3;
    config.steps = 60;
    let report = simulate(&config);
    let summary = &report.summary;
    assert!(summary.returned > 0, "{summary:?}");
    assert!(summary.steps_until_rest.is_some(), "{summary:?}");
    assert!(summary.speed_worst.unwrap() >= 0.95, "{summary:?}");
    assert!(summary.steps_until_calm.unwrap() <= 4, "{summary:?}");
    assert!(summary.speed_first.unwrap() >= 0.9, "{summary:?}");
    assert!(summary.system_worst < 10.0, "{summary:?}");
    // At rest, there are no system messages.
    for (rotation, steps) in report.rotations.iter().zip(report.steps.chunks(60)) {
        let rest = rotation.steps_until_rest.unwrap() as usize;
        assert!(steps[rest..].iter().all(|step| step.system == 0));
    }
}

#[test]
fn a_pace_ends_the_taking_and_giving_where_not_all_can_have_enough() {
    let run = |revokes_per_epoch| {
        let mut config = Config::new(256, Pattern::Hotspot);
        moving(&mut config, 1_000, revokes_per_epoch);
        config.rotations = 1;
        config.steps = 20;
        simulate(&config)
    };
    let (paced, original) = (run(4), run(u32::MAX));
    let (paced, original) = (paced.summary, original.summary);
    assert!(paced.system_worst < 10.0, "{paced:?}");
    assert!(original.system_worst > 50.0, "{original:?}");
    assert!(paced.speed >= original.speed, "{paced:?} {original:?}");
}

#[test]
fn ranks_that_poll_now_and_then_are_slower() {
    for pattern in patterns() {
        let mut times = Vec::new();
        for gap in [0, 1, 20_000] {
            let mut config = small(pattern, 27);
            config.timing.poll_gap = gap;
            let steps = simulate(&config).steps;
            times.push(steps.iter().map(|step| step.time_ns).sum::<u64>());
        }
        // A poll gap of one nanosecond is equivalent to constant polling.
        assert_eq!(times[0], times[1], "{pattern:?}");
        assert!(times[2] > times[0], "{pattern:?}: {times:?}");
    }
}

#[test]
fn ghost_zones_rest_at_full_speed_with_what_ships() {
    for (chunk, job) in [
        (1024, 216),
        (1024, 10_000),
        (1024, 1_000_000),
        (17 * 1024, 10_000),
    ] {
        // Loans and bank are those of a job of `job` ranks, although only 216 ranks are simulated.
        let scale = Scale::for_chunk(chunk).unwrap();
        let mut config = Config::with_scale(job, Pattern::Ghost, scale);
        config.ranks = 216;
        config.load.hot = 1;
        (config.rotations, config.steps, config.reference) = (1, 8, 1);
        let report = simulate(&config);
        let last = &report.steps[6..];
        let requests: u64 = last.iter().map(|step| step.requests).sum();
        let stalls: u64 = last.iter().map(|step| step.stalls).sum();
        assert!(
            stalls * 1000 < requests * 2,
            "{chunk}, {job}: {stalls} of {requests}"
        );
        assert!(
            report.summary.speed.unwrap() >= 0.98,
            "{chunk}, {job}: {:?}",
            report.summary
        );
    }
}
