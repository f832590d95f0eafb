//! Active messages.

pub(crate) mod deliver;
pub(crate) mod flow;
pub(crate) mod handlers;
pub(crate) mod head;
pub(crate) mod inbox;
pub(crate) mod kind;
pub(crate) mod long;
pub(crate) mod payload;
pub(crate) mod prepared;
pub(crate) mod replies;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod reserve;
pub(crate) mod shuffle;

pub use payload::Payload;
pub use prepared::{Prepared, PreparedReply};
