//! Jobs of a few ranks, every message in any order: see [`world`].

mod buffers;
mod dynamic;
mod fixed;
mod ledger;
mod rest;
mod world;
