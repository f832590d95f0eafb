//! An open network that is composed of a near one, among the processes of a host, and a far one.
//!
//! A peer's number in the pair is its number in one of the two networks, shifted left by one. The
//! lowest bit says which of the networks that is. An address consists of the length of the near
//! part in one byte, the near part and the far part. A peer's address determines which network
//! reaches the peer: the near one if it can, and otherwise the far one. Both ends therefore choose
//! the same network.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use conduit_core::ni::Rank;
use conduit_portals::forward_transport;
use conduit_portals::transport::fragment::{Failure, Fragment, FragmentHandler, Refused};
use conduit_portals::transport::open::{ConnectError, OpenTransport};
use conduit_portals::transport::{Transport, Wait};

/// Returns whether an address of the near network belongs to this host.
pub type IsNear<N> = fn(&N, &[u8]) -> bool;

/// A pair of open networks, at least one of which exists. See also the module
/// [`open`](crate::open).
pub struct Pair<N, F> {
    near: Option<N>,
    far: Option<F>,
    is_near: IsNear<N>,
    address: Vec<u8>,
    /// For each of the two networks, the addresses given to `connect`, indexed by the peer's number
    /// in that network. Each is a full address, with parts for both networks.
    peers: [Vec<Vec<u8>>; 2],
}

const FAR: usize = 0;
const NEAR: usize = 1;

fn number(side: usize, peer: Rank) -> Rank {
    // Cannot overflow, because the networks' numbers are small.
    peer << 1 | side as Rank
}

fn side(peer: Rank) -> (usize, Rank) {
    ((peer & 1) as usize, peer >> 1)
}

/// A handler that forwards the events of one network with the peers' numbers in the pair.
struct Renumbered<'h, H> {
    handler: &'h mut H,
    side: usize,
}

impl<H: FragmentHandler> FragmentHandler for Renumbered<'_, H> {
    forward_transport!(handler in [Self { handler, .. }]: place, end, room);

    fn read(&mut self, peer: Rank, token: u64, offset: usize, into: &mut [u8]) {
        self.handler
            .read(number(self.side, peer), token, offset, into);
    }
    fn source(&self, peer: Rank, token: u64, offset: usize, length: usize) -> Option<&[u8]> {
        self.handler
            .source(number(self.side, peer), token, offset, length)
    }
    fn sent(&mut self, peer: Rank, token: u64) {
        self.handler.sent(number(self.side, peer), token);
    }
    fn is_awaited(&self, peer: Rank, token: u64) -> bool {
        self.handler.is_awaited(number(self.side, peer), token)
    }
    #[inline]
    fn fragment(&mut self, peer: Rank, header: &[u8], payload: &[u8]) -> bool {
        self.handler
            .fragment(number(self.side, peer), header, payload)
    }
    fn begin(&mut self, peer: Rank, header: &[u8], length: usize) -> Option<u64> {
        self.handler.begin(number(self.side, peer), header, length)
    }
    fn done(&mut self, peer: Rank, token: u64, value: u64) {
        self.handler.done(number(self.side, peer), token, value);
    }
    fn failed(&mut self, peer: Rank, failure: Failure) {
        self.handler.failed(number(self.side, peer), failure);
    }
    fn joined(&mut self, peer: Rank) {
        self.handler.joined(number(self.side, peer));
    }
    fn link_idle(&mut self, peer: Rank) {
        self.handler.link_idle(number(self.side, peer));
    }
}

/// Splits an address into its near and far part.
fn split(address: &[u8]) -> Result<(&[u8], &[u8]), ConnectError> {
    let parts = || {
        let (&length, rest) = address.split_first()?;
        rest.split_at_checked(length.into())
    };
    parts().ok_or(ConnectError::Malformed("address is truncated"))
}

fn join(near: &[u8], far: &[u8]) -> Vec<u8> {
    debug_assert!(near.len() <= usize::from(u8::MAX));
    // The cast is lossless, because a near network's address is short.
    [&[near.len() as u8], near, far].concat()
}

/// The character that separates the two parts of an address's text. Neither part contains it,
/// whereas the names of libfabric's providers contain `;`, and lists of addresses contain `,`.
const SEPARATOR: char = '~';

impl<N: OpenTransport, F: OpenTransport> Pair<N, F> {
    /// Creates a pair of both networks, or of one of them.
    pub fn new(near: Option<N>, far: Option<F>, is_near: IsNear<N>) -> Self {
        let own = join(
            near.as_ref().map_or(&[], |near| near.address()),
            far.as_ref().map_or(&[], |far| far.address()),
        );
        Self {
            near,
            far,
            is_near,
            address: own,
            peers: [Vec::new(), Vec::new()],
        }
    }

    fn note(&mut self, side: usize, peer: Rank, address: Vec<u8>) {
        let known = &mut self.peers[side];
        let at = peer as usize;
        if known.len() <= at {
            known.resize(at + 1, Vec::new());
        }
        known[at] = address;
    }

    /// Forgets the address of a peer whose number is no longer assigned.
    fn forget(&mut self, side: usize, peer: Rank) {
        let known = &mut self.peers[side];
        if let Some(address) = known.get_mut(peer as usize) {
            *address = Vec::new();
        }
        while known.last().is_some_and(Vec::is_empty) {
            known.pop();
        }
    }

    /// Returns the near network.
    pub fn near(&self) -> Option<&N> {
        self.near.as_ref()
    }

    /// Returns the far network.
    pub fn far(&self) -> Option<&F> {
        self.far.as_ref()
    }
}

/// Makes a call to the network of a peer, with the peer's number in that network.
macro_rules! on {
    ($self:ident, $peer:ident, $network:ident, $call:expr, $none:expr) => {
        match side($peer) {
            (NEAR, $peer) => match &$self.near {
                Some($network) => $call,
                None => $none,
            },
            (_, $peer) => match &$self.far {
                Some($network) => $call,
                None => $none,
            },
        }
    };
    (mut $self:ident, $peer:ident, $network:ident, $call:expr, $none:expr) => {
        match side($peer) {
            (NEAR, $peer) => match &mut $self.near {
                Some($network) => $call,
                None => $none,
            },
            (_, $peer) => match &mut $self.far {
                Some($network) => $call,
                None => $none,
            },
        }
    };
}

impl<N: OpenTransport, F: OpenTransport> Transport for Pair<N, F> {
    #[inline]
    fn send(&mut self, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        on!(mut self, peer, network, network.send(peer, fragment), Err(Refused::NoSuchRank))
    }
    fn receive(&mut self, handler: &mut impl FragmentHandler) -> bool {
        let mut arrived = false;
        if let Some(near) = &mut self.near {
            let side = NEAR;
            arrived |= near.receive(&mut Renumbered { handler, side });
        }
        if let Some(far) = &mut self.far {
            let side = FAR;
            arrived |= far.receive(&mut Renumbered { handler, side });
        }
        arrived
    }
    fn transmit(&mut self, handler: &mut impl FragmentHandler) {
        if let Some(near) = &mut self.near {
            let side = NEAR;
            near.transmit(&mut Renumbered { handler, side });
        }
        if let Some(far) = &mut self.far {
            let side = FAR;
            far.transmit(&mut Renumbered { handler, side });
        }
    }
    fn outstanding(&self, peer: Rank) -> usize {
        on!(self, peer, network, network.outstanding(peer), 0)
    }
    fn settle(&mut self, peer: Rank) {
        on!(mut self, peer, network, network.settle(peer), ());
    }
    fn timeout(&self) -> Option<Duration> {
        let near = self.near.as_ref().and_then(Transport::timeout);
        let far = self.far.as_ref().and_then(Transport::timeout);
        [near, far].into_iter().flatten().min()
    }
    fn waiter(&self) -> Arc<dyn Wait> {
        Arc::new(Waiter(
            [
                self.near.as_ref().map(Transport::waiter),
                self.far.as_ref().map(Transport::waiter),
            ]
            .into_iter()
            .flatten()
            .collect(),
        ))
    }
    fn abandon(&mut self, peers: &[Rank], handler: &mut impl FragmentHandler) {
        for of in [NEAR, FAR] {
            let peers: Vec<_> = peers
                .iter()
                .filter(|peer| side(**peer).0 == of)
                .map(|peer| side(*peer).1)
                .collect();
            let handler = &mut Renumbered { handler, side: of };
            match (of, &mut self.near, &mut self.far) {
                _ if peers.is_empty() => {}
                (NEAR, Some(near), _) => near.abandon(&peers, handler),
                (FAR, _, Some(far)) => far.abandon(&peers, handler),
                _ => {}
            }
        }
    }
    fn describe(&self, peer: Rank) -> String {
        on!(self, peer, network, network.describe(peer), String::new())
    }
}

/// A waiter that sleeps until one of several networks has something to do.
struct Waiter(Vec<Arc<dyn Wait>>);

impl Wait for Waiter {
    fn wait(&self, also: Option<&std::os::fd::OwnedFd>, limit: Option<Duration>) -> bool {
        /// The time to wait for one network before another one's turn.
        const TURN: Duration = Duration::from_micros(100);
        match &self.0[..] {
            [only] => only.wait(also, limit),
            all => {
                let turn = limit.map_or(TURN, |limit| limit.min(TURN));
                all.iter().any(|one| one.wait(also, Some(turn)))
            }
        }
    }
}

impl<N: OpenTransport, F: OpenTransport> OpenTransport for Pair<N, F> {
    fn address(&self) -> &[u8] {
        &self.address
    }
    fn address_to_text(&self, address: &[u8]) -> Option<String> {
        let (near, far) = split(address).ok()?;
        let near = match (&self.near, near) {
            (_, []) => None,
            (Some(network), near) => Some(network.address_to_text(near)?),
            (None, _) => return None,
        };
        let far = match (&self.far, far) {
            (_, []) => None,
            (Some(network), far) => Some(network.address_to_text(far)?),
            (None, _) => return None,
        };
        let both: Vec<_> = [far, near].into_iter().flatten().collect();
        (!both.is_empty()).then(|| both.join(&SEPARATOR.to_string()))
    }
    fn address_of_text(&self, text: &str) -> Result<Vec<u8>, ConnectError> {
        // The address of a process without a near network has no near part.
        let (far, near) = match (&self.far, &self.near, text.split_once(SEPARATOR)) {
            (_, _, Some((far, near))) => (far, near),
            (None, _, None) => ("", text),
            (Some(far), Some(_), None) if far.address_of_text(text).is_err() => ("", text),
            _ => (text, ""),
        };
        let near = match &self.near {
            Some(network) if !near.is_empty() => network.address_of_text(near)?,
            _ => Vec::new(),
        };
        let far = match &self.far {
            Some(network) if !far.is_empty() => network.address_of_text(far)?,
            _ => Vec::new(),
        };
        match near.is_empty() && far.is_empty() {
            true => Err(ConnectError::Malformed(
                "address has no part for a network of this process",
            )),
            false => Ok(join(&near, &far)),
        }
    }
    fn connect(&mut self, address: &[u8]) -> Result<Rank, ConnectError> {
        let (near, far) = split(address)?;
        let (of, peer) = match (&mut self.near, &mut self.far) {
            (Some(network), _) if !near.is_empty() && (self.is_near)(network, near) => {
                (NEAR, network.connect(near)?)
            }
            (_, Some(network)) if !far.is_empty() => (FAR, network.connect(far)?),
            _ => {
                return Err(ConnectError::Malformed(
                    "address belongs to another host or user and has no part for a network that reaches it",
                ));
            }
        };
        self.note(of, peer, address.to_owned());
        Ok(number(of, peer))
    }
    fn peer_address(&self, peer: Rank) -> Option<Vec<u8>> {
        let (of, inner) = side(peer);
        let looked_up = self.peers[of].get(inner as usize);
        if let Some(address) = looked_up.filter(|address| !address.is_empty()) {
            return Some(address.clone());
        }
        let part = on!(self, peer, network, network.peer_address(peer), None)?;
        Some(match of {
            NEAR => join(&part, &[]),
            _ => join(&[], &part),
        })
    }
    fn has_session(&self, peer: Rank) -> bool {
        on!(self, peer, network, network.has_session(peer), false)
    }
    fn end_session(&mut self, peer: Rank) {
        on!(mut self, peer, network, network.end_session(peer), ());
    }
    fn close(&mut self, peer: Rank) {
        let (of, inner) = side(peer);
        self.forget(of, inner);
        on!(mut self, peer, network, network.close(peer), ());
    }
    fn leave(&mut self) {
        if let Some(near) = &mut self.near {
            near.leave();
        }
        if let Some(far) = &mut self.far {
            far.leave();
        }
    }
    fn descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        if let Some(near) = &self.near {
            near.descriptors(into);
        }
        if let Some(far) = &self.far {
            far.descriptors(into);
        }
    }
    fn prepare_sleep(&mut self) -> bool {
        let near = self.near.as_mut().is_none_or(N::prepare_sleep);
        let far = self.far.as_mut().is_none_or(F::prepare_sleep);
        near && far
    }
    fn can_copy(&self, peer: Rank) -> bool {
        on!(self, peer, network, network.can_copy(peer), false)
    }
    unsafe fn copy_from(
        &mut self,
        peer: Rank,
        remote: u64,
        local: *mut u8,
        length: usize,
    ) -> std::io::Result<()> {
        let none = || Err(std::io::ErrorKind::NotFound.into());
        // SAFETY: the caller guarantees what `OpenTransport::copy_from` requires.
        on!(mut self, peer, network, unsafe { network.copy_from(peer, remote, local, length) }, none())
    }
    unsafe fn copy_to(
        &mut self,
        peer: Rank,
        remote: u64,
        local: *const u8,
        length: usize,
    ) -> std::io::Result<()> {
        let none = || Err(std::io::ErrorKind::NotFound.into());
        // SAFETY: the caller guarantees what `OpenTransport::copy_to` requires.
        on!(mut self, peer, network, unsafe { network.copy_to(peer, remote, local, length) }, none())
    }
}
