//! A job in one process, whose ranks are real state machines of dynamic credits and write real
//! statistics.

use std::collections::VecDeque;

use credits::statistics::{Header, PeerRow, RankRow, Recorder, file_name};
use credits::{CreditByte, Dense, Dynamic, FlowControl, Peer, System, Tuning};

/// The settings of a demonstration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demo {
    pub(crate) ranks: u32,
    /// The number of partners of each rank, to which it sends in bursts. The partners change half
    /// way through the job.
    pub(crate) partners: u32,
    pub(crate) rounds: u32,
    pub(crate) loan: u16,
    pub(crate) banked: u32,
    /// The number of requests per epoch.
    pub(crate) epoch: u32,
    /// Whether rows have times.
    pub(crate) clock: bool,
}

/// The number of full mediums that a rank sends to each partner in a round.
const BURST: u32 = 12;
/// The number of requests that a rank serves in a round of polls.
const SERVED: usize = 3;
/// The duration of a round of polls, in microseconds.
const POLL_US: u64 = 7;

enum Message {
    Request(CreditByte),
    Reply(CreditByte),
    System(System),
}

struct Rank {
    flow: Dynamic<Dense<Peer>>,
    inbox: VecDeque<(u32, Message)>,
    /// The partners to which requests must still be sent, with the number of these requests.
    to_send: Vec<(u32, u32)>,
    row: RankRow,
    recorder: Recorder,
    text: String,
    told: u32,
}

impl Demo {
    fn partners(&self, rank: u32, round: u32) -> Vec<u32> {
        let step = match round < self.rounds / 2 {
            true => 1,
            false => self.ranks / 2 + 1,
        };
        // In the second half, the lowest ranks are popular partners.
        let hub = rank % 7 % self.ranks;
        let mut partners: Vec<_> = (0..self.partners)
            .map(|number| (rank + step + number * number) % self.ranks)
            .chain((round >= self.rounds / 2).then_some(hub))
            .filter(|partner| *partner != rank)
            .collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    /// Runs the job. Returns the name and the text of each rank's file.
    pub(crate) fn files(&self, job: &str) -> Vec<(String, String)> {
        let tuning = Tuning {
            epoch: self.epoch,
            ..Tuning::default()
        };
        let header = |rank| Header {
            job: job.to_owned(),
            rank,
            ranks: self.ranks,
            loan: self.loan,
            banked: self.banked,
            epoch: self.epoch,
        };
        let mut ranks: Vec<_> = (0..self.ranks)
            .map(|rank| {
                let mut text = String::new();
                Rank {
                    flow: Dynamic::new(self.ranks, rank, self.loan, self.banked, tuning),
                    inbox: VecDeque::new(),
                    to_send: Vec::new(),
                    row: RankRow::default(),
                    recorder: Recorder::begin(&header(rank), &mut text).unwrap(),
                    text,
                    told: 0,
                }
            })
            .collect();
        let mut now = 0;
        ranks.iter_mut().for_each(|rank| self.record(rank, 0, now));
        for round in 0..self.rounds {
            for (rank, state) in (0..).zip(&mut ranks) {
                let partners = self.partners(rank, round).into_iter();
                state.to_send = partners.map(|partner| (partner, BURST)).collect();
            }
            while ranks
                .iter()
                .any(|rank| !rank.to_send.is_empty() || !rank.inbox.is_empty())
            {
                now += POLL_US;
                for rank in 0..self.ranks {
                    self.poll(&mut ranks, rank, now);
                }
            }
        }
        for rank in &mut ranks {
            let epoch = rank.flow.epoch() + 1;
            self.record(rank, epoch, now);
        }
        let names = (0..self.ranks).map(|rank| file_name(job, rank));
        names.zip(ranks.into_iter().map(|rank| rank.text)).collect()
    }

    fn poll(&self, ranks: &mut [Rank], number: u32, now: u64) {
        let mut out = Vec::new();
        let rank = &mut ranks[number as usize];
        let mut served = 0;
        let mut kept = VecDeque::new();
        while let Some((from, message)) = rank.inbox.pop_front() {
            match message {
                Message::Request(byte) if served < SERVED => {
                    served += 1;
                    rank.row.received += 1;
                    let back = rank.flow.grant(from, byte);
                    out.push((from, Message::Reply(back)));
                    if rank.flow.epoch() != rank.told {
                        rank.told = rank.flow.epoch();
                        let epoch = rank.told;
                        self.record(rank, epoch, now);
                    }
                }
                Message::Request(_) => kept.push_back((from, message)),
                Message::Reply(byte) => rank.flow.settle(from, byte).unwrap(),
                Message::System(message) => {
                    rank.row.system_received += 1;
                    if let System::Return { credits, .. } = message {
                        rank.row.returned += u64::from(credits);
                    }
                    if let Some(answer) = rank.flow.on_system(from, message).unwrap() {
                        rank.row.system_sent += 1;
                        out.push((from, Message::System(answer)));
                    }
                }
            }
        }
        rank.inbox = kept;
        while let Some((peer, message)) = rank.flow.next_system() {
            rank.row.system_sent += 1;
            out.push((peer, Message::System(message)));
        }
        for (partner, left) in &mut rank.to_send {
            while *left > 0 {
                let Ok(byte) = rank.flow.take(*partner, 4) else {
                    break;
                };
                *left -= 1;
                out.push((*partner, Message::Request(byte)));
            }
        }
        rank.to_send.retain(|(_, left)| *left > 0);
        for (to, message) in out {
            ranks[to as usize].inbox.push_back((number, message));
        }
    }

    fn record(&self, rank: &mut Rank, epoch: u32, now: u64) {
        let flow = &rank.flow;
        let peers: Vec<_> = (0..self.ranks)
            .map(|peer| {
                PeerRow::new(
                    peer,
                    &flow.peer_state(peer),
                    flow.stalls(peer),
                    flow.revoked(peer),
                )
            })
            .collect();
        let row = RankRow {
            epoch,
            time_us: self.clock.then_some(now),
            banked: flow.banked(),
            lent: peers.iter().map(|peer| u64::from(peer.loan)).sum(),
            stalls: peers.iter().map(|peer| peer.stalls).sum(),
            revoked: peers.iter().map(|peer| peer.revoked).sum(),
            ..rank.row
        };
        rank.recorder.epoch(&row, peers, &mut rank.text).unwrap();
    }
}
