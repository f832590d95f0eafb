//! Tests with jobs of a few ranks, whose messages arrive in any order; see [`world`].

mod buffers;
mod dynamic;
mod fixed;
mod ledger;
mod rest;
mod world;
