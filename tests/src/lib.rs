//! The conformance suite of the Ni contract, a chaotic network, and jobs of processes, for tests
//! that need a whole job.
//!
//! - [`conformance`]: the contract as cases, for every network. A new network provides a
//!   [`conformance::Setup`] and must pass all cases, except those that the setup declares
//!   inapplicable.
//! - [`any`]: any network behind a table of functions, for code that would take long to compile for
//!   each network.
//! - [`mod@reference`]: the simplest network that keeps the contract. It shows that the suite
//!   accepts more than one network.
//! - [`contained`]: ranks in namespaces and control groups, as in containers.
//! - [`fabric`]: a transport of fragments within one process, as disorderly as the contract allows.
//! - [`lan`]: several hosts in one system, made of network namespaces.
//! - [`slurm`]: Slurm on the hosts of [`lan`].
//! - `linear`: a check that a history of atomics is linearizable.
//! - [`composite`]: jobs over several hosts within one process.
//! - [`pace`]: time limits for a system that also runs other work.
//! - [`chaos`]: a wrapper that makes any network as weak as the contract allows.
//! - [`udp`]: UDP with packet faults.
//! - [`model`]: random schedules on the engine, checked against a byte array for each rank.
//! - [`ranks`]: programs on the Rust API that ranks run in processes of their own.
//! - [`installed`]: the installed C library, for building programs with it.
//! - [`c`]: programs in C and C++, compiled against the headers and libraries of the C interface.
//! - [`sample`]: samples of large sets of cases, for runs that must be short.
//! - [`scan`]: a search for secrets in the memory of a job's processes.
//! - [`programs`]: programs on the Ni contract for ranks in processes of their own.
//! - [`job`]: jobs of real processes, and how they are cleaned up.

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
