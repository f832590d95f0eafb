//! Networks with the semantics of Portals. [`matching`] is message matching in software,
//! [`transport`] implements the Ni contract over any carrier of fragments, and [`portals4`]
//! implements it over a real Portals 4. [`peers`] (tables of processes that come and go) and
//! [`host`] are shared with other networks.

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
