//! What an agent's machine keeps, subject by subject. The states know no machine.

pub(super) mod bulk;
pub(super) mod client;
pub(super) mod hash;
pub(super) mod link;
pub(super) mod service;
pub(super) mod stealing;
