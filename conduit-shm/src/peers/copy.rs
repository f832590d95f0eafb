//! Copies between this process's memory and that of its peers. The system makes them (cross-memory
//! attach).

use std::io;
use std::os::fd::AsFd;

use conduit_core::ni::Rank;
use conduit_core::process_memory::{self, Pid};

use crate::peer_credentials::credentials;

use super::Local;
use super::packet::Terms;
use super::session::Copying;
use super::socket::is_hung_up;

/// Tests whether the memory of the process at the other end of a socket can be copied.
pub(super) fn try_copying(socket: impl AsFd, terms: &Terms) -> Copying {
    // A process id of 0 means that the peer's namespace is not visible here. A probe of 0 means
    // that the peer forbids copying.
    let Ok(process) = credentials(socket).map(|found| found.pid) else {
        return Copying::No;
    };
    if process <= 0 || terms.probe == 0 {
        return Copying::No;
    }
    let mut word = 0u64;
    let into = (&raw mut word).cast();
    // SAFETY: `into` points to the live local variable `word`, so it is valid for writes of its
    // size.
    let read = unsafe { process_memory::read(into, process, terms.probe, size_of_val(&word)) };
    match read.is_ok() && word == terms.probe_value {
        true => Copying::Of(process),
        false => Copying::No,
    }
}

impl Local {
    /// Returns the process of a peer. Fails if the peer's memory cannot be copied.
    ///
    /// The process has not ended, because its socket is open. It could still end between this check
    /// and the copy, and its id could be reused. However, the system assigns ids cyclically, so as
    /// many processes as there are ids would have to be created in the meantime.
    pub(super) fn process_of(&self, peer: Rank) -> io::Result<Pid> {
        let session = self.peers.session(peer);
        let session = session.ok_or(io::ErrorKind::NotConnected)?;
        match session.copying {
            Copying::No => Err(io::ErrorKind::Unsupported.into()),
            Copying::Of(_) if is_hung_up(&session.socket) => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            Copying::Of(process) => Ok(process),
        }
    }
}
