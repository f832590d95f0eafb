//! The configuration of the local network.

use super::LocalError;

/// Limits and sizes of a [`Local`](super::Local). Processes may differ in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// The name by which others reach this process, up to [`MAX_NAME`] characters of
    /// `[A-Za-z0-9._-]`. `None` picks a random name. Only one process of a user has a given name at
    /// a time.
    pub name: Option<String>,
    /// Bytes of a ring, a power of two from [`MIN_RING`] to [`MAX_RING`]. Each pair of peers has
    /// four. The process that connects decides.
    pub ring: usize,
    /// The most peers that have numbers at once, from 1 to [`MAX_PEERS`].
    pub max_peers: u32,
    /// Whether this process may copy memory of its peers by cross-memory attach, and they may copy
    /// its memory. Where the system lets only parents attach (Yama), this allows it to all
    /// processes of the user.
    pub copy: bool,
}

/// The longest [`LocalConfig::name`].
pub const MAX_NAME: usize = 64;
/// The smallest [`LocalConfig::ring`]: room for some of the longest tiny fragments.
pub const MIN_RING: usize = 4 << 10;
/// The largest [`LocalConfig::ring`].
pub const MAX_RING: usize = 4 << 20;
/// The largest [`LocalConfig::max_peers`].
pub const MAX_PEERS: u32 = 1 << 16;

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            name: None,
            ring: 32 << 10,
            max_peers: 4096,
            copy: true,
        }
    }
}

impl LocalConfig {
    pub(super) fn check(&self) -> Result<(), LocalError> {
        let is_in_name =
            |byte: u8| byte.is_ascii_alphanumeric() || [b'.', b'_', b'-'].contains(&byte);
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_in_name))
        {
            return Err(LocalError::Name(name.clone()));
        }
        if !self.ring.is_power_of_two() || !(MIN_RING..=MAX_RING).contains(&self.ring) {
            return Err(LocalError::Ring(self.ring));
        }
        if !(1..=MAX_PEERS).contains(&self.max_peers) {
            return Err(LocalError::Peers(self.max_peers));
        }
        Ok(())
    }
}
