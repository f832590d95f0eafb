//! Jobs over several hosts: over UDP on the loopback interface, and between network namespaces of
//! this system.
//!
//! Namespaces need root and `ip` of iproute2. Without these, the tests print that and do nothing,
//! unless `CONDUIT_TEST_HOSTS=1` requires them to run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use conduit_tests::contained::{MemoryGroup, can_unshare};
use conduit_tests::hosts::{Faulty, hosts, killed_meanwhile, succeeds};
use conduit_tests::job::{CHECKS, Finished, Job};
use conduit_tests::lan::{self, Lan};
use conduit_tests::pace;
use conduit_tests::udp::FAULTS;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");

// ---- on this host ----------------------------------------------------------------------------

/// Each rank on a host of its own.
const SEPARATE: [(&str, &str); 2] = [("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];

fn separate(ranks: u32, arguments: &[&str], more: &[(&str, &str)]) -> Finished {
    let job = Job::new(HELPER, ranks, HELPER, arguments);
    succeeds(job, &[&SEPARATE, more].concat())
}

/// Runs a job whose ranks take each pair of ranks for a host.
fn pairs(ranks: u32, arguments: &[&str], more: &[(&str, &str)]) -> Finished {
    let script = "export CONDUIT_HOST=host$((PMI_RANK / 2)); exec \"$@\"";
    let wrapped = [&["-c", script, "pairs", HELPER], arguments].concat();
    let job = Job::new(HELPER, ranks, "sh", &wrapped);
    succeeds(job, &[&[("CONDUIT_UDP_INTERFACE", "lo")], more].concat())
}

#[test]
fn every_call_over_the_loopback_interface() {
    for (ranks, mode) in [(1, "seq"), (2, "seq"), (3, "parsync"), (4, "par")] {
        for checks in CHECKS {
            separate(ranks, &["calls", mode], &checks);
            pairs(ranks, &["calls", mode], &checks);
        }
    }
}

#[test]
fn every_call_with_other_settings() {
    for settings in [
        &[("CONDUIT_INJECT", "0")][..],
        &[("CONDUIT_UDP_ENCRYPT", "1"), ("CONDUIT_UDP_OFFLOAD", "0")],
        &[("CONDUIT_WINDOWS", "0"), ("GASNET_PORTAL_PACKED_LONG", "0")],
        &[
            ("CONDUIT_CHUNK", "1024"),
            ("GASNET_PORTAL_MSG_LIMIT", "12"),
            ("GASNET_PORTAL_NUM_TMPMD", "1"),
            ("GASNET_PORTAL_SB_CHUNKS", "4"),
            ("GASNET_PORTAL_RPL_CHUNKS", "1"),
            ("GASNET_PORTAL_CRED_PER_NODE", "4"),
            ("GASNET_PORTAL_BANKED_CREDITS", "0"),
        ],
    ] {
        // With checks, and on the paths of an optimised build.
        separate(2, &["calls", "par"], settings);
        pairs(3, &["calls", "seq"], settings);
        let settings = [settings, &CHECKS[1]].concat();
        separate(2, &["calls", "seq"], &settings);
        pairs(3, &["calls", "par"], &settings);
    }
}

#[test]
fn threads_and_floods_over_the_loopback_interface() {
    for checks in CHECKS {
        separate(2, &["threads"], &checks);
        pairs(4, &["threads"], &checks);
        separate(4, &["flood"], &checks);
        pairs(8, &["flood"], &checks);
    }
    pairs(8, &["crowd"], &CHECKS[1]);
}

/// Requests fill the windows in both directions, and all get replies.
#[test]
fn floods_in_both_directions_are_answered() {
    for faults in [&[][..], &FAULTS] {
        separate(2, &["mutual"], faults);
        pairs(4, &["mutual"], faults);
    }
}

/// So few credits that they have to move.
const FEW_CREDITS: [(&str, &str); 4] = [
    ("CONDUIT_CHUNK", "1024"),
    ("GASNET_PORTAL_CRED_PER_NODE", "6"),
    ("GASNET_PORTAL_BANKED_CREDITS", "60"),
    ("GASNET_PORTAL_EPOCH_DURATION", "32"),
];

#[test]
fn credits_move_over_the_loopback_interface() {
    for faults in [&[][..], &FAULTS] {
        let settings = [&FEW_CREDITS, faults].concat();
        let finished = separate(4, &["credits"], &settings);
        println!("{}", finished.stdout.trim());
        pairs(6, &["credits"], &settings);
    }
}

#[test]
fn threads_with_packets_that_suffer() {
    separate(2, &["threads"], &FAULTS);
    pairs(4, &["threads"], &[&FAULTS[..], &CHECKS[1]].concat());
}

#[test]
fn all_of_it_with_packets_that_suffer() {
    separate(2, &["calls", "par"], &FAULTS);
    pairs(4, &["calls", "seq"], &FAULTS);
    separate(4, &["flood"], &FAULTS);
    pairs(8, &["crowd"], &FAULTS);
    // The statistics have the faults of packets.
    let told = [&FAULTS[..], &[("CONDUIT_UDP_STATISTICS", "1")]].concat();
    let finished = separate(2, &["flood"], &told);
    for word in [
        "udp faults: seed 1",
        " lost ",
        " duplicated ",
        " corrupted ",
        " reordered ",
    ] {
        assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
    }
}

/// Shared memory alone can't carry such a job, and the error names the ranks.
#[test]
fn shared_memory_alone_refuses_several_hosts() {
    let script = "export CONDUIT_HOST=host$PMI_RANK; exec \"$@\"";
    let job = Job::new(
        HELPER,
        2,
        "sh",
        &["-c", script, "alone", HELPER, "calls", "seq"],
    );
    let job = job.env("CONDUIT_NETWORK", "shm");
    let finished = job.run().expect("nothing is left behind");
    assert_eq!(finished.code, Some(1), "{finished:#?}");
    let words = ["CONDUIT_NETWORK=shm", "rank 0 on host0", "rank 1 on host1"];
    for word in words {
        assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
    }
}

/// The least base windows if there are ten ranks, and one lane.
const ONE_LANE: [(&str, &str); 4] = [
    ("CONDUIT_UDP_ARRIVALS", "1M"),
    ("CONDUIT_LANE_WINDOW", "512K"),
    ("CONDUIT_LANE_ARRIVALS", "2M"),
    ("CONDUIT_UDP_STATISTICS", "1"),
];

/// Returns the sum of a counter of all ranks.
fn counted(finished: &Finished, name: &str) -> u64 {
    let words: Vec<&str> = finished.stderr.split_whitespace().collect();
    let named = words.windows(2).filter(|pair| pair[0] == name);
    named.filter_map(|pair| pair[1].parse::<u64>().ok()).sum()
}

/// Each rank's messages arrive once and in order, with and without packet faults; the lane moves
/// from one rank to the next.
#[test]
fn the_rank_that_sends_most_has_the_lane() {
    for faults in [&[][..], &FAULTS] {
        let settings = [&ONE_LANE[..], faults].concat();
        let finished = separate(10, &["partners", "4", "1000"], &settings);
        let [offered, denied, recalled, promotions, demotions] = [
            "lanes_offered",
            "lanes_denied",
            "lanes_recalled",
            "promotions",
            "demotions",
        ]
        .map(|name| counted(&finished, name));
        assert!(promotions >= 4, "{promotions}: {finished:#?}");
        // One of each may be in progress at the end.
        assert!(offered >= promotions + denied, "{finished:#?}");
        assert!(recalled >= demotions, "{finished:#?}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let job = Job::new(HELPER, 2, HELPER, &["calls", "seq"]);
    let job = job
        .env("CONDUIT_NETWORK", "udp")
        .env("CONDUIT_UDP_INTERFACE", "ether99");
    job.ends_with(1, &["CONDUIT_UDP_INTERFACE", "ether99", "lo "]);
}

#[test]
fn ranks_take_ports_of_a_range_and_name_it_when_it_is_exhausted() {
    // Below the ports that systems give to other programs.
    let first = 20_000 + std::process::id() % 10_000;
    let ports = |count: u32| format!("{first}-{}", first + count - 1);
    separate(4, &["calls", "seq"], &[("CONDUIT_UDP_PORTS", &ports(40))]);
    for (value, reason) in [
        (&*ports(2), "are in use (CONDUIT_UDP_PORTS)"),
        ("9-8", "CONDUIT_UDP_PORTS"),
    ] {
        let job = Job::new(HELPER, 3, HELPER, &["calls", "seq"]);
        let job = job.envs(&SEPARATE).env("CONDUIT_UDP_PORTS", value);
        job.ends_with(1, &[reason]);
    }
}

// ---- between namespaces ----------------------------------------------------------------------

#[test]
fn every_call_between_hosts() {
    for count in [2, 4] {
        let Some(lan) = hosts(count) else { return };
        for checks in CHECKS {
            for mode in ["seq", "par"] {
                succeeds(lan.job(HELPER, 4, HELPER, &["calls", mode]), &checks);
            }
        }
        succeeds(lan.job(HELPER, 8, HELPER, &["flood"]), &CHECKS[1]);
        let v6 = [("CONDUIT_UDP_INTERFACE", "fd78::/64")];
        succeeds(lan.job(HELPER, 4, HELPER, &["calls", "seq"]), &v6);
    }
}

/// Returns a job on the first `count` hosts, where daemons of the launcher start the ranks.
fn by_daemons(lan: &Lan, count: u32, ranks: &str, arguments: &[&str]) -> Job {
    let names: Vec<_> = (0..count).map(|host| lan.host(host)).collect();
    let (names, shell) = (names.join(","), "ip netns exec {host}");
    let options = ["--hosts", &names, "--remote-shell", shell, "-n", ranks];
    Job::alone(HELPER, [&options, arguments].concat())
}

#[test]
fn the_launcher_starts_ranks_on_other_hosts() {
    let Some(lan) = hosts(4) else { return };
    for (ranks, mode) in [("4", "seq"), ("7", "par")] {
        succeeds(by_daemons(&lan, 4, ranks, &[HELPER, "calls", mode]), &[]);
    }
    succeeds(by_daemons(&lan, 4, "8", &[HELPER, "flood"]), &CHECKS[1]);
    // Each rank is on the host of its block.
    let script = "ip -4 -o addr show dev eth0 | grep -o '10[.]78[.]0[.][0-9]*'";
    let job = by_daemons(&lan, 4, "6", &["-l", "sh", "-c", script]);
    let finished = succeeds(job, &[]);
    let mut lines: Vec<_> = finished.stdout.lines().collect();
    lines.sort_unstable();
    let blocks = [1, 1, 2, 2, 3, 4];
    let expected = blocks.iter().enumerate();
    let expected = expected.map(|(rank, host)| format!("[{rank}] 10.78.0.{host}"));
    assert!(expected.eq(lines), "{finished:#?}");
    // A rank that dies is named with its host, and nothing is left.
    let script = "[ $PMI_RANK = 5 ] && kill -9 $$; exec \"$@\"";
    let die = ["sh", "-c", script, "die", HELPER, "storm", "barriers"];
    let host = format!("rank 5 on {} (pid ", lan.host(3));
    by_daemons(&lan, 4, "6", &die).ends_with(137, &[&host, "was killed by signal 9"]);
    let missing = by_daemons(&lan, 5, "5", &[HELPER, "calls", "seq"]);
    missing.ends_with(
        2,
        &[&format!("host {}: its daemon has not started", lan.host(4))],
    );
}

/// A server of SSH on a host, which is killed at the end of the test.
struct Sshd(std::process::Child);

impl Sshd {
    /// Starts a server with the keys in this folder and waits until it listens.
    fn start(program: &Path, host: &str, folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).display().to_string();
        let script = "mkdir -p /run/sshd && exec \"$@\"";
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host, "sh", "-c", script, "sshd"]);
        command.arg(program);
        command.args(["-D", "-e", "-f", "/dev/null", "-h", &path("host")]);
        for option in [
            &format!("AuthorizedKeysFile={}", path("id.pub")),
            "StrictModes=no",
            "UsePAM=no",
            "PidFile=none",
            "PermitRootLogin=yes",
        ] {
            command.args(["-o", option]);
        }
        let server = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut server = Self(server.expect("ip starts"));
        let log = server.0.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let listens = lines.any(|line| line.starts_with("Server listening on 0.0.0.0"));
        assert!(listens, "sshd does not start");
        // What follows must not fill the pipe, and not end the server either.
        std::thread::spawn(move || lines.count());
        server
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

#[test]
fn ssh_starts_ranks_on_other_hosts() {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    let Some(sshd) = folders.find_map(|folder| {
        let path = folder.join("sshd");
        path.is_file().then_some(path)
    }) else {
        assert!(std::env::var_os("CONDUIT_TEST_SSH").is_none(), "no sshd");
        return eprintln!("not tested: no sshd (openssh-server)");
    };
    let Some(lan) = hosts(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for key in ["host", "id"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
        let status = keygen.arg(folder.path().join(key)).status();
        assert!(status.expect("ssh-keygen").success());
    }
    let start = |host| Sshd::start(&sshd, &lan.host(host), folder.path());
    let _servers = [start(0), start(1)];
    let shell = format!(
        "ssh -i {} -o BatchMode=yes -o LogLevel=ERROR -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile=/dev/null {{host}}",
        folder.path().join("id").display()
    );
    let first = lan.host(0);
    let job = |arguments: &[&str]| {
        let options = ["netns", "exec", &first, HELPER, "--remote-shell", &shell];
        let list = ["--hosts", "10.78.0.1:2,10.78.0.2:2"];
        Job::alone("ip", [&options, &list[..], arguments].concat())
    };
    succeeds(job(&[HELPER, "calls", "seq"]), &[]);
    let die = "[ $PMI_RANK = 3 ] && kill -9 $$; exec sleep 1000";
    let words = ["rank 3 on 10.78.0.2 (pid ", "was killed by signal 9"];
    job(&["sh", "-c", die]).ends_with(137, &words);
    let path = ["--remote-path", "/no such/conduit-run", "true"];
    job(&path).ends_with(
        2,
        &["host 10.78.0.", "exited with code 127", "--remote-path"],
    );
}

#[test]
fn interfaces_within_a_host_are_not_chosen() {
    let Some(lan) = hosts(2) else { return };
    for host in 0..2 {
        lan.add_container_bridge(host).unwrap();
    }
    let calls = || lan.job(HELPER, 2, HELPER, &["calls", "seq"]);
    succeeds(calls(), &[("CONDUIT_NETWORK", "udp")]);
    // Each host has that address, so no packet would arrive.
    for (interface, address) in [("docker0", "172.17.0.1"), ("lo", "127.0.0.1")] {
        let job = calls().envs(&[
            ("CONDUIT_NETWORK", "udp"),
            ("CONDUIT_UDP_INTERFACE", interface),
        ]);
        let words = [
            address,
            "CONDUIT_UDP_INTERFACE",
            "eth0 fd78::1/64",
            "docker0 ",
        ];
        job.ends_with(1, &words);
    }
}

#[test]
fn hosts_between_which_packets_suffer() {
    for count in [2, 4] {
        let Some(lan) = hosts(count) else { return };
        for (mode, checks) in ["seq", "par"].into_iter().zip(CHECKS) {
            let settings = [&FAULTS[..], &checks].concat();
            succeeds(lan.job(HELPER, 4, HELPER, &["calls", mode]), &settings);
        }
        succeeds(lan.job(HELPER, 8, HELPER, &["crowd"]), &FAULTS);
        let few = [&FEW_CREDITS[..], &FAULTS].concat();
        succeeds(lan.job(HELPER, 4, HELPER, &["credits"]), &few);
    }
}

/// Barriers, all to all and many to one; the memory used is bounded and printed.
#[test]
fn a_crowd_on_four_hosts() {
    let Some(lan) = hosts(4) else { return };
    // Room for arrivals is 64 MiB, or the minimum with a few wide windows.
    let lanes = [
        ("CONDUIT_UDP_ARRIVALS", "1M"),
        ("CONDUIT_LANE_ARRIVALS", "16M"),
    ];
    for settings in [&[][..], &lanes] {
        let finished = succeeds(lan.job(HELPER, 64, HELPER, &["crowd"]), settings);
        println!(
            "64 ranks on 4 hosts, {settings:?}, in {:?}: {}",
            finished.time,
            finished.stdout.trim()
        );
        let words = finished.stdout.split_whitespace();
        let most = words
            .filter_map(|word| word.parse::<u64>().ok())
            .max()
            .expect("the memory");
        // Arrivals, request buffers, and the memory of any process.
        assert!(most < 512 << 10, "{most} KiB: {finished:#?}");
    }
}

#[test]
fn nothing_of_a_lan_is_left() {
    let Some(lan) = hosts(2) else { return };
    let name = lan.host(0).trim_end_matches(".0").to_owned() + ".";
    assert_eq!(lan::namespaces(&name).expect("a list").len(), 3);
    let job = lan.job(HELPER, 2, HELPER, &["storm", "barriers"]);
    let running = job.start().expect("a job");
    drop(lan);
    assert_eq!(lan::namespaces(&name).expect("a list"), [""; 0]);
    // Its ranks ended with their hosts.
    let finished = running.wait().expect("nothing is left behind");
    assert_ne!(finished.code, Some(0), "{finished:#?}");
}

// ---- in containers ---------------------------------------------------------------------------

/// Each rank is in its own namespaces, and is not permitted to access another one's memory.
#[test]
fn ranks_in_containers_share_memory() {
    // As unprivileged Apptainer and Charliecloud do; with its own process ids; with a very small
    // /dev/shm.
    let script = "mount -t tmpfs -o size=64k tmpfs /dev/shm && exec \"$@\"";
    for (flags, within) in [
        (&["-Ur"][..], &[][..]),
        (&["-Ur", "-p", "-f", "--kill-child"], &[]),
        (&["-Ur", "-m"], &["sh", "-c", script, "sh"]),
    ] {
        if !can_unshare(flags) {
            continue;
        }
        for (ranks, mode) in [(2, "seq"), (4, "par")] {
            let container = [flags, within, &[HELPER, "calls", mode]].concat();
            let job = Job::new(HELPER, ranks, "unshare", &container);
            let finished = succeeds(job, &[("CONDUIT_NETWORK", "shm")]);
            assert_eq!(finished.stderr, "", "{flags:?}");
        }
    }
}

/// Some ranks with the same host name can't reach each other's sockets.
#[test]
fn ranks_that_can_not_share_memory_use_the_next_network_and_say_so() {
    let Some(lan) = hosts(2) else { return };
    let same = ("CONDUIT_HOST", "same");
    for mode in ["seq", "par"] {
        let job = lan.job(HELPER, 4, HELPER, &["calls", mode]);
        let finished = succeeds(job, &[same]);
        let told: Vec<_> = finished.stderr.lines().collect();
        let [line] = told[..] else {
            panic!("one line is printed: {finished:#?}");
        };
        let words = [
            "rank 0",
            "memory of rank 2",
            "and 7 more pairs",
            "using udp",
        ];
        for word in words {
            assert!(line.contains(word), "{word}: {line}");
        }
    }
    let job = lan.job(HELPER, 2, HELPER, &["calls", "seq"]);
    let job = job.env("CONDUIT_NETWORK", "shm").env(same.0, same.1);
    job.ends_with(
        1,
        &[
            "memory of rank 1",
            "no other network",
            "CONDUIT_NETWORK=shm",
        ],
    );
}

/// The memory of a control group is what counts: the largest segment fits, and a larger one is
/// refused before it is touched.
#[test]
fn a_memory_limit_is_kept_to() {
    let groups = [1 << 30, 256 << 20].map(MemoryGroup::new);
    let [Some(large), Some(small)] = groups else {
        return;
    };
    let job = |group: &MemoryGroup, ranks, arguments: &[&str]| {
        let wrapper = group.within(HELPER);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        Job::new(HELPER, ranks, "sh", &[&wrapper[..], arguments].concat())
    };
    // Queues take less room if there is little.
    succeeds(job(&small, 4, &["calls", "seq"]), &[]);
    let finished = succeeds(job(&large, 2, &["largest"]), &[]);
    let bytes = finished.stdout.lines().next().map(str::parse::<u64>);
    assert!(matches!(bytes, Some(Ok(300_000_000..))), "{finished:#?}");
    // The two segments don't fit together, or not even one does.
    for size in ["600M", "2G"] {
        let job = job(&large, 2, &["largest"]).env("CONDUIT_MAX_SEGMENT", size);
        let finished = job.run().expect("nothing is left behind");
        assert_eq!(finished.code, Some(1), "{finished:#?}");
        for word in ["region_create on rank", "control group's", "available"] {
            assert!(finished.stderr.contains(word), "{word}: {finished:#?}");
        }
    }
}

// ---- failures --------------------------------------------------------------------------------

const FAULTY: Faulty = Faulty {
    program: HELPER,
    network: &[],
    dead_time: "CONDUIT_UDP_DEAD_TIME",
};

#[test]
fn a_killed_rank_of_another_host_is_named() {
    let Some(time) = FAULTY.kill_a_rank() else {
        return;
    };
    assert!(time < pace::scaled(Duration::from_secs(10)), "{time:?}");
}

#[test]
fn a_host_that_crashes_ends_the_job() {
    let Some(time) = FAULTY.crash_a_host() else {
        return;
    };
    assert!(time < pace::scaled(Duration::from_secs(10)), "{time:?}");
}

#[test]
fn a_cable_pulled_for_a_second_is_survived() {
    FAULTY.pull_a_cable_for_a_second();
}

#[test]
fn a_cable_pulled_for_ever_is_an_error_that_names_the_rank() {
    let Some((time, text)) = FAULTY.pull_a_cable_for_ever() else {
        return;
    };
    // The dead time, the time that ranks wait for the launcher to name a dead rank, and some for a
    // busy system.
    let limit = pace::scaled(Duration::from_secs(20));
    assert!(time < limit, "{time:?}: {text}");
}

#[test]
fn a_rank_killed_while_others_move_megabytes() {
    // The dead time has room for a dozen probes. With a higher loss all of them might be lost, and
    // a living peer given up.
    for loss in ["0", "10"] {
        let settings = [
            ("CONDUIT_NETWORK", "udp"),
            ("CONDUIT_UDP_DEAD_TIME", "1000"),
            ("CONDUIT_UDP_LOSS", loss),
        ];
        killed_meanwhile(HELPER, &settings);
    }
}
