//! Jobs over a libfabric with faults: memory that can't be registered, devices that vanish, missing
//! atomics, calls that have to be repeated (see the crate `refusing-fabric`).

use std::time::Duration;

use conduit_tests::hosts::DEAD_TIME;
use conduit_tests::job::{Finished, Job};
use conduit_tests::{ofi, pace};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// The rank with the faults.
const FAULTY: u32 = 1;
/// The time from a fault to the end of the job, on an idle system: the dead time, half of it again,
/// and the time that the launcher and the ranks wait for each other.
const END: Duration = Duration::from_secs(20);

/// A job of three ranks on this host, in which one rank or all ranks have a device with these
/// faults, after they have run a shell command.
struct Faulty<'a> {
    provider: &'a str,
    domain: &'a str,
    faults: &'a str,
    before: &'a str,
    everywhere: bool,
}

impl Default for Faulty<'_> {
    fn default() -> Self {
        Self {
            provider: "tcp",
            domain: "lo",
            faults: "",
            before: "true",
            everywhere: false,
        }
    }
}

impl Faulty<'_> {
    #[track_caller]
    fn run(&self, arguments: &[&str], dead_time: Duration, limit: Duration) -> Finished {
        let Self {
            provider,
            domain,
            faults,
            before,
            everywhere,
        } = self;
        let script = format!(
            "if {everywhere} || [ $PMI_RANK = {FAULTY} ]; then \
                 export CONDUIT_OFI_DOMAIN='{domain}!{faults}'; {before}; \
             fi; exec \"$@\""
        );
        let wrapped = [&["-c", &script, "faulty", HELPER], arguments].concat();
        let library = ofi::refusing();
        let finished = Job::new(HELPER, 3, "sh", &wrapped)
            .env("CONDUIT_NETWORK", "ofi")
            .env("CONDUIT_OFI_LIBRARY", &library.to_string_lossy())
            .env("CONDUIT_OFI_PROVIDER", provider)
            .env("CONDUIT_OFI_DOMAIN", domain)
            .env("CONDUIT_OFI_DEAD_TIME", &milliseconds(dead_time))
            .env(refusing_fabric::FAULTS, faults)
            .env("RUST_BACKTRACE", "0")
            .limit(limit)
            .run()
            .expect("nothing is left behind");
        println!(
            "{faults}: {:?}, {:?}: {}",
            finished.code, finished.time, finished.stderr
        );
        finished
    }

    /// Requires that the job succeeds. No rank is found silent, however long its answer to a ping
    /// takes.
    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> Finished {
        let finished = self.run(arguments, pace::HANG, pace::HANG);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:#?}");
        finished
    }

    /// Requires that the job ends with an error that has these words.
    #[track_caller]
    fn fails(&self, arguments: &[&str], words: &[&str]) -> Finished {
        let (dead_time, end) = (pace::scaled(DEAD_TIME), pace::scaled(END));
        let finished = self.run(arguments, dead_time, end);
        assert_eq!(finished.code, Some(1), "{finished:#?}");
        for word in words {
            assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
        }
        finished
    }
}

fn milliseconds(time: Duration) -> String {
    time.as_millis().to_string()
}

#[test]
fn memory_that_may_not_be_locked() {
    // Less than the network's own buffers, and less than a segment.
    for (kilobytes, limit) in [(100, "102400"), (5000, "5120000")] {
        let job = Faulty {
            faults: "verbs,memlock",
            before: &format!("ulimit -l {kilobytes}"),
            ..Faulty::default()
        };
        let words = [
            "rank 1",
            "fi_mr_reg",
            "Cannot allocate memory",
            limit,
            "ulimit -l",
            "CONDUIT_OFI_PROVIDER",
        ];
        job.fails(&["calls", "seq"], &words);
    }
}

/// Enough for what has to be registered, but for nothing else: puts from other memory are sent as
/// messages.
#[test]
fn memory_that_may_be_locked_in_part() {
    let job = Faulty {
        faults: "verbs,refuse-own",
        before: "export CONDUIT_OFI_STATISTICS=1",
        everywhere: true,
        ..Faulty::default()
    };
    let finished = job.succeeds(&["calls", "seq"]);
    assert!(finished.stderr.contains(" unregistered "), "{finished:#?}");
}

/// A device that reports its loss. Any rank may be the first to print an error: one that detects a
/// failed peer may wait for the launcher to say more.
#[test]
fn a_device_that_vanishes() {
    for way in ["vanish", "gone"] {
        for after in [1, 9, 30, 1000] {
            let faults = format!("{way}={after}");
            let job = Faulty {
                faults: &faults,
                ..Faulty::default()
            };
            let finished = job.fails(&["storm", "all"], &["rank 1"]);
            let own = [
                "rank 1's own endpoint (tcp on lo!",
                ") has failed: ",
                "CONDUIT_OFI_DOMAIN",
            ];
            let is_own = own.iter().all(|word| finished.stderr.contains(word));
            let others = [
                "Transport endpoint is not connected",
                "Operation canceled",
                "Connection reset",
                "has been silent",
                "provider tcp: fi_recv: No such device",
            ];
            let is_others = others.iter().any(|word| finished.stderr.contains(word));
            assert!(is_own || is_others, "{finished:#?}");
        }
    }
}

/// A device that reports nothing: calls succeed without an effect, or have to be repeated forever.
#[test]
fn a_device_that_falls_silent() {
    for way in ["silent", "stuck"] {
        for after in [30, 1000] {
            let faults = format!("{way}={after}");
            let job = Faulty {
                faults: &faults,
                ..Faulty::default()
            };
            job.fails(&["storm", "all"], &["rank 1"]);
        }
    }
}

/// A library call that doesn't return: the rank's other threads wait for its end.
#[test]
fn a_call_that_hangs() {
    for after in [30, 1000] {
        let faults = format!("hang={after}");
        let job = Faulty {
            faults: &faults,
            ..Faulty::default()
        };
        let words = ["rank 1: a libfabric call ", "CONDUIT_OFI_DEAD_TIME"];
        job.fails(&["storm", "all"], &words);
    }
}

/// A killed rank, which leaves all of its device's locks and buffers as they are. A shell stays in
/// its place, so that the launcher does not notice and the other ranks have to.
#[test]
fn a_killed_rank_is_missed() {
    let script = "
        [ $PMI_RANK = 1 ] || exec \"$@\"
        mkfifo \"$PIPE\"
        \"$@\" > \"$PIPE\" &
        read -r line < \"$PIPE\"
        kill -9 $!
        wait
        trap \"rm -f /dev/shm/ofi-$!-*; exit\" TERM
        sleep 100 &
        wait";
    for library in ofi::libraries() {
        for (provider, domain) in ofi::PROVIDERS {
            for storm in ["puts", "all"] {
                let folder = tempfile::tempdir().expect("a folder");
                let pipe = folder.path().join("pipe");
                let finished = Job::new(
                    HELPER,
                    3,
                    "sh",
                    &["-c", script, "killed", HELPER, "storm", storm],
                )
                .env("PIPE", &pipe.to_string_lossy())
                .env("CONDUIT_NETWORK", "ofi")
                .env("CONDUIT_OFI_LIBRARY", library.name)
                .env("CONDUIT_OFI_PROVIDER", provider)
                .env(
                    "CONDUIT_OFI_DEAD_TIME",
                    &milliseconds(pace::scaled(DEAD_TIME)),
                )
                .env("RUST_BACKTRACE", "0")
                .limit(pace::scaled(END));
                let finished = match domain {
                    Some(domain) => finished.env("CONDUIT_OFI_DOMAIN", domain),
                    None => finished,
                };
                let finished = finished.run().expect("nothing is left behind");
                println!("{}, {provider}, {storm}: {finished:#?}", library.name);
                assert_eq!(finished.code, Some(1), "{finished:#?}");
                // A rank that hangs in shm's library, on a lock that the killed rank held, prints
                // that.
                assert!(finished.stderr.contains("rank 1 "), "{finished:#?}");
            }
        }
    }
}

#[test]
fn atomics_that_are_not_there() {
    for faults in ["refuse-atomics", "fail-atomics"] {
        let job = Faulty {
            provider: "tcp;ofi_rxm",
            faults,
            before: "export CONDUIT_OFI_ATOMICS=1",
            everywhere: true,
            ..Faulty::default()
        };
        let words = [
            " atomic",
            "Operation not supported",
            "CONDUIT_OFI_ATOMICS=0",
        ];
        job.fails(&["calls", "seq"], &words);
    }
}

/// Programs that detect any loss.
const PROGRAMS: [&[&str]; 4] = [
    &["calls", "par"],
    &["flood"],
    &["crowd"],
    &["steady", "500"],
];

/// Receives complete in another order than their messages were sent, as most providers permit.
#[test]
fn receives_that_complete_in_disorder() {
    for program in PROGRAMS {
        let job = Faulty {
            faults: "disorder",
            everywhere: true,
            ..Faulty::default()
        };
        job.succeeds(program);
    }
}

/// A message that is too long for its receive doesn't affect other messages in the same buffer.
#[test]
fn receives_that_fail() {
    for program in PROGRAMS {
        let job = Faulty {
            faults: "spoil=7",
            before: "export CONDUIT_OFI_STATISTICS=1",
            everywhere: true,
            ..Faulty::default()
        };
        let finished = job.succeeds(program);
        assert!(finished.stderr.contains(" errors "), "{finished:#?}");
    }
}

/// Only one call in this many is accepted; nothing is lost.
#[test]
fn calls_that_have_to_be_made_again() {
    for faults in ["again=3", "again=10", "verbs,again=2", "cxi"] {
        for program in PROGRAMS {
            let job = Faulty {
                faults,
                everywhere: true,
                ..Faulty::default()
            };
            job.succeeds(program);
        }
    }
}
