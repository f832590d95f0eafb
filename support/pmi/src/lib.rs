//! The bootstrap of a job: how a rank learns its number, the number of ranks in its job, and data
//! that the other ranks publish before the network is up.
//!
//! A rank uses a [`bootstrap::Bootstrap`] and doesn't need to know which launcher has started it:
//! ranks put keys, meet at a fence, and get the keys of others. [`find::find`] returns the
//! bootstrap that the environment offers.
//!
//! | module | contents |
//! |---|---|
//! | [`bootstrap`] | the interface, and the job of one rank |
//! | [`find`] | which way the environment offers, or why none works |
//! | [`client`] | PMI-1, the protocol of MPICH's Hydra (`mpiexec.hydra`), Slurm (`srun --mpi=pmi2`), Flux and `conduit-run`: text lines of `name=value` pairs over a socket |
//! | [`pmi2`] | PMI-2 through `libpmi2.so.0`, as on Cray's systems |
//! | [`pmix`] | PMIx through `libpmix.so.2`: Open MPI, PRRTE and Slurm |
//! | [`store`] | a key-value store over TCP, with the protocol of PyTorch's `torchrun` |
//! | [`files`] | a folder that all ranks see |
//! | [`threads`] | a job whose ranks are threads, for tests |
//! | [`server`] | the launcher's side of PMI-1: [`server::Server`] takes lines and returns actions, without I/O |
//! | [`wire`] | one line of PMI-1: parsing, formatting, limits |
//!
//! ```no_run
//! use pmi::bootstrap::Bootstrap as _;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let Some(mut launcher) = pmi::client::Connection::from_env()? else {
//!     println!("started alone: a job of one rank");
//!     return Ok(());
//! };
//! let address = format!("rank {} listens here", launcher.rank());
//! let everyone = launcher.allgather(address.as_bytes())?;
//! assert_eq!(everyone.len(), launcher.size());
//! launcher.finalize()?;
//! # Ok(())
//! # }
//! ```

mod ancestors;
pub mod bootstrap;
pub mod client;
pub mod files;
pub mod find;
pub mod pmi2;
pub mod pmix;
pub mod server;
pub mod store;
pub mod threads;
mod values;
pub mod wire;
