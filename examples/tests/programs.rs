//! Runs the example programs and the tour as jobs.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conduit_run::Launch;

const HEAT: &str = env!("CARGO_BIN_EXE_heat");
const WORDCOUNT: &str = env!("CARGO_BIN_EXE_wordcount");
pub(crate) const HELLO: &str = env!("CARGO_BIN_EXE_hello");
pub(crate) const HISTOGRAM: &str = env!("CARGO_BIN_EXE_histogram");
const KV: &str = env!("CARGO_BIN_EXE_kv");
pub(crate) const MAP: &str = env!("CARGO_BIN_EXE_map");
pub(crate) const PLATES: &str = env!("CARGO_BIN_EXE_plates");
pub(crate) const RING: &str = env!("CARGO_BIN_EXE_ring");
const TOUR: &str = env!("CARGO_BIN_EXE_tour");

/// Runs a job, and returns its exit code and the lines that its ranks wrote.
pub(crate) fn job(
    ranks: usize,
    program: &str,
    arguments: &[&str],
    settings: &[(&str, &str)],
) -> (u8, String) {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    let launch = Launch::new(ranks, program)
        .args(arguments)
        .quiet(true)
        .timeout(Some(Duration::from_secs(600)))
        .output(move |_, _, line| {
            let mut text = sink.lock().unwrap();
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        });
    let launch = launch.envs(settings.iter().copied());
    let outcome = launch.run().expect("the job starts");
    let text = text.lock().unwrap().clone();
    (outcome.exit_code, text)
}

/// Ranks share standard error, so text written in pieces would interleave with the other ranks'.
#[test]
fn an_error_is_one_write() {
    for program in [HEAT, WORDCOUNT, TOUR] {
        // Each write is a message of its own.
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let status = Command::new(program)
            .env("CONDUIT_NETWORK", "carrier-pigeon")
            // Without this the tour would be a launcher.
            .env("PMI_RANK", "0")
            .stderr(OwnedFd::from(theirs))
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(1), "{program}");
        let mut message = [0; 4096];
        let count = ours.recv(&mut message).unwrap();
        let text = String::from_utf8_lossy(&message[..count]);
        assert!(text.contains(": CONDUIT_NETWORK="), "{program}: {text}");
        assert!(text.ends_with('\n'), "{program}: {text}");
    }
}

/// Checks that every greeting appears every time. When sampling, runs an eighth of the jobs.
fn greets(jobs: u32, ranks: usize, settings: &[(&str, &str)]) {
    let sampled = std::env::var_os("CONDUIT_TEST_SAMPLE").is_some();
    let jobs = if sampled { jobs / 8 } else { jobs };
    let expected: Vec<String> = (0..ranks)
        .map(|rank| format!("rank {rank} sent 7"))
        .collect();
    for _ in 0..jobs {
        let (code, text) = job(ranks, HELLO, &[], settings);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            (code, lines),
            (0, expected.iter().map(String::as_str).collect())
        );
    }
}

#[test]
fn the_readmes_program_greets() {
    greets(800, 4, &[]);
    greets(100, 1, &[]);
    greets(50, 4, &[("CONDUIT_NETWORK", "udp")]);
    greets(50, 4, &UNMAPPED);
}

/// Shared memory is sized by the limits on mapping and writing of the process.
#[test]
fn a_job_starts_where_its_processes_are_limited() {
    for limit in ["-f 1000000", "-v 4000000", "-v 1000000"] {
        let script = format!("ulimit {limit} && exec \"$0\"");
        for network in ["shm", "udp"] {
            let arguments = ["-c", &script, HELLO];
            let (code, text) = job(2, "sh", &arguments, &[("CONDUIT_NETWORK", network)]);
            assert_eq!(code, 0, "{limit} {network}: {text}");
        }
    }
    let arguments = ["-c", "ulimit -f 10000 && exec \"$0\"", HELLO];
    let (code, text) = job(2, "sh", &arguments, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("ulimit -f") && text.contains("bytes are needed"),
        "{text}"
    );
}

#[test]
fn the_readme_and_the_reference_show_the_program() {
    let (_, program) = include_str!("../src/bin/hello.rs")
        .split_once("\n\n")
        .unwrap();
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&format!("```rust\n{program}```")), "README");
    let lines = program
        .lines()
        .map(|line| format!("//! {line}").trim_end().to_owned());
    let reference = lines.collect::<Vec<_>>().join("\n");
    assert!(
        include_str!("../../conduit/src/lib.rs").contains(&reference),
        "conduit/src/lib.rs"
    );
}

const UNMAPPED: [(&str, &str); 2] = [("CONDUIT_WINDOWS", "0"), ("CONDUIT_INJECT", "0")];

#[test]
fn heat_equals_the_serial_plate() {
    for (ranks, settings) in [(1, &[][..]), (2, &[]), (5, &[]), (3, &UNMAPPED)] {
        let arguments = ["--rows", "23", "--columns", "40", "--steps", "31"];
        let (code, text) = job(ranks, HEAT, &arguments, settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        assert!(text.contains("all 920 cells equal"), "{text}");
    }
}

#[test]
fn heat_manages_the_smallest_plates() {
    for (rows, columns) in [("4", "1"), ("4", "2"), ("9", "3")] {
        let (code, text) = job(
            4,
            HEAT,
            &["--rows", rows, "--columns", columns, "--steps", "5"],
            &[],
        );
        assert_eq!(code, 0, "{rows} x {columns}: {text}");
    }
    let (code, text) = job(4, HEAT, &["--rows", "3"], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("4 ranks are too many for 3 rows"), "{text}");
}

#[test]
fn words_are_counted_as_by_one() {
    let sources = [
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/heat.rs"),
        WORDCOUNT,
    ];
    for (ranks, files, settings) in [
        (1, &[][..], &[][..]),
        (4, &[], &[]),
        (3, &sources[..1], &UNMAPPED),
        (2, &sources[..1], &[]),
    ] {
        let (code, text) = job(ranks, WORDCOUNT, files, settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        assert!(
            text.contains("all counts equal to a serial count"),
            "{text}"
        );
    }
}

/// These programs compare the data received with the data sent.
#[test]
fn the_tutorials_programs_run_over_every_network() {
    let udp = [("CONDUIT_NETWORK", "udp"), ("CONDUIT_UDP_INTERFACE", "lo")];
    // Messages may overtake each other with these settings.
    let shuffled = [
        ("CONDUIT_WINDOWS", "0"),
        ("CONDUIT_CHUNK", "65K"),
        ("CONDUIT_SHUFFLE", "5"),
    ];
    for (ranks, settings) in [
        (2, &shuffled[..]),
        (3, &shuffled),
        (1, &[][..]),
        (2, &[]),
        (5, &[]),
        (3, &UNMAPPED),
        (3, &udp),
    ] {
        let (code, text) = job(ranks, HISTOGRAM, &[], settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        let keys = format!("histogram: {} keys on {ranks} ranks", ranks << 20);
        assert!(text.contains(&keys), "{text}");
        let (code, text) = job(ranks, RING, &[], settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        let home = format!("the block came home in round {ranks}");
        assert_eq!(text.matches(&home).count(), ranks, "{text}");
        let (code, text) = job(ranks, MAP, &[], settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        let keys = format!("map: {} keys on {ranks} ranks", ranks * 10_000);
        assert!(text.contains(&keys), "{text}");
        let (code, text) = job(ranks, PLATES, &[], settings);
        assert_eq!(code, 0, "{ranks} ranks: {text}");
        assert_eq!(
            text.matches("degrees on average").count(),
            ranks.min(2),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (code, text) = job(2, WORDCOUNT, &["no-such-file"], &[]);
    assert_eq!(code, 1);
    assert!(text.contains("no-such-file"), "{text}");
}

/// Servers keep the values of clients that have died, and serve later clients.
#[test]
fn clients_of_the_key_value_service_come_and_die_and_come_back() {
    for info in ["conduit+shm", "conduit+udp://lo", "conduit+conduit://lo"] {
        let output = Command::new(KV).arg(info).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{info}: {text}{errors}");
        assert_eq!(text.matches("100 keys").count(), 2, "{info}: {text}");
    }
}

/// Runs the tour as a user would, without measurements.
fn tour(settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(TOUR);
    command
        .args(["-n", "3", "--no-figures"])
        .envs(settings.iter().copied());
    command.output().expect("the tour starts")
}

#[test]
fn the_tour_verifies_everything() {
    let output = tour(&[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let verified = text
        .lines()
        .filter(|line| line.starts_with(" ") && line.contains(" verified: "))
        .count();
    assert_eq!(
        verified, 30,
        "15 checks with memory mapped and 15 without: {text}"
    );
    assert!(text.contains("both examples correct"), "{text}");
}

#[test]
fn the_tour_fails_when_its_ranks_do() {
    let output = tour(&[("GASNET_PORTAL_AM_LIMIT", "many")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("GASNET_PORTAL_AM_LIMIT") && errors.contains("many"),
        "{errors}"
    );
}
