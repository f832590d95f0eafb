//! Tests of the server alone, line by line.

use proptest::prelude::*;

use super::*;
use crate::wire;

const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1";

fn started(size: usize) -> Server {
    let mut server = Server::new(size, "kvs", Limits::default());
    for rank in 0..size {
        server.on_line(rank, INIT).unwrap();
    }
    server
}

/// Returns the single line that the server replies with.
fn ask(server: &mut Server, rank: usize, line: &str) -> String {
    match server.on_line(rank, line).unwrap().as_slice() {
        [Action::Send { rank: to, line }] if *to == rank => line.clone(),
        other => panic!("{line}: {other:?}"),
    }
}

/// Returns the error for rank `waiting` in a barrier that rank `missing` cannot enter.
fn broken(waiting: usize, missing: usize, how: Departure) -> Error {
    Error::BrokenBarrier {
        waiting,
        missing,
        how,
    }
}

fn sends(rank: usize, line: &str) -> Action {
    let line = line.into();
    Action::Send { rank, line }
}

#[test]
fn the_handshake_is_hydras() {
    let mut server = Server::new(2, "kvs", Limits::default());
    assert_eq!(
        ask(&mut server, 1, INIT),
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
    );
    assert_eq!(
        ask(&mut server, 1, "cmd=get_maxes"),
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
    );
    assert_eq!(
        ask(&mut server, 1, "cmd=get_appnum"),
        "cmd=appnum appnum=0\n"
    );
    assert_eq!(
        ask(&mut server, 1, "cmd=get_my_kvsname"),
        "cmd=my_kvsname kvsname=kvs\n"
    );
    assert_eq!(
        ask(&mut server, 1, "cmd=get_universe_size"),
        "cmd=universe_size size=2\n"
    );
    assert_eq!(server.state(1), Some(RankState::Active));
    assert_eq!(server.state(0), Some(RankState::Started));
}

#[test]
fn another_version_is_refused_but_may_try_again() {
    let mut server = Server::new(1, "kvs", Limits::default());
    let answer = ask(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0");
    assert_eq!(
        answer,
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"
    );
    assert!(ask(&mut server, 0, INIT).contains("rc=0"));
}

#[test]
fn what_one_rank_puts_another_gets() {
    let mut server = started(2);
    assert_eq!(
        ask(&mut server, 0, "cmd=put kvsname=kvs key=a value=b=c"),
        "cmd=put_result rc=0 msg=success\n"
    );
    assert_eq!(
        ask(&mut server, 1, "cmd=get kvsname=kvs key=a"),
        "cmd=get_result rc=0 msg=success value=b=c\n"
    );
    assert!(ask(&mut server, 1, "cmd=get kvsname=kvs key=x").contains("rc=-1 msg=key_not_found"));
    assert!(ask(&mut server, 1, "cmd=get kvsname=no key=a").contains("rc=-1 msg=unknown_kvsname"));
}

#[test]
fn puts_beyond_the_limits_are_answered_with_the_reason() {
    let mut server = Server::new(1, "kvs", Limits::default().with_kvs_bytes(200));
    server.on_line(0, INIT).unwrap();
    let put = |server: &mut Server, key: &str, value: &str| {
        ask(
            server,
            0,
            &format!("cmd=put kvsname=kvs key={key} value={value}"),
        )
    };
    assert!(put(&mut server, &"k".repeat(65), "").contains("msg=key_too_long"));
    assert!(put(&mut server, "k", &"v".repeat(1025)).contains("msg=value_too_long"));
    assert!(put(&mut server, "", "v").contains("msg=bad_key_or_value"));
    assert!(put(&mut server, "a", "").contains("rc=0"));
    assert!(put(&mut server, "a", "again").contains("msg=duplicate_key"));
    assert!(put(&mut server, "b", &"v".repeat(200 - 65 - 64)).contains("msg=kvs_full"));
    assert!(
        put(&mut server, "b", &"v".repeat(200 - 65 - 65)).contains("rc=0"),
        "exactly full"
    );
}

#[test]
fn a_barrier_releases_all_ranks_at_once_and_again() {
    let mut server = started(3);
    for _ in 0..2 {
        assert_eq!(server.on_line(2, "cmd=barrier_in"), Ok(vec![]));
        assert_eq!(server.on_line(0, "cmd=barrier_in"), Ok(vec![]));
        let released = server.on_line(1, "cmd=barrier_in").unwrap();
        let expected: Vec<_> = (0..3)
            .map(|rank| sends(rank, "cmd=barrier_out\n"))
            .collect();
        assert_eq!(released, expected);
    }
}

#[test]
fn a_barrier_without_everybody_is_an_error_whoever_comes_first() {
    let mut server = started(2);
    server.on_line(0, "cmd=barrier_in").unwrap();
    let error = broken(0, 1, Departure::Ended);
    assert_eq!(server.on_end(1), Err(error));

    let mut server = started(2);
    server.on_line(1, "cmd=finalize").unwrap();
    let error = broken(0, 1, Departure::Finalized);
    assert_eq!(server.on_line(0, "cmd=barrier_in"), Err(error));

    let mut server = Server::new(2, "kvs", Limits::default());
    assert_eq!(server.on_end(1), Ok(()));
    server.on_line(0, INIT).unwrap();
    let error = broken(0, 1, Departure::NeverJoined);
    assert_eq!(server.on_line(0, "cmd=barrier_in"), Err(error));
}

#[test]
fn who_finalizes_hears_so_also_if_others_wait() {
    let mut server = started(2);
    server.on_line(0, "cmd=barrier_in").unwrap();
    let actions = server.on_line(1, "cmd=finalize").unwrap();
    assert_eq!(actions.last(), Some(&Action::Finalized { rank: 1 }));
    let error = broken(0, 1, Departure::Finalized);
    assert_eq!(server.check_barrier(), Err(error));
}

#[test]
fn a_rank_that_dies_in_the_barrier_leaves_the_others_an_error() {
    let mut server = started(3);
    server.on_line(0, "cmd=barrier_in").unwrap();
    assert_eq!(server.on_end(0), Ok(()), "no other rank waits yet");
    let error = broken(2, 0, Departure::Ended);
    assert_eq!(server.on_line(2, "cmd=barrier_in"), Err(error));
}

#[test]
fn finalize_is_acknowledged_and_final() {
    let mut server = started(1);
    let actions = server.on_line(0, "cmd=finalize").unwrap();
    assert_eq!(
        actions,
        [
            sends(0, "cmd=finalize_ack rc=0\n"),
            Action::Finalized { rank: 0 }
        ]
    );
    let late = server.on_line(0, "cmd=get_maxes");
    assert!(
        matches!(
            late,
            Err(Error::OutOfOrder {
                when: "after finalize",
                ..
            })
        ),
        "{late:?}"
    );
    assert_eq!(server.on_end(0), Ok(()));
}

#[test]
fn an_abort_is_heard_at_any_time() {
    let mut server = Server::new(1, "kvs", Limits::default());
    let abort = |code, message: Option<&str>| {
        Ok(vec![Action::Abort {
            rank: 0,
            code,
            message: message.map(Into::into),
        }])
    };
    assert_eq!(server.on_line(0, "cmd=abort exitcode=7"), abort(7, None));
    assert_eq!(
        server.on_line(0, "cmd=abort exitcode=-1 message=no more memory"),
        abort(-1, Some("no more memory"))
    );
    assert_eq!(server.on_line(0, "cmd=abort"), abort(1, None));
    assert!(matches!(
        server.on_line(0, "cmd=abort exitcode=x"),
        Err(Error::Line { .. })
    ));
}

#[test]
fn requests_at_the_wrong_time_or_of_unknown_kind_name_the_rank() {
    let mut server = Server::new(2, "kvs", Limits::default());
    let early = server.on_line(1, "cmd=barrier_in").unwrap_err();
    assert_eq!(
        early.to_string(),
        "rank 1 sent the PMI command \"barrier_in\" before init"
    );
    server.on_line(1, INIT).unwrap();
    server.on_line(1, "cmd=barrier_in").unwrap();
    assert!(matches!(
        server.on_line(1, INIT),
        Err(Error::OutOfOrder {
            command: "init",
            ..
        })
    ));
    assert!(matches!(
        server.on_line(1, "cmd=barrier_in"),
        Err(Error::OutOfOrder { .. })
    ));
    for line in ["", "mcmd=spawn", "cmd=dance", "hello"] {
        let error = server.on_line(0, line).unwrap_err();
        assert_eq!(error.rank(), 0, "{line}: {error}");
    }
    assert_eq!(
        server.on_line(2, INIT),
        Err(Error::NoSuchRank { rank: 2, size: 2 })
    );
    assert_eq!(
        server.on_end(9),
        Err(Error::NoSuchRank { rank: 9, size: 2 })
    );
}

#[test]
fn preset_pairs_are_found_by_all() {
    let mut server = started(2);
    assert!(server.preset("PMI_process_mapping", "(vector,(0,1,2))"));
    assert!(!server.preset("PMI_process_mapping", "other"));
    let answer = ask(
        &mut server,
        1,
        "cmd=get kvsname=kvs key=PMI_process_mapping",
    );
    assert!(answer.ends_with("value=(vector,(0,1,2))\n"));
}

proptest! {
    #[test]
    fn no_line_from_a_rank_panics_or_outgrows_the_limits(
        lines in proptest::collection::vec((0usize..4, prop_oneof![
            ".{0,80}",
            "cmd=(init|get_maxes|put|get|barrier_in|finalize|abort)( [a-z]{1,4}=[a-z0-9]{0,4}){0,4}",
            Just(INIT.to_owned()),
            Just("cmd=barrier_in".to_owned()),
            Just("cmd=finalize".to_owned()),
            "cmd=put kvsname=kvs key=[a-z]{1,3} value=[a-z]{0,40}",
        ]), 0..60),
    ) {
        let mut server = Server::new(3, "kvs", Limits::default().with_kvs_bytes(500));
        for (rank, line) in lines {
            for action in server.on_line(rank, &line).unwrap_or_default() {
                if let Action::Send { line, .. } = action {
                    prop_assert!(line.ends_with('\n') && line.len() <= wire::MAX_LINE);
                }
            }
            prop_assert!(server.kvs_bytes <= 500);
            let waiting = server.ranks.iter().filter(|s| **s == RankState::InBarrier).count();
            prop_assert_eq!(server.in_barrier, waiting);
        }
    }
}

/// MPI and Conduit in one process share the connection.
#[test]
fn two_users_of_one_connection_join_and_leave_twice() {
    let mut server = Server::new(1, "kvs", Limits::default());
    let first = server.on_line(0, INIT).unwrap();
    assert_eq!(server.on_line(0, INIT).unwrap(), first);
    let left = server.on_line(0, "cmd=finalize").unwrap();
    assert_eq!(server.on_line(0, "cmd=finalize").unwrap(), left[..1]);
    assert_eq!(server.state(0), Some(RankState::Finalized));
}

/// Servers of several hosts with their root, where each message arrives at once.
struct Hosts {
    servers: Vec<Server>,
    root: Root,
    host_of: Vec<usize>,
}

impl Hosts {
    fn new(counts: &[usize]) -> Self {
        let size = counts.iter().sum();
        let (mut servers, mut firsts, mut host_of) = (Vec::new(), Vec::new(), Vec::new());
        for (host, &count) in counts.iter().enumerate() {
            let first = host_of.len();
            let local = first..first + count;
            servers.push(Server::of_host(size, local, "kvs", Limits::default()));
            firsts.push((host, first));
            host_of.extend(std::iter::repeat_n(host, count));
        }
        let root = Root::new(firsts, Limits::default());
        Hosts {
            servers,
            root,
            host_of,
        }
    }

    fn on_line(&mut self, rank: usize, line: &str) -> Result<Vec<Action>, Error> {
        let host = self.host_of[rank];
        let mut all = Vec::new();
        for action in self.servers[host].on_line(rank, line)? {
            match action {
                Action::Waiting { rank } => self.root.on_waiting(host, rank)?,
                Action::Fence { pairs } => {
                    // In two pieces.
                    let (one, two) = pairs.split_at(pairs.len() / 2);
                    self.root.on_pairs(host, one.to_vec())?;
                    self.root.on_pairs(host, two.to_vec())?;
                    if let Some(pairs) = self.root.on_fence(host) {
                        for server in &mut self.servers {
                            all.extend(server.release(pairs.clone()));
                        }
                    }
                }
                Action::Finalized { rank } => {
                    all.push(Action::Finalized { rank });
                    self.servers[host].check_barrier()?;
                    self.root.on_departed(rank, Departure::Finalized)?;
                }
                other => all.push(other),
            }
        }
        Ok(all)
    }

    fn on_end(&mut self, rank: usize) -> Result<(), Error> {
        let server = &mut self.servers[self.host_of[rank]];
        let how = match server.state(rank) {
            Some(RankState::Started) => Departure::NeverJoined,
            _ => Departure::Ended,
        };
        server.on_end(rank)?;
        self.root.on_departed(rank, how)
    }
}

#[test]
fn pairs_reach_other_hosts_by_the_barrier() {
    let mut hosts = Hosts::new(&[1, 2]);
    for rank in 0..3 {
        hosts.on_line(rank, INIT).unwrap();
    }
    let ask = |hosts: &mut Hosts, rank: usize, line: &str| match &hosts.on_line(rank, line).unwrap()
        [..]
    {
        [Action::Send { line, .. }] => line.clone(),
        other => panic!("{other:?}"),
    };
    ask(&mut hosts, 1, "cmd=put kvsname=kvs key=a value=x");
    assert!(ask(&mut hosts, 2, "cmd=get kvsname=kvs key=a").contains("value=x"));
    assert!(ask(&mut hosts, 0, "cmd=get kvsname=kvs key=a").contains("key_not_found"));
    // The same key on two hosts: all hosts have the same value after the barrier.
    ask(&mut hosts, 0, "cmd=put kvsname=kvs key=a value=y");
    for rank in [2, 0] {
        assert_eq!(hosts.on_line(rank, "cmd=barrier_in"), Ok(vec![]));
    }
    let out: Vec<_> = (0..3)
        .map(|rank| sends(rank, "cmd=barrier_out\n"))
        .collect();
    assert_eq!(hosts.on_line(1, "cmd=barrier_in"), Ok(out));
    for rank in 0..3 {
        assert!(ask(&mut hosts, rank, "cmd=get kvsname=kvs key=a").contains("value=y"));
    }
    assert!(ask(&mut hosts, 1, "cmd=put kvsname=kvs key=a value=z").contains("duplicate_key"));
    assert!(ask(&mut hosts, 1, "cmd=get_universe_size").contains("size=3"));
}

#[test]
fn a_host_is_released_only_when_its_ranks_wait() {
    let mut server = Server::of_host(2, 1..2, "kvs", Limits::default());
    server.on_line(1, INIT).unwrap();
    assert_eq!(server.release([("a".into(), "x".into())]), []);
    assert!(ask(&mut server, 1, "cmd=get kvsname=kvs key=a").contains("key_not_found"));
    assert!(matches!(
        server.on_line(0, INIT),
        Err(Error::NoSuchRank { rank: 0, size: 2 })
    ));
    // A rank that is killed while it waits gets no answer.
    server.on_line(1, "cmd=barrier_in").unwrap();
    server.on_end(1).unwrap();
    assert_eq!(server.release([]), []);
}

#[test]
fn the_limit_of_the_pairs_is_that_of_all_hosts() {
    let mut root = Root::new([(0, 0), (1, 3)], Limits::default().with_kvs_bytes(132));
    let pair = |key: &str| vec![(key.to_owned(), "v".to_owned())];
    assert_eq!(root.on_pairs(0, pair("a")), Ok(()));
    assert_eq!(root.on_pairs(1, pair("a")), Ok(()), "known");
    assert_eq!(root.on_pairs(1, pair("b")), Ok(()), "exactly full");
    let full = Error::Full {
        rank: 3,
        limit: 132,
    };
    assert_eq!(root.on_pairs(1, pair("c")), Err(full));
}

/// A step of a rank.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put,
    Barrier,
    /// Gets the pair that a rank has put before the last barrier.
    Get(usize),
    Finalize,
    End,
}

proptest! {
    /// The servers of several hosts give the same answers as a single server for all ranks.
    #[test]
    fn hosts_together_are_one_server(
        counts in proptest::collection::vec(1usize..4, 1..5),
        steps in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            6 => Just(Step::Put),
            12 => Just(Step::Barrier),
            6 => (0usize..12).prop_map(Step::Get),
            1 => Just(Step::Finalize),
            1 => Just(Step::End),
        ]), 0..120),
    ) {
        let size: usize = counts.iter().sum();
        let mut one = Server::new(size, "kvs", Limits::default());
        let mut hosts = Hosts::new(&counts);
        // The number of puts of each rank, now and at the last barrier.
        let (mut puts, mut known) = (vec![0; size], vec![0; size]);
        for rank in 0..size {
            if rank % 5 != 4 {
                prop_assert_eq!(one.on_line(rank, INIT), hosts.on_line(rank, INIT));
            }
        }
        for (rank, step) in steps {
            let rank = rank.index(size);
            let state = one.state(rank);
            if !matches!(state, Some(RankState::Active)) && !matches!(step, Step::End) {
                continue;
            }
            let line = match step {
                Step::Put => {
                    puts[rank] += 1;
                    format!("cmd=put kvsname=kvs key=k{rank}.{} value=v{rank}", puts[rank])
                }
                Step::Barrier => "cmd=barrier_in".to_owned(),
                Step::Get(from) => {
                    let from = from % size;
                    format!("cmd=get kvsname=kvs key=k{from}.{}", known[from])
                }
                Step::Finalize => "cmd=finalize".to_owned(),
                Step::End => {
                    let (expected, got) = (one.on_end(rank), hosts.on_end(rank));
                    prop_assert_eq!(expected.is_err(), got.is_err(), "{:?} {:?}", expected, got);
                    if expected.is_err() {
                        return Ok(());
                    }
                    continue;
                }
            };
            let mut expected = one.on_line(rank, &line);
            if matches!(step, Step::Finalize) && expected.is_ok() {
                // As the launcher does.
                if let Err(error) = one.check_barrier() {
                    expected = Err(error);
                }
            }
            let got = hosts.on_line(rank, &line);
            prop_assert_eq!(expected.is_err(), got.is_err(), "{:?} {:?}", expected, got);
            let (Ok(expected), Ok(got)) = (expected, got) else {
                return Ok(());
            };
            if matches!(step, Step::Barrier) && !expected.is_empty() {
                known.clone_from(&puts);
            }
            prop_assert_eq!(expected, got);
        }
    }
}
