//! PMI-1, the process management interface by which a rank learns its job: who it is, how many ranks there are, and
//! what the other ranks want it to know before the network is up.
//!
//! The wire form is the one that MPICH's Hydra (`mpiexec.hydra`) and Slurm (`srun --mpi=pmi2`) speak: text lines of
//! `name=value` pairs over a socket which the launcher leaves open in the rank. A rank puts keys, enters a barrier and
//! gets what the others put; that is all.
//!
//! | module | what it is |
//! |---|---|
//! | [`wire`] | one line: parsing, formatting, limits; [`wire::LineBuffer`] cuts a byte stream into lines |
//! | [`client`] | the rank's side: [`client::Codec`] is a state machine without I/O, [`client::Connection`] drives it over a socket |
//! | [`server`] | the launcher's side: [`server::Server`] takes lines and returns actions, it does no I/O |
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
