//! Puts and gets. For the segment of a mapped peer they are stores and loads, in three steps: find
//! the peer, check the range, copy. `transfer` handles all other cases.
//!
//! Remote locations are given as offsets from the start of the target's segment.

use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::Handle;
use crate::kernel::options::{Blocking, Completion};
use crate::memory::{Local, Remote, Source};
use crate::ni::{Ni, Rank};
use crate::rma::implicit::Class;
use crate::rma::transfer::Transfer;
use crate::threads::Mode;

/// Maximum size in bytes of the values that calls take or return by value.
const VALUE: usize = size_of::<u64>();

/// Returns the `bytes` low-order bytes (1 to 8) of a value, in this machine's byte order, for use
/// as the source of a put.
///
/// # Errors
/// If `bytes` is 0 or more than 8.
#[inline]
pub fn value_bytes<'a>(
    operation: &'static str,
    value: &'a [u8; VALUE],
    bytes: usize,
) -> Result<&'a [u8]> {
    let start = match cfg!(target_endian = "little") {
        true => 0,
        false => VALUE.wrapping_sub(bytes),
    };
    let end = start.wrapping_add(bytes);
    match value.get(start..end) {
        Some(low) if !low.is_empty() => Ok(low),
        _ => Err(Error::ValueWidth { operation, bytes }),
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Copies `source` to `offset` in the target's segment. The data is in place when this call
    /// returns.
    #[inline(always)]
    pub fn put(self, target: Rank, offset: usize, source: &[u8]) -> Result<()> {
        let segment =
            self.engine
                .memory
                .remote_access(self.kernel(), "put", target, offset, source.len())?;
        // SAFETY: `remote_access` has checked the range, and the source is borrowed, so it is
        // valid.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            return Ok(());
        }
        // SAFETY: the source is borrowed until this call returns, and this call waits for the put.
        unsafe { self.put_pieces_and_wait("put", target, offset, Source::of(source)) }
    }

    /// Copies from `offset` in the target's segment to `destination`.
    #[inline(always)]
    pub fn get(self, destination: &mut [u8], target: Rank, offset: usize) -> Result<()> {
        let (base, len) = (destination.as_mut_ptr(), destination.len());
        let segment =
            self.engine
                .memory
                .remote_access(self.kernel(), "get", target, offset, len)?;
        // SAFETY: `remote_access` has checked the range, and the destination is mutably borrowed,
        // so it is valid.
        if unsafe { segment.load(offset, base, len) } {
            return Ok(());
        }
        let local = Local::Destination { base, len };
        // SAFETY: the destination is borrowed until this call returns, and this call waits for the
        // get.
        let started = unsafe {
            self.transfer(
                "get",
                Remote::segment(target, offset),
                local,
                None,
                Blocking::Wait,
            )?
        };
        self.wait_transfer("get", started)
    }

    /// Starts a put whose source may be reused when this call returns. Returns `None` if the put
    /// was not started because it would have blocked.
    #[inline(always)]
    pub fn put_nb(
        self,
        target: Rank,
        offset: usize,
        source: &[u8],
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("put_nb", "put_nbi");
        let segment = self.engine.memory.remote_access(
            self.kernel(),
            operation,
            target,
            offset,
            source.len(),
        )?;
        // SAFETY: `remote_access` has checked the range, and the source is borrowed, so it is
        // valid.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            return Ok(Some(Handle::DONE));
        }
        let local = Local::Source(Source::of(source));
        // SAFETY: the source is borrowed until this call returns, and with `reusable` the call
        // waits until the transfer no longer reads it.
        unsafe {
            self.start_transfer(
                operation,
                Remote::segment(target, offset),
                local,
                true,
                completion,
                blocking,
            )
        }
    }

    /// Starts a put that may read its source until the put has been synchronised. Returns `None` if
    /// the put was not started because it would have blocked.
    ///
    /// # Safety
    /// `[source, source + len)` must be valid for reads, and must not be written, until the put has
    /// been synchronised. A put with a handle is synchronised through the handle, an implicit put
    /// with this thread's implicit puts or its access region.
    #[inline(always)]
    pub unsafe fn put_nb_bulk(
        self,
        target: Rank,
        offset: usize,
        source: *const u8,
        len: usize,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("put_nb_bulk", "put_nbi_bulk");
        let segment =
            self.engine
                .memory
                .remote_access(self.kernel(), operation, target, offset, len)?;
        // SAFETY: `remote_access` has checked the range, and the caller guarantees that the source
        // is valid.
        if unsafe { segment.store(offset, source, len) } {
            return Ok(Some(Handle::DONE));
        }
        let local = Local::Source(Source { base: source, len });
        // SAFETY: the caller guarantees that the source remains valid and unchanged until the put
        // has been synchronised.
        unsafe {
            self.start_transfer(
                operation,
                Remote::segment(target, offset),
                local,
                false,
                completion,
                blocking,
            )
        }
    }

    /// Starts a get. Returns `None` if the get was not started because it would have blocked.
    ///
    /// # Safety
    /// `[destination, destination + len)` must be valid for writes, and must be neither read nor
    /// written, until the get has been synchronised. A get with a handle is synchronised through
    /// the handle, an implicit get with this thread's implicit gets or its access region.
    #[inline(always)]
    pub unsafe fn get_nb(
        self,
        destination: *mut u8,
        target: Rank,
        offset: usize,
        len: usize,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("get_nb", "get_nbi");
        let segment =
            self.engine
                .memory
                .remote_access(self.kernel(), operation, target, offset, len)?;
        // SAFETY: `remote_access` has checked the range, and the caller guarantees that the
        // destination is valid.
        if unsafe { segment.load(offset, destination, len) } {
            return Ok(Some(Handle::DONE));
        }
        let base = destination;
        let local = Local::Destination { base, len };
        // SAFETY: the caller guarantees that the destination remains valid, and is not accessed,
        // until the get has been synchronised.
        unsafe {
            self.start_transfer(
                operation,
                Remote::segment(target, offset),
                local,
                false,
                completion,
                blocking,
            )
        }
    }

    /// Sets `len` bytes at `offset` in the target's segment to `byte`, and waits for completion.
    pub fn memset(self, target: Rank, offset: usize, byte: u8, len: usize) -> Result<()> {
        let (completion, blocking) = (Completion::Handle, Blocking::Wait);
        let handle =
            self.start_memset("memset", target, offset, byte, len, completion, blocking)?;
        self.wait(handle.unwrap_or(Handle::DONE))
    }

    /// Starts setting `len` bytes at `offset` in the target's segment to `byte`. The operation
    /// counts as a put. Returns `None` if it was not started because it would have blocked.
    pub fn memset_nb(
        self,
        target: Rank,
        offset: usize,
        byte: u8,
        len: usize,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("memset_nb", "memset_nbi");
        self.start_memset(operation, target, offset, byte, len, completion, blocking)
    }

    /// Reads a value of `bytes` bytes (1 to 8), waits for it, and returns it zero-extended.
    #[inline]
    pub fn get_value(self, target: Rank, offset: usize, bytes: usize) -> Result<u64> {
        let mut value = [0; VALUE];
        value_bytes("get_value", &value, bytes)?;
        let part = match cfg!(target_endian = "little") {
            true => &mut value[..bytes],
            false => &mut value[VALUE - bytes..],
        };
        self.get(part, target, offset)?;
        Ok(u64::from_ne_bytes(value))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the calls' own arguments, passed on"
    )]
    fn start_memset(
        self,
        operation: &'static str,
        target: Rank,
        offset: usize,
        byte: u8,
        len: usize,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let segment =
            self.engine
                .memory
                .remote_access(self.kernel(), operation, target, offset, len)?;
        if !segment.window.0.is_null() {
            // SAFETY: `remote_access` has checked that the range lies in the window, which is valid
            // for writes.
            unsafe { std::ptr::write_bytes(segment.window.0.add(offset), byte, len) };
            return Ok(Some(Handle::DONE));
        }
        let local = Local::Fill { byte, len };
        // SAFETY: a fill uses no local memory, so none needs to be valid.
        unsafe {
            self.start_transfer(
                operation,
                Remote::segment(target, offset),
                local,
                false,
                completion,
                blocking,
            )
        }
    }

    /// Starts a transfer that is not a copy to or from mapped memory. If `reusable` is true, the
    /// call returns only once the local memory is no longer used.
    ///
    /// # Safety
    /// The conditions of [`Calls::transfer`] apply. If `reusable` is true, they need to hold only
    /// until this call returns.
    #[inline(never)]
    pub(crate) unsafe fn start_transfer(
        self,
        operation: &'static str,
        remote: Remote,
        local: Local,
        reusable: bool,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let class = match local {
            Local::Source(_) | Local::Fill { .. } => Class::PUTS,
            Local::Destination { .. } => Class::GETS,
        };
        let group = match completion {
            Completion::Handle => None,
            Completion::Implicit => Some(self.implicit_group(operation, class)?),
        };
        let started =
            // SAFETY: the caller guarantees that the local memory is valid for as long as the
            // transfer uses it.
            unsafe { self.transfer(operation, remote, local, group, blocking)? };
        if let Transfer::Started { op, copied: false } = started
            && reusable
        {
            self.engine
                .wait_for(operation, Awaits::Operation(op), |engine| {
                    Ok(engine.kernel.operations.has_ended(op).then_some(()))
                })?;
        }
        Ok(started.handle().map(|handle| match completion {
            Completion::Handle => handle,
            Completion::Implicit => Handle::DONE,
        }))
    }
}
