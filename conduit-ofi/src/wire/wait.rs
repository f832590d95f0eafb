//! Sleeps until something arrives.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use libfabric_sys::{
    FI_GETWAIT, FI_WAIT_FD, FI_WAIT_POLLFD, fi_control, fi_cq_data_entry, fi_cq_sread, fi_wait_obj,
    fi_wait_pollfd, fid_cq,
};

use conduit_portals::transport::{Wait, timespec};
use rustix::event::{PollFd, PollFlags};

/// The time between polls if there is no descriptor to sleep on.
const LOOK: Duration = Duration::from_micros(100);

/// An unused entry.
const NONE: libc::pollfd = libc::pollfd {
    fd: -1,
    events: libc::POLLIN,
    revents: 0,
};

/// Returns the descriptors to sleep on. One of them becomes readable when the queue has a
/// completion. The list is empty if the queue has no descriptors.
///
/// # Safety
///
/// The queue must be open with this kind of wait. An endpoint bound to it must be enabled, so that
/// the library's list is complete. No operation may have completed.
pub(crate) unsafe fn descriptors(queue: *mut fid_cq, kind: fi_wait_obj) -> Vec<libc::pollfd> {
    match kind {
        // SAFETY: the caller guarantees that the queue is open with this kind of wait.
        FI_WAIT_FD => unsafe { one(queue) },
        // SAFETY: the caller guarantees that the queue is open with this kind of wait and that
        // nothing has completed.
        FI_WAIT_POLLFD => unsafe { several(queue) },
        _ => Vec::new(),
    }
}

/// # Safety
///
/// The queue must be open with `FI_WAIT_FD`.
unsafe fn one(queue: *mut fid_cq) -> Vec<libc::pollfd> {
    let mut found = NONE;
    // SAFETY: the caller guarantees that the queue is open with `FI_WAIT_FD`, so the command writes
    // one descriptor, for which `found.fd` has room.
    let result = unsafe {
        let place = (&raw mut found.fd).cast();
        fi_control(&raw mut (*queue).fid, FI_GETWAIT, place)
    };
    match result {
        0 if found.fd >= 0 => vec![found],
        _ => Vec::new(),
    }
}

/// # Safety
///
/// The queue must be open with `FI_WAIT_POLLFD`, and nothing may have completed.
unsafe fn several(queue: *mut fid_cq) -> Vec<libc::pollfd> {
    /// The number of descriptors for which there is room. Three and four were observed.
    const PLACES: usize = 16;
    /// The number of waits for the queue.
    const WAITS: u32 = 10;
    /// The length of each wait in milliseconds. A shorter wait may return immediately, because the
    /// library rounds the time.
    const WAIT: c_int = 2;
    for _ in 0..WAITS {
        let mut entry = fi_cq_data_entry::default();
        let mut found = [NONE; PLACES];
        let mut answer = fi_wait_pollfd {
            change_index: 0,
            nfds: PLACES,
            fd: found.as_mut_ptr(),
        };
        // SAFETY: the caller guarantees that the queue is open. `entry` has room for one
        // completion, and `found` for the stated number of descriptors.
        let result = unsafe {
            // The library defers additions to its list until a thread waits for the queue.
            fi_cq_sread(queue, (&raw mut entry).cast(), 1, ptr::null(), WAIT);
            let place = (&raw mut answer).cast();
            fi_control(&raw mut (*queue).fid, FI_GETWAIT, place)
        };
        // The first descriptor is that of the list itself, which signals deferred additions.
        if result == 0 && answer.nfds > 1 {
            let is_open = |found: &libc::pollfd| found.fd >= 0;
            return found.into_iter().filter(is_open).collect();
        }
    }
    Vec::new()
}

/// A means to wait for a completion queue without borrowing it.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The library's descriptors. They are open as long as the endpoint. The endpoint outlives
    /// every wait, because only threads of the network's owner wait.
    descriptors: Box<[libc::pollfd]>,
}

impl Waiter {
    pub(crate) fn new(descriptors: &[libc::pollfd]) -> Self {
        Self {
            descriptors: descriptors.into(),
        }
    }
}

impl Wait for Waiter {
    fn wait(&self, also: Option<&OwnedFd>, limit: Option<Duration>) -> bool {
        let queue = self.descriptors.iter().map(|found| {
            // SAFETY: the descriptor is open during the wait (see the field `descriptors`).
            let descriptor = unsafe { BorrowedFd::borrow_raw(found.fd) };
            // Both types have the same number of bits, with the same meaning.
            let events = PollFlags::from_bits_retain(found.events as _);
            PollFd::from_borrowed_fd(descriptor, events)
        });
        let also = also.map(|also| PollFd::new(also, PollFlags::IN));
        let mut descriptors: Vec<_> = queue.chain(also).collect();
        let limit = match self.descriptors.is_empty() {
            false => limit,
            true => Some(limit.map_or(LOOK, |limit| limit.min(LOOK))),
        };
        let limit = limit.map(timespec);
        // A wait that was interrupted counts as a short one.
        let ended = rustix::event::poll(&mut descriptors, limit.as_ref());
        let mut queue = descriptors[..self.descriptors.len()].iter();
        // Without descriptors, it is unknown whether something has arrived.
        queue.len() == 0 || ended.is_ok() && queue.any(|found| !found.revents().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::{Hints, choose};
    use crate::testing::libraries;
    use crate::wire::objects::Objects;

    /// Without descriptors, a sleeping rank would poll every 100 µs.
    #[test]
    fn queues_of_tcp_have_descriptors() {
        for which in libraries() {
            let library = which.load().expect("it has been loaded before");
            let hints = Hints {
                provider: Some("tcp".to_owned()),
                one_host: true,
                ..Hints::default()
            };
            let offer = choose(&library, &hints).map_err(|(reason, _)| reason);
            let objects = Objects::open(offer.expect("tcp"), 1 << 14).expect("an endpoint");
            // The descriptors are that of the list itself and those of the sockets.
            assert!(objects.descriptors.len() > 1, "{:?}", objects.descriptors);
            assert!(objects.may_wait());
        }
    }
}
