//! The configuration of the local network.

use super::LocalError;

/// The limits and sizes of a [`Local`](super::Local). Processes may have different configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalConfig {
    /// The name by which others reach this process. It must have 1 to [`MAX_NAME`] characters of
    /// `[A-Za-z0-9._-]`. If it is `None`, a random name is chosen. Only one process of a user can
    /// have a given name at a time.
    pub name: Option<String>,
    /// The size in bytes of a ring, which must be a power of two from [`MIN_RING`] to [`MAX_RING`].
    /// Each pair of peers has four rings. The process that connects decides their size.
    pub ring: usize,
    /// The maximum number of peers that have numbers at once, from 1 to [`MAX_PEERS`].
    pub max_peers: u32,
    /// Whether this process and its peers may copy each other's memory by cross-memory attach.
    /// Where the system lets only a process's parents attach to it (Yama), this setting lets all
    /// processes of the user attach.
    pub copy: bool,
}

/// The maximum length of a [`LocalConfig::name`].
pub const MAX_NAME: usize = 64;
/// The smallest [`LocalConfig::ring`], which has room for a few of the longest tiny fragments.
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
