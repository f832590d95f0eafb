//! What owns the engine's state. The parts know no engine: what they need of each other their calls are given.

pub(super) mod backoff;
pub(super) mod barriers;
pub(super) mod buffers;
pub(super) mod collectives;
pub(super) mod context;
pub(super) mod flow;
pub(super) mod handle;
pub(super) mod handlers;
pub(super) mod head;
pub(super) mod inbox;
pub(super) mod job;
pub(super) mod kind;
pub(super) mod memory;
pub(super) mod message;
pub(super) mod operations;
pub(super) mod polling;
pub(super) mod replies;
pub(super) mod reports;
pub(super) mod reserve;
pub(super) mod shared;
pub(super) mod shuffle;
pub(super) mod system;
pub(super) mod table;
pub(super) mod tickets;
pub(super) mod token;
pub(super) mod vis;
