//! Tests that need a whole job: the conformance suite of the Ni contract, a chaotic network, jobs
//! of processes.
//!
//! - [`conformance`]: the contract as cases, for every network. A new network makes a
//!   [`conformance::Setup`] and passes, or says which cases don't apply to it and why.
//! - [`any`]: any network behind a table of functions, for code that would take long to compile for
//!   each.
//! - [`mod@reference`]: the simplest network that keeps the contract; it proves that the suite fits
//!   more than one network.
//! - [`contained`]: ranks in namespaces and control groups, as in containers.
//! - [`fabric`]: a transport of fragments within one process, as disorderly as the contract allows.
//! - [`lan`]: several hosts in one system, by network namespaces.
//! - [`slurm`]: Slurm on those hosts.
//! - `linear`: a check that a history of atomics is linearizable.
//! - [`composite`]: jobs over several hosts within one process.
//! - [`pace`]: time limits for a system that also runs other work.
//! - [`chaos`]: a wrapper that makes any network as weak as the contract allows.
//! - [`udp`]: UDP with packet faults.
//! - [`model`]: random schedules on the engine, against a byte array for each rank.
//! - [`ranks`]: programs on the Rust API that ranks run in processes of their own.
//! - [`installed`]: the installed C library, for programs that are built with it.
//! - [`c`]: programs in C and C++, compiled against the headers and libraries of the C interface.
//! - [`sample`]: samples of large sets of cases, for runs that have to be short.
//! - [`scan`]: search for secrets in the memory of a job's processes.
//! - [`programs`] and [`job`]: programs for ranks in processes of their own, and how such jobs are
//!   run and cleaned up.

pub mod any;
pub mod c;
pub mod chaos;
pub mod composite;
pub mod conformance;
pub mod contained;
pub mod fabric;
mod held;
pub mod hosts;
pub mod installed;
pub mod job;
pub mod lan;
mod linear;
pub mod model;
pub mod na;
pub mod ofi;
pub mod pace;
pub mod portals4;
pub mod programs;
pub mod ranks;
pub mod reference;
pub mod sample;
pub mod scan;
pub mod slurm;
pub mod small;
pub mod udp;
