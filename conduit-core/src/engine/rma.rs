//! Puts and gets. A mapped peer's segment is stored to and loaded from here, in three steps: find the peer, check the
//! range, copy. Everything else is in `transfer`.
//!
//! Remote places are given as offsets from the start of the target's segment.

use super::handle::{Handle, OpId};
use super::memory::Local;
use super::memory::Segment;
use super::memory::Source;
use super::transfer::Transfer;
use super::{Engine, Error, Result, implicit};
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

/// Whether an initiation may wait for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocking {
    /// Poll until it can start.
    #[default]
    Wait,
    /// Don't start if that would block (GASNet-EX's immediate flag). Exact for everything on mapped memory. Where
    /// operations are messages, what is looked at is credits and send tickets; a chunk, or a piece of a transfer that needs
    /// more pieces than there are tickets, may still be waited for, which ends as soon as operations under way do.
    Immediate,
}

/// Widest value of a value call, bytes.
const VALUE: usize = size_of::<u64>();

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Copies `source` to `offset` of the target's segment; it is there when the call returns.
    #[inline(always)]
    pub fn put(&self, target: Rank, offset: usize, source: &[u8]) -> Result<()> {
        let segment = self
            .memory
            .remote_access(&self.job, "put", target, offset, source.len())?;
        // SAFETY: the range was checked by `remote`; the source is borrowed.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            return Ok(());
        }
        // SAFETY: the borrow outlives the call, which waits.
        unsafe { self.put_pieces_and_wait("put", target, segment, offset, Source::of(source)) }
    }

    /// Copies from `offset` of the target's segment to `destination`.
    #[inline(always)]
    pub fn get(&self, destination: &mut [u8], target: Rank, offset: usize) -> Result<()> {
        let segment =
            self.memory
                .remote_access(&self.job, "get", target, offset, destination.len())?;
        // SAFETY: the range was checked by `remote`; the destination is mutably borrowed.
        if unsafe { segment.load(offset, destination.as_mut_ptr(), destination.len()) } {
            return Ok(());
        }
        self.job.check_context("get", am::Operation::Request)?;
        let local = Local::Destination {
            base: destination.as_mut_ptr(),
            len: destination.len(),
        };
        // SAFETY: the borrow outlives the call, which waits.
        let started =
            unsafe { self.transfer("get", target, segment, offset, local, None, Blocking::Wait)? };
        self.wait_transfer("get", started)
    }

    /// Starts a put whose source may be reused on return. `None`: not started, it would have blocked.
    #[inline]
    pub fn put_nb(
        &self,
        target: Rank,
        offset: usize,
        source: &[u8],
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let segment =
            self.memory
                .remote_access(&self.job, "put_nb", target, offset, source.len())?;
        // SAFETY: as in `put`.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            return Ok(Some(Handle::DONE));
        }
        self.put_copied("put_nb", target, segment, offset, source, None, blocking)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the put calls' own arguments, passed on"
    )]
    fn put_copied(
        &self,
        operation: &'static str,
        target: Rank,
        segment: &Segment,
        offset: usize,
        source: &[u8],
        group: Option<OpId>,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        self.job.check_context(operation, am::Operation::Request)?;
        let local = Local::Source(Source::of(source));
        // SAFETY: the source is valid during this call; while the transfer still reads it, the wait below goes on.
        let started =
            unsafe { self.transfer(operation, target, segment, offset, local, group, blocking)? };
        if let Transfer::Started { op, copied: false } = started {
            self.wait_for(operation, |engine| {
                Ok(engine.operations.has_ended(op).then_some(()))
            })?;
        }
        Ok(started.handle())
    }

    /// Starts a put that reads its source until it is synchronised.
    ///
    /// # Safety
    /// `[source, source + len)` is valid for reads and not written until the handle has been synchronised.
    #[inline]
    pub unsafe fn put_nb_bulk(
        &self,
        target: Rank,
        offset: usize,
        source: *const u8,
        len: usize,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let segment = self
            .memory
            .remote_access(&self.job, "put_nb_bulk", target, offset, len)?;
        // SAFETY: range as in `put`; the source is the caller's promise.
        if unsafe { segment.store(offset, source, len) } {
            return Ok(Some(Handle::DONE));
        }
        self.job
            .check_context("put_nb_bulk", am::Operation::Request)?;
        let local = Local::Source(Source { base: source, len });
        // SAFETY: the caller's promise.
        Ok(unsafe {
            self.transfer(
                "put_nb_bulk",
                target,
                segment,
                offset,
                local,
                None,
                blocking,
            )?
        }
        .handle())
    }

    /// Starts a get.
    ///
    /// # Safety
    /// `[destination, destination + len)` is valid for writes and neither read nor written until the handle has been
    /// synchronised.
    #[inline]
    pub unsafe fn get_nb(
        &self,
        destination: *mut u8,
        target: Rank,
        offset: usize,
        len: usize,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let segment = self
            .memory
            .remote_access(&self.job, "get_nb", target, offset, len)?;
        // SAFETY: range as in `get`; the destination is the caller's promise.
        if unsafe { segment.load(offset, destination, len) } {
            return Ok(Some(Handle::DONE));
        }
        self.job.check_context("get_nb", am::Operation::Request)?;
        let local = Local::Destination {
            base: destination,
            len,
        };
        // SAFETY: the caller's promise.
        Ok(
            unsafe { self.transfer("get_nb", target, segment, offset, local, None, blocking)? }
                .handle(),
        )
    }

    /// As [`Engine::put_nb`], belonging to this thread's implicit puts. `false`: not started.
    #[inline]
    pub fn put_nbi(
        &self,
        target: Rank,
        offset: usize,
        source: &[u8],
        blocking: Blocking,
    ) -> Result<bool> {
        let segment =
            self.memory
                .remote_access(&self.job, "put_nbi", target, offset, source.len())?;
        // SAFETY: as in `put`.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            return Ok(true);
        }
        let group = self.implicit_group("put_nbi", implicit::Class::Puts)?;
        Ok(self
            .put_copied(
                "put_nbi",
                target,
                segment,
                offset,
                source,
                Some(group),
                blocking,
            )?
            .is_some())
    }

    /// As [`Engine::put_nb_bulk`], belonging to this thread's implicit puts.
    ///
    /// # Safety
    /// As for [`Engine::put_nb_bulk`], until the implicit puts (or the access region) have been synchronised.
    #[inline]
    pub unsafe fn put_nbi_bulk(
        &self,
        target: Rank,
        offset: usize,
        source: *const u8,
        len: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        let segment = self
            .memory
            .remote_access(&self.job, "put_nbi_bulk", target, offset, len)?;
        // SAFETY: range as in `put`; the source is the caller's promise.
        if unsafe { segment.store(offset, source, len) } {
            return Ok(true);
        }
        self.job
            .check_context("put_nbi_bulk", am::Operation::Request)?;
        let group = Some(self.implicit_group("put_nbi_bulk", implicit::Class::Puts)?);
        let local = Local::Source(Source { base: source, len });
        // SAFETY: the caller's promise.
        let started = unsafe {
            self.transfer(
                "put_nbi_bulk",
                target,
                segment,
                offset,
                local,
                group,
                blocking,
            )?
        };
        Ok(started.handle().is_some())
    }

    /// As [`Engine::get_nb`], belonging to this thread's implicit gets.
    ///
    /// # Safety
    /// As for [`Engine::get_nb`], until the implicit gets (or the access region) have been synchronised.
    #[inline]
    pub unsafe fn get_nbi(
        &self,
        destination: *mut u8,
        target: Rank,
        offset: usize,
        len: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        let segment = self
            .memory
            .remote_access(&self.job, "get_nbi", target, offset, len)?;
        // SAFETY: range as in `get`; the destination is the caller's promise.
        if unsafe { segment.load(offset, destination, len) } {
            return Ok(true);
        }
        self.job.check_context("get_nbi", am::Operation::Request)?;
        let group = Some(self.implicit_group("get_nbi", implicit::Class::Gets)?);
        let local = Local::Destination {
            base: destination,
            len,
        };
        // SAFETY: the caller's promise.
        let started =
            unsafe { self.transfer("get_nbi", target, segment, offset, local, group, blocking)? };
        Ok(started.handle().is_some())
    }

    /// Writes the low `bytes` (1 to 8) bytes of `value`, in this machine's byte order, and waits.
    #[inline]
    pub fn put_value(&self, target: Rank, offset: usize, value: u64, bytes: usize) -> Result<()> {
        self.put(
            target,
            offset,
            self.value_bytes("put_value", &value.to_ne_bytes(), bytes)?,
        )
    }

    /// As [`Engine::put_value`], without waiting.
    #[inline]
    pub fn put_value_nb(
        &self,
        target: Rank,
        offset: usize,
        value: u64,
        bytes: usize,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        self.put_nb(
            target,
            offset,
            self.value_bytes("put_value_nb", &value.to_ne_bytes(), bytes)?,
            blocking,
        )
    }

    /// As [`Engine::put_value`], belonging to this thread's implicit puts.
    #[inline]
    pub fn put_value_nbi(
        &self,
        target: Rank,
        offset: usize,
        value: u64,
        bytes: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        self.put_nbi(
            target,
            offset,
            self.value_bytes("put_value_nbi", &value.to_ne_bytes(), bytes)?,
            blocking,
        )
    }

    /// The low-order bytes of a register value.
    #[inline]
    fn value_bytes<'a>(
        &self,
        operation: &'static str,
        value: &'a [u8; VALUE],
        bytes: usize,
    ) -> Result<&'a [u8]> {
        if bytes == 0 || bytes > VALUE {
            return Err(Error::ValueWidth { operation, bytes });
        }
        Ok(if cfg!(target_endian = "little") {
            &value[..bytes]
        } else {
            &value[VALUE - bytes..]
        })
    }

    /// Reads `bytes` (1 to 8) bytes, zero-extended, and waits.
    #[inline]
    pub fn get_value(&self, target: Rank, offset: usize, bytes: usize) -> Result<u64> {
        let mut value = [0; VALUE];
        if bytes == 0 || bytes > VALUE {
            return Err(Error::ValueWidth {
                operation: "get_value",
                bytes,
            });
        }
        let part = if cfg!(target_endian = "little") {
            &mut value[..bytes]
        } else {
            &mut value[VALUE - bytes..]
        };
        self.get(part, target, offset)?;
        Ok(u64::from_ne_bytes(value))
    }

    /// Sets `len` bytes at `offset` of the target's segment, and waits.
    pub fn memset(&self, target: Rank, offset: usize, byte: u8, len: usize) -> Result<()> {
        let handle = self.memset_in("memset", target, offset, byte, len, None, Blocking::Wait)?;
        self.wait(handle.unwrap_or(Handle::DONE))
    }

    /// Starts setting `len` bytes.
    pub fn memset_nb(
        &self,
        target: Rank,
        offset: usize,
        byte: u8,
        len: usize,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        self.memset_in("memset_nb", target, offset, byte, len, None, blocking)
    }

    /// As [`Engine::memset_nb`], belonging to this thread's implicit puts.
    pub fn memset_nbi(
        &self,
        target: Rank,
        offset: usize,
        byte: u8,
        len: usize,
        blocking: Blocking,
    ) -> Result<bool> {
        let group = self.implicit_group("memset_nbi", implicit::Class::Puts)?;
        Ok(self
            .memset_in(
                "memset_nbi",
                target,
                offset,
                byte,
                len,
                Some(group),
                blocking,
            )?
            .is_some())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the memset calls' own arguments, passed on"
    )]
    fn memset_in(
        &self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        byte: u8,
        len: usize,
        group: Option<OpId>,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let segment = self
            .memory
            .remote_access(&self.job, operation, target, offset, len)?;
        if !segment.window.0.is_null() {
            // SAFETY: the range lies in the window, as in `put`.
            unsafe { std::ptr::write_bytes(segment.window.0.add(offset), byte, len) };
            return Ok(Some(Handle::DONE));
        }
        self.job.check_context(operation, am::Operation::Request)?;
        // SAFETY: a fill reads no memory.
        Ok(unsafe {
            self.transfer(
                operation,
                target,
                segment,
                offset,
                Local::Fill { byte, len },
                group,
                blocking,
            )?
        }
        .handle())
    }
}
