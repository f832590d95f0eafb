//! A throttle for the polling of the inter-host network.
//!
//! A poll may be a system call, which costs as much as a round trip between two ranks of a host.
//! While there is traffic on the host, the inter-host network is therefore polled only once in
//! `IDLE_INTERVAL` polls, or once in `BUSY_INTERVAL` polls if it has traffic itself or a reply from
//! it is expected. Polls are counted, because reading the clock costs too much. Without traffic on
//! the host, the inter-host network is polled each time.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use atomic::Atomic;
use conduit_core::ni::{EqId, Ready};

/// The number of polls without an event of the intra-host network after which that network counts
/// as idle. It is also the maximum number of polls between two polls of an inter-host network
/// without traffic. A poll of that network takes some microseconds, so with this interval empty
/// polls use a twentieth of the time.
const IDLE_INTERVAL: u32 = 1024;
/// The number of polls between two polls of an inter-host network with traffic.
const BUSY_INTERVAL: u32 = 64;
/// The number of empty polls of the inter-host network after which it counts as having no traffic.
const EMPTY_POLLS: u32 = 64;
/// The weight of a poll that finds events, because handling them takes about as long as this
/// number of empty polls. If each poll of the intra-host network finds events, the inter-host
/// network is thus polled every 128th time, or every 8th time while it has traffic.
const EVENT_WEIGHT: u32 = 8;

/// The state of both networks' traffic. Threads that count at the same time may lose a count.
#[derive(Debug, Default)]
pub(super) struct PollThrottle {
    /// The number of polls until the intra-host network counts as idle.
    busy: AtomicU32,
    /// The number of polls since the last one of the inter-host network.
    polls: AtomicU32,
    /// The number of empty polls of the inter-host network until that network counts as having no
    /// traffic.
    traffic: AtomicU32,
    /// The readiness of the inter-host network at the last check.
    inter: Atomic<Ready>,
}

const _: () = assert!(Atomic::<Ready>::is_lock_free());

impl PollThrottle {
    /// Returns whether to poll the inter-host network, given what is ready in the intra-host one.
    #[inline]
    pub(super) fn is_inter_due(&self, intra: Ready) -> bool {
        let (busy, weight) = match intra.is_empty() {
            true => (self.busy.load(Relaxed).saturating_sub(1), 1),
            false => (IDLE_INTERVAL, EVENT_WEIGHT),
        };
        self.busy.store(busy, Relaxed);
        let polls = self.polls.load(Relaxed) + weight;
        let most = match self.traffic.load(Relaxed) {
            0 => IDLE_INTERVAL,
            _ => BUSY_INTERVAL,
        };
        let due = busy == 0 || polls >= most;
        self.polls.store(if due { 0 } else { polls }, Relaxed);
        due
    }

    /// Returns what the last poll of the inter-host network found ready.
    #[inline]
    pub(super) fn inter(&self) -> Ready {
        self.inter.load(Relaxed)
    }

    /// Records that the queue `eq` of the inter-host network is empty.
    #[inline]
    pub(super) fn note_empty(&self, eq: EqId) {
        let rest = self.inter.load(Relaxed).without(Ready::queue(eq));
        self.inter.store(rest, Relaxed);
    }

    pub(super) fn note_inter(&self, ready: Ready) {
        self.inter.store(ready, Relaxed);
        match ready.is_empty() {
            true => {
                let rest = self.traffic.load(Relaxed).saturating_sub(1);
                self.traffic.store(rest, Relaxed);
            }
            false => self.note_traffic(),
        }
    }

    /// Records that something is sent to a rank of another host, which may reply.
    pub(super) fn note_traffic(&self) {
        // The value is stored only if it changes, because several threads may send, and a store of
        // the same value would still take the cache line from the other threads.
        if self.traffic.load(Relaxed) != EMPTY_POLLS {
            self.traffic.store(EMPTY_POLLS, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls until the inter-host network is due, and returns the number of polls.
    fn polls(throttle: &PollThrottle, intra: Ready) -> u32 {
        let mut polls = 1;
        while !throttle.is_inter_due(intra) {
            polls += 1;
        }
        polls
    }

    #[test]
    fn an_idle_host_polls_the_inter_host_network_each_time() {
        let throttle = PollThrottle::default();
        assert_eq!(polls(&throttle, Ready::NONE), 1);
        assert_eq!(polls(&throttle, Ready::NONE), 1);
    }

    #[test]
    fn traffic_of_the_host_comes_first_but_not_for_ever() {
        let throttle = PollThrottle::default();
        assert_eq!(polls(&throttle, Ready::ALL), IDLE_INTERVAL / EVENT_WEIGHT);
        assert_eq!(polls(&throttle, Ready::ALL), IDLE_INTERVAL / EVENT_WEIGHT);
        // The traffic has ended.
        assert_eq!(polls(&throttle, Ready::NONE), IDLE_INTERVAL);
        assert_eq!(polls(&throttle, Ready::NONE), 1);
    }

    #[test]
    fn an_inter_host_network_with_traffic_is_polled_often() {
        let throttle = PollThrottle::default();
        assert_eq!(polls(&throttle, Ready::ALL), IDLE_INTERVAL / EVENT_WEIGHT);
        throttle.note_traffic();
        for _ in 0..EMPTY_POLLS {
            assert_eq!(polls(&throttle, Ready::ALL), BUSY_INTERVAL / EVENT_WEIGHT);
            throttle.note_inter(Ready::NONE);
        }
        assert_eq!(polls(&throttle, Ready::ALL), IDLE_INTERVAL / EVENT_WEIGHT);
        throttle.note_inter(Ready::ALL);
        assert_eq!(polls(&throttle, Ready::ALL), BUSY_INTERVAL / EVENT_WEIGHT);
    }
}
