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
