//! Tests that the simulator's figures are within bounds.

use std::collections::BTreeSet;

use lanes_sim::{Figures, Job, Pattern, Rule, run, svg, watch};
use sim::program::Program;

const LANES_SIM: Program = Program(env!("CARGO_BIN_EXE_lanes-sim"));

fn figures(pattern: Pattern) -> [Figures; 2] {
    [Rule::Owner, Rule::Both].map(|rule| run(&Job::new(pattern, rule)).unwrap())
}

#[test]
fn the_few_that_matter_have_lanes_and_keep_them() {
    for pattern in [Pattern::FewHot, Pattern::FewHotAndEachIdle, Pattern::Hub] {
        for figures in figures(pattern) {
            assert!(
                figures.share >= 0.98 * pattern.possible() && figures.moves <= 0.002,
                "{pattern:?}: {figures:?}"
            );
        }
    }
}

#[test]
fn nothing_moves_where_all_send_to_all() {
    for pattern in [Pattern::AllInTurn, Pattern::AllAtRandom] {
        for figures in figures(pattern) {
            assert_eq!((figures.moves, figures.asks), (0.0, 0.0), "{pattern:?}");
        }
    }
}

#[test]
fn equals_do_not_fight_for_too_few_lanes() {
    for figures in figures(Pattern::ManyEqual) {
        let is_good = figures.share >= 0.98 * Pattern::ManyEqual.possible()
            && figures.moves <= 0.002
            && figures.asks <= 0.05;
        assert!(is_good, "{figures:?}");
    }
}

#[test]
fn lanes_follow_traffic_within_sixteen_rounds() {
    for figures in figures(Pattern::Changing) {
        let is_good = figures.settled >= 0.98 * Pattern::Changing.possible()
            && figures.rounds.is_some_and(|rounds| rounds <= 16);
        assert!(is_good, "{figures:?}");
    }
}

/// Every peer with a lane must have had traffic in the preceding rounds.
#[test]
fn a_picture_shows_lanes_beside_the_traffic_that_earned_them() {
    let job = Job {
        rounds: 150,
        ..Job::new(Pattern::Changing, Rule::Owner)
    };
    let moments = watch(&job, 7).unwrap();
    assert!(moments.len() > 100, "{}", moments.len());
    let (mut seen, mut most) = (BTreeSet::<u32>::new(), 0);
    for moment in &moments {
        seen.extend(moment.traffic.keys());
        assert!(moment.lanes.iter().all(|peer| seen.contains(peer)));
        most = most.max(moment.lanes.len());
    }
    assert!(most >= 8, "{most}");
    let svg = svg("a title", &moments).unwrap();
    assert!(svg.contains("a title") && svg.contains("</svg>"));
}

#[test]
fn the_same_seed_gives_the_same() {
    let job = Job {
        rounds: 150,
        ..Job::new(Pattern::Changing, Rule::Both)
    };
    let again = || run(&job).unwrap();
    assert_eq!(format!("{:?}", again()), format!("{:?}", again()));
}

#[test]
#[ignore = "takes minutes"]
fn large_figures_come_out_again() {
    LANES_SIM.renews_figures(|_| true);
}
