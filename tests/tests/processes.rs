//! The several-process programs over shared memory and over UDP, each as jobs of two and of four ranks, and over UDP with
//! packets that suffer.

use std::time::Duration;

use conduit_tests::job::{Finished, Job};

const LAUNCH: &str = env!("CARGO_BIN_EXE_launch");
const RANK: &str = env!("CARGO_BIN_EXE_rank");

fn run(ranks: u32, program: &str) -> Finished {
    Job::new(LAUNCH, ranks, RANK, &[program])
        .run()
        .expect("nothing is left behind")
}

#[track_caller]
fn succeeds(ranks: u32, program: &str) {
    let finished = run(ranks, program);
    assert_eq!(finished.code, Some(0), "{ranks} ranks: {finished:#?}");
}

/// The same over another network.
fn run_over(ranks: u32, program: &str, network: &str) -> Finished {
    Job::new(LAUNCH, ranks, RANK, &[program, network])
        .run()
        .expect("nothing is left behind")
}

#[track_caller]
fn succeeds_over(ranks: u32, program: &str, network: &str) {
    let finished = run_over(ranks, program, network);
    assert_eq!(finished.code, Some(0), "{ranks} ranks: {finished:#?}");
}

macro_rules! programs {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                for ranks in [2, 4] {
                    succeeds(ranks, stringify!($name));
                }
            }
        )+
        mod udp {
            $(
                #[test]
                fn $name() {
                    for ranks in [2, 4] {
                        super::succeeds_over(ranks, stringify!($name), "udp");
                    }
                }
            )+
        }
        mod udp_with_faults {
            $(
                #[test]
                fn $name() {
                    super::succeeds_over(2, stringify!($name), "faults");
                }
            )+
        }
    };
}

programs! {
    hello
    token_ring
    all_to_all
    flood_one
    flood_each_other
    inject_flood
    managed_for_ever
    sleep_and_wake
    puts_between_all
    gets_between_all
    windows
    atomics_add_up
    compare_and_swap
    large_transfers
}

#[test]
fn a_job_of_one() {
    for program in ["hello", "all_to_all", "puts_between_all", "atomics_add_up"] {
        succeeds(1, program);
    }
}

#[test]
fn more_ranks_than_processors() {
    for program in ["hello", "all_to_all", "windows"] {
        succeeds(16, program);
    }
}

#[test]
fn the_first_exit_code_is_the_jobs() {
    let finished = run(3, "leave_early");
    assert_eq!(finished.code, Some(7), "{finished:#?}");
}

#[test]
fn a_killed_rank_ends_the_job() {
    let finished = run(4, "die_in_a_flood");
    assert_eq!(finished.code, Some(128 + 9), "{finished:#?}");
}

#[test]
fn jobs_over_udp_end_like_others() {
    succeeds_over(1, "all_to_all", "udp");
    succeeds_over(16, "all_to_all", "udp");
    let finished = run_over(3, "leave_early", "udp");
    assert_eq!(finished.code, Some(7), "{finished:#?}");
    let finished = run_over(4, "die_in_a_flood", "udp");
    assert_eq!(finished.code, Some(128 + 9), "{finished:#?}");
}

#[test]
fn the_limit_ends_a_job_that_does_not() {
    let job = Job::new(LAUNCH, 2, RANK, &["never_end"]).limit(Duration::from_millis(500));
    let finished = job.run().expect("the harness can end it");
    assert_eq!(finished.code, None, "{finished:#?}");
}

#[test]
fn an_unknown_program_is_an_error() {
    let finished = run(2, "no_such_program");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(finished.stderr.contains("no_such_program"));
}
