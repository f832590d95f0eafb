//! Programs that each rank of a job runs in a process of its own. They test what a world within one
//! thread can't show.
//!
//! A program gets a [`World`] with one seat, which is its own rank, and panics if something is
//! wrong. It ends with a [`meet`](group::Group::meet), so that no rank leaves while its peers still
//! need it.

mod ends;
mod group;
mod memory;
mod messages;

pub use group::Group;

use conduit_core::ni::Ni;

use crate::conformance::World;

/// A rank's program.
pub type Program<N> = fn(&mut World<N>);

macro_rules! programs {
    ($( $(#[doc = $what:literal])* $module:ident::$name:ident, )+) => {
        /// The programs' names.
        pub const PROGRAMS: &[&str] = &[ $( stringify!($name) ),+ ];

        /// Returns the program called `name`.
        pub fn by_name<N: Ni>(name: &str) -> Option<Program<N>> {
            match name {
                $( stringify!($name) => Some($module::$name), )+
                _ => None,
            }
        }
    };
}

programs! {
    messages::hello,
    messages::token_ring,
    messages::all_to_all,
    messages::flood_one,
    messages::flood_each_other,
    messages::inject_flood,
    messages::managed_for_ever,
    messages::sleep_and_wake,
    memory::puts_between_all,
    memory::gets_between_all,
    memory::windows,
    memory::atomics_add_up,
    memory::compare_and_swap,
    memory::large_transfers,
    ends::leave_early,
    ends::never_end,
    ends::die_in_a_flood,
}
