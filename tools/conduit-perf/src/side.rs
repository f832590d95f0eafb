//! One side of a measurement, which is a process (or thread) that works in the shared area together
//! with the other sides.
//!
//! The sides keep step through a control block at the start of the area: they [meet](Side::meet),
//! side 0 distributes decisions to the others ([agree](Side::agree)), and a side with an error
//! notifies the others ([abort](Side::abort)). No wait lasts forever, because each has a time
//! limit.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use crate::Error;
use crate::area::{CONTROL_BYTES, SharedArea};
use crate::placement::{Cores, Placement};

const MAGIC: u64 = u64::from_be_bytes(*b"CndtPrf1");

/// The number of iterations between two checks of the clock in a spinning wait, which take about a
/// millisecond.
const SPINS_PER_CHECK: u32 = 1 << 20;
/// The number of iterations between two checks of the clock in a yielding wait. They take less than
/// a millisecond.
const YIELDS_PER_CHECK: u32 = 1 << 10;

/// The default time for which a side waits for another side.
pub const PATIENCE: Duration = Duration::from_secs(300);

#[repr(C, align(256))]
struct Line(AtomicU64);

#[repr(C)]
struct Control {
    magic: Line,
    sides: Line,
    /// The number of sides that have joined.
    joined: Line,
    /// The number of arrivals at meetings since the start. Meeting number `n`, from 1, is over when
    /// it reaches `n * sides`.
    arrivals: Line,
    /// The number of the side that ended the measurement plus 1, or 0 if no side has.
    aborted: Line,
    /// The values that side 0 distributed in the last two meetings, by the parity of the meeting's
    /// number.
    said: [Line; 2],
}

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES);
const _: () = assert!(align_of::<Control>() <= crate::area::LINE_SPACING);

/// The way in which a side waits for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The side polls.
    Polling,
    /// The side sleeps in the system.
    Blocking,
}

/// One side of a measurement.
#[derive(Debug)]
pub struct Side<'a> {
    area: SharedArea<'a>,
    cores: Cores,
    rank: usize,
    sides: usize,
    patience: Duration,
    /// The number of meetings so far. Every side takes part in every meeting, so the number is the
    /// same on all sides.
    meetings: Cell<u64>,
    /// Whether sides share cores, so that waits must yield.
    crowded: Cell<bool>,
}

impl<'a> Side<'a> {
    /// Joins the measurement in `area` as side `rank` of `sides`, and waits until all sides have
    /// joined.
    ///
    /// # Errors
    /// Fails if the area belongs to a different measurement, or if some side does not join within
    /// `patience`.
    pub fn join(
        area: SharedArea<'a>,
        cores: Cores,
        rank: usize,
        sides: usize,
        patience: Duration,
    ) -> Result<Self, Error> {
        let side = Self {
            area,
            cores,
            rank,
            sides,
            patience,
            meetings: Cell::new(0),
            // Until the sides are placed, they are assumed to share cores.
            crowded: Cell::new(true),
        };
        let control = side.control();
        let claim =
            |word: &Line, value: u64| match word.0.compare_exchange(0, value, AcqRel, Acquire) {
                Ok(_) => true,
                Err(found) => found == value,
            };
        if !claim(&control.magic, MAGIC) {
            return Err(Error::AreaNotZeroed);
        }
        if rank >= sides
            || !claim(&control.sides, sides as u64)
            || control.joined.0.fetch_add(1, AcqRel) >= sides as u64
        {
            return Err(Error::SideMismatch { rank, sides });
        }
        side.meet()?;
        Ok(side)
    }

    /// Returns this side's number. Side 0 measures and decides.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of sides.
    #[must_use]
    pub fn sides(&self) -> usize {
        self.sides
    }

    /// Returns the shared memory.
    #[must_use]
    pub fn area(&self) -> &SharedArea<'a> {
        &self.area
    }

    /// Returns whether there are enough cores for [`Self::place`].
    #[must_use]
    pub fn fits(&self, placement: Placement) -> bool {
        self.cores.core(placement, self.rank, self.sides).is_ok()
    }

    /// Moves all sides to their cores. Collective.
    ///
    /// # Errors
    /// Fails if there are too few cores, if the system refuses, or if another side does not arrive.
    pub fn place(&self, placement: Placement) -> Result<(), Error> {
        self.cores
            .core(placement, self.rank, self.sides)
            .and_then(|core| self.cores.pin(core))
            .inspect_err(|_| self.abort())?;
        self.crowded.set(placement != Placement::Apart);
        self.meet()
    }

    /// Waits until every side has called this method as often as this side has. Everything that a
    /// side writes before the call is visible to all sides after the call.
    ///
    /// # Errors
    /// Fails if a side does not arrive in time or has aborted.
    pub fn meet(&self) -> Result<(), Error> {
        let meeting = self.meetings.get() + 1;
        self.meetings.set(meeting);
        let arrivals = &self.control().arrivals.0;
        let all = meeting * self.sides as u64;
        // SYNC POINT: the release half of the addition publishes this side's writes. The acquire
        // load below makes the writes of all sides visible, because their additions form one
        // release sequence.
        arrivals.fetch_add(1, AcqRel);
        self.wait("the other sides", || arrivals.load(Acquire) >= all)
    }

    /// Distributes side 0's `value` to all sides, and returns it. The argument is ignored on the
    /// other sides.
    ///
    /// # Errors
    /// Same as [`Self::meet`].
    pub fn agree(&self, value: u64) -> Result<u64, Error> {
        // Two words alternate. Side 0 writes the same word again only after the next meeting, and
        // every side has read the word before it arrives at that meeting.
        let word = &self.control().said[(self.meetings.get() & 1) as usize].0;
        if self.rank == 0 {
            word.store(value, Relaxed);
        }
        self.meet()?;
        Ok(word.load(Relaxed))
    }

    /// Ends the measurement on all sides. Their waits return [`Error::Aborted`].
    pub fn abort(&self) {
        let code = self.rank as u64 + 1;
        let _ = self
            .control()
            .aborted
            .0
            .compare_exchange(0, code, AcqRel, Acquire);
    }

    /// Waits until `done` returns `true`. Spins if each side has a core of its own, and yields
    /// otherwise.
    ///
    /// # Errors
    /// Fails if `done` does not return `true` within this side's patience, or if a side has
    /// aborted.
    #[inline]
    pub fn wait(&self, what: &'static str, done: impl FnMut() -> bool) -> Result<(), Error> {
        if self.crowded.get() {
            self.yield_until(what, done)
        } else {
            self.spin_until(what, done)
        }
    }

    /// Spins until `done` returns `true`. There is no pause instruction, so that a change is seen
    /// as early as possible.
    ///
    /// # Errors
    /// Same as [`Self::wait`].
    #[inline(always)]
    pub fn spin_until(&self, what: &'static str, done: impl FnMut() -> bool) -> Result<(), Error> {
        self.until(what, done, || {}, SPINS_PER_CHECK)
    }

    /// Yields the core until `done` returns `true`.
    ///
    /// # Errors
    /// Same as [`Self::wait`].
    #[inline(always)]
    pub fn yield_until(&self, what: &'static str, done: impl FnMut() -> bool) -> Result<(), Error> {
        self.until(what, done, std::thread::yield_now, YIELDS_PER_CHECK)
    }

    #[inline(always)]
    fn until(
        &self,
        what: &'static str,
        mut done: impl FnMut() -> bool,
        between: impl Fn(),
        per_check: u32,
    ) -> Result<(), Error> {
        let mut polls = 0u32;
        let mut since = None;
        while !done() {
            between();
            polls += 1;
            if polls == per_check {
                polls = 0;
                self.check(what, &mut since)?;
            }
        }
        Ok(())
    }

    /// Checks during a wait whether its time is up or a side has aborted. `since` is the time of
    /// the wait's first check.
    ///
    /// # Errors
    /// Same as [`Self::wait`].
    #[cold]
    pub fn check(&self, what: &'static str, since: &mut Option<Instant>) -> Result<(), Error> {
        match self.control().aborted.0.load(Acquire) {
            0 => {}
            code => {
                return Err(Error::Aborted {
                    by: code as usize - 1,
                });
            }
        }
        if since.get_or_insert_with(Instant::now).elapsed() > self.patience {
            self.abort();
            return Err(Error::Stalled {
                rank: self.rank,
                what,
                after: self.patience,
            });
        }
        Ok(())
    }

    fn control(&self) -> &Control {
        // SAFETY: the area starts with `CONTROL_BYTES` bytes for the control block, which are
        // aligned to `LINE_SPACING` bytes. The block consists only of atomics, for which any bytes
        // are valid, and the area outlives `self`.
        unsafe { self.area.control().cast::<Control>().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{in_threads, side_of};
    use crate::{area::AREA_BYTES, mapping::Mapping};

    #[test]
    fn all_sides_hear_what_side_0_says() {
        let heard = in_threads(3, |side| {
            (0..500)
                .map(|round| side.agree(round * 10 + side.rank() as u64))
                .collect()
        });
        for heard in heard {
            let heard: Result<Vec<u64>, Error> = heard;
            let expected: Vec<u64> = (0..500).map(|round| round * 10).collect();
            assert_eq!(heard.expect("agree"), expected);
        }
    }

    #[test]
    fn an_abort_ends_the_others_waits() {
        let errors = in_threads(2, |side| {
            if side.rank() == 1 {
                side.abort();
                return Ok(());
            }
            side.spin_until("nothing", || false)
        });
        assert!(matches!(errors[0], Err(Error::Aborted { by: 1 })));
    }

    #[test]
    fn a_side_that_never_comes_is_an_error() {
        let mapping = Mapping::anonymous(AREA_BYTES).expect("mapping");
        let cores = Cores::allowed().expect("cores");
        let area = mapping.area().expect("area");
        let joined = Side::join(area, cores, 0, 2, Duration::from_millis(1));
        assert!(
            matches!(joined, Err(Error::Stalled { rank: 0, .. })),
            "{joined:?}"
        );
    }

    #[test]
    fn a_used_or_foreign_area_is_refused() {
        let mapping = Mapping::anonymous(AREA_BYTES).expect("mapping");
        let first = side_of(&mapping, 0, 1).expect("first");
        drop(first);
        assert!(matches!(
            side_of(&mapping, 0, 1),
            Err(Error::SideMismatch { .. })
        ));
        assert!(matches!(
            side_of(&mapping, 0, 2),
            Err(Error::SideMismatch { .. })
        ));

        let foreign = Mapping::anonymous(AREA_BYTES).expect("mapping");
        // SAFETY: the eight bytes are the first ones of a fresh mapping, which has no other users.
        unsafe { foreign.base().write_bytes(7, 8) };
        assert!(matches!(side_of(&foreign, 0, 1), Err(Error::AreaNotZeroed)));
    }
}
