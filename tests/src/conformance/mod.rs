//! The conformance suite, which states the Ni contract as cases and runs them for every network.
//!
//! A case is a scenario in a [`World`], in which one thread polls all ranks in turn. A case assumes
//! only what the contract guarantees. In particular, operations and their events have no order,
//! submissions take effect at once or later, and any call may answer "again" or "in use" if the
//! contract permits it. [`crate::chaos`] ensures that the suite assumes no more.
//!
//! To add a network, create a [`Setup`] and pass it to [`trials::add_with_chaos`].

pub(crate) mod arithmetic;
pub mod entry;
mod log;
mod memory;
mod network;
mod seen;
pub mod trials;
mod world;

mod abandon;
mod atomics;
mod entries;
mod errors;
mod gets;
mod inject;
mod lifetime;
mod managed;
mod many;
mod matching;
mod process;
mod puts;
mod queues;
mod regions;
mod sinks;
mod truncation;
mod unseen;

pub use memory::Peek;
pub use network::{
    Applies, Case, Exclusion, Patience, Setup, Verdict, run_case, unknown_exclusions,
};
pub use seen::{Record, Seen, SeenPut};
pub use world::{End, Md, World};

use conduit_core::ni::Ni;

/// Defines the cases of a theme. Each case has a name, a number of ranks, and the sentence of the
/// contract that it tests.
macro_rules! theme {
    ($theme:literal: $( $name:ident ($ranks:literal) $states:literal; )+) => {
        pub(super) fn cases<N: conduit_core::ni::Ni>() -> Vec<super::Case<N>> {
            vec![ $( super::Case {
                name: concat!($theme, "/", stringify!($name)),
                states: $states,
                ranks: $ranks,
                run: |world| super::Verdicts::into_applies($name(world)),
            } ),+ ]
        }
    };
}
use theme;

/// The return type of a case's function: a verdict, or `()` if the case always applies.
trait Verdicts {
    fn into_applies(self) -> Applies;
}

impl Verdicts for () {
    fn into_applies(self) -> Applies {
        Applies::Yes
    }
}

impl Verdicts for Applies {
    fn into_applies(self) -> Applies {
        self
    }
}

/// Returns the cases of all themes.
pub fn cases<N: Ni>() -> Vec<Case<N>> {
    [
        matching::cases(),
        entries::cases(),
        managed::cases(),
        truncation::cases(),
        puts::cases(),
        gets::cases(),
        inject::cases(),
        atomics::cases(),
        regions::cases(),
        process::cases(),
        queues::cases(),
        sinks::cases(),
        lifetime::cases(),
        abandon::cases(),
        unseen::cases(),
        many::cases(),
        errors::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
