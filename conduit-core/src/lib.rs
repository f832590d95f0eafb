//! The Ni contract, which every network implements, and the engine, which is written once on top of
//! this contract.

pub mod atomics;
pub mod barrier;
pub mod collectives;
pub mod descriptors;
pub mod engine;
pub mod fork;
pub mod kernel;
pub mod memory;
pub mod messages;
pub mod ni;
pub mod process_memory;
pub mod rma;
pub mod settings;
pub mod shared;
pub mod signals;
pub mod stderr;
pub mod threads;
