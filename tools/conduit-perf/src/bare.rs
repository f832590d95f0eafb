//! Bare loops, which are the operations of a library or protocol below Conduit between two sides.

use std::time::{Duration, Instant};

use crate::Error;
use crate::side::{Side, Waiting};

/// One side's endpoint of a bare measurement.
pub(crate) trait Endpoint {
    /// The endpoint's name in errors.
    const NAME: &'static str;

    /// Sends a message of `size` bytes to the other side.
    fn send(&mut self, side: &Side<'_>, size: usize) -> Result<(), Error>;

    /// Returns the number of messages received.
    fn received(&self) -> u64;

    /// Returns the number of operations that have begun and have not ended.
    fn under_way(&self) -> u64 {
        0
    }

    /// Makes progress once. On a blocking side, sleeps for a while if there is nothing to do.
    fn poll(&mut self) -> Result<(), Error>;

    /// Returns how this side waits.
    fn waiting(&self) -> Waiting {
        Waiting::Polling
    }

    /// Makes progress until `done` returns `true`.
    #[inline]
    fn until(&mut self, side: &Side<'_>, done: impl Fn(&Self) -> bool) -> Result<(), Error> {
        let (waiting, mut polled) = (self.waiting(), Ok(()));
        let mut is_over = || {
            if !done(self) {
                polled = self.poll();
            }
            polled.is_err() || done(self)
        };
        match waiting {
            Waiting::Polling => side.wait(Self::NAME, is_over)?,
            Waiting::Blocking => {
                let mut since = None;
                while !is_over() {
                    side.check(Self::NAME, &mut since)?;
                }
            }
        }
        polled
    }

    /// Sends messages of `size` bytes back and forth. An operation is a full round trip.
    fn round_trips(&mut self, side: &Side<'_>, size: usize, count: u64) -> Result<Duration, Error> {
        let first = self.received();
        side.meet()?;
        let start = Instant::now();
        for trip in 1..=count {
            if side.rank() == 0 {
                self.send(side, size)?;
            }
            self.until(side, |end| end.received() >= first + trip)?;
            if side.rank() == 1 {
                self.send(side, size)?;
            }
        }
        let time = start.elapsed();
        self.rest(side)?;
        Ok(time)
    }

    /// Makes progress on both sides until neither has work left.
    fn rest(&mut self, _side: &Side<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Begins operations, keeping at most a given number under way at once.
    fn stream(
        &mut self,
        side: &Side<'_>,
        count: u64,
        most: u64,
        mut begin: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for _ in 0..count {
            self.until(side, |end| end.under_way() < most)?;
            begin(self)?;
        }
        Ok(())
    }

    /// Makes progress until no operation is under way.
    fn drain(&mut self, side: &Side<'_>) -> Result<(), Error> {
        self.until(side, |end| end.under_way() == 0)
    }
}

/// Returns the endpoint in `place`, which is opened on first use.
pub(crate) fn opened<E>(
    place: &mut Option<E>,
    open: impl FnOnce() -> Result<E, Error>,
) -> Result<&mut E, Error> {
    match place {
        Some(end) => Ok(end),
        none => Ok(none.insert(open()?)),
    }
}
