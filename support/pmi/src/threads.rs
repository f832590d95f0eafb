//! A job whose ranks are threads of this process, for tests.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex, PoisonError};

use crate::bootstrap::{Bootstrap, BootstrapError, check_put, not_put};

/// A rank of a job of threads.
#[derive(Debug, Clone)]
pub struct Thread {
    rank: u32,
    size: u32,
    fences: u64,
    all: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    barrier: Barrier,
    pairs: Mutex<HashMap<(u32, String), Vec<u8>>>,
}

/// Returns the ranks of a job of `size` threads.
pub fn job(size: u32) -> Vec<Thread> {
    let all = Arc::new(Shared {
        barrier: Barrier::new(size as usize),
        pairs: Mutex::default(),
    });
    let rank = |rank| Thread {
        rank,
        size,
        fences: 0,
        all: Arc::clone(&all),
    };
    (0..size).map(rank).collect()
}

impl Bootstrap for Thread {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        check_put(self.rank, key, bytes)?;
        let mut pairs = self
            .all
            .pairs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        pairs.insert((self.rank, key.to_owned()), bytes.to_vec());
        Ok(())
    }
    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        let pairs = self
            .all
            .pairs
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let found = pairs.get(&(rank, key.to_owned()));
        found.cloned().ok_or_else(|| not_put(self.rank, rank, key))
    }
    fn fence(&mut self) -> Result<(), BootstrapError> {
        self.all.barrier.wait();
        self.fences += 1;
        Ok(())
    }
    fn fences(&self) -> u64 {
        self.fences
    }
}
