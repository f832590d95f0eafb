//! The state of an agent's machine, by subject. These modules do not depend on the machine.

pub(super) mod bulk;
pub(super) mod client;
pub(super) mod hash;
pub(super) mod link;
pub(super) mod service;
pub(super) mod stealing;
