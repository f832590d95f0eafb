//! The launcher's side channel, which a rank uses before the network works to learn its rank and to
//! perform allgathers and barriers.
//!
//! The facade implements it over PMI; tests implement it in memory.

/// A failure of the launcher's side channel.
#[derive(Debug, thiserror::Error)]
#[error("{operation} failed on rank {rank}: {reason}")]
pub struct BootstrapError {
    /// The rank that detected the failure.
    pub rank: u32,
    /// The failed operation: `allgather`, `barrier` …
    pub operation: &'static str,
    /// The launcher's or the channel's description of the failure.
    pub reason: String,
}

/// The collective operations of job start. All ranks call the same ones in the same order.
pub trait Bootstrap {
    /// Returns this rank, `0..size`.
    fn rank(&self) -> u32;
    /// Returns the number of ranks in the job, at least 1.
    fn size(&self) -> u32;
    /// Collects every rank's bytes on all ranks, in rank order. Lengths may differ.
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError>;
    /// Blocks until all ranks have made this call.
    fn barrier(&mut self) -> Result<(), BootstrapError>;
}

/// The side channel of a job with one rank.
#[derive(Debug, Default)]
pub struct Alone;

impl Bootstrap for Alone {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        Ok(vec![bytes.to_vec()])
    }
    fn barrier(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }
}
