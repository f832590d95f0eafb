//! Programs that do real work over Conduit, to be read as its tutorial, and the tour that runs them.
//!
//! Read the programs `histogram` and `ring` (in `src/bin`), then [`heat`] for segments, puts, gets and barriers, and [`wordcount`]
//! for active messages. Each is a program of its own as well; [`tour`] is what `cargo run` starts.

pub mod heat;
pub mod tour;
pub mod wordcount;
