//! Jobs of a few ranks, every message in any order: see [`world`].

mod buffers;
mod dynamic;
mod fixed;
mod ledger;
#[path = "../reference/mod.rs"]
mod reference;
mod rest;
mod world;
