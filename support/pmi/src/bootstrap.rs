//! The interface between a rank and its launcher before the network works: the rank, the job's
//! size, and a key-value space through which the ranks exchange data.

/// A failure of the launcher or of the connection to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed on rank {rank}: {reason}")]
pub struct BootstrapError {
    /// The rank that detected the failure.
    pub rank: u32,
    /// The failed operation: `put`, `fence` …
    pub operation: &'static str,
    /// The launcher's or the connection's description of the failure.
    pub reason: String,
}

/// The maximum length of a key in bytes.
pub const MAX_KEY: usize = 24;
/// The maximum number of bytes that one put may store.
pub const MAX_VALUE: usize = 1 << 20;

/// A rank's access to its job before the network works. `fence`, `allgather` and `finalize` are
/// collective: all ranks must make the same collective calls in the same order.
pub trait Bootstrap {
    /// Returns this rank, `0..size`.
    fn rank(&self) -> u32;

    /// Returns the number of ranks in the job, at least 1.
    fn size(&self) -> u32;

    /// Stores bytes, which the other ranks can get after the next fence. A rank must use a key only
    /// once. A key consists of 1 to [`MAX_KEY`] ASCII letters and digits.
    ///
    /// # Errors
    /// The launcher refuses the key or the bytes (at most [`MAX_VALUE`] are accepted), or fails.
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError>;

    /// Returns what `rank` has put under `key` before a fence that this rank has completed.
    ///
    /// # Errors
    /// The rank has not put that key, or the launcher fails.
    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError>;

    /// Blocks until all ranks have made this call.
    ///
    /// # Errors
    /// The launcher fails.
    fn fence(&mut self) -> Result<(), BootstrapError>;

    /// Returns the number of fences that this rank has completed.
    fn fences(&self) -> u64;

    /// Leaves the job. From now on this process may exit without ending the job, and every other
    /// call fails.
    ///
    /// # Errors
    /// The launcher fails.
    fn finalize(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    /// Asks the launcher to end the whole job with this exit code. The call does not end this
    /// process. Errors are not reported, because the caller exits anyway.
    fn abort(&mut self, code: i32, reason: &str) {
        let _ = (code, reason);
    }

    /// Collects the bytes of all ranks on all ranks, in rank order. Lengths may differ.
    ///
    /// # Errors
    /// The launcher fails.
    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let key = format!("all{:x}", self.fences());
        self.put(&key, bytes)?;
        self.fence()?;
        let (own, size) = (self.rank(), self.size());
        let of = |rank| match rank == own {
            true => Ok(bytes.to_vec()),
            false => self.get(rank, &key),
        };
        (0..size).map(of).collect()
    }
}

/// The bootstrap of a job with one rank.
#[derive(Debug, Default)]
pub struct Alone {
    fences: u64,
}

impl Bootstrap for Alone {
    fn rank(&self) -> u32 {
        0
    }
    fn size(&self) -> u32 {
        1
    }
    fn put(&mut self, _: &str, _: &[u8]) -> Result<(), BootstrapError> {
        Ok(())
    }
    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        Err(not_put(0, rank, key))
    }
    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.fences += 1;
        Ok(())
    }
    fn fences(&self) -> u64 {
        self.fences
    }
}

/// Returns the error for a key that a rank has not put.
pub(crate) fn not_put(rank: u32, peer: u32, key: &str) -> BootstrapError {
    BootstrapError {
        rank,
        operation: "get",
        reason: format!("rank {peer} has put nothing under the key {key:?}"),
    }
}

/// Checks a key and the number of bytes to store under it.
pub(crate) fn check_put(rank: u32, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
    let is_valid =
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let reason = if !is_valid {
        format!("the key {key:?} is not 1 to {MAX_KEY} letters and digits")
    } else if bytes.len() > MAX_VALUE {
        format!(
            "{} bytes are more than the limit of {MAX_VALUE}",
            bytes.len()
        )
    } else {
        return Ok(());
    };
    Err(BootstrapError {
        rank,
        operation: "put",
        reason,
    })
}
