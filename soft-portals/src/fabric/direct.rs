//! Direct access over a fabric: done by the initiator's end, some time after it was asked for and in any order, and told later still.

use conduit_core::ni::Rank;
use conduit_core::shared;

use super::FabricTransport;
use crate::fragment::{Failure, Refused, Upper};
use crate::transport::{Access, Remote};

/// Memory of a rank that its peers reach.
#[derive(Debug)]
pub(super) struct Exposed {
    remote: Remote,
    base: *mut u8,
    len: usize,
}

// SAFETY: a name for memory that is valid in the whole process as long as it is listed; accesses go through raw pointers.
unsafe impl Send for Exposed {}

/// What to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Write,
    Read,
}

/// Something that was asked for.
#[derive(Debug)]
pub(super) struct Operation {
    peer: Rank,
    access: Access,
    what: What,
}

// SAFETY: whoever asks keeps the memory valid in the whole process until it has ended.
unsafe impl Send for Operation {}

/// Something that was done.
#[derive(Debug)]
pub(super) struct Ended {
    peer: Rank,
    token: u64,
    value: u64,
}

impl FabricTransport {
    pub(super) fn expose_directly(&mut self, base: *mut u8, len: usize) -> Result<Remote, String> {
        let mut exposed = self.fabric.0[self.rank as usize].exposed.lock();
        let bytes: usize = exposed.iter().map(|exposed| exposed.len).sum();
        let limit = self.disorder.exposed_bytes;
        if bytes.saturating_add(len) > limit {
            return Err(format!("{bytes} of {limit} bytes are exposed"));
        }
        // Neither is what anybody would guess: networks number keys and addresses as they like.
        let key = 77 + 3 * exposed.len() as u64;
        let remote = Remote {
            key,
            address: key << 40,
        };
        exposed.push(Exposed { remote, base, len });
        Ok(remote)
    }

    /// Takes an operation.
    pub(super) fn begin_direct(
        &mut self,
        peer: Rank,
        access: &Access,
        what: What,
    ) -> Result<(), Refused> {
        if !self.disorder.direct {
            return Err(Refused::TooLong);
        }
        match self.dead.get(peer as usize) {
            None => return Err(Refused::NoSuchRank),
            Some(true) => return Err(Refused::Dead),
            Some(false) => {}
        }
        let full = self.direct.len() + self.ended.len() >= 4 * self.disorder.link_fragments;
        if full || self.chance(self.disorder.refuse) {
            return Err(Refused::Full);
        }
        self.direct.push(Operation {
            peer,
            access: *access,
            what,
        });
        Ok(())
    }

    pub(super) fn has_direct_to(&self, peer: Rank) -> bool {
        self.direct.iter().any(|operation| operation.peer == peer)
            || self.ended.iter().any(|ended| ended.peer == peer)
    }

    pub(super) fn drop_direct(&mut self, peer: Rank) {
        self.direct.retain(|operation| operation.peer != peer);
        self.ended.retain(|ended| ended.peer != peer);
    }

    /// Does some of what was asked for, and tells of some of what was done.
    pub(super) fn do_direct(&mut self, upper: &mut impl Upper) {
        if let Some(random) = &mut self.random {
            random.shuffle(&mut self.direct);
            random.shuffle(&mut self.ended);
        }
        // Those that were done in an earlier turn.
        while !self.ended.is_empty() && !self.chance(3) {
            if let Some(Ended { peer, token, value }) = self.ended.pop() {
                upper.done(peer, token, value);
            }
        }
        while !self.direct.is_empty() && !self.chance(3) {
            let Some(operation) = self.direct.pop() else {
                break;
            };
            let peer = operation.peer;
            match self.execute(&operation) {
                Some(value) => self.ended.push(Ended {
                    peer,
                    token: operation.access.token,
                    value,
                }),
                // It has ended without waiting for this.
                None => {
                    self.dead[peer as usize] = true;
                    self.drop_direct(peer);
                    upper.failed(peer, Failure::Broken("its memory is gone"));
                }
            }
        }
    }

    /// Does it now. `None`: the peer has nothing exposed any more.
    fn execute(&self, operation: &Operation) -> Option<u64> {
        let Access {
            remote,
            memory,
            length,
            ..
        } = operation.access;
        let exposed = self.fabric.0[operation.peer as usize].exposed.lock();
        let place = exposed.iter().find(|e| e.remote.key == remote.key)?;
        let offset = remote.address.wrapping_sub(place.remote.address) as usize;
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= place.len),
            "rank {}: {:?} of {} bytes is outside of what rank {} has exposed",
            self.rank,
            operation.what,
            place.len,
            operation.peer
        );
        // SAFETY: within the memory (just checked), which is valid as long as it is listed, and the list is locked; the memory here is
        // valid until the operation has ended.
        unsafe {
            let there = place.base.add(offset);
            match operation.what {
                What::Write => shared::copy(memory, there, length),
                What::Read => shared::copy(there, memory, length),
            }
        }
        Some(0)
    }
}

impl Drop for FabricTransport {
    fn drop(&mut self) {
        // Whoever reaches into it now is waited for; the memory may be gone after this.
        self.fabric.0[self.rank as usize].exposed.lock().clear();
    }
}
