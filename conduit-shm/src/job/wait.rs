//! Functions that sleep until a message comes, and functions that wake sleepers.
//! [`crate::doorbell`] describes the protocol.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conduit_core::ni::{Ni, Rank};
use conduit_core::threads::{Lock, Mode};
use rustix::thread::futex;

use crate::doorbell::{Doorbell, MAX_SLEEP};

use super::mapping::Mapping;
use super::{Peer, Shm};

fn doorbell(peer: &Peer) -> Doorbell<'_> {
    doorbell_of(&peer.mapping)
}

fn doorbell_of(mapping: &Mapping) -> Doorbell<'_> {
    let words = &mapping.control().doorbell;
    Doorbell {
        sleeping: &words.sleeping,
        notified: &words.notified,
    }
}

/// Wakes all sleeping threads of a rank.
#[cold]
fn wake(rank: &Mapping) {
    let woken = futex::wake(
        doorbell_of(rank).sleeping,
        futex::Flags::empty(),
        i32::MAX as u32,
    );
    if let Err(error) = woken {
        tracing::warn!(%error, "cannot wake a peer");
    }
}

impl<M: Mode> Shm<M> {
    /// Returns a function that wakes this rank from any thread, for events that shared memory does
    /// not show.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let own = self.peers[self.rank as usize].mapping.clone();
        move || {
            if doorbell_of(&own).notify() {
                wake(&own);
            }
        }
    }

    /// Rings the doorbell of `peer` after a commit into one of its rings.
    #[inline]
    pub(super) fn ring_bell(&self, peer: &Peer) {
        if doorbell(peer).ring_after_message() {
            wake(&peer.mapping);
        }
    }

    pub(super) fn notify_peer(&self, peer: Rank) {
        if let Some(peer) = self.peers.get(peer as usize)
            && doorbell(peer).notify()
        {
            wake(&peer.mapping);
        }
    }

    pub(super) fn sleep(&self, limit: Duration) {
        if self.failed_peer().is_some() {
            return;
        }
        let own = &self.peers[self.rank as usize];
        let stretch = limit.min(MAX_SLEEP);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if doorbell(own).announce() && !self.is_anything_ready() {
            let timeout = futex::Timespec {
                tv_sec: 0,
                tv_nsec: stretch.as_nanos() as i64,
            };
            // The result does not matter, because the caller checks again, no matter whether the
            // wait was woken, was interrupted, timed out or never began.
            let _ = futex::wait(
                doorbell(own).sleeping,
                futex::Flags::empty(),
                1,
                Some(&timeout),
            );
        }
        // The last thread that leaves clears the word. If this removes the announcement of a thread
        // that is about to sleep, that thread returns early.
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            doorbell(own).retire();
        }
    }

    /// Returns whether a poll of any queue would find something. A queue that another thread is
    /// polling counts as ready.
    pub(super) fn is_anything_ready(&self) -> bool {
        let mut queues = self.queues.iter().filter_map(|queue| queue.get());
        self.is_replied()
            || self.has_activations()
            || queues.any(|queue| queue.inbox.try_lock().is_none_or(|inbox| inbox.is_ready()))
    }
}
