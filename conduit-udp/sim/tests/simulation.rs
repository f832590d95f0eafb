//! Scenarios of the simulator that must have no violations.

use conduit_udp_sim::scenario::{Fault, Path, Pattern, Phase, Sizes};
use conduit_udp_sim::{Scenario, Until, measure, run};
use sim::MS;

fn check(name: &str, scenario: &Scenario) -> conduit_udp_sim::Report {
    let report = run(scenario, Until::Done);
    let wrong: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(report.has_passed(), "{name}: {wrong:#?}\n{scenario:#?}");
    report
}

#[test]
fn a_few_hundred_seeds() {
    let mut idle = 0;
    for seed in 0..400 {
        let report = run(&Scenario::from_seed(seed), Until::Done);
        let counters = report.counters.iter();
        idle += counters
            .filter(|(name, _)| *name == "made_idle")
            .map(|(_, count)| count)
            .sum::<u64>();
        let wrong: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        assert!(
            report.has_passed(),
            "udp-sim --seed {seed} --verbose: {wrong:#?}"
        );
    }
    assert!(idle > 10_000, "links were idle {idle} times");
}

#[test]
fn a_seed_is_the_same_every_time() {
    for seed in [3, 40, 77] {
        let reports = [0, 1]
            .map(|_| serde_json::to_string(&run(&Scenario::from_seed(seed), Until::Done)).unwrap());
        assert_eq!(reports[0], reports[1]);
    }
}

/// Returns two ranks on a default network without faults.
fn two() -> Scenario {
    let mut scenario = bench().scenario(1, 0.0);
    scenario.phases = vec![Phase {
        begin: 0,
        pattern: Pattern::Pairs,
        fragments: 60,
        sizes: Sizes::Mixed,
        gap: 0,
        burst: 1,
    }];
    scenario.protocol.dead_time = 1000 * MS;
    scenario.protocol.mtu_timeout = 1000 * MS;
    scenario.protocol.probe_interval = 25 * MS;
    scenario
}

fn bench() -> measure::Bench {
    measure::Bench {
        latency: 20,
        bandwidth: 10.0,
        packet: 1472,
        socket: 4 << 20,
        queue: 1 << 20,
        time: 40,
        sizes: Sizes::Stream,
        seed: 1,
    }
}

#[test]
fn everything_arrives_whatever_the_network_does() {
    let usual = Path::perfect(20_000);
    let paths = [
        ("nothing", usual.clone()),
        (
            "30 % of the packets lost",
            Path {
                loss: 0.3,
                ..usual.clone()
            },
        ),
        (
            "bursts of lost packets",
            Path {
                loss: 0.05,
                burst: 12.0,
                ..usual.clone()
            },
        ),
        (
            "all pure acknowledgements lost",
            Path {
                ack_loss: 1.0,
                ..usual.clone()
            },
        ),
        (
            "all packets duplicated",
            Path {
                duplicate: 1.0,
                ..usual.clone()
            },
        ),
        (
            "all packets reordered",
            Path {
                jitter: MS,
                ..usual.clone()
            },
        ),
        (
            "a tenth of the packets corrupted",
            Path {
                corrupt: 0.1,
                ..usual.clone()
            },
        ),
        (
            "half of the packets replayed",
            Path {
                replay: 0.5,
                replay_after: 300 * MS,
                ..usual.clone()
            },
        ),
        (
            "a forged packet for each one",
            Path {
                forge: 1.0,
                ..usual
            },
        ),
    ];
    for (name, path) in paths {
        for first_sequence in [0, (1 << 24) - 20] {
            let mut scenario = Scenario {
                path: path.clone(),
                ..two()
            };
            scenario.protocol.first_sequence = first_sequence;
            let report = check(name, &scenario);
            assert_eq!(report.fragments, 120, "{name}");
            assert!(report.failures.is_empty());
        }
    }
}

fn failures(name: &str, scenario: &Scenario) -> Vec<(usize, String)> {
    let report = check(name, scenario);
    report
        .failures
        .into_iter()
        .map(|failure| (failure.by, failure.failure))
        .collect()
}

#[test]
fn outages_end_as_they_should() {
    let begin = 2 * MS;
    let cases: [(&str, Vec<Fault>, &[&str]); 8] = [
        (
            "a short outage of one direction",
            vec![Fault::BlackHole {
                from: 0,
                to: 1,
                begin,
                end: Some(500 * MS),
            }],
            &[],
        ),
        (
            "a cable pulled and plugged in again",
            vec![Fault::LinkDown {
                rank: 1,
                begin,
                end: Some(700 * MS),
            }],
            &[],
        ),
        (
            "a pulled cable",
            vec![Fault::LinkDown {
                rank: 1,
                begin,
                end: None,
            }],
            &["silent", "silent"],
        ),
        (
            "a permanent outage of one direction",
            vec![Fault::BlackHole {
                from: 0,
                to: 1,
                begin,
                end: None,
            }],
            &["silent", "silent"],
        ),
        (
            "an unreachable peer",
            vec![Fault::LinkDown {
                rank: 1,
                begin: 0,
                end: None,
            }],
            &["unreachable", "unreachable"],
        ),
        (
            "a small MTU",
            vec![Fault::SmallMtu {
                from: 0,
                to: 1,
                bytes: 1400,
            }],
            &["MTU is smaller", "silent"],
        ),
        (
            "a busy rank",
            vec![Fault::Busy {
                rank: 1,
                begin,
                end: 4000 * MS,
            }],
            &[],
        ),
        (
            "a new process in a rank's place",
            vec![Fault::Restart { rank: 1, at: begin }],
            &["silent"],
        ),
    ];
    for (name, faults, expected) in cases {
        let mut scenario = Scenario { faults, ..two() };
        scenario.phases[0].gap = MS / 10;
        let failures = failures(name, &scenario);
        assert_eq!(failures.len(), expected.len(), "{name}: {failures:?}");
        for ((by, failure), expected) in failures.iter().zip(expected) {
            assert!(failure.contains(expected), "{name}: by {by}: {failure}");
        }
    }
}

#[test]
fn new_processes_begin_anew_while_old_packets_are_still_under_way() {
    let mut scenario = two();
    scenario.path = Path {
        replay: 1.0,
        replay_after: 500 * MS,
        ..Path::perfect(20_000)
    };
    scenario.faults = vec![Fault::RestartAll { at: MS }];
    scenario.phases.push(Phase {
        begin: 2 * MS,
        ..scenario.phases[0].clone()
    });
    let report = check("restart", &scenario);
    assert!(measure::counter(&report, "bad_tag") > 0, "{report:?}");
    assert!(report.fragments >= 120 && report.failures.is_empty());
}

#[test]
fn loss_of_one_per_cent_costs_less_than_half() {
    let [none, one] = [0.0, 0.01].map(|loss| bench().measure(1, loss));
    assert!(none.part > 0.8, "{none:?}");
    assert!(one.goodput > none.goodput / 2.0, "{none:?} {one:?}");
}

#[test]
fn many_to_one_does_not_collapse() {
    for senders in [2, 8, 32] {
        let measured = bench().measure(senders, 0.0);
        assert!(
            measured.part > 0.7 && measured.violations == 0,
            "{measured:?}"
        );
    }
}

#[test]
fn an_oracle_that_sees_nothing_wrong_would_be_blind() {
    // The oracle expects ranks to survive an outage just shorter than the dead time. With so few
    // probes, they do not survive it, and the oracle has to report that.
    let mut scenario = two();
    scenario.phases[0].gap = MS / 10;
    scenario.faults = vec![Fault::LinkDown {
        rank: 1,
        begin: MS,
        end: Some(MS + scenario.protocol.dead_time - 1),
    }];
    scenario.protocol.probe_interval = scenario.protocol.dead_time;
    let report = run(&scenario, Until::Done);
    let text: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(
        text.iter().any(|text| text.contains("is given up")),
        "{text:?}"
    );
}
