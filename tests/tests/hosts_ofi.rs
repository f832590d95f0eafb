//! Jobs of several processes over libfabric: on this host, and between network namespaces
//! (described in `hosts`).

use conduit_tests::hosts::{Faulty, hosts, killed_meanwhile, succeeds};
use conduit_tests::job::{Finished, Job};
use conduit_tests::ofi;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

type Settings<'a> = Vec<(&'a str, &'a str)>;

/// Returns every library with every provider that runs on one host.
fn providers() -> Vec<Settings<'static>> {
    over(&ofi::PROVIDERS)
}

/// Returns every library with each of these providers.
fn over(providers: &[(&'static str, Option<&'static str>)]) -> Vec<Settings<'static>> {
    let mut all = Vec::new();
    for library in ofi::libraries() {
        for &(provider, domain) in providers {
            let mut settings = vec![
                ("CONDUIT_OFI_LIBRARY", library.name),
                ("CONDUIT_OFI_PROVIDER", provider),
            ];
            settings.extend(domain.map(|domain| ("CONDUIT_OFI_DOMAIN", domain)));
            all.push(settings);
        }
    }
    all
}

/// Runs a job with each rank on a host of its own.
#[track_caller]
fn separate(ranks: u32, arguments: &[&str], settings: &Settings<'_>) -> Finished {
    let job = Job::new(HELPER, ranks, HELPER, arguments).env("CONDUIT_NETWORK", "ofi");
    succeeds(job, settings)
}

/// Runs a job whose ranks take each pair of ranks for a host.
#[track_caller]
fn pairs(ranks: u32, arguments: &[&str], settings: &Settings<'_>) -> Finished {
    let script = "export CONDUIT_HOST=host$((PMI_RANK / 2)); exec \"$@\"";
    let wrapped = [&["-c", script, "pairs", HELPER], arguments].concat();
    let job = Job::new(HELPER, ranks, "sh", &wrapped).env("CONDUIT_NETWORK", "shm,ofi");
    succeeds(job, settings)
}

#[test]
fn every_call() {
    for settings in providers() {
        for (ranks, mode) in [(1, "seq"), (2, "par"), (3, "parsync"), (4, "seq")] {
            separate(ranks, &["calls", mode], &settings);
        }
        pairs(4, &["calls", "par"], &settings);
    }
}

/// With and without the provider's atomics, which are used for all atomics but those of handlers.
#[test]
fn handlers_signals_and_collectives() {
    for settings in providers() {
        for program in ["handlers_reach", "signals", "collectives"] {
            separate(3, &[program, "seq"], &settings);
            pairs(4, &[program, "par"], &settings);
        }
        separate(3, &["typed"], &settings);
        separate(2, &["finish_shared"], &settings);
        let atomics = [&settings[..], &[("CONDUIT_OFI_ATOMICS", "1")]].concat();
        for program in ["calls", "signals"] {
            separate(3, &[program, "seq"], &atomics);
        }
    }
}

#[test]
fn floods_threads_and_crowds() {
    for settings in providers() {
        separate(2, &["mutual"], &settings);
        separate(2, &["threads"], &settings);
        separate(4, &["flood"], &settings);
        pairs(8, &["crowd"], &settings);
    }
}

/// The launcher limits the packets in flight: with the library's default, its queue for `udp`
/// overruns, and most such jobs hang or crash.
#[test]
fn floods_over_datagrams() {
    for settings in over(&[ofi::DATAGRAMS]) {
        separate(4, &["flood"], &settings);
    }
}

/// Processes outside the job can neither forge frames nor read them. All accesses are messages.
#[test]
fn frames_with_tags() {
    for sealed in ["CONDUIT_OFI_AUTHENTICATE", "CONDUIT_OFI_ENCRYPT"] {
        for mut settings in over(&ofi::PROVIDERS[..1]) {
            settings.extend([(sealed, "1"), ("CONDUIT_OFI_STATISTICS", "1")]);
            let finished = separate(3, &["calls", "par"], &settings);
            for word in [" writes ", " reads ", " bad_tag ", " wrong_source "] {
                assert!(!finished.stderr.contains(word), "{word}: {finished:#?}");
            }
            separate(4, &["flood"], &settings);
            pairs(8, &["crowd"], &settings);
        }
    }
}

/// Connections that change hands every few fragments, by traffic, or not at all: messages between
/// ranks arrive once and in order.
#[test]
fn connections_change_hands() {
    for (sealed, value) in [
        ("CONDUIT_OFI_ENCRYPT", "0"),
        ("CONDUIT_OFI_AUTHENTICATE", "1"),
        ("CONDUIT_OFI_ENCRYPT", "1"),
    ] {
        for (count, force) in [("1", "7"), ("2", "100"), ("2", "0")] {
            for mut settings in over(&ofi::PROVIDERS[..1]) {
                settings.extend([
                    (sealed, value),
                    ("CONDUIT_OFI_CONNECTIONS", count),
                    ("CONDUIT_LANE_FORCE_SWITCH", force),
                    ("CONDUIT_OFI_STATISTICS", "1"),
                ]);
                let finished = separate(4, &["hot_pairs", "5"], &settings);
                let told = finished.stderr;
                for word in ["connections: made", "connections with", "promotions"] {
                    assert!(told.contains(word), "{word}: {told}");
                }
                if force != "0" {
                    for none in ["promotions: 0", "demotions: 0", "connections: made 0"] {
                        assert!(!told.contains(none), "{settings:?}: {none}: {told}");
                    }
                }
                assert!(!told.contains("malformed 1"), "{told}");
            }
        }
    }
}

/// The remaining programs, with connections that never stay.
#[test]
fn every_call_by_connections() {
    for mut settings in over(&ofi::PROVIDERS[..1]) {
        settings.extend([
            ("CONDUIT_OFI_CONNECTIONS", "2"),
            ("CONDUIT_LANE_FORCE_SWITCH", "5"),
        ]);
        separate(3, &["calls", "par"], &settings);
        separate(4, &["flood"], &settings);
        separate(2, &["mutual"], &settings);
        pairs(8, &["crowd"], &settings);
    }
}

/// If the provider has no connected endpoints the job does not start, and the error names the
/// setting.
#[test]
fn a_provider_without_connected_endpoints_is_named() {
    for library in ofi::libraries() {
        Job::new(HELPER, 2, HELPER, &["calls", "seq"])
            .env("CONDUIT_NETWORK", "ofi")
            .env("CONDUIT_OFI_LIBRARY", library.name)
            .env("CONDUIT_OFI_PROVIDER", "shm")
            .env("CONDUIT_OFI_CONNECTIONS", "1")
            .ends_with(1, &["rank", "shm", "CONDUIT_OFI_CONNECTIONS"]);
    }
}

/// So few credits that they have to move.
#[test]
fn credits_move() {
    for mut settings in providers() {
        settings.extend([
            ("CONDUIT_CHUNK", "1024"),
            ("GASNET_PORTAL_CRED_PER_NODE", "6"),
            ("GASNET_PORTAL_BANKED_CREDITS", "60"),
            ("GASNET_PORTAL_EPOCH_DURATION", "32"),
        ]);
        separate(4, &["credits"], &settings);
        pairs(6, &["credits"], &settings);
    }
}

/// Jobs with other settings succeed and print their statistics.
#[test]
fn what_has_happened_is_told() {
    for mut settings in providers() {
        settings.push(("CONDUIT_OFI_STATISTICS", "1"));
        settings.push(("CONDUIT_OFI_RECEIVE_BUFFERS", "2"));
        settings.push(("CONDUIT_OFI_RECEIVE_BUFFER_SIZE", "64K"));
        let finished = separate(2, &["calls", "seq"], &settings);
        for word in ["rank 1: ofi (", " wire: frames ", " writes ", " reads "] {
            assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
        }
    }
}

// ---- failures --------------------------------------------------------------------------------

#[track_caller]
fn fails(settings: &Settings<'_>, words: &[&str]) {
    let job = Job::new(HELPER, 2, HELPER, &["calls", "seq"]).env("CONDUIT_NETWORK", "ofi");
    let job = job.envs(settings);
    job.ends_with(1, words);
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let vendored = ("CONDUIT_OFI_LIBRARY", "vendored");
    fails(
        &vec![vendored, ("CONDUIT_OFI_PROVIDER", "telegraph")],
        &[
            "rank ",
            "no provider telegraph",
            "tcp on lo",
            "CONDUIT_OFI_PROVIDER",
        ],
    );
    fails(
        &vec![
            vendored,
            ("CONDUIT_OFI_PROVIDER", "tcp"),
            ("CONDUIT_OFI_DOMAIN", "ether99"),
        ],
        &[
            "no provider tcp on the domain ether99",
            "tcp on lo",
            "CONDUIT_OFI_DOMAIN",
        ],
    );
    fails(
        &vec![("CONDUIT_OFI_LIBRARY", "/no/such/libfabric.so.1")],
        &["/no/such/libfabric.so.1"],
    );
    // The library's own filter leaves no provider.
    fails(
        &vec![vendored, ("FI_PROVIDER", "^tcp,udp,shm,ofi_rxm,ofi_rxd")],
        &["no provider", "none with reliable endpoints"],
    );
}

#[test]
fn ranks_with_different_libraries_are_named() {
    if ofi::libraries().len() < 2 {
        return;
    }
    let script = "[ $PMI_RANK = 0 ] || export CONDUIT_OFI_LIBRARY=system; exec \"$@\"";
    let job = Job::new(
        HELPER,
        2,
        "sh",
        &["-c", script, "differ", HELPER, "calls", "seq"],
    );
    let job = job
        .env("CONDUIT_NETWORK", "ofi")
        .env("CONDUIT_OFI_LIBRARY", "vendored")
        .env("CONDUIT_OFI_PROVIDER", "tcp")
        .env("CONDUIT_OFI_DOMAIN", "lo");
    job.ends_with(
        1,
        &[
            "of libfabric 1.22",
            "rank 0",
            "rank 1",
            "CONDUIT_OFI_LIBRARY",
        ],
    );
}

#[test]
fn ranks_that_protect_differently_are_named() {
    let script = "[ $PMI_RANK = 0 ] || export CONDUIT_OFI_AUTHENTICATE=1; exec \"$@\"";
    let wrapped = ["-c", script, "differ", HELPER, "calls", "seq"];
    let job = Job::new(HELPER, 2, "sh", &wrapped).env("CONDUIT_NETWORK", "ofi");
    job.ends_with(1, &["CONDUIT_OFI_AUTHENTICATE", "rank 0", "rank 1"]);
}

// ---- between namespaces ----------------------------------------------------------------------

const BETWEEN: [(&str, &str); 3] = [
    ("CONDUIT_NETWORK", "shm,ofi"),
    ("CONDUIT_OFI_LIBRARY", "vendored"),
    ("CONDUIT_OFI_PROVIDER", "tcp"),
];

#[test]
fn between_hosts() {
    for count in [2, 4] {
        let Some(lan) = hosts(count) else { return };
        for mode in ["seq", "par"] {
            succeeds(lan.job(HELPER, 4, HELPER, &["calls", mode]), &BETWEEN);
        }
        succeeds(lan.job(HELPER, 8, HELPER, &["flood"]), &BETWEEN);
        succeeds(lan.job(HELPER, 8, HELPER, &["crowd"]), &BETWEEN);
    }
}

const FAULTY: Faulty = Faulty {
    program: HELPER,
    network: &BETWEEN,
    dead_time: "CONDUIT_OFI_DEAD_TIME",
};

#[test]
fn a_killed_rank_of_another_host_is_named() {
    FAULTY.kill_a_rank();
}

#[test]
fn a_host_that_crashes_ends_the_job() {
    FAULTY.crash_a_host();
}

#[test]
fn a_cable_pulled_for_a_second_is_survived() {
    FAULTY.pull_a_cable_for_a_second();
}

#[test]
fn a_cable_pulled_for_ever_is_an_error_that_names_the_rank() {
    FAULTY.pull_a_cable_for_ever();
}

#[test]
fn an_interface_that_is_deleted_is_an_error_that_names_the_rank() {
    FAULTY.delete_an_interface();
}

#[test]
fn a_rank_killed_while_others_move_megabytes() {
    for settings in providers() {
        let own = [
            ("CONDUIT_NETWORK", "ofi"),
            ("CONDUIT_OFI_DEAD_TIME", "1000"),
        ];
        killed_meanwhile(HELPER, &[&own[..], &settings[..]].concat());
    }
    for settings in over(&ofi::PROVIDERS[..1]) {
        let connected = [
            ("CONDUIT_NETWORK", "ofi"),
            ("CONDUIT_OFI_DEAD_TIME", "1000"),
            ("CONDUIT_OFI_CONNECTIONS", "2"),
            ("CONDUIT_LANE_FORCE_SWITCH", "20"),
        ];
        killed_meanwhile(HELPER, &[&connected[..], &settings[..]].concat());
    }
}
