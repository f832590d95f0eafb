//! Assigns a rank's few fast paths to the peers with the most traffic, and switches paths while
//! traffic flows. The state machines use no I/O, clock or threads, and do not allocate after
//! construction.
//!
//! A *lane* is one of the few faster paths between two ranks, such as a wide arrival window, a ring
//! with a single source, or a connection. The *base path* is the path that all ranks have. Traffic
//! with a peer is *promoted* to a lane and *demoted* from it.
//!
//! * [`Sampler`] and [`Tracker`] find the peers with the most traffic, in less than 1 KiB at any
//!   job size.
//! * [`Lanes`] decides which peers get lanes, and negotiates with other ranks. The [`LaneKind`]
//!   says which end pays for a lane: one end owns it ([`LaneKind::Owner`] there,
//!   [`LaneKind::Holder`] at the other end), or it costs both ends ([`LaneKind::Both`]).
//! * [`Outlet`] chooses the path of each message and preserves message order when the path changes.
//! * [`Driver`] combines these for a network, which implements [`Carrier`].
//!
//! [`Lanes`] emits [`Action`]s, which the caller carries out.
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
//! // Rank 7 has much traffic with rank 0, so rank 0 offers it a lane.
//! tracker.touch(7, 32);
//! tracker.progress();
//! let mut actions = Vec::new();
//! owner.progress(&tracker, &mut |action| actions.push(action));
//! let [Action::Send { to: 7, message: offer }] = actions[..] else { unreachable!() };
//!
//! // Rank 7 accepts, and may send on the lane from now on.
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
//! The idea and the terms promotion, demotion, `touch` and `progress` are from UCX's dynamic
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

/// The amount of traffic with a peer. It is a decaying sum of samples, each of which is worth
/// [`SAMPLE`] at first.
pub type Weight = u32;

/// Returns the random number that follows `random` (xorshift: Marsaglia, "Xorshift RNGs", 2003),
/// which is never 0.
fn scramble(mut random: u32) -> u32 {
    random ^= random << 13;
    random ^= random >> 17;
    random ^ random << 5
}

/// Returns the first random number for a seed.
fn seeded(seed: u32) -> u32 {
    scramble(scramble(seed.wrapping_mul(0x9e37_79b9) | 1))
}
