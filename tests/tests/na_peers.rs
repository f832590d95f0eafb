//! Many processes that start, call a server and end, some of them killed: the server keeps no state
//! of those that are gone, and no call fails.
//!
//! `CONDUIT_TEST_CLIENTS`: the number of clients; the recorded figures have 1,000.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use conduit_tests::na::NETS;
use conduit_tests::pace;

const HELPER: &str = env!("CARGO_BIN_EXE_helper");
/// Clients that run at once.
const AT_ONCE: usize = 8;
/// The number of calls of each.
const CALLS: &str = "4";

/// A process that is killed when this is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(HELPER)
            .arg("na_peer")
            .args(arguments)
            // Killed processes are soon found to be gone.
            .env("CONDUIT_NA_DEAD_TIME", "4000")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the process has ended: {line:?}");
        line.trim().to_owned()
    }

    /// Returns the server's resources: peers, operations, bytes, descriptors, allocated bytes.
    fn counts(&mut self) -> [u64; 5] {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
        let words = self.line();
        let numbers: Vec<_> = words.split(' ').map(|word| word.parse().unwrap()).collect();
        numbers.try_into().unwrap()
    }

    fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn come_and_go(name: &str) {
    let net = NETS.iter().find(|net| net.name == name).unwrap();
    let count = std::env::var("CONDUIT_TEST_CLIENTS");
    let count: usize = count.map_or(48, |count| count.parse().unwrap());
    let mut server = Process::start(&["serve", net.info]);
    let address = server.line();
    // Resources that are allocated once, with the first client, are allocated here.
    for _ in 0..2 {
        let mut client = Process::start(&["call", net.info, &address, CALLS]);
        assert_eq!(client.line(), "called");
        client.end();
    }
    let gone = |server: &mut Process| {
        let deadline = Instant::now() + pace::HANG;
        loop {
            let counts = server.counts();
            if counts[..2] == [0, 0] {
                return counts;
            }
            assert!(
                Instant::now() < deadline,
                "{name}: {counts:?} are not released"
            );
        }
    };
    let before = gone(&mut server);
    let mut most = before;
    let (mut done, mut early) = (0, None);
    while done < count {
        if done >= count / 3 && early.is_none() {
            early = Some((done, gone(&mut server)));
        }
        let mut clients: Vec<_> = (0..AT_ONCE.min(count - done))
            .map(|_| Process::start(&["call", net.info, &address, CALLS]))
            .collect();
        for (number, client) in clients.iter_mut().enumerate() {
            // Some are killed in any state; the calls of the others are answered.
            match number % 6 {
                1 => client.kill(),
                _ => assert_eq!(client.line(), "called"),
            }
        }
        let now = server.counts();
        most = std::array::from_fn(|at| most[at].max(now[at]));
        done += clients.len();
        for (number, mut client) in clients.into_iter().enumerate() {
            match number % 6 {
                1 => {}
                4 => client.kill(),
                _ => client.end(),
            }
        }
    }
    let after = gone(&mut server);
    println!(
        "{name}: {count} clients: peers, operations, bytes, descriptors, allocated: {before:?}, at most {most:?}, then {after:?}"
    );
    assert_eq!(after[3], before[3], "descriptors");
    // Allocators keep some memory, but memory kept per client would grow with their number. The
    // provider `tcp;ofi_rxm` of libfabric 1.17 keeps 13 KiB per client.
    let kept = if name == "ofi" {
        count as u64 * (16 << 10)
    } else {
        0
    };
    assert!(
        after[2] < before[2] + (4 << 20) + kept,
        "{before:?} {after:?}"
    );
    // Without what other libraries keep: a few bytes per client would show.
    let (first, early) = early.expect("the loop passes a third of the clients");
    let later = (count - first) as u64;
    assert!(
        after[4] < early[4] + later * (4 << 10),
        "after {first} clients {early:?}, after {later} more {after:?}"
    );
    server.end();
}

#[test]
fn over_shared_memory() {
    come_and_go("shm");
}

#[test]
fn over_udp() {
    come_and_go("udp");
}

#[test]
fn over_libfabric() {
    come_and_go("ofi");
}

#[test]
fn over_shared_memory_and_udp() {
    come_and_go("conduit");
}
