//! The log of events that a world's ranks have received.

use std::fmt::Write as _;

use conduit_core::ni::{Ni, Outcome, Rank};

use super::seen::{Record, Seen, SeenPut};
use super::world::{End, World};

impl<N: Ni> World<N> {
    /// Waits until an operation ends and takes its event out of the log, so that the token can be
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

    /// Returns the events delivered so far, in the order of their delivery, except for those that
    /// [`World::end_of`] has taken.
    pub fn log(&self) -> &[Record] {
        &self.log
    }

    /// Removes all events from the log.
    pub fn clear_log(&mut self) {
        self.log.clear();
    }

    /// Removes the events for which `like` returns true.
    pub fn forget(&mut self, like: impl Fn(&Seen) -> bool) {
        self.log.retain(|record| !like(&record.event));
    }

    /// Returns the logged events of a rank.
    pub fn events(&self, rank: Rank) -> impl Iterator<Item = &Seen> {
        self.log
            .iter()
            .filter(move |r| r.rank == rank)
            .map(|r| &r.event)
    }

    /// Returns the logged puts to a rank, in the order of their delivery.
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

    /// Waits until `number` puts have been delivered at a rank, and returns them in the order of
    /// their delivery.
    #[track_caller]
    pub fn wait_puts(&mut self, rank: Rank, number: usize) -> Vec<SeenPut> {
        self.until(&format!("{number} puts arrive at rank {rank}"), |w| {
            w.puts(rank).len() >= number
        });
        self.puts(rank).into_iter().cloned().collect()
    }

    /// Returns the last events as text for the message of a failed case.
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
