//! Memory of this process for transfers, and handles, which describe registered memory to peers.

use std::fmt;
use std::sync::Arc;

use conduit_portals::transport::open::OpenTransport;

use crate::class::{Network, Shared};
use crate::error::{Error, Result};
use crate::machine::MemoryKey;
use crate::machine::memory::{Rights, Segments};

/// Memory of this process for transfers. It is the local side of transfers that this process
/// begins. While it is registered, peers that have its [handle](Self::handle) can also put to it
/// and get from it.
///
/// Dropping a `Memory` deregisters the memory, and no peer accesses the memory afterwards. The drop
/// may take a moment if a peer is reading the memory.
pub struct Memory<N: OpenTransport = Network> {
    class: Arc<Shared<N>>,
    segments: Arc<Segments>,
    rights: Rights,
    registered: Option<MemoryKey>,
}

impl<N: OpenTransport> Memory<N> {
    pub(crate) fn new(class: Arc<Shared<N>>, segments: Arc<Segments>, rights: Rights) -> Self {
        Self {
            class,
            segments,
            rights,
            registered: None,
        }
    }

    pub(crate) fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// Returns the length of all segments in bytes.
    pub fn length(&self) -> u64 {
        self.segments.length()
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }

    /// Returns the peers' rights.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Registers the memory, which gives peers access. Has no effect if the memory is already
    /// registered.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers for the key, or all handles are in use.
    pub fn register(&mut self) -> Result<()> {
        if self.registered.is_some() {
            return Ok(());
        }
        let key = getrandom::u64().map_err(|error| Error::Refused(error.to_string()))?;
        let segments = Arc::clone(&self.segments);
        let registered = self
            .class
            .engine
            .look(|inner| inner.machine.register(key, self.rights, segments))?;
        self.registered = Some(registered);
        Ok(())
    }

    /// Revokes the peers' access. No peer accesses the memory once this call has returned.
    pub fn deregister(&mut self) {
        if let Some(registered) = self.registered.take() {
            self.class.engine.deregister(registered);
        }
    }

    /// Calls `copy` with the engine's lock held, so that no progress of this process accesses the
    /// memory meanwhile.
    pub(crate) fn with_lock<R>(&self, copy: impl FnOnce() -> R) -> R {
        self.class.engine.look(|_| copy())
    }

    /// Returns the description that a peer needs for access.
    ///
    /// # Errors
    /// Returns an error if the memory is not registered.
    pub fn handle(&self) -> Result<Handle> {
        Ok(Handle {
            key: self
                .registered
                .ok_or(Error::Invalid("the memory is not registered"))?,
            length: self.segments.length(),
            rights: self.rights,
        })
    }
}

impl<N: OpenTransport> Drop for Memory<N> {
    fn drop(&mut self) {
        self.deregister();
    }
}

impl<N: OpenTransport> fmt::Debug for Memory<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("length", &self.length())
            .field("rights", &self.rights)
            .field("registered", &self.registered.is_some())
            .finish_non_exhaustive()
    }
}

/// The description of memory that a process has registered, which other processes need for access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    pub(crate) key: MemoryKey,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
}

impl Handle {
    /// The length of an encoded handle in bytes: 1 for the version, 1 for the rights, 4 for the
    /// index, 8 for the key and 8 for the length.
    pub const BYTES: usize = 22;
    const VERSION: u8 = 1;

    /// Returns the length of the memory in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the peers' rights.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Encodes the handle for sending it to peers.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = Self::VERSION;
        bytes[1] = match self.rights {
            Rights::ReadOnly => 1,
            Rights::WriteOnly => 2,
            Rights::ReadWrite => 3,
        };
        bytes[2..6].copy_from_slice(&self.key.index.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.key.key.to_le_bytes());
        bytes[14..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    /// Decodes a handle from [its bytes](Self::to_bytes). Bytes beyond the handle are ignored.
    ///
    /// # Errors
    /// Returns an error if the bytes are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::Refused("malformed memory handle".to_owned());
        let bytes: &[u8; Self::BYTES] = bytes.first_chunk().ok_or_else(malformed)?;
        let [Self::VERSION, rights, i0, i1, i2, i3, rest @ ..] = *bytes else {
            return Err(malformed());
        };
        let (key, length) = rest.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
        Ok(Self {
            key: MemoryKey {
                index: u32::from_le_bytes([i0, i1, i2, i3]),
                key: number(key).map_err(|_| malformed())?,
            },
            length: number(length).map_err(|_| malformed())?,
            rights: match rights {
                1 => Rights::ReadOnly,
                2 => Rights::WriteOnly,
                3 => Rights::ReadWrite,
                _ => return Err(malformed()),
            },
        })
    }

    /// Checks a transfer against the rights and the length in this handle. The target checks the
    /// transfer again.
    pub(crate) fn check(&self, is_put: bool, offset: u64, length: u64) -> Result<()> {
        match is_put {
            true if !self.rights.may_write() => return Err(Error::Rights("written")),
            false if !self.rights.may_read() => return Err(Error::Rights("read")),
            _ => {}
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            end => Err(Error::OutOfBounds {
                offset,
                end: end.unwrap_or(u64::MAX),
                length: self.length,
            }),
        }
    }
}
