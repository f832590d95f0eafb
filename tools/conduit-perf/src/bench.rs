//! A rank of a measured job. It has attached Conduit, with the handlers of the figures' messages
//! and with the memory that figures and limits share.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use conduit::{Conduit, Handlers, Job, Long, Medium, Rank, Short};
use zerocopy::FromBytes;

use crate::Error;
use crate::area::{AREA_BYTES, CONTROL_BYTES, SharedArea};
use crate::limits::queue::checksum;

/// The counts kept by this rank's handlers. They are incremented without a locked instruction,
/// because handlers run on the rank's only thread.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Seen {
    /// The number of requests.
    pub(crate) requests: AtomicU64,
    /// The sum of the requests' contents.
    pub(crate) sum: AtomicU64,
    /// The number of replies, and of messages to [`Messages::finished`].
    pub(crate) answers: AtomicU64,
}

impl Seen {
    /// Resets all counts before a run.
    pub(crate) fn reset(&self) {
        for word in [&self.requests, &self.sum, &self.answers] {
            word.store(0, Relaxed);
        }
    }

    #[inline]
    fn request(&self, value: u64) {
        add(&self.sum, value);
        add(&self.requests, 1);
    }
}

#[inline]
fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Relaxed).wrapping_add(value), Relaxed);
}

/// The handlers of the figures' messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages {
    /// Counts the request, adds its argument to the sum, and replies.
    pub(crate) ping: Short<(u64,)>,
    /// Counts the request and adds its argument to the sum, without a reply.
    pub(crate) count: Short<(u64,)>,
    /// Counts the request and adds the words of its payload to the sum, without a reply.
    pub(crate) medium: Medium<()>,
    /// Replies with its payload.
    pub(crate) echo: Medium<()>,
    /// Counts the request and adds the number of bytes that landed to the sum, without a reply.
    pub(crate) long: Long<()>,
    /// Counts the answer that says that the other rank has seen a whole flood.
    pub(crate) finished: Short<()>,
}

impl Messages {
    fn register(handlers: &mut Handlers, seen: &Arc<Seen>) -> Self {
        let see = || Arc::clone(seen);
        let answered = |seen: Arc<Seen>| move |_: &conduit::Call<'_>, ()| add(&seen.answers, 1);
        let pong = handlers.short(answered(see()));
        let ping = handlers.short({
            let seen = see();
            move |call, (value,): (u64,)| {
                seen.request(value);
                // The result is ignored, because the first reply to a request is never refused. If
                // it were, the requester would wait until the launcher's time limit ended the job.
                let _ = call.reply(pong, ());
            }
        });
        let count = handlers.short({
            let seen = see();
            move |_, (value,): (u64,)| seen.request(value)
        });
        let medium = handlers.medium({
            let seen = see();
            // The payload is aligned to 16 bytes and consists of whole words. If it were not, the
            // sum would be wrong.
            move |_, (), bytes| seen.request(<[u64]>::ref_from_bytes(bytes).map_or(0, checksum))
        });
        let echoed = handlers.medium({
            let seen = see();
            move |_: &conduit::Call<'_>, (), _: &[u8]| add(&seen.answers, 1)
        });
        // The result is ignored, because the first reply to a request is never refused.
        let echo = handlers.medium(move |call, (), bytes: &[u8]| {
            let _ = call.reply_medium(echoed, (), bytes);
        });
        let long = handlers.long({
            let seen = see();
            move |_, (), landed| seen.request(landed.length as u64)
        });
        Self {
            ping,
            count,
            medium,
            echo,
            long,
            finished: handlers.short(answered(see())),
        }
    }
}

/// A rank that measures.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) conduit: Conduit,
    pub(crate) seen: Arc<Seen>,
    pub(crate) messages: Messages,
    /// The rank whose segment contains the shared area and is the target of rank 0's operations. It
    /// is the last rank unless [`Bench::towards`] selects another one.
    pub(crate) home: Rank,
}

impl Bench {
    /// Joins the job. Collective.
    ///
    /// # Errors
    /// Fails if the job cannot be joined, or if memory is insufficient.
    pub(crate) fn start() -> conduit::Result<Self> {
        Self::towards(|job| job.size() - 1)
    }

    /// Joins the job like [`Bench::start`], but with the rank that `home` returns as home.
    /// Collective.
    pub(crate) fn towards(home: impl FnOnce(&Job) -> Rank) -> conduit::Result<Self> {
        let job = conduit::start()?;
        let seen = Arc::<Seen>::default();
        let mut handlers = Handlers::new();
        let messages = Messages::register(&mut handlers, &seen);
        let home = home(&job);
        let bytes = if job.rank() == home { AREA_BYTES } else { 0 };
        let conduit = job.attach(handlers, bytes)?;
        Ok(Self {
            conduit,
            seen,
            messages,
            home,
        })
    }

    /// Returns the shared area, which is this rank's mapping of the home rank's whole segment.
    ///
    /// # Errors
    /// Fails if this rank has no mapping of the segment.
    pub(crate) fn area(&self) -> Result<SharedArea<'_>, Error> {
        let window = self.conduit.window(self.home).map_err(failed("window"))?;
        let window = window.and_then(NonNull::new).ok_or(Error::NoWindow {
            rank: self.conduit.rank(),
            home: self.home,
        })?;
        // SAFETY: the segment is mapped as long as the borrow of `self` lasts. `attach` has zeroed
        // it, and it has the `AREA_BYTES` bytes that were requested there. It is accessed only
        // through this area and by the figures' operations, which use the work area only while they
        // own it.
        unsafe { SharedArea::new(window, AREA_BYTES) }
    }

    /// Returns the offset of the work area in the home rank's segment.
    pub(crate) fn work(&self) -> usize {
        CONTROL_BYTES
    }
}

/// Returns a `map_err` function for a call of Conduit in a figure.
pub(crate) fn failed(name: &'static str) -> impl Fn(conduit::Error) -> Error {
    move |source| Error::Figure {
        name,
        source: Box::new(source),
    }
}
