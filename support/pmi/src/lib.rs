//! PMI-1, the process management interface. Through it a rank learns its own number, the number of
//! ranks in its job, and data that the other ranks publish before the network is up.
//!
//! The wire format is that of MPICH's Hydra (`mpiexec.hydra`) and Slurm (`srun --mpi=pmi2`): text
//! lines of `name=value` pairs over a socket that the launcher leaves open in the rank. A rank puts
//! key-value pairs, enters a barrier and gets the pairs of the others. PMI-1 has no other data
//! operations.
//!
//! | module | contents |
//! |---|---|
//! | [`wire`] | one line: parsing, formatting, limits; [`wire::LineBuffer`] splits a byte stream into lines |
//! | [`client`] | the rank's side: [`client::Codec`] is a state machine without I/O, [`client::Connection`] drives it over a socket |
//! | [`server`] | the launcher's side: [`server::Server`] takes lines and returns actions, without I/O |
//!
//! ```no_run
//! # fn main() -> Result<(), pmi::client::Error> {
//! let Some(mut launcher) = pmi::client::Connection::from_env()? else {
//!     println!("started alone: a job of one rank");
//!     return Ok(());
//! };
//! let address = format!("rank {} listens here", launcher.rank());
//! let everyone = launcher.allgather("address", address.as_bytes())?;
//! assert_eq!(everyone.len(), launcher.size());
//! launcher.finalize()
//! # }
//! ```

pub mod client;
pub mod server;
pub mod wire;
