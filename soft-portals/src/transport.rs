//! What carries fragments between ranks, as the portals see it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use rustix::event::Timespec;

use crate::fragment::{Fragment, Refused, Upper};

/// The reliability protocol with its driver, or something in its place.
///
/// One thread at a time is inside; it may be any. The rules of [`Upper`] hold for what is handed to it: in order on each of a
/// link's channels, each fragment once, no order between channels and links.
pub trait Transport: Send {
    /// Takes a fragment. It need not go out before [`Transport::transmit`].
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused>;
    /// Hands over what has arrived and does what is due by time; at most one system call when there is nothing. Says whether
    /// something has arrived.
    fn receive(&mut self, upper: &mut impl Upper) -> bool;
    /// Hands to the system what may go out now.
    fn transmit(&mut self, upper: &mut impl Upper);
    /// Whether nothing that was sent to a peer waits to go out or to be acknowledged: what is sent next had better go at once.
    fn is_idle(&self, peer: Rank) -> bool;
    /// Time until [`Transport::receive`] wants to be called although nothing arrives.
    fn timeout(&self) -> Option<Duration>;
    /// Sleeps until something arrives; apart, because nobody is inside meanwhile.
    fn waiter(&self) -> Arc<dyn Wait>;
    /// Where a peer is, for errors: its host and address.
    fn describe(&self, peer: Rank) -> String;
}

/// Sleeping beside a [`Transport`].
pub trait Wait: Send + Sync {
    /// Returns when something may have arrived since the transport's last [`Transport::receive`], when `also` is readable, or after
    /// `limit` (`None`: never); it may return early. Says whether something may have arrived.
    ///
    /// Whatever it says, the transport must receive before the next wait: until then it may not wait at all.
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool;
}

/// A wait's length as the system wants it; the longest there is for what exceeds it.
pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
