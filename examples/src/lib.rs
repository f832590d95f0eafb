//! Programs that do real work over Conduit and serve as its tutorial, and the tour that runs them.
//!
//! Read the programs `histogram` and `ring` (in `src/bin`) first, then [`heat`] for segments, puts,
//! gets and barriers, and [`wordcount`] for active messages. Each is also a program of its own;
//! `cargo run` starts [`tour`].

pub mod heat;
pub mod tour;
pub mod wordcount;

/// The pages of the book whose programs run as tests of this documentation. `xtask`'s rules require
/// every page with a program to be here, except the tutorial.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../docs/from-gasnet.md")]
    pub struct FromGasnet;

    #[doc = include_str!("../../docs/installation.md")]
    pub struct Installation;
}
