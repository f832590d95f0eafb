//! How often the inter-host network is looked at.
//!
//! A look may be a system call, which costs as much as a round trip between two ranks of a host. So while there is traffic between
//! those, the inter-host network is looked at only now and then: seldom, and more often while it has traffic too or is to answer. That goes
//! by a count of looks, as the time costs too much to ask for. It is looked at each time otherwise.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use atomic::Atomic;
use conduit_core::ni::{EqId, Ready};

/// Looks without anything from the intra-host network after which it is taken for idle, and at most between two at the inter-host network: some
/// microseconds, so that looks that are in vain take a twentieth of the time.
const SELDOM: u32 = 1024;
/// Looks between two at a inter-host network with traffic.
const OFTEN: u32 = 64;
/// Looks at the inter-host network in vain after which it has no traffic any more.
const PATIENT: u32 = 64;
/// A look that has found something counts as many as that takes to be handled: in a flood the inter-host network is looked at every 128th
/// time, and with traffic every 8th.
const FOUND: u32 = 8;

/// What is known of both networks. Threads that count at the same time may lose a look of each other's.
#[derive(Debug, Default)]
pub(super) struct PollThrottle {
    /// Looks until the intra-host network is idle.
    busy: AtomicU32,
    /// Looks since the inter-host network was looked at.
    looks: AtomicU32,
    /// Looks at the inter-host network until it is taken for one without traffic.
    traffic: AtomicU32,
    /// What it had when it was looked at last.
    inter: Atomic<Ready>,
}

const _: () = assert!(Atomic::<Ready>::is_lock_free());

impl PollThrottle {
    /// The intra-host network being ready so: is the inter-host one to be looked at?
    #[inline]
    pub(super) fn is_inter_due(&self, intra: Ready) -> bool {
        let (busy, weight) = match intra.is_empty() {
            true => (self.busy.load(Relaxed).saturating_sub(1), 1),
            false => (SELDOM, FOUND),
        };
        self.busy.store(busy, Relaxed);
        let looks = self.looks.load(Relaxed) + weight;
        let most = match self.traffic.load(Relaxed) {
            0 => SELDOM,
            _ => OFTEN,
        };
        let due = busy == 0 || looks >= most;
        self.looks.store(if due { 0 } else { looks }, Relaxed);
        due
    }

    /// What the inter-host network had when it was last looked at.
    #[inline]
    pub(super) fn inter(&self) -> Ready {
        self.inter.load(Relaxed)
    }

    /// It has nothing more in this queue.
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

    /// Something goes to a rank of another host, which may answer.
    pub(super) fn note_traffic(&self) {
        // Several threads may send: what is so already need not be written, which would take the line from the others.
        if self.traffic.load(Relaxed) != PATIENT {
            self.traffic.store(PATIENT, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until the inter-host network's turn has come.
    fn looks(throttle: &PollThrottle, intra: Ready) -> u32 {
        let mut looks = 1;
        while !throttle.is_inter_due(intra) {
            looks += 1;
        }
        looks
    }

    #[test]
    fn an_idle_host_looks_at_the_far_network_each_time() {
        let throttle = PollThrottle::default();
        assert_eq!(looks(&throttle, Ready::NONE), 1);
        assert_eq!(looks(&throttle, Ready::NONE), 1);
    }

    #[test]
    fn traffic_of_the_host_comes_first_but_not_for_ever() {
        let throttle = PollThrottle::default();
        assert_eq!(looks(&throttle, Ready::ALL), SELDOM / FOUND);
        assert_eq!(looks(&throttle, Ready::ALL), SELDOM / FOUND);
        // After the last of it.
        assert_eq!(looks(&throttle, Ready::NONE), SELDOM);
        assert_eq!(looks(&throttle, Ready::NONE), 1);
    }

    #[test]
    fn a_far_network_with_traffic_is_looked_at_often() {
        let throttle = PollThrottle::default();
        assert_eq!(looks(&throttle, Ready::ALL), SELDOM / FOUND);
        throttle.note_traffic();
        for _ in 0..PATIENT {
            assert_eq!(looks(&throttle, Ready::ALL), OFTEN / FOUND);
            throttle.note_inter(Ready::NONE);
        }
        assert_eq!(looks(&throttle, Ready::ALL), SELDOM / FOUND);
        throttle.note_inter(Ready::ALL);
        assert_eq!(looks(&throttle, Ready::ALL), OFTEN / FOUND);
    }
}
