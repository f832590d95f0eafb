//! The launcher's side channel over PMI-1.

use conduit_core::bootstrap::{Bootstrap, BootstrapError};
use conduit_core::kernel::Error as EngineError;
use pmi::client::Connection;

use crate::{Error, Result};

/// A connection to a PMI-1 server.
#[derive(Debug)]
pub(crate) struct Pmi {
    connection: Connection,
    /// The number of allgathers so far. It makes the keys of each allgather unique.
    rounds: u32,
}

impl Pmi {
    /// Connects to the launcher. Returns `None` if no PMI launcher has started this process.
    pub(crate) fn from_env() -> Result<Option<Self>> {
        let connection = Connection::from_env().map_err(Error::start)?;
        Ok(connection.map(|connection| Self {
            connection,
            rounds: 0,
        }))
    }

    pub(crate) fn finalize(&mut self) -> Result<(), EngineError> {
        let finalized = self.connection.finalize();
        finalized.map_err(|error| EngineError::Bootstrap(error.to_string()))
    }

    pub(crate) fn abort(&mut self, code: i32, reason: &str) {
        // If the launcher cannot be reached, it has ended, and the job has ended with it.
        let _ = self.connection.abort(code, reason);
    }

    fn failed<T>(
        &self,
        operation: &'static str,
        result: Result<T, pmi::client::Error>,
    ) -> Result<T, BootstrapError> {
        let rank = self.connection.rank() as u32;
        result.map_err(|error| BootstrapError {
            rank,
            operation,
            reason: error.to_string(),
        })
    }
}

impl Bootstrap for Pmi {
    fn rank(&self) -> u32 {
        self.connection.rank() as u32
    }

    fn size(&self) -> u32 {
        self.connection.size() as u32
    }

    fn allgather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
        self.rounds += 1;
        let gathered = self
            .connection
            .allgather(&format!("conduit{}", self.rounds), bytes);
        self.failed("allgather", gathered)
    }

    fn barrier(&mut self) -> Result<(), BootstrapError> {
        let passed = self.connection.barrier();
        self.failed("barrier", passed)
    }
}
