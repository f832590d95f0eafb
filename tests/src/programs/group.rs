//! The group of all ranks of a program, and their barrier, which consists of the network's own
//! messages.

use conduit_core::ni::{Ack, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, PtIndex, Put, Rank};

use crate::conformance::entry::put_to;
use crate::conformance::{Md, Seen, World};

/// The index that meetings use. Programs must not use it.
const MEETING: PtIndex = PtIndex(2);
/// The first token that meetings use.
const TOKENS: u64 = 1 << 62;

/// This rank's part in the meetings of a job.
#[derive(Debug)]
pub struct Group {
    /// This rank.
    pub rank: Rank,
    /// The number of ranks in the job.
    pub size: u32,
    nothing: Md,
    meetings: u64,
}

impl Group {
    /// Prepares for meetings. Each program must call `join` first.
    pub fn join<N: Ni>(w: &mut World<N>) -> Self {
        let rank = w.own_rank();
        let eq = w.queue(rank, 64);
        w.open(rank, MEETING, Some(eq));
        w.append_at(
            rank,
            MEETING,
            MatchEntry {
                memory: MeMemory::Nothing,
                match_bits: 0,
                ignore_bits: u64::MAX,
                source: None,
                options: MeOptions::PUT,
                events: MeEvents::OPERATION,
                tag: TOKENS,
            },
        );
        Self {
            rank,
            size: w.size(),
            nothing: w.source(rank, &[]),
            meetings: 0,
        }
    }

    /// Returns the other ranks, starting with the rank that follows this one.
    pub fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let (rank, size) = (self.rank, self.size);
        (1..size).map(move |step| (rank + step) % size)
    }

    /// Waits until all ranks have called `meet`. The effects of earlier calls are visible then.
    pub fn meet<N: Ni>(&mut self, w: &mut World<N>) {
        self.meetings += 1;
        for peer in self.others() {
            let put = Put {
                index: MEETING,
                hdr_data: self.meetings,
                ack: Ack::Local,
                token: TOKENS + u64::from(peer),
                ..put_to(peer, &self.nothing)
            };
            w.put(self.rank, &put);
        }
        for peer in self.others() {
            w.end_of(self.rank, TOKENS + u64::from(peer));
        }
        // Counts only this meeting's puts, because a fast rank may already be at the next meeting.
        let (meeting, peers) = (self.meetings, self.size as usize - 1);
        w.until("all ranks meet", |w| {
            w.count(self.rank, |event| {
                matches!(event, Seen::Put(put) if put.tag == TOKENS && put.hdr_data == meeting)
            }) == peers
        });
        w.forget(
            |event| matches!(event, Seen::Put(put) if put.tag == TOKENS && put.hdr_data == meeting),
        );
    }

    /// Waits for `number` puts other than those of meetings, and returns them.
    pub fn wait_puts<N: Ni>(
        &self,
        w: &mut World<N>,
        number: usize,
    ) -> Vec<crate::conformance::SeenPut> {
        let ours = |seen: &&crate::conformance::SeenPut| seen.tag != TOKENS;
        w.until(&format!("{number} puts arrive"), |w| {
            w.puts(self.rank)
                .into_iter()
                .filter(|put| ours(put))
                .count()
                >= number
        });
        let puts = w.puts(self.rank);
        puts.into_iter().filter(ours).cloned().collect()
    }
}
