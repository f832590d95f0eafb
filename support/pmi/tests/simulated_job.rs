//! Tests of the client's and the server's state machines together, without I/O. The steps of the
//! simulated ranks of a job run in any order.

use pmi::client::{Codec, Request, Response};
use pmi::server::{Action, Limits, RankState, Server};
use proptest::prelude::*;

/// A rank that runs a program of requests.
struct Rank {
    codec: Codec,
    /// The number of steps that the rank has completed.
    step: usize,
    /// Whether a reply is outstanding.
    waiting: bool,
    got: Vec<String>,
}

/// Returns a rank's request at `step`. A rank's program is the handshake, then `rounds` times a
/// put, a barrier and a get of the next rank's value, and then finalize.
fn request(rank: usize, size: usize, rounds: usize, step: usize) -> Option<(&'static str, String)> {
    let round = |step: usize| (step - 3) / 3;
    Some(match step {
        0 => ("init", String::new()),
        1 => ("maxes", String::new()),
        2 => ("kvsname", String::new()),
        _ if round(step) < rounds => match (step - 3) % 3 {
            0 => ("put", format!("k{}.{rank}", round(step))),
            1 => ("barrier", String::new()),
            _ => ("get", format!("k{}.{}", round(step), (rank + 1) % size)),
        },
        _ if step == 3 + 3 * rounds => ("finalize", String::new()),
        _ => return None,
    })
}

struct Job {
    server: Server,
    ranks: Vec<Rank>,
    rounds: usize,
}

impl Job {
    fn new(size: usize, rounds: usize) -> Self {
        let rank = || Rank {
            codec: Codec::new(),
            step: 0,
            waiting: false,
            got: Vec::new(),
        };
        let ranks = (0..size).map(|_| rank()).collect();
        Job {
            server: Server::new(size, "kvs", Limits::default()),
            ranks,
            rounds,
        }
    }

    /// Lets one rank make its next request. Returns `false` if the rank waits for a reply or is
    /// done.
    fn advance(&mut self, at: usize) -> bool {
        let size = self.ranks.len();
        let rank = &mut self.ranks[at];
        let Some((kind, key)) = request(at, size, self.rounds, rank.step) else {
            return false;
        };
        if rank.waiting {
            return false;
        }
        let value = format!("from{at}");
        let line = rank.codec.request(match kind {
            "init" => Request::Init,
            "maxes" => Request::Maxes,
            "kvsname" => Request::KvsName,
            "put" => Request::Put {
                key: &key,
                value: &value,
            },
            "get" => Request::Get { key: &key },
            "barrier" => Request::Barrier,
            _ => Request::Finalize,
        });
        rank.waiting = true;
        for action in self.server.on_line(at, &line.unwrap()).unwrap() {
            match action {
                Action::Send { rank, line } => {
                    let rank = &mut self.ranks[rank];
                    assert!(rank.waiting, "unsolicited reply: {line}");
                    if let Response::Value(value) = rank.codec.response(&line).unwrap() {
                        rank.got.push(value);
                    }
                    rank.waiting = false;
                    rank.step += 1;
                }
                Action::Finalized { rank } => assert_eq!(rank, at),
                other => panic!("{other:?}"),
            }
        }
        true
    }
}

proptest! {
    #[test]
    fn any_schedule_of_the_ranks_completes(
        size in 1usize..9,
        rounds in 0usize..4,
        schedule in proptest::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let mut job = Job::new(size, rounds);
        for next in schedule {
            job.advance(next.index(size));
        }
        // Let the ranks take turns until all are done, which they can be after every schedule
        // unless it deadlocks.
        while (0..size).any(|rank| job.advance(rank)) {}
        for (at, rank) in job.ranks.iter().enumerate() {
            prop_assert_eq!(job.server.state(at), Some(RankState::Finalized));
            prop_assert_eq!(&rank.got, &vec![format!("from{}", (at + 1) % size); rounds]);
        }
    }
}
