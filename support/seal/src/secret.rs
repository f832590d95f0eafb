//! The secret that the ranks of a job share.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fmt, fs, io};

use hmac_sha256::HMAC;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use zeroize::Zeroize;

use crate::memory::{DEEP, Guarded, scrubbed};

/// A job's secret. It has its own page and is overwritten when dropped.
pub struct Secret(Guarded<[u8; Self::LENGTH]>);

impl Secret {
    /// The length of a secret in bytes.
    pub const LENGTH: usize = 32;
    /// The minimum number of bytes of a file from which a secret is derived. The secret is no
    /// stronger than the file's randomness.
    pub const LEAST_FILE: usize = 32;
    /// The maximum number of bytes of such a file.
    pub const MOST_FILE: usize = 4096;

    /// Creates a new secret from the system's random numbers.
    ///
    /// # Errors
    /// Returns an error if the system returns no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut secret = Self(Guarded::new(1));
        getrandom::fill(&mut secret.0[0])?;
        Ok(secret)
    }

    /// Creates a secret from the bytes of another rank's secret.
    pub fn from_bytes(mut bytes: [u8; Self::LENGTH]) -> Self {
        let mut secret = Self(Guarded::new(1));
        secret.0[0] = bytes;
        bytes.zeroize();
        secret
    }

    /// Derives a secret from a key of any length, such as one that a user has typed. The secret is
    /// no stronger than the key's randomness.
    pub fn from_key(key: &[u8]) -> Self {
        let mut secret = Self(Guarded::new(1));
        // The label names the purpose, for the reason given in `from_file`.
        scrubbed::<DEEP, _>(|| secret.0[0] = HMAC::mac(key, b"conduit: a network's key"));
        secret
    }

    /// Derives a secret from the content of a file that only this user may access.
    ///
    /// # Errors
    /// Returns a description of the problem with the file. The description does not name the file.
    pub fn from_file(path: &Path) -> Result<Self, String> {
        // Without `O_NONBLOCK`, opening a FIFO would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::LOOP => "it is a symbolic link".to_owned(),
            error => error.to_string(),
        })?;
        let mut file = fs::File::from(file);
        // The metadata are those of the open file, because another file may have its name now.
        let found = file.metadata().map_err(|error| error.to_string())?;
        let user = geteuid().as_raw();
        if !found.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        if found.uid() != user {
            let owner = found.uid();
            return Err(format!(
                "it belongs to user {owner}, but this rank runs as user {user}"
            ));
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o777;
            return Err(format!(
                "its mode is {mode:04o}; only its owner may read or write it (0600)"
            ));
        }
        let mut bytes = Guarded::<u8>::new(Self::MOST_FILE + 1);
        let mut length = 0;
        loop {
            match file.read(&mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        let (least, most) = (Self::LEAST_FILE, Self::MOST_FILE);
        if length < least {
            return Err(format!(
                "it has {length} bytes; at least {least} are required"
            ));
        }
        if length > most {
            return Err(format!("it has more than {most} bytes, the maximum"));
        }
        let mut secret = Self(Guarded::new(1));
        // The label names the purpose (domain separation), so that the secret differs from any
        // other program's hash of the file.
        scrubbed::<DEEP, _>(|| {
            secret.0[0] = HMAC::mac(&bytes[..length], b"conduit: a job's secret")
        });
        Ok(secret)
    }

    /// Returns the secret's bytes.
    pub fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0[0]
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Returns a new incarnation, which is a random number that each process draws when it becomes a
/// rank. Keys depend on the incarnations, so a packet sealed before a rank's restart does not open
/// after the restart.
///
/// # Errors
/// Returns an error if the system returns no random numbers.
pub fn random_incarnation() -> io::Result<u64> {
    Ok(getrandom::u64()?)
}
