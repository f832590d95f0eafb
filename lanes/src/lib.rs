//! Which peers get the scarce, faster way to a rank, chosen by traffic and switched under traffic:
//! as state machines without I/O, clock and threads, and without allocation after construction.
//!
//! A *lane* is a faster way between two ranks of which there are few: a wide arrival window, a ring
//! of one's own, a connection. The *base path* is the one that all ranks have. Traffic with a peer
//! is *promoted* to a lane, and *demoted*.
//!
//! * [`Sampler`] and [`Tracker`] find out with whom a rank has most traffic, in less than 1 KiB at
//!   any size of the job.
//! * [`Lanes`] decides who gets lanes and when that changes, and negotiates with other ranks. Each
//!   [`LaneKind`] is one way to pay: one end owns the lane ([`LaneKind::Owner`],
//!   [`LaneKind::Holder`]), or it costs both ends ([`LaneKind::Both`]).
//! * [`Outlet`] tells a sender which way a message goes, so that order is kept when that changes.
//! * [`Driver`] puts these together for a network, which is a [`Carrier`].
//!
//! [`Lanes`] gives out what it wants done as [`Action`]s.
//!
//! ```
//! use lanes::{Action, LaneKind, Lanes, Message, Settings, Tracker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = Settings::default();
//! let mut tracker = Tracker::new(settings.decay);
//! let mut owner = Lanes::new(0, LaneKind::Owner, settings.clone())?;
//! let mut source = Lanes::new(7, LaneKind::Holder, settings)?;
//!
//! // Rank 7 sends much to rank 0, which offers it a lane.
//! tracker.touch(7, 32);
//! tracker.progress();
//! let mut actions = Vec::new();
//! owner.progress(&tracker, &mut |action| actions.push(action));
//! let [Action::Send { to: 7, message: offer }] = actions[..] else { unreachable!() };
//!
//! // Rank 7 takes it, and may send by it from now on.
//! actions.clear();
//! let bytes = offer.encode();
//! source.on_message(0, Message::decode(bytes.as_ref())?, &tracker, &mut |action| actions.push(action))?;
//! assert!(matches!(
//!     actions[..],
//!     [Action::Send { to: 0, message: Message::Taken { .. } }, Action::Open { peer: 0, .. }]
//! ));
//! # Ok(())
//! # }
//! ```
//!
//! The idea, and the words promotion, demotion, `touch` and `progress`, are those of UCX's dynamic
//! transport selection.

#![forbid(unsafe_code)]

mod denials;
mod driver;
mod message;
mod negotiation;
mod outlet;
mod sampler;
mod settings;
mod statistics;
mod tracker;

pub use driver::{Carrier, Driver};
pub use message::{DecodeError, Encoded, MAX_LENGTH, Message};
pub use negotiation::{Action, Lane, LaneKind, Lanes, State, Violation};
pub use outlet::{Outlet, Route};
pub use sampler::Sampler;
pub use settings::{Settings, SettingsError};
pub use statistics::Statistics;
pub use tracker::{ROWS, SAMPLE, Tracker};

/// How much traffic there is with a peer: samples that decay, in parts of 1 in [`SAMPLE`].
pub type Weight = u32;

/// The next random number (xorshift: Marsaglia, "Xorshift RNGs", 2003); never 0.
fn scramble(mut random: u32) -> u32 {
    random ^= random << 13;
    random ^= random >> 17;
    random ^ random << 5
}

/// A first random number for a seed.
fn seeded(seed: u32) -> u32 {
    scramble(scramble(seed.wrapping_mul(0x9e37_79b9) | 1))
}
