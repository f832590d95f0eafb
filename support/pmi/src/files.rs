//! A folder that all ranks see, such as one of a shared file system. Each key is a file, and each
//! rank that has reached a fence is an empty file.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::bootstrap::{Bootstrap, BootstrapError, check_put};

/// The pauses between two looks at the folder: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));

/// A rank's use of the folder.
#[derive(Debug)]
pub struct Folder {
    rank: u32,
    size: u32,
    path: PathBuf,
    timeout: Duration,
    fences: u64,
}

impl Folder {
    /// Creates the folder if it does not exist. The folder must be a new one for each job.
    ///
    /// # Errors
    /// The folder cannot be created, or contains files of an earlier job.
    pub fn new(rank: u32, size: u32, path: PathBuf, timeout: Duration) -> io::Result<Self> {
        fs::create_dir_all(&path)?;
        let folder = Folder {
            rank,
            size,
            path,
            timeout,
            fences: 0,
        };
        // Keys contain no hyphen, so this file and those of fences have other names than keys.
        let marker = folder.file(rank, "joined-");
        match fs::File::create_new(&marker) {
            Ok(_) => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(io::Error::other(format!(
                    "{} exists: the folder has been used before",
                    marker.display()
                )))
            }
            Err(error) => Err(error),
        }
    }

    fn file(&self, rank: u32, key: &str) -> PathBuf {
        self.path.join(format!("{key}.{rank}"))
    }

    /// Writes a file that other ranks see only once it is complete.
    fn publish(&self, key: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.file(self.rank, key);
        let draft = self.path.join(format!("draft-{}", self.rank));
        fs::write(&draft, bytes)?;
        fs::rename(draft, file)
    }

    fn failed(&self, operation: &'static str, error: impl ToString) -> BootstrapError {
        BootstrapError {
            rank: self.rank,
            operation,
            reason: format!("{}: {}", self.path.display(), error.to_string()),
        }
    }
}

impl Bootstrap for Folder {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
        check_put(self.rank, key, bytes)?;
        let published = self.publish(key, bytes);
        published.map_err(|error| self.failed("put", error))
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
        fs::read(self.file(rank, key)).map_err(|error| self.failed("get", error))
    }

    fn fence(&mut self) -> Result<(), BootstrapError> {
        let key = format!("fence-{}", self.fences);
        let published = self.publish(&key, b"");
        published.map_err(|error| self.failed("fence", error))?;
        let deadline = Instant::now() + self.timeout;
        let mut pause = PAUSES.0;
        // Ranks below this one have arrived.
        let mut arrived = 0;
        loop {
            while arrived < self.size && self.file(arrived, &key).exists() {
                arrived += 1;
            }
            if arrived == self.size {
                break;
            }
            if Instant::now() >= deadline {
                let limit = self.timeout.as_secs();
                let reason = format!("rank {arrived} has not come within {limit} s");
                return Err(self.failed("fence", reason));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        self.fences += 1;
        Ok(())
    }

    fn fences(&self) -> u64 {
        self.fences
    }
}
