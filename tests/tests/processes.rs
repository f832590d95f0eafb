//! The several-process programs over shared memory and over UDP, each as jobs of two and of four
//! ranks, and over UDP with packet faults.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use conduit_tests::job::{Finished, Job};
use conduit_tests::pace;
use conduit_tests::scan::{Mapping, Patterns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

fn run(ranks: u32, program: &str) -> Finished {
    Job::new(HELPER, ranks, HELPER, &["rank", program])
        .run()
        .expect("nothing is left behind")
}

#[track_caller]
fn succeeds(ranks: u32, program: &str) {
    let finished = run(ranks, program);
    assert_eq!(finished.code, Some(0), "{ranks} ranks: {finished:#?}");
}

/// Runs a program over another network.
fn run_over(ranks: u32, program: &str, network: &str) -> Finished {
    Job::new(HELPER, ranks, HELPER, &["rank", program, network])
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
    let job = Job::new(HELPER, 2, HELPER, &["rank", "never_end"]).limit(Duration::from_millis(500));
    let finished = job.run().expect("the harness ends it");
    assert_eq!(finished.code, None, "{finished:#?}");
}

#[test]
fn an_unknown_program_is_an_error() {
    let finished = run(2, "no_such_program");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    assert!(finished.stderr.contains("no_such_program"));
}

/// Returns the next rank that connects, and its process id.
fn caller(listener: &UnixListener) -> (UnixStream, u32) {
    let limit = Timespec::try_from(pace::HANG).unwrap();
    let called = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit));
    assert_eq!(called, Ok(1), "no rank connects");
    let (rank, _) = listener.accept().unwrap();
    rank.set_read_timeout(Some(pace::HANG)).unwrap();
    let mut line = String::new();
    BufReader::new(&rank).read_line(&mut line).unwrap();
    (rank, line.trim().parse().unwrap())
}

/// While a job runs, its ranks keep their secrets only in guarded pages: neither the launcher nor
/// another rank has them in memory, except those that two ranks share. The same holds for a link's
/// keys, which are derived from secrets, together with their salts. A key alone is also where a
/// cipher had it: on stacks, and in moved copies of its fields. The content of the file with the
/// job's secret is in no memory at all.
#[test]
fn secrets_are_in_guarded_pages_alone() {
    const RANKS: u32 = 2;
    const KEY: usize = 16;
    const SALT: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let [socket, file] = ["socket", "secret"].map(|name| folder.path().join(name));
    let content: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(4096)
        .collect();
    fs::write(&file, &content).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let job = Job::new(HELPER, RANKS, HELPER, &["stay", socket.to_str().unwrap()])
        .env("CONDUIT_NETWORK", "udp")
        .env("CONDUIT_UDP_INTERFACE", "lo")
        .env("CONDUIT_SECRET_FILE", file.to_str().unwrap())
        .env("CONDUIT_MAX_SEGMENT", "4M");
    let job = job.start().unwrap();
    let launcher = job.pid().as_raw_nonzero().get().cast_unsigned();
    let ranks: Vec<_> = (0..RANKS).map(|_| caller(&listener)).collect();

    let (mut kept, mut keys) = (Vec::new(), Vec::new());
    for (_, process) in &ranks {
        let mut pages = Vec::new();
        for mapping in Mapping::all(*process).unwrap() {
            if mapping.guarded {
                let bytes = mapping.read(*process).unwrap();
                let each = bytes.chunks(rustix::param::page_size());
                pages.extend(each.map(<[u8]>::to_vec));
            }
        }
        // The rank's own number, the job's secret, the secret shared with the other rank, and the
        // keys of their link, which are the longest.
        let length = |page: &Vec<u8>| page.iter().rposition(|byte| *byte != 0);
        pages.retain(|page| length(page).is_some());
        assert_eq!(pages.len(), 4);
        pages.sort_by_key(length);
        let link = pages.pop().unwrap();
        // A key and its salt for each direction, then the peer's number, which has one byte that is
        // not zero.
        let first = length(&link).unwrap() - 2 * (KEY + SALT);
        for salted in link[first..].chunks(KEY + SALT).take(2) {
            keys.push(Patterns::of(&salted[KEY - SALT..]));
        }
        kept.extend(pages.concat());
    }
    let mut secrets = vec![
        ("a rank's secret", Patterns::of(&kept)),
        ("the file's content", Patterns::of(&content)),
    ];
    secrets.extend(keys.into_iter().map(|key| ("a key with its salt", key)));
    let mut seen = vec![false; secrets.len()];
    let processes = ranks.iter().map(|(_, process)| *process);
    for process in processes.chain([launcher]) {
        for mapping in Mapping::all(process).unwrap() {
            let bytes = mapping.read(process).unwrap();
            for ((name, patterns), seen) in secrets.iter().zip(&mut seen) {
                let found = patterns.found_in(&bytes);
                let may_be = *name != "the file's content" && mapping.guarded;
                assert!(
                    found.is_empty() || may_be && process != launcher,
                    "{name} is in process {process} (the launcher is {launcher}) at {found:x?} of {mapping:x?}"
                );
                *seen |= !found.is_empty();
            }
        }
    }
    assert_eq!(
        seen,
        [true, false, true, true, true, true],
        "secrets that were found"
    );
    drop(ranks);
    let finished = job.wait().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:#?}");
}
