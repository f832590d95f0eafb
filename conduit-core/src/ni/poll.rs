//! The result of the readiness check before a poll, and the sink for a poll's events.

use super::{EqId, Event, PutEvent};

/// A set of places where work may be found: event queues, and [`super::Ni::progress`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(transparent)]
pub struct Ready(u32);

impl Ready {
    /// No place.
    pub const NONE: Self = Self(0);
    /// All places.
    pub const ALL: Self = Self(u32::MAX);
    /// Only [`super::Ni::progress`].
    pub const PROGRESS: Self = Self(1 << 31);

    /// Returns the set of one queue. All queues beyond the thirtieth share a bit.
    #[inline]
    #[must_use]
    pub const fn queue(eq: EqId) -> Self {
        let bit = if eq.0 < 30 { eq.0 } else { 30 };
        Self(1 << bit)
    }

    /// Returns the union of the two sets.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the sets intersect.
    #[inline]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether the set is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the numbers of the queues in the set. All queues beyond the thirtieth share a
    /// number.
    pub fn queues(self) -> impl Iterator<Item = usize> {
        let mut rest = self.without(Self::PROGRESS).0;
        std::iter::from_fn(move || {
            let lowest = (rest != 0).then_some(rest.trailing_zeros() as usize);
            rest &= rest.wrapping_sub(1);
            lowest
        })
    }

    /// Returns the set without the elements of `other`.
    #[inline]
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A receiver of the events of a poll. It works like a closure for [`super::Ni::poll`], but can
/// control how it is compiled.
pub trait Sink {
    /// Receives the next event.
    fn event(&mut self, event: Event<'_>);
    /// Returns whether the sink can take another event. If not, the poll ends as it does at its
    /// limit. Events that follow from an event already taken ([`Event::Unlinked`], [`Event::Free`])
    /// may still be delivered.
    #[inline]
    fn is_ready(&self) -> bool {
        true
    }
    /// Receives a put, as [`Sink::event`] does with an [`Event::Put`].
    #[inline(always)]
    fn put(&mut self, put: PutEvent<'_>) {
        self.event(Event::Put(put));
    }
}

/// A [`Sink`] made from a closure. It is always ready.
#[derive(Debug)]
pub struct Closure<F>(pub F);

impl<F: FnMut(Event<'_>)> Sink for Closure<F> {
    #[inline]
    fn event(&mut self, event: Event<'_>) {
        (self.0)(event);
    }
}
