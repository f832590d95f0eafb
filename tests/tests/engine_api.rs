//! Every call of the Rust API in jobs of real processes: all threading modes, from one rank to more
//! ranks than processors.

use conduit_tests::job::{CHECKS, Job};

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

/// Runs a job with and without checks and requires that it succeeds.
#[track_caller]
fn succeeds(ranks: u32, arguments: &[&str], settings: &[(&str, &str)]) {
    for checks in CHECKS {
        let settings = [settings, &checks].concat();
        let job = Job::new(HELPER, ranks, HELPER, arguments).envs(&settings);
        let finished = job.run().expect("nothing is left behind");
        assert_eq!(
            finished.code,
            Some(0),
            "{ranks} ranks, {arguments:?}, {settings:?}: {finished:#?}"
        );
    }
}

/// Settings that change the paths of operations.
const WAYS: [&[(&str, &str)]; 6] = [
    &[("CONDUIT_SHUFFLE", "1")],
    &[("CONDUIT_WINDOWS", "0")],
    &[("CONDUIT_INJECT", "0")],
    &[("CONDUIT_WINDOWS", "0"), ("CONDUIT_INJECT", "0")],
    &[("CONDUIT_WINDOWS", "0"), ("GASNET_PORTAL_PACKED_LONG", "0")],
    &[
        ("CONDUIT_WINDOWS", "0"),
        ("CONDUIT_CHUNK", "1024"),
        ("GASNET_PORTAL_MSG_LIMIT", "12"),
        ("GASNET_PORTAL_NUM_TMPMD", "1"),
        ("GASNET_PORTAL_SB_CHUNKS", "4"),
        ("GASNET_PORTAL_RPL_CHUNKS", "1"),
        ("GASNET_PORTAL_CRED_PER_NODE", "4"),
        ("GASNET_PORTAL_BANKED_CREDITS", "0"),
    ],
];

const UDP: [&[(&str, &str)]; 1] = [&[("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")]];

#[test]
fn every_call_in_every_mode() {
    for mode in ["seq", "parsync", "par"] {
        for ranks in [1, 2, 4] {
            succeeds(ranks, &["calls", mode], &[]);
        }
    }
}

#[test]
fn every_call_with_more_ranks_than_processors() {
    succeeds(16, &["calls", "seq"], &[]);
    succeeds(16, &["calls", "par"], &[]);
}

#[test]
fn every_call_every_way() {
    for settings in WAYS {
        for (ranks, mode) in [(1, "seq"), (2, "par"), (3, "seq")] {
            succeeds(ranks, &["calls", mode], settings);
        }
    }
}

#[test]
fn a_program_started_alone_is_a_job_of_one() {
    let status = std::process::Command::new(HELPER)
        .args(["calls", "seq"])
        .status();
    assert!(status.expect("the program starts").success());
}

/// Between processes of this host, with mapped memory and as between hosts.
#[test]
fn what_was_sent_before_is_handled() {
    for mode in ["seq", "parsync", "par"] {
        for ranks in [1, 2, 4] {
            succeeds(ranks, &["delivered", mode], &[]);
        }
        succeeds(3, &["delivered", mode], &[("CONDUIT_NETWORK", "udp")]);
    }
    for settings in WAYS {
        succeeds(2, &["delivered", "seq"], settings);
    }
    for windows in ["0", "1"] {
        let settings = [
            ("GASNET_PORTAL_FLOW_CONTROL", "0"),
            ("CONDUIT_WINDOWS", windows),
        ];
        succeeds(2, &["delivered", "seq"], &settings);
    }
    for settings in [&[][..], &[("CONDUIT_WINDOWS", "0")]] {
        succeeds(2, &["delivered_whole"], settings);
    }
}

/// The programs about handlers, signals and collectives, which `semantics` also runs over every
/// network.
#[test]
fn handlers_signals_and_collectives() {
    for program in ["handlers_reach", "signals", "collectives"] {
        succeeds(5, &[program, "parsync"], &[]);
        for settings in WAYS {
            succeeds(3, &[program, "seq"], settings);
        }
    }
}

#[test]
fn messages_are_of_types() {
    for ranks in [1, 3] {
        succeeds(ranks, &["typed"], &[]);
    }
    for settings in WAYS.iter().chain(&UDP) {
        succeeds(3, &["typed"], settings);
    }
}

#[test]
fn a_shared_rank_finishes() {
    for ranks in [1, 3] {
        succeeds(ranks, &["finish_shared"], &[]);
    }
    for settings in WAYS.iter().chain(&UDP) {
        succeeds(3, &["finish_shared"], settings);
    }
}

#[test]
fn a_condition_that_fails_ends_its_wait() {
    succeeds(2, &["condition_fails"], &[]);
}

#[test]
fn several_threads_at_once() {
    for ranks in [1, 2, 4] {
        succeeds(ranks, &["threads"], &[]);
    }
    for settings in WAYS {
        succeeds(2, &["threads"], settings);
    }
}

/// Floods from all to one, and between two with replies to all. With flow control requests never
/// reach the catch basin, which would end the job. Without it the receive buffers are also
/// sufficient here, because the network accepts no more than it has room for.
#[test]
fn floods() {
    for settings in [
        &[][..],
        &[("CONDUIT_WINDOWS", "0")],
        &[("GASNET_PORTAL_FLOW_CONTROL", "0")],
    ] {
        for ranks in [2, 8] {
            succeeds(ranks, &["flood"], settings);
        }
    }
    for settings in [&[][..], &[("CONDUIT_WINDOWS", "0")]] {
        succeeds(2, &["mutual"], settings);
    }
    let tight = [
        ("GASNET_PORTAL_CRED_PER_NODE", "8"),
        ("GASNET_PORTAL_BANKED_CREDITS", "0"),
    ];
    succeeds(4, &["flood"], &tight);
}

/// Messages between ranks arrive once and in order, also while the rings that carry them change
/// hands: by traffic, every few messages, and not at all.
#[test]
fn hot_pairs_change() {
    const ABOVE: (&str, &str) = ("CONDUIT_LANE_ABOVE", "0");
    for settings in [
        &[][..],
        &[ABOVE],
        &[ABOVE, ("CONDUIT_LANE_RINGS", "0")],
        &[
            ABOVE,
            ("CONDUIT_LANE_RINGS", "1"),
            ("CONDUIT_LANE_FORCE_SWITCH", "7"),
        ],
        &[
            ABOVE,
            ("CONDUIT_LANE_RINGS", "2"),
            ("CONDUIT_LANE_FORCE_SWITCH", "100"),
        ],
    ] {
        for ranks in [2, 5] {
            succeeds(ranks, &["hot_pairs", "9"], settings);
        }
    }
    // More ranks than there are rings for. They print which rings they have lent.
    let job = Job::new(HELPER, 34, HELPER, &["hot_pairs", "2"]);
    let finished = job.env("CONDUIT_SHM_STATISTICS", "1").run();
    let told = finished.expect("nothing is left behind");
    assert_eq!(told.code, Some(0), "{told:#?}");
    let told = told.stderr;
    for word in [
        "lanes_offered",
        "promotions",
        "; rings to ranks",
        "; rings from ranks",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
}
