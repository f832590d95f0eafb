//! The events that a world's ranks have received.

use std::fmt::Write as _;

use conduit_core::ni::{Ni, Outcome, Rank};

use super::seen::{Record, Seen, SeenPut};
use super::world::{End, World};

impl<N: Ni> World<N> {
    /// Waits for an operation's end and takes its event out of the log, so that the token can be
    /// reused.
    #[track_caller]
    pub fn end_of(&mut self, rank: Rank, token: u64) -> End {
        self.until(&format!("operation {token} of rank {rank} ends"), |w| {
            w.find_end(rank, token).is_some()
        });
        let at = self.find_end(rank, token).expect("just seen");
        match self.log.remove(at).event {
            Seen::Send { .. } => End {
                outcome: Outcome::Done,
                length: 0,
                value: 0,
            },
            Seen::Ack {
                outcome, length, ..
            } => End {
                outcome,
                length,
                value: 0,
            },
            Seen::Reply {
                outcome,
                length,
                value,
                ..
            } => End {
                outcome,
                length,
                value,
            },
            _ => unreachable!("find_end finds initiator events only"),
        }
    }

    fn find_end(&self, rank: Rank, token: u64) -> Option<usize> {
        self.log
            .iter()
            .position(|r| r.rank == rank && r.event.token() == Some(token))
    }

    /// Returns the events delivered so far that [`World::end_of`] hasn't taken, in order of
    /// delivery.
    pub fn log(&self) -> &[Record] {
        &self.log
    }

    /// Removes all events.
    pub fn clear_log(&mut self) {
        self.log.clear();
    }

    /// Removes events for which `like` returns true.
    pub fn forget(&mut self, like: impl Fn(&Seen) -> bool) {
        self.log.retain(|record| !like(&record.event));
    }

    /// Returns the events delivered at a rank.
    pub fn events(&self, rank: Rank) -> impl Iterator<Item = &Seen> {
        self.log
            .iter()
            .filter(move |r| r.rank == rank)
            .map(|r| &r.event)
    }

    /// Returns the puts delivered at a rank, in order of delivery.
    pub fn puts(&self, rank: Rank) -> Vec<&SeenPut> {
        self.events(rank)
            .filter_map(|event| match event {
                Seen::Put(put) => Some(put),
                _ => None,
            })
            .collect()
    }

    /// Returns the number of a rank's events for which `like` returns true.
    pub fn count(&self, rank: Rank, like: impl Fn(&Seen) -> bool) -> usize {
        self.events(rank).filter(|event| like(event)).count()
    }

    /// Waits until `number` puts have been delivered at a rank, and returns them in order of
    /// delivery.
    #[track_caller]
    pub fn wait_puts(&mut self, rank: Rank, number: usize) -> Vec<SeenPut> {
        self.until(&format!("{number} puts arrive at rank {rank}"), |w| {
            w.puts(rank).len() >= number
        });
        self.puts(rank).into_iter().cloned().collect()
    }

    /// Returns the last events as text, for a failure's message.
    pub fn history(&self, last: usize) -> String {
        let mut text = String::from("  the last events:\n");
        for record in &self.log[self.log.len().saturating_sub(last)..] {
            let event: String = format!("{:?}", record.event).chars().take(240).collect();
            let _ = writeln!(
                text,
                "    rank {} queue {}: {event}",
                record.rank, record.eq.0
            );
        }
        text
    }
}
