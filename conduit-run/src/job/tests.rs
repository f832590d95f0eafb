//! The decisions, event by event.

use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(1);

fn job(hosts: &[(&str, usize)]) -> Job {
    let hosts = hosts.iter().map(|&(name, count)| (name.to_owned(), count));
    let policy = Policy {
        grace: GRACE,
        signal_grace: GRACE * 3,
        ..Policy::default()
    };
    let mut job = Job::new(hosts.collect(), policy);
    for rank in 0..job.ranks.len() {
        let pid = 100 + rank as u32;
        job.on_event(0, Event::Started { rank, pid }, Instant::now());
    }
    job
}

fn ended(rank: usize, status: Status) -> Event {
    Event::Ended(vec![End {
        rank,
        status,
        active: false,
        joined: false,
        stuck: None,
    }])
}

fn killed(rank: usize) -> Event {
    let status = Status::Killed {
        signal: libc::SIGKILL,
        core: false,
    };
    ended(rank, status)
}

fn says(text: &str) -> Action {
    Action::Say(text.to_owned())
}

const END: Action = Action::Do(Command::End { spare: None });

#[test]
fn messages_name_hosts_only_if_there_are_several() {
    let now = Instant::now();
    for (hosts, on) in [
        (&[("a", 3)][..], ""),
        (&[("a", 2), ("b", 1)], " on b"),
        (&[("a", 1), ("b", 1), ("c", 1)], " on c"),
    ] {
        let mut job = job(hosts);
        job.on_event(hosts.len() - 1, killed(2), now);
        let text = format!("rank 2{on} (pid 102) was killed by signal 9 (SIGKILL); ending the job");
        assert_eq!(job.take_actions(), [says(&text), END]);
    }
}

#[test]
fn all_hosts_are_asked_for_stopped_ranks_before_a_failure_is_reported() {
    let now = Instant::now();
    let mut job = job(&[("a", 2), ("b", 1), ("c", 1)]);
    job.on_event(0, ended(0, Status::Exited(5)), now);
    assert_eq!(job.take_actions(), []);
    assert_eq!(job.next_deadline(), Some(now + GRACE));
    let now = now + GRACE;
    job.on_time(now);
    assert_eq!(job.take_actions(), [Action::Do(Command::Probe)]);
    job.on_event(2, Event::Stopped(vec![3]), now);
    job.on_event(0, Event::Stopped(vec![]), now);
    assert_eq!(job.take_actions(), []);
    // The loss of the last host that has not answered is an answer, but not the reason.
    job.on_lost(1..2, 1, "it burnt".to_owned(), now);
    let text = "rank 0 on a (pid 100) exited with code 5; rank 3 on c (pid 103) is stopped; \
        ending the job";
    assert_eq!(job.take_actions(), [says(text), END]);
    job.on_time(now + GRACE);
    assert_eq!(job.take_actions(), [Action::Do(Command::Kill)]);
    for rank in [1, 3] {
        job.on_event(0, killed(rank), now);
    }
    assert!(job.all_ended());
    assert_eq!(job.conclude().exit_code(), 5);
}

#[test]
fn a_host_that_does_not_answer_delays_the_end_by_its_grace_only() {
    let now = Instant::now();
    let mut job = job(&[("a", 1), ("b", 1)]);
    job.on_event(0, ended(0, Status::Exited(5)), now);
    job.on_time(now + GRACE);
    job.take_actions();
    job.on_time(now + GRACE * 2);
    let text = "rank 0 on a (pid 100) exited with code 5; ending the job";
    let kill = Action::Do(Command::Kill);
    assert_eq!(job.take_actions(), [says(text), END, kill]);
}

#[test]
fn a_lost_host_is_named_and_its_ranks_have_ended() {
    let now = Instant::now();
    let mut job = job(&[("a", 1), ("b", 2), ("c", 1)]);
    job.on_lost(1..3, 1, "its daemon has ended".to_owned(), now);
    let text = "host b is lost: its daemon has ended; ending the job";
    assert_eq!(job.take_actions(), [says(text), END]);
    assert!(!job.all_ended());
    job.on_event(0, ended(0, Status::Exited(0)), now);
    assert!(job.all_ended());
    let how = job.conclude();
    assert_eq!((how.exit_code(), how.failed_rank()), (1, None));
    assert_eq!(job.statuses().len(), 4);
}

/// What may happen to a job.
#[derive(Debug, Clone)]
enum Input {
    Event(usize, Event),
    Lost(usize),
    Signal,
    /// The next deadline.
    Time,
}

fn inputs(size: usize, hosts: usize) -> impl Strategy<Value = Vec<Input>> {
    let status = prop_oneof![
        3 => Just(Status::Exited(0)),
        2 => (1u8..4).prop_map(Status::Exited),
        1 => Just(Status::Killed { signal: 9, core: false }),
    ];
    let stuck =
        (0..size, proptest::option::of(0..size)).prop_map(|(waiting, never_joined)| Stuck {
            waiting,
            never_joined,
            what: "stuck".to_owned(),
        });
    let end = (
        0..size,
        status,
        any::<bool>(),
        proptest::option::of(stuck.clone()),
    );
    let end = end.prop_map(|(rank, status, active, stuck)| End {
        rank,
        status,
        active,
        joined: active,
        stuck,
    });
    let event = prop_oneof![
        8 => proptest::collection::vec(end, 1..3).prop_map(Event::Ended),
        1 => (0..size, any::<bool>()).prop_map(|(rank, replaced)| Event::Closed { rank, replaced }),
        1 => (0..size).prop_map(|rank| Event::Broken { rank, what: "broken".to_owned() }),
        1 => (0..size, 0..3).prop_map(|(rank, code)| Event::Aborted { rank, code, message: None }),
        1 => stuck.prop_map(Event::Stuck),
        4 => proptest::collection::vec(0..size, 0..2).prop_map(Event::Stopped),
    ];
    let input = prop_oneof![
        10 => (0..hosts, event).prop_map(|(host, event)| Input::Event(host, event)),
        1 => (0..hosts).prop_map(Input::Lost),
        1 => Just(Input::Signal),
        3 => Just(Input::Time),
    ];
    proptest::collection::vec(input, 0..30)
}

proptest! {
    /// Under all events, the job orders its ranks to end at most once and reports the reason before
    /// that, deadlines pass, and only a job whose ranks all exited with 0 succeeds.
    #[test]
    fn every_job_ends_once(inputs in inputs(6, 3)) {
        let mut job = job(&[("a", 2), ("b", 3), ("c", 1)]);
        let mut now = Instant::now();
        let (mut ends, mut reasons) = (0, 0);
        let mut check = |job: &mut Job| {
            for action in job.take_actions() {
                match action {
                    Action::Say(text) => reasons += usize::from(text.ends_with("; ending the job")),
                    Action::Do(Command::End { .. }) => {
                        ends += 1;
                        assert_eq!(reasons, ends, "the reason is reported before the ranks end");
                    }
                    Action::Do(_) => {}
                }
            }
            assert!(ends <= 1 && reasons <= 1);
        };
        let mut bad = None;
        let mut alive: BTreeSet<usize> = (0..6).collect();
        for input in inputs {
            match input {
                Input::Event(host, event) => {
                    if let Event::Ended(list) = &event {
                        // A rank ends once.
                        let mut list = list.clone();
                        list.retain(|end| alive.remove(&end.rank));
                        for end in &list {
                            if end.status != Status::Exited(0) && job.ending.is_none() {
                                bad.get_or_insert(end.rank);
                            }
                        }
                        job.on_event(host, Event::Ended(list), now);
                    } else {
                        job.on_event(host, event, now);
                    }
                }
                Input::Lost(host) => {
                    job.on_lost(host..host + 1, host, "it is gone".to_owned(), now);
                    let of_host = [0..2, 2..5, 5..6][host].clone();
                    alive.retain(|rank| !of_host.contains(rank));
                    prop_assert!(job.ending.is_some());
                }
                Input::Signal => job.on_end_signal(libc::SIGTERM, now),
                Input::Time => {
                    if let Some(due) = job.next_deadline() {
                        now = now.max(due);
                        job.on_time(now);
                    }
                }
            }
            check(&mut job);
        }
        // Deadlines pass, and leave no work behind.
        for _ in 0..100 {
            let Some(due) = job.next_deadline() else { break };
            now = now.max(due);
            job.on_time(now);
            check(&mut job);
            if job.all_ended() {
                break;
            }
        }
        prop_assert!(job.all_ended() || job.next_deadline().is_none());
        for rank in std::mem::take(&mut alive) {
            job.on_event(0, ended(rank, Status::Exited(0)), now);
        }
        check(&mut job);
        prop_assert!(job.all_ended());
        let how = job.conclude();
        if bad.is_some() {
            let aborted = matches!(how, How::Aborted { code: 0, .. });
            prop_assert!(how.exit_code() != 0 || aborted, "{how:?}");
        }
    }
}

#[test]
fn a_killed_rank_is_the_cause_before_those_that_failed_with_it() {
    let pid = 1;
    let mut causes = [
        How::Exited {
            rank: 2,
            pid,
            code: 1,
        },
        How::Exited {
            rank: 3,
            pid,
            code: 1,
        },
        How::Killed {
            rank: 4,
            pid,
            signal: 9,
            core: false,
        },
    ];
    causes.sort_by_key(precedence);
    assert_eq!(causes[0].failed_rank(), Some(4));
    assert_eq!(causes[1].failed_rank(), Some(2));
}
