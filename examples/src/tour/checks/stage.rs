//! The common state of all checks: the attached rank, its handlers and the messages they have
//! received, and the layout of the segment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use conduit::{AtomicOp, Conduit, Handlers, Long, Medium, Rank, Short};

/// The offset of the numbers of operations that each check has verified. Those in rank 0's segment
/// are used.
pub(super) const TOTALS: usize = 0;
/// The offset of the integers that the checks of atomics use.
pub(super) const ATOMICS: usize = 1024;
/// The offset of the integer in which both handlers and remote atomics count.
pub(super) const TALLY: usize = 2048;
/// The number of bytes before the slots.
pub(super) const SEGMENT_FIXED: usize = 4096;
/// The size of a slot. A segment has a slot for each rank, written only by that rank, and behind
/// them another for each rank's replies.
pub(super) const SLOT: usize = 256 << 10;

/// The arguments of a full short: sixteen words.
pub(super) type Full = (u64, u64, u64, u64, u64, u64, u64, i64);

/// The ids of the handlers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Messages {
    pub(super) empty: Short<()>,
    pub(super) mixed: Short<(u32, f64, i32)>,
    pub(super) full: Short<Full>,
    pub(super) medium: Medium<(u64,)>,
    pub(super) long: Long<(usize,)>,
    pub(super) count: Short<(u64,)>,
    pub(super) count_medium: Medium<(u64,)>,
    pub(super) tally: Short<(u64,)>,
}

/// The messages that handlers have received.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The number of replies so far.
    pub(super) replies: AtomicU64,
    /// Those arguments of the last reply that are compared.
    pub(super) mixed: Mutex<(u32, f64, i32)>,
    pub(super) full: Mutex<Full>,
    /// The last medium reply: argument and payload.
    pub(super) medium: Mutex<(u64, Vec<u8>)>,
    /// The location of the last long reply: offset and length.
    pub(super) long: Mutex<(usize, usize)>,
    /// The number of messages counted, and the sum of their arguments.
    pub(super) counted: AtomicU64,
    pub(super) sum: AtomicU64,
    /// The first error that a handler has found.
    wrong: Mutex<Option<String>>,
}

/// Takes a lock. A handler that panicked has already failed the check.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inbox {
    /// Records the error of a handler's call, if any.
    fn note(&self, result: conduit::Result<()>) {
        if let Err(error) = result {
            self.complain(error.to_string());
        }
    }

    fn complain(&self, wrong: String) {
        lock(&self.wrong).get_or_insert(wrong);
    }
}

/// Registers an echoing request handler and the handler of its reply, for each category.
pub(super) fn handlers() -> (Handlers, Messages, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::default());
    let mut handlers = Handlers::new();
    let got = |inbox: &Inbox| {
        inbox.replies.fetch_add(1, Relaxed);
    };

    let to = Arc::clone(&inbox);
    let reply = handlers.short(move |_, ()| got(&to));
    let to = Arc::clone(&inbox);
    let empty = handlers.short(move |call, ()| to.note(call.reply(reply, ())));

    let to = Arc::clone(&inbox);
    let reply = handlers.short(move |_, args| {
        *lock(&to.mixed) = args;
        got(&to);
    });
    let to = Arc::clone(&inbox);
    let mixed = handlers.short(move |call, (a, b, c): (u32, f64, i32)| {
        to.note(call.reply(reply, (a + 1, b * 2.0, -c)))
    });

    let to = Arc::clone(&inbox);
    let reply = handlers.short(move |_, args| {
        *lock(&to.full) = args;
        got(&to);
    });
    let to = Arc::clone(&inbox);
    let full = handlers.short(move |call, args: Full| to.note(call.reply(reply, args)));

    let to = Arc::clone(&inbox);
    let reply = handlers.medium(move |_, (number,), bytes: &[u8]| {
        *lock(&to.medium) = (number, bytes.to_vec());
        got(&to);
    });
    let to = Arc::clone(&inbox);
    let medium = handlers.medium(move |call, (number,), bytes: &[u8]| {
        to.note(call.reply_medium(reply, (number + 1,), bytes));
    });

    let to = Arc::clone(&inbox);
    let reply = handlers.long(move |_, (_,): (usize,), landed| {
        *lock(&to.long) = (landed.offset, landed.length);
        got(&to);
    });
    let to = Arc::clone(&inbox);
    // The payload lies in the segment. The reply returns its location, and bytes that identify the
    // replier.
    let long = handlers.long(move |call, (back,): (usize,), landed| {
        let bytes = [landed.offset as u8; 100];
        let length = landed.length.min(bytes.len());
        to.note(call.reply_long(reply, (landed.offset,), &bytes[..length], back));
    });

    let to = Arc::clone(&inbox);
    let count = handlers.short(move |_, (number,): (u64,)| {
        to.sum.fetch_add(number, Relaxed);
        to.counted.fetch_add(1, Relaxed);
    });
    let to = Arc::clone(&inbox);
    let count_medium = handlers.medium(move |call, (number,): (u64,), bytes: &[u8]| {
        if bytes.iter().any(|&byte| byte != number as u8) {
            to.complain(format!(
                "a medium from rank {} changed in transit",
                call.source()
            ));
        }
        to.sum.fetch_add(number, Relaxed);
        to.counted.fetch_add(1, Relaxed);
    });
    let to = Arc::clone(&inbox);
    let tally = handlers.short(move |call, (number,): (u64,)| {
        to.note(call.segment().atomic(TALLY, AtomicOp::Add, number));
    });
    let messages = Messages {
        empty,
        mixed,
        full,
        medium,
        long,
        count,
        count_medium,
        tally,
    };
    (handlers, messages, inbox)
}

/// An attached rank with its handlers.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) conduit: Conduit,
    pub(super) messages: Messages,
    pub(super) inbox: Arc<Inbox>,
}

impl Stage {
    pub(super) fn rank(&self) -> Rank {
        self.conduit.rank()
    }

    pub(super) fn size(&self) -> u32 {
        self.conduit.size()
    }

    /// Returns all ranks, beginning with the next one.
    pub(super) fn peers(&self) -> impl Iterator<Item = Rank> + use<> {
        let (rank, size) = (self.rank(), self.size());
        (1..=size).map(move |step| (rank + step) % size)
    }

    /// Returns the offset of `owner`'s slot, the same in all segments.
    pub(super) fn slot(&self, owner: Rank) -> usize {
        SEGMENT_FIXED + owner as usize * SLOT
    }

    /// Returns the offset of `owner`'s slot for replies.
    pub(super) fn reply_slot(&self, owner: Rank) -> usize {
        SEGMENT_FIXED + (self.size() + owner) as usize * SLOT
    }

    /// Waits until `number` more replies than `before` have arrived.
    pub(super) fn replied(&self, before: u64, number: u64) -> Result<()> {
        let replies = &self.inbox.replies;
        self.conduit
            .wait_until(|| replies.load(Relaxed) >= before + number)?;
        self.handlers_content()
    }

    /// Waits until `number` messages, all that the ranks have sent together, have been counted.
    pub(super) fn counted(&self, number: u64) -> Result<()> {
        self.conduit
            .wait_until(|| self.inbox.counted.load(Relaxed) >= number)?;
        ensure!(
            self.inbox.counted.load(Relaxed) == number,
            "more messages than were sent"
        );
        self.handlers_content()
    }

    fn handlers_content(&self) -> Result<()> {
        match lock(&self.inbox.wrong).take() {
            None => Ok(()),
            Some(wrong) => anyhow::bail!("in a handler: {wrong}"),
        }
    }
}

/// Returns bytes that differ by index, sender and round.
pub(super) fn pattern(from: Rank, round: usize, length: usize) -> Vec<u8> {
    let seed = from as usize * 31 + round * 7;
    (0..length)
        .map(|at| (seed + at * 13 + (at >> 8)) as u8)
        .collect()
}

/// Compares bytes with their pattern, and reports the first difference.
pub(super) fn compare(what: &str, got: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(
        got.len() == expected.len(),
        "{what}: got {} of {} bytes",
        got.len(),
        expected.len()
    );
    match got.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => anyhow::bail!(
            "{what}: byte {at} of {} is {}, not {}",
            got.len(),
            got[at],
            expected[at]
        ),
    }
}
