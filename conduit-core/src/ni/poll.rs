//! What a poll asks of the network first, and hands its events to.

use super::{EqId, Event, PutEvent};

/// Where a poll may find something: event queues, and what [`super::Ni::progress`] does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(transparent)]
pub struct Ready(u32);

impl Ready {
    /// Nowhere.
    pub const NONE: Self = Self(0);
    /// Anywhere.
    pub const ALL: Self = Self(u32::MAX);
    /// [`super::Ni::progress`] only.
    pub const PROGRESS: Self = Self(1 << 31);

    /// A queue only. Those beyond the thirtieth are not told apart.
    #[inline]
    #[must_use]
    pub const fn queue(eq: EqId) -> Self {
        let bit = if eq.0 < 30 { eq.0 } else { 30 };
        Self(1 << bit)
    }

    /// Here and there.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether one of the other's places is among these.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether it is nowhere.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers of its queues, of those beyond the thirtieth one.
    pub fn queues(self) -> impl Iterator<Item = usize> {
        let mut rest = self.without(Self::PROGRESS).0;
        std::iter::from_fn(move || {
            let lowest = (rest != 0).then_some(rest.trailing_zeros() as usize);
            rest &= rest.wrapping_sub(1);
            lowest
        })
    }

    /// Here but not there.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Takes the events of a poll: what a closure is to [`super::Ni::poll`], with a say in how it is
/// compiled.
pub trait Sink {
    /// The next event.
    fn event(&mut self, event: Event<'_>);
    /// Whether it can take another event. If not, the poll ends as at its limit; what follows from
    /// an event that was taken ([`Event::Unlinked`], [`Event::Free`]) may still come.
    #[inline]
    fn is_ready(&self) -> bool {
        true
    }
    /// A put: [`Sink::event`] of an [`Event::Put`].
    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        self.event(Event::Put(put));
    }
}

/// A closure as a [`Sink`] that is always ready.
#[derive(Debug)]
pub struct Closure<F>(pub F);

impl<F: FnMut(Event<'_>)> Sink for Closure<F> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        (self.0)(event);
    }
}
