//! Puts and gets.

use conduit_core::kernel::{Blocking, Completion, Handle};
use conduit_core::ni::Rank;
use conduit_core::rma::{Class, value_bytes};
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::atomics::request;
use crate::{Atom, Conduit, Result};

/// Remote offsets are in bytes, counted from the start of the target's segment. Values are copied
/// in their memory representation, so all ranks must run on the same kind of machine.
impl<M: Mode> Conduit<M> {
    /// Copies `source` (bytes, a number, a slice of numbers, …) to `offset` in `target`'s segment.
    /// The data is in place when the call returns.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let right = (conduit.rank() + 1) % conduit.size();
    /// conduit.put(right, 64, &[1.5f64, 2.5])?;
    /// conduit.barrier()?;
    /// let mut back = [0f64; 2];
    /// conduit.get(&mut back, conduit.rank(), 64)?;
    /// assert_eq!(back, [1.5, 2.5]);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`, [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the range is
    /// not inside the target's segment, and
    /// [`EngineError::Exhausted`](crate::EngineError::Exhausted) if all operation ids are in use.
    /// In the last case, wait for earlier operations, or raise `CONDUIT_MAX_OPERATIONS`. Also
    /// returns
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(
        &self,
        target: Rank,
        offset: usize,
        source: &T,
    ) -> Result<()> {
        self.done(
            "put",
            self.member
                .engine()
                .rma()
                .put(target, offset, source.as_bytes()),
        )
    }

    /// Copies from `offset` in `target`'s segment to `destination`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 8, &[3u16, 5, 7])?;
    /// let mut primes = [0u16; 3];
    /// conduit.get(&mut primes, peer, 8)?;
    /// assert_eq!(primes, [3, 5, 7]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn get<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        destination: &mut T,
        target: Rank,
        offset: usize,
    ) -> Result<()> {
        self.done(
            "get",
            self.member
                .engine()
                .rma()
                .get(destination.as_mut_bytes(), target, offset),
        )
    }

    /// Copies `source` to `offset` in `target`'s segment, and then applies `op` with `operand` to
    /// the number at offset `signal` in the same segment.
    ///
    /// Once the target sees the effect of `op`, it also sees the data.
    ///
    /// The source may be reused when this call returns. The call does not report when the signal
    /// has been applied; [`Conduit::quiesce`] waits for that.
    ///
    /// If the target's segment is not [mapped](Conduit::window) here, the data is limited to 2 GiB
    /// minus 1 byte, and is sent in the signal's message if it fits. The target then applies the
    /// signal when it polls. Such signals are no more ordered than messages are: a counter to which
    /// two signals add may show that one signal has arrived, but not which.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::AtomicOp;
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let right = (conduit.rank() + 1) % conduit.size();
    /// conduit.put_signal(right, 64, &[1.5f64, 2.5], 0, AtomicOp::Add, 1u64)?;
    /// let segment = conduit.segment();
    /// conduit.wait_until(|| Ok(segment.atomic_get::<u64>(0)? == 1))?;
    /// let mut data = [0f64; 2];
    /// segment.get(&mut data, 64)?;
    /// assert_eq!(data, [1.5, 2.5]);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no rank
    /// `target`, [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the range or
    /// the number is not inside the target's segment,
    /// [`EngineError::Misaligned`](crate::EngineError::Misaligned) if `signal` is not a multiple of
    /// the number's size, and [`EngineError::PayloadTooLong`](crate::EngineError::PayloadTooLong)
    /// if the data exceeds its limit. Returns
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn put_signal<T: IntoBytes + Immutable + ?Sized, A: Atom>(
        &self,
        target: Rank,
        offset: usize,
        source: &T,
        signal: usize,
        op: A::Op,
        operand: A,
    ) -> Result<()> {
        let request = request(op, operand, operand);
        let (engine, source) = (self.member.engine(), source.as_bytes());
        self.done(
            "put_signal",
            engine
                .rma()
                .put_signal(target, offset, source, signal, request),
        )
    }

    /// Starts a put. The source may be reused when this call returns. The data is in place once the
    /// handle has been waited for.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let peer = conduit.rank();
    /// let handle = conduit.put_nb(peer, 0, &7u32)?;
    /// // ... compute ...
    /// conduit.wait(handle)?;
    /// assert_eq!(conduit.get_value(peer, 0, 4)?, 7);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn put_nb<T: IntoBytes + Immutable + ?Sized>(
        &self,
        target: Rank,
        offset: usize,
        source: &T,
    ) -> Result<Handle> {
        let handle = self.done(
            "put_nb",
            self.member.engine().rma().put_nb(
                target,
                offset,
                source.as_bytes(),
                Completion::Handle,
                Blocking::Wait,
            ),
        )?;
        Ok(handle.unwrap_or(Handle::DONE))
    }

    /// Like [`Conduit::put_nb`], but returns `None` instead of waiting for resources.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut started = None;
    /// while started.is_none() {
    ///     conduit.poll()?; // frees resources
    ///     started = conduit.put_nb_immediate(peer, 24, &9u64)?;
    /// }
    /// conduit.wait(started.unwrap_or(conduit::Handle::DONE))?;
    /// assert_eq!(conduit.get_value(peer, 24, 8)?, 9);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn put_nb_immediate<T: IntoBytes + Immutable + ?Sized>(
        &self,
        target: Rank,
        offset: usize,
        source: &T,
    ) -> Result<Option<Handle>> {
        self.done(
            "put_nb_immediate",
            self.member.engine().rma().put_nb(
                target,
                offset,
                source.as_bytes(),
                Completion::Handle,
                Blocking::Immediate,
            ),
        )
    }

    /// Starts a put that may read its source until the handle has been waited for.
    /// [`Conduit::scope`] is the safe alternative.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let table: Vec<u32> = (0..256).collect();
    /// // SAFETY: the table is neither changed nor dropped before the wait.
    /// let handle = unsafe { conduit.put_nb_bulk(peer, 0, table.as_ptr().cast(), 1024)? };
    /// conduit.wait(handle)?;
    /// assert_eq!(conduit.get_value(peer, 255 * 4, 4)?, 255);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    ///
    /// # Safety
    /// `[source, source + len)` must remain valid, and must not be written, until the handle has
    /// been waited for.
    #[inline]
    pub unsafe fn put_nb_bulk(
        &self,
        target: Rank,
        offset: usize,
        source: *const u8,
        len: usize,
    ) -> Result<Handle> {
        // SAFETY: the caller guarantees that the source remains valid and is not written until the
        // handle has been waited for.
        let handle = self.done("put_nb_bulk", unsafe {
            self.member.engine().rma().put_nb_bulk(
                target,
                offset,
                source,
                len,
                Completion::Handle,
                Blocking::Wait,
            )
        })?;
        Ok(handle.unwrap_or(Handle::DONE))
    }

    /// Starts a get. [`Conduit::scope`] is the safe alternative.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 0, &[1.5f32, 2.5])?;
    /// let mut values = [0f32; 2];
    /// // SAFETY: the values are not used before the wait.
    /// let handle = unsafe { conduit.get_nb(values.as_mut_ptr().cast(), peer, 0, 8)? };
    /// conduit.wait(handle)?;
    /// assert_eq!(values, [1.5, 2.5]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    ///
    /// # Safety
    /// `[destination, destination + len)` must remain valid, and must be neither read nor written,
    /// until the handle has been waited for.
    #[inline]
    pub unsafe fn get_nb(
        &self,
        destination: *mut u8,
        target: Rank,
        offset: usize,
        len: usize,
    ) -> Result<Handle> {
        // SAFETY: the caller guarantees that the destination remains valid and is not accessed
        // until the handle has been waited for.
        let handle = self.done("get_nb", unsafe {
            self.member.engine().rma().get_nb(
                destination,
                target,
                offset,
                len,
                Completion::Handle,
                Blocking::Wait,
            )
        })?;
        Ok(handle.unwrap_or(Handle::DONE))
    }

    /// Starts a put as one of this thread's implicit operations. The source may be reused when this
    /// call returns.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// for slot in 0..16 {
    ///     conduit.put_nbi(peer, slot * 8, &(slot * 10))?;
    /// }
    /// conduit.wait_puts()?;
    /// assert_eq!(conduit.get_value(peer, 15 * 8, 8)?, 150);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn put_nbi<T: IntoBytes + Immutable + ?Sized>(
        &self,
        target: Rank,
        offset: usize,
        source: &T,
    ) -> Result<()> {
        self.done(
            "put_nbi",
            self.member.engine().rma().put_nb(
                target,
                offset,
                source.as_bytes(),
                Completion::Implicit,
                Blocking::Wait,
            ),
        )
        .map(drop)
    }

    /// Like [`Conduit::put_nb_bulk`], but starts one of this thread's implicit operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let (even, odd) = ([2u8; 512], [1u8; 512]);
    /// // SAFETY: neither array changes before `wait_puts`.
    /// unsafe {
    ///     conduit.put_nbi_bulk(peer, 0, even.as_ptr(), 512)?;
    ///     conduit.put_nbi_bulk(peer, 512, odd.as_ptr(), 512)?;
    /// }
    /// conduit.wait_puts()?;
    /// assert_eq!(conduit.get_value(peer, 512, 1)?, 1);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    ///
    /// # Safety
    /// `[source, source + len)` must remain valid, and must not be written, until this thread's
    /// implicit puts or the enclosing access region have been waited for.
    #[inline]
    pub unsafe fn put_nbi_bulk(
        &self,
        target: Rank,
        offset: usize,
        source: *const u8,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller guarantees that the source remains valid and is not written until the
        // operation has been waited for.
        self.done("put_nbi_bulk", unsafe {
            self.member.engine().rma().put_nb_bulk(
                target,
                offset,
                source,
                len,
                Completion::Implicit,
                Blocking::Wait,
            )
        })
        .map(drop)
    }

    /// Like [`Conduit::get_nb`], but starts one of this thread's implicit operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.memset(peer, 0, 4, 64)?;
    /// let mut copy = [0u8; 64];
    /// // SAFETY: the copy is not used before `wait_gets`.
    /// unsafe { conduit.get_nbi(copy.as_mut_ptr(), peer, 0, copy.len())? };
    /// conduit.wait_gets()?;
    /// assert_eq!(copy, [4; 64]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    ///
    /// # Safety
    /// `[destination, destination + len)` must remain valid, and must be neither read nor written,
    /// until this thread's implicit gets or the enclosing access region have been waited for.
    #[inline]
    pub unsafe fn get_nbi(
        &self,
        destination: *mut u8,
        target: Rank,
        offset: usize,
        len: usize,
    ) -> Result<()> {
        // SAFETY: the caller guarantees that the destination remains valid and is not accessed
        // until the operation has been waited for.
        self.done("get_nbi", unsafe {
            self.member.engine().rma().get_nb(
                destination,
                target,
                offset,
                len,
                Completion::Implicit,
                Blocking::Wait,
            )
        })
        .map(drop)
    }

    /// Writes the `bytes` low-order bytes (1 to 8) of `value` to `offset` in `target`'s segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put_value(peer, 6, 0x1_2345, 2)?;
    /// assert_eq!(conduit.get_value(peer, 6, 2)?, 0x2345);
    /// // The bytes behind are unchanged.
    /// assert_eq!(conduit.get_value(peer, 8, 1)?, 0);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`], plus [`EngineError::ValueWidth`](crate::EngineError::ValueWidth)
    /// if `bytes` is not in 1..=8.
    #[inline]
    pub fn put_value(&self, target: Rank, offset: usize, value: u64, bytes: usize) -> Result<()> {
        let value = value.to_ne_bytes();
        let put = value_bytes("put_value", &value, bytes)
            .and_then(|value| self.member.engine().rma().put(target, offset, value));
        self.done("put_value", put)
    }

    /// Starts writing the `bytes` low-order bytes (1 to 8) of `value` to `offset` in `target`'s
    /// segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut handles = [
    ///     conduit.put_value_nb(peer, 0, 17, 4)?,
    ///     conduit.put_value_nb(peer, 4, 18, 4)?,
    /// ];
    /// conduit.wait_all(&mut handles)?;
    /// assert_eq!(conduit.get_value(peer, 4, 4)?, 18);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_value`].
    #[inline]
    pub fn put_value_nb(
        &self,
        target: Rank,
        offset: usize,
        value: u64,
        bytes: usize,
    ) -> Result<Handle> {
        const CALL: &str = "put_value_nb";
        let value = value.to_ne_bytes();
        let value = self.done(CALL, value_bytes(CALL, &value, bytes))?;
        let (completion, blocking) = (Completion::Handle, Blocking::Wait);
        let started = self
            .member
            .engine()
            .rma()
            .put_nb(target, offset, value, completion, blocking);
        Ok(self.done(CALL, started)?.unwrap_or(Handle::DONE))
    }

    /// Like [`Conduit::put_value_nb`], but starts one of this thread's implicit operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// for (place, byte) in (100..).zip(*b"flag") {
    ///     conduit.put_value_nbi(peer, place, byte.into(), 1)?;
    /// }
    /// conduit.wait_implicit()?;
    /// assert_eq!(conduit.get_value(peer, 103, 1)?, u64::from(b'g'));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_value`].
    #[inline]
    pub fn put_value_nbi(
        &self,
        target: Rank,
        offset: usize,
        value: u64,
        bytes: usize,
    ) -> Result<()> {
        const CALL: &str = "put_value_nbi";
        let value = value.to_ne_bytes();
        let value = self.done(CALL, value_bytes(CALL, &value, bytes))?;
        let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
        let started = self
            .member
            .engine()
            .rma()
            .put_nb(target, offset, value, completion, blocking);
        self.done(CALL, started).map(drop)
    }

    /// Reads `bytes` bytes (1 to 8) at `offset` in `target`'s segment and returns them
    /// zero-extended.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 32, &-1i32)?;
    /// // Negative numbers are zero-extended too.
    /// assert_eq!(conduit.get_value(peer, 32, 4)?, 0xffff_ffff);
    /// assert!(conduit.get_value(peer, 32, 9).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_value`].
    #[inline]
    pub fn get_value(&self, target: Rank, offset: usize, bytes: usize) -> Result<u64> {
        self.done(
            "get_value",
            self.member.engine().rma().get_value(target, offset, bytes),
        )
    }

    /// Sets `len` bytes at `offset` in `target`'s segment to `byte`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut row = [7u8; 6];
    /// conduit.put(peer, 0, &row)?;
    /// conduit.memset(peer, 1, 0, 4)?;
    /// conduit.get(&mut row, peer, 0)?;
    /// assert_eq!(row, [7, 0, 0, 0, 0, 7]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    pub fn memset(&self, target: Rank, offset: usize, byte: u8, len: usize) -> Result<()> {
        self.done(
            "memset",
            self.member.engine().rma().memset(target, offset, byte, len),
        )
    }

    /// Starts setting `len` bytes at `offset` in `target`'s segment to `byte`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 8192)?;
    /// # let peer = conduit.rank();
    /// let handle = conduit.memset_nb(peer, 0, 0xff, 8192)?;
    /// // ... compute ...
    /// conduit.wait(handle)?;
    /// assert_eq!(conduit.get_value(peer, 8184, 8)?, u64::MAX);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    pub fn memset_nb(&self, target: Rank, offset: usize, byte: u8, len: usize) -> Result<Handle> {
        let handle = self.done(
            "memset_nb",
            self.member.engine().rma().memset_nb(
                target,
                offset,
                byte,
                len,
                Completion::Handle,
                Blocking::Wait,
            ),
        )?;
        Ok(handle.unwrap_or(Handle::DONE))
    }

    /// Like [`Conduit::memset_nb`], but starts one of this thread's implicit operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// // Clears every other block of 256 bytes.
    /// conduit.memset(peer, 0, 1, 4096)?;
    /// for block in (0..16).step_by(2) {
    ///     conduit.memset_nbi(peer, block * 256, 0, 256)?;
    /// }
    /// conduit.wait_puts()?;
    /// assert_eq!((conduit.get_value(peer, 512, 1)?, conduit.get_value(peer, 768, 1)?), (0, 1));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    pub fn memset_nbi(&self, target: Rank, offset: usize, byte: u8, len: usize) -> Result<()> {
        self.done(
            "memset_nbi",
            self.member.engine().rma().memset_nb(
                target,
                offset,
                byte,
                len,
                Completion::Implicit,
                Blocking::Wait,
            ),
        )
        .map(drop)
    }

    /// Waits for an operation to complete.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// let data = conduit.put_nb(peer, 0, &[1u8; 2048])?;
    /// let total = conduit.atomic_nb(peer, 2048, AtomicOp::Add, 5u32)?;
    /// // Handles may be waited for in any order.
    /// conduit.wait(total)?;
    /// conduit.wait(data)?;
    /// assert_eq!(conduit.get_value(peer, 2048, 4)?, 5);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::StaleHandle`](crate::EngineError::StaleHandle) for a handle that
    /// names no operation, which only [`Handle::from_bits`] can create. If the operation is still
    /// under way, also returns [`EngineError::Context`](crate::Error#calls-in-handlers) in a
    /// handler, and any [failure of the job](crate::Error#failure-of-the-job).
    #[inline]
    pub fn wait(&self, handle: Handle) -> Result<()> {
        self.done("wait", self.member.engine().rma().wait(handle))
    }

    /// Returns `None` if the operation has completed. If it has not, polls once, and returns the
    /// handle if the operation is still under way.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut pending = Some(conduit.put_nb(peer, 8, &1.25f64)?);
    /// while let Some(handle) = pending {
    ///     // ... compute a little ...
    ///     pending = conduit.try_wait(handle)?;
    /// }
    /// assert_eq!(conduit.get_value(peer, 8, 8)?, 1.25f64.to_bits());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::wait`].
    #[inline]
    pub fn try_wait(&self, handle: Handle) -> Result<Option<Handle>> {
        self.done("try_wait", self.member.engine().rma().try_wait(handle))
    }

    /// Waits for the operations of all `handles`. Each handle becomes [`Handle::DONE`].
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut handles = Vec::new();
    /// for row in 0..4 {
    ///     handles.push(conduit.memset_nb(peer, row * 256, 1 + row as u8, 256)?);
    /// }
    /// conduit.wait_all(&mut handles)?;
    /// assert!(handles.iter().all(conduit::Handle::is_done));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::wait`]. After an error, the handles of the operations that have completed
    /// are [`Handle::DONE`].
    pub fn wait_all(&self, handles: &mut [Handle]) -> Result<()> {
        self.done("wait_all", self.member.engine().rma().wait_all(handles))
    }

    /// Waits until at least one of the operations under way has completed. The handles of completed
    /// operations become [`Handle::DONE`]. Returns the number of these operations. Returns 0 at
    /// once if no operation is under way.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut handles = [conduit.put_nb(peer, 0, &1u64)?, conduit.put_nb(peer, 8, &2u64)?];
    /// while conduit.wait_some(&mut handles)? > 0 {
    ///     // ... start the work that depends on the completed puts ...
    /// }
    /// assert_eq!(handles, [conduit::Handle::DONE; 2]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::wait_all`].
    pub fn wait_some(&self, handles: &mut [Handle]) -> Result<usize> {
        self.done("wait_some", self.member.engine().rma().wait_some(handles))
    }

    /// Polls once and returns whether the operations of all `handles` have completed. The handles
    /// of completed operations become [`Handle::DONE`].
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let mut handles = [conduit.put_nb(peer, 0, b"left")?, conduit.put_nb(peer, 4, b"right")?];
    /// while !conduit.try_wait_all(&mut handles)? {
    ///     // ... compute a little ...
    /// }
    /// assert_eq!(conduit.get_value(peer, 8, 1)?, u64::from(b't'));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::poll`] and [`Conduit::wait_all`].
    pub fn try_wait_all(&self, handles: &mut [Handle]) -> Result<bool> {
        self.done(
            "try_wait_all",
            self.member.engine().rma().try_wait_all(handles),
        )
    }

    /// Polls once and returns the number of operations that were under way and have completed.
    /// Their handles become [`Handle::DONE`].
    ///
    /// # Errors
    /// Same as [`Conduit::poll`] and [`Conduit::wait_all`].
    pub fn try_wait_some(&self, handles: &mut [Handle]) -> Result<usize> {
        self.done(
            "try_wait_some",
            self.member.engine().rma().try_wait_some(handles),
        )
    }

    /// Waits for this thread's implicit puts.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// for place in 0..64 {
    ///     conduit.put_nbi(peer, place * 2, &(place as u16))?;
    /// }
    /// conduit.wait_puts()?;
    /// assert_eq!(conduit.get_value(peer, 126, 2)?, 63);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::AccessRegion`](crate::EngineError::AccessRegion) if an access region
    /// or a scope is open on this thread, and any [failure of the
    /// job](crate::Error#failure-of-the-job). If operations are still under way, also returns
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler.
    pub fn wait_puts(&self) -> Result<()> {
        self.done(
            "wait_puts",
            self.member.engine().rma().wait_implicit(Class::PUTS),
        )
    }

    /// Waits for this thread's implicit gets.
    ///
    /// # Errors
    /// Same as [`Conduit::wait_puts`].
    pub fn wait_gets(&self) -> Result<()> {
        self.done(
            "wait_gets",
            self.member.engine().rma().wait_implicit(Class::GETS),
        )
    }

    /// Waits for this thread's implicit atomics.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// for vote in [2, 0, 2, 1] {
    ///     conduit.atomic_nbi(peer, vote * 4, AtomicOp::Add, 1u32)?;
    /// }
    /// conduit.wait_atomics()?;
    /// assert_eq!(conduit.atomic_get::<u32>(peer, 2 * 4)?, 2);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::wait_puts`].
    pub fn wait_atomics(&self) -> Result<()> {
        let ended = self.member.engine().rma().wait_implicit(Class::ATOMICS);
        self.done("wait_atomics", ended)
    }

    /// Waits for all of this thread's implicit operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::FloatOp;
    /// conduit.put_nbi(peer, 0, &[0.5f64; 10])?;
    /// conduit.atomic_nbi(peer, 80, FloatOp::Max, 0.5f64)?;
    /// conduit.wait_implicit()?;
    /// assert_eq!(conduit.atomic_get::<f64>(peer, 80)?, 0.5);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::wait_puts`].
    pub fn wait_implicit(&self) -> Result<()> {
        self.done(
            "wait_implicit",
            self.member.engine().rma().wait_implicit(Class::all()),
        )
    }

    /// Polls once and returns whether this thread's implicit puts have completed.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put_nbi(peer, 16, "ready".as_bytes())?;
    /// while !conduit.try_puts()? {
    ///     // ... compute a little ...
    /// }
    /// assert_eq!(conduit.get_value(peer, 20, 1)?, u64::from(b'y'));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::poll`], plus
    /// [`EngineError::AccessRegion`](crate::EngineError::AccessRegion) if an access region or a
    /// scope is open on this thread.
    pub fn try_puts(&self) -> Result<bool> {
        self.done(
            "try_puts",
            self.member.engine().rma().try_implicit(Class::PUTS),
        )
    }

    /// Polls once and returns whether this thread's implicit gets have completed.
    ///
    /// # Errors
    /// Same as [`Conduit::try_puts`].
    pub fn try_gets(&self) -> Result<bool> {
        self.done(
            "try_gets",
            self.member.engine().rma().try_implicit(Class::GETS),
        )
    }

    /// Polls once and returns whether this thread's implicit atomics have completed.
    ///
    /// # Errors
    /// Same as [`Conduit::try_puts`].
    pub fn try_atomics(&self) -> Result<bool> {
        let ended = self.member.engine().rma().try_implicit(Class::ATOMICS);
        self.done("try_atomics", ended)
    }

    /// Polls once and returns whether all of this thread's implicit operations have completed.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put_nbi(peer, 40, &[6u8; 1000])?;
    /// while !conduit.try_implicit()? {
    ///     // ... compute a little ...
    /// }
    /// assert_eq!(conduit.get_value(peer, 1039, 1)?, 6);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::try_puts`].
    pub fn try_implicit(&self) -> Result<bool> {
        self.done(
            "try_implicit",
            self.member.engine().rma().try_implicit(Class::all()),
        )
    }

    /// Opens an access region on this thread. [`Conduit::end_region`] returns one handle for all
    /// implicit operations that the thread starts in the region. Regions do not nest.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.begin_region()?;
    /// conduit.put_nbi(peer, 0, &3u64)?;
    /// // Only the handle can wait for the operations of the region. Regions do not nest.
    /// assert!(conduit.wait_puts().is_err());
    /// assert!(conduit.begin_region().is_err());
    /// let handle = conduit.end_region()?;
    /// conduit.wait(handle)?;
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::AccessRegion`](crate::EngineError::AccessRegion) if an access region
    /// or a scope is open on this thread.
    pub fn begin_region(&self) -> Result<()> {
        self.done("begin_region", self.member.engine().rma().begin_region())
    }

    /// Closes the access region and returns one handle for all of its operations.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.begin_region()?;
    /// for (place, edge) in [(0, [1.0f64; 8]), (64, [2.0; 8])] {
    ///     conduit.put_nbi(peer, place, &edge)?;
    /// }
    /// let edges = conduit.end_region()?;
    /// // ... compute the inner points ...
    /// conduit.wait(edges)?;
    /// assert_eq!(conduit.get_value(peer, 120, 8)?, 2f64.to_bits());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::AccessRegion`](crate::EngineError::AccessRegion) if no access region
    /// is open on this thread, or if the open region belongs to a scope.
    pub fn end_region(&self) -> Result<Handle> {
        self.done("end_region", self.member.engine().rma().end_region())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Handlers, start};

    #[test]
    fn nothing_can_be_moved_to_and_from_a_rank_without_a_segment() {
        let conduit = start().unwrap().attach(Handlers::new(), 0).unwrap();
        let none: [u8; 0] = [];
        conduit.put(0, 0, &none).unwrap();
        conduit.get(&mut [0_u8; 0], 0, 0).unwrap();
        conduit.memset(0, 0, 1, 0).unwrap();
        conduit.put_nbi(0, 0, &none).unwrap();
        conduit.wait_implicit().unwrap();
        let handle = conduit.put_nb(0, 0, &none).unwrap();
        conduit.wait(handle).unwrap();
        conduit.barrier().unwrap();
        assert!(conduit.put(0, 0, &1_u8).is_err());
        conduit.finish().unwrap();
    }
}
