//! Messages for parts that this rank has not started yet.

use std::collections::HashMap;

use crate::collectives::Violation;
use crate::collectives::buffer::{Buffer, Pool};
use crate::ni::Rank;

/// A message that arrived early.
#[derive(Debug)]
pub(super) enum Early {
    /// The data of an eager part.
    Data(Buffer),
    /// Data of an eager part that was not kept for lack of room. Its sender waits for a ready
    /// message.
    Refused,
    /// A ready message, whose sender has room for the data.
    Ready,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) source: Rank,
    pub(super) signature: u32,
    pub(super) early: Early,
}

/// Messages that arrived early, by part number. The limits `most_records` and `most_bytes` come
/// from [`crate::collectives::Limits`].
#[derive(Debug)]
pub(super) struct EarlyMessages {
    parts: HashMap<u32, Vec<Record>>,
    records: usize,
    most_records: usize,
    bytes: usize,
    most_bytes: usize,
}

impl EarlyMessages {
    pub(super) fn new(most_records: usize, most_bytes: usize) -> Self {
        Self {
            parts: HashMap::new(),
            records: 0,
            most_records,
            bytes: 0,
            most_bytes,
        }
    }

    /// Keeps data if there is room, and returns whether it was kept.
    pub(super) fn data(
        &mut self,
        source: Rank,
        part: u32,
        signature: u32,
        payload: &[u8],
        pool: &mut Pool,
    ) -> Result<bool, Violation> {
        let fits = payload.len() <= self.most_bytes - self.bytes;
        let early = if fits {
            self.bytes += payload.len();
            Early::Data(pool.copy_of(payload))
        } else {
            Early::Refused
        };
        self.keep(source, part, signature, early)?;
        Ok(fits)
    }

    pub(super) fn ready(
        &mut self,
        source: Rank,
        part: u32,
        signature: u32,
    ) -> Result<(), Violation> {
        self.keep(source, part, signature, Early::Ready)
    }

    fn keep(
        &mut self,
        source: Rank,
        part: u32,
        signature: u32,
        early: Early,
    ) -> Result<(), Violation> {
        if self.records >= self.most_records {
            return Err(Violation::Unexpected {
                peer: source,
                what: "more messages for unstarted parts than can be in flight",
            });
        }
        self.records += 1;
        self.parts.entry(part).or_default().push(Record {
            source,
            signature,
            early,
        });
        Ok(())
    }

    /// Removes and returns the messages for a part that is starting now.
    pub(super) fn take(&mut self, part: u32) -> Vec<Record> {
        if self.records == 0 {
            return Vec::new();
        }
        let records = self.parts.remove(&part).unwrap_or_default();
        self.records -= records.len();
        for record in &records {
            if let Early::Data(buffer) = &record.early {
                self.bytes -= buffer.bytes().len();
            }
        }
        records
    }

    /// Returns the number of messages and of payload bytes kept.
    #[cfg(test)]
    pub(super) fn held(&self) -> (usize, usize) {
        (self.records, self.bytes)
    }
}
