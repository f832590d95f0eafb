//! Puts and gets: of values, of memory in one piece or in many, with handles or implicit, and with
//! a signal.
//!
//! | file | subject |
//! |---|---|
//! | `calls` | puts and gets; to mapped memory they are a copy |
//! | `transfer` | the others, by messages: a send ticket and a source role for each piece |
//! | `explicit`, `implicit`, `regions` | what callers wait for, by handle or for their thread |
//! | `signal` | a put with an atomic that is done after it |
//! | `vis` | puts and gets of many ranges |

pub(crate) mod calls;
pub(crate) mod explicit;
pub(crate) mod implicit;
pub(crate) mod regions;
pub(crate) mod signal;
pub(crate) mod transfer;
pub mod vis;

pub use calls::value_bytes;
pub use implicit::Class;

use vis::transfers::Transfers;

use crate::threads::Mode;

/// The puts and gets of a rank that are under way, but for what the kernel keeps of all operations.
pub(crate) struct Rma<M: Mode> {
    /// Those of many ranges.
    pub(crate) transfers: Transfers<M>,
}

impl<M: Mode> Rma<M> {
    pub(crate) fn new() -> Self {
        Self {
            transfers: Transfers::new(),
        }
    }
}
