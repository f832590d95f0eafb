//! What the ranks of a job share and nobody else knows.

use std::{fmt, io};

use zeroize::ZeroizeOnDrop;

/// A job's secret: made by one rank, handed to the others over the launcher's side channel, overwritten when dropped.
#[derive(ZeroizeOnDrop)]
pub struct Secret([u8; Self::LENGTH]);

impl Secret {
    /// Bytes.
    pub const LENGTH: usize = 32;

    /// A new one, from the system's random numbers.
    ///
    /// # Errors
    /// When the system has none.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::LENGTH];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// One that another rank made.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Its bytes, for the side channel. Whoever has them can join the job.
    pub fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A rank's incarnation number, made anew by each process that becomes the rank: keys depend on it, so a packet from before a
/// restart doesn't open after it.
///
/// # Errors
/// When the system has no random numbers.
pub fn random_incarnation() -> io::Result<u64> {
    Ok(getrandom::u64()?)
}
