//! Tests of the blocking connection over real sockets. The launcher is a thread with the server's
//! state machine.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pmi::bootstrap::{Bootstrap as _, MAX_VALUE};
use pmi::client::{Connection, Error};
use pmi::server::{Action, Limits, Server};
use pmi::wire::LineBuffer;

/// The time limit of every test.
const LIMIT: Option<Duration> = Some(Duration::from_secs(300));

struct Launcher {
    server: Mutex<Server>,
    sockets: Vec<UnixStream>,
}

/// Runs `rank_main` in a thread for each rank and returns what the ranks return.
fn job<T: Send>(size: usize, limits: Limits, rank_main: impl Fn(Connection) -> T + Sync) -> Vec<T> {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..size).map(|_| UnixStream::pair().unwrap()).unzip();
    let server = Mutex::new(Server::new(size, &"k".repeat(256), limits));
    let launcher = Arc::new(Launcher {
        server,
        sockets: ours,
    });
    thread::scope(|scope| {
        for rank in 0..size {
            let launcher = Arc::clone(&launcher);
            scope.spawn(move || serve(&launcher, rank));
        }
        let ranks: Vec<_> = theirs
            .into_iter()
            .enumerate()
            .map(|(rank, socket)| {
                let rank_main = &rank_main;
                scope.spawn(move || {
                    rank_main(Connection::new(socket.into(), rank, size, LIMIT).unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn serve(launcher: &Launcher, rank: usize) {
    let mut lines = LineBuffer::new();
    // Slurm treats the result of one read as one request and discards all further bytes.
    let mut chunk = [0; pmi::wire::MAX_REQUEST];
    while let Ok(count @ 1..) = (&launcher.sockets[rank]).read(&mut chunk) {
        chunk[count - 1] = b'\n';
        lines.push(&chunk[..count]);
        while let Some(line) = lines.next_line().unwrap() {
            let mut server = launcher.server.lock().unwrap();
            for action in server.on_line(rank, &line).unwrap() {
                if let Action::Send { rank, line } = action {
                    (&launcher.sockets[rank])
                        .write_all(line.as_bytes())
                        .unwrap();
                }
            }
        }
    }
}

#[test]
fn allgathers_of_any_size_bring_all_blobs_to_all() {
    for size in [1, 4, 16] {
        let blob = |rank: usize, round: usize| -> Vec<u8> {
            (0..rank * 700 + round * 5000)
                .map(|i| (i * 31 + rank) as u8)
                .collect()
        };
        job(size, Limits::default(), |mut launcher| {
            for round in 0..3 {
                let own = blob(launcher.rank(), round);
                let all = launcher.allgather(&own).unwrap();
                let expected: Vec<_> = (0..size).map(|rank| blob(rank, round)).collect();
                assert_eq!(all, expected);
            }
            assert_eq!(launcher.universe_size().unwrap(), Some(size));
            Connection::finalize(&mut launcher).unwrap();
        });
    }
}

#[test]
fn wrong_keys_and_large_values_are_refused_before_anything_is_sent() {
    job(1, Limits::default(), |mut launcher| {
        for key in ["", "a b", "a.b", &"t".repeat(25)] {
            let error = launcher.put(key, b"").unwrap_err();
            assert!(error.reason.contains("letters and digits"), "{error}");
        }
        let large = vec![0; MAX_VALUE + 1];
        let error = launcher.put("k", &large).unwrap_err();
        assert!(error.reason.contains("limit of 1048576"), "{error}");
        launcher.put("k", b"ok").unwrap();
        assert_eq!(launcher.get(0, "k").unwrap(), b"ok");
        let error = launcher.get(0, "other").unwrap_err().to_string();
        assert_eq!(
            error,
            "get failed on rank 0: rank 0: PMI get: the launcher refused: \"key_not_found\" (rc=-1)"
        );
    });
}

#[test]
fn a_full_key_value_space_is_an_error_that_says_so() {
    job(1, Limits::default().with_kvs_bytes(1000), |mut launcher| {
        let error = launcher.put("k", &[7; 2000]).unwrap_err().to_string();
        assert!(error.ends_with("refused: \"kvs_full\" (rc=-1)"), "{error}");
    });
}

/// Returns a connection after its handshake, and the launcher's socket, which the test can misuse.
fn handshaken() -> (UnixStream, Connection) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let answers = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
        cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
        cmd=my_kvsname kvsname=kvs\n";
    (&ours).write_all(answers).unwrap();
    let connection = Connection::new(OwnedFd::from(theirs), 0, 2, LIMIT).unwrap();
    (ours, connection)
}

#[test]
fn a_launcher_that_ends_is_named() {
    let (launcher, mut connection) = handshaken();
    drop(launcher);
    let error = connection.barrier().unwrap_err();
    assert!(
        matches!(
            error,
            Error::LauncherGone {
                rank: 0,
                operation: "barrier"
            }
        ),
        "{error}"
    );
    assert!(rustix::io::fcntl_getfd(connection.as_fd()).is_ok());
}

#[test]
fn a_launcher_that_is_stuck_does_not_hang_the_rank() {
    let (_launcher, mut connection) = handshaken();
    connection.set_timeout(Some(Duration::from_millis(20)));
    let error = connection.barrier().unwrap_err();
    assert!(
        matches!(
            error,
            Error::TimedOut {
                operation: "barrier",
                ..
            }
        ),
        "{error}"
    );
    let error = connection.get_value("k").unwrap_err();
    assert!(
        matches!(
            error,
            Error::Request {
                operation: "get",
                ..
            }
        ),
        "{error}"
    );
    assert!(connection.abort(1, "the launcher is stuck").is_ok());
}

#[test]
fn a_launcher_that_answers_nonsense_is_an_error() {
    for nonsense in [
        "hello\n",
        "cmd=put_result rc=0\n",
        "cmd=barrier_out rc=x\n",
        "\u{ff}\n",
    ] {
        let (launcher, mut connection) = handshaken();
        (&launcher).write_all(nonsense.as_bytes()).unwrap();
        let error = connection.barrier().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Request {
                    operation: "barrier",
                    ..
                }
            ),
            "{error}"
        );
    }
    let (launcher, mut connection) = handshaken();
    (&launcher).write_all(&[b'x'; 5000]).unwrap();
    assert!(
        connection
            .barrier()
            .unwrap_err()
            .to_string()
            .contains("longer than")
    );
}

#[test]
fn an_abort_is_sent_in_one_line() {
    let (mut launcher, mut connection) = handshaken();
    connection.abort(9, "disk full").unwrap();
    drop(connection);
    let mut sent = String::new();
    launcher.read_to_string(&mut sent).unwrap();
    let last = sent.lines().last();
    assert_eq!(
        last,
        Some("cmd=abort exitcode=9 message=disk_full"),
        "{sent}"
    );
}
