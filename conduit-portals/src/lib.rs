//! Networks with the semantics of Portals: [`matching`] in software; [`transport`], the Ni contract
//! over any carrier of fragments; [`portals4`], the contract over a real Portals 4. Networks also
//! share [`peers`], the tables of processes that come and go, and [`host`].

#[cfg(test)]
extern crate self as conduit_portals;

pub mod compact;
pub mod host;
pub mod matching;
pub mod peers;
#[cfg(not(loom))]
pub mod portals4;
pub mod sync;
pub mod transport;
