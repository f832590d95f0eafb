//! Networks with the semantics of Portals: [`matching`] in software; [`transport`], the Ni contract
//! over anything that carries fragments; [`portals4`], the contract over a real Portals 4.

#[cfg(test)]
extern crate self as conduit_portals;

pub mod compact;
pub mod host;
pub mod matching;
#[cfg(not(loom))]
pub mod portals4;
pub mod sync;
pub mod transport;
