//! Memory handles: registered memory here, and what peers are told of it.

use std::fmt;
use std::sync::Arc;

use conduit_portals::transport::open::OpenTransport;

use crate::class::{Network, Shared};
use crate::error::{Error, Result};
use crate::machine::MemoryKey;
use crate::machine::memory::{Rights, Segments};

/// Memory of this process for transfers: the local side of those that it begins, and, while it is
/// registered, what peers with its [handle](Self::handle) put to and get from.
///
/// Dropping it deregisters it: no peer touches it afterwards. That may take a moment, if one is
/// reading it.
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

    /// Bytes of all segments.
    pub fn length(&self) -> u64 {
        self.segments.length()
    }

    /// Number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.count()
    }

    /// What peers may do with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Gives peers access. Has no effect on memory that is registered.
    ///
    /// # Errors
    /// The system has no random numbers for its key, or all handles are in use.
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

    /// Takes the access away: no peer touches the memory when this has returned.
    pub fn deregister(&mut self) {
        if let Some(registered) = self.registered.take() {
            self.class.engine.deregister(registered);
        }
    }

    /// Calls `copy` while no transfer of this process's progress touches the memory.
    pub(crate) fn with_lock<R>(&self, copy: impl FnOnce() -> R) -> R {
        self.class.engine.look(|_| copy())
    }

    /// What a peer needs to know of it.
    ///
    /// # Errors
    /// It is not registered.
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

/// Memory that a process has registered, as others know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    pub(crate) key: MemoryKey,
    pub(crate) length: u64,
    pub(crate) rights: Rights,
}

impl Handle {
    /// Bytes of its encoded form: version 1, rights 1, index 4, key 8, length 8.
    pub const BYTES: usize = 22;
    const VERSION: u8 = 1;

    /// Bytes of the memory.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What may be done with it.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The form in which it is sent to peers.
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

    /// The opposite of [`to_bytes`](Self::to_bytes); what follows is ignored.
    ///
    /// # Errors
    /// These bytes are no handle.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let malformed = || Error::Refused("malformed bytes of a memory handle".to_owned());
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

    /// Whether a transfer is allowed, as far as can be known here.
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
