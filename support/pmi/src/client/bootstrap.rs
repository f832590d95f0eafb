//! The job's bootstrap over PMI-1.

use super::{Connection, Error};
use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::values;

impl Bootstrap for Connection {
    fn rank(&self) -> u32 {
        self.rank() as u32
    }

    fn size(&self) -> u32 {
        self.size() as u32
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        let (rank, longest) = (self.rank() as u32, self.longest_value());
        values::put(rank, key, bytes, longest, |key, value| {
            self.put_value(key, value)
        })
    }

    fn get(&mut self, peer: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        values::get(self.rank() as u32, peer, key, |key| self.get_value(key))
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        let met = self.barrier();
        met.map_err(|error| self.failed("fence", &error))
    }

    fn fences(&self) -> u64 {
        self.barriers()
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        let left = Connection::finalize(self);
        left.map_err(|error| self.failed("finalize", &error))
    }

    fn abort(&mut self, code: i32, reason: &str) {
        // If the launcher cannot be reached, it has ended, and the job has ended with it.
        let _ = Connection::abort(self, code, reason);
    }
}

impl Connection {
    fn failed(&self, operation: &'static str, error: &Error) -> BootstrapError {
        BootstrapError {
            rank: self.rank() as u32,
            operation,
            reason: error.to_string(),
        }
    }
}
