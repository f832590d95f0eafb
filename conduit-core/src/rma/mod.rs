//! Puts and gets of values, of contiguous memory and of many ranges, with explicit or implicit
//! handles, and puts with a signal.
//!
//! | file | subject |
//! |---|---|
//! | `calls` | puts and gets; copies for mapped memory |
//! | `transfer` | puts and gets by messages, with a send ticket and a source role for each piece |
//! | `explicit`, `implicit`, `regions` | synchronisation by handle or by thread |
//! | `signal` | a put followed by an atomic |
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

/// The state of a rank's puts and gets in flight, as far as the kernel does not keep it.
pub(crate) struct Rma<M: Mode> {
    /// The transfers of many ranges.
    pub(crate) transfers: Transfers<M>,
}

impl<M: Mode> Rma<M> {
    pub(crate) fn new() -> Self {
        Self {
            transfers: Transfers::new(),
        }
    }
}
