//! This rank's own segment, and the lengths and addresses of the segments of all ranks.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::fence;

use conduit_core::atomics::AtomicRequest;
use conduit_core::engine::Engine;
use conduit_core::ni::{self, Rank};
use conduit_core::shared;
use conduit_core::threads::{Mode, Seq};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::atomics::request;
use crate::{Atom, Conduit, Error, Network, Result};

/// This rank's segment, as returned by [`Conduit::segment`] or, in a handler, by
/// [`Call::segment`](crate::Call::segment). Offsets are in bytes, counted from the start of the
/// segment.
///
/// Other ranks put to and get from the same memory. If one of them writes bytes while this rank
/// copies them, the contents of the copy are unspecified. Programs order such accesses with
/// barriers, messages or atomics. Handlers may call every method of a segment, except the atomics
/// if a network device performs them.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// use conduit::{AtomicOp, Handlers};
/// let mut handlers = Handlers::new();
/// // Counts keys in the segment of the rank that they belong to.
/// let count = handlers.medium(|call, (), keys: &[u32]| {
///     for &key in keys {
///         let bin = key as usize % 16 * 8;
///         call.segment().atomic(bin, AtomicOp::Add, 1u64).expect("a bin of the segment");
///     }
/// });
/// let conduit = conduit::start()?.attach(handlers, 16 * 8)?;
/// conduit.request_medium(conduit.rank(), count, (), &[3u32, 19, 4][..])?;
/// conduit.quiesce()?;
/// assert_eq!(conduit.segment().atomic_get::<u64>(3 * 8)?, 2);
/// conduit.finish()
/// # }
/// ```
pub struct Segment<'a, M: Mode = Seq> {
    engine: &'a Engine<Network<M>, M>,
}

impl<M: Mode> Clone for Segment<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mode> Copy for Segment<'_, M> {}

impl<M: Mode> fmt::Debug for Segment<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<'a, M: Mode> Segment<'a, M> {
    pub(crate) fn new(engine: &'a Engine<Network<M>, M>) -> Self {
        Self { engine }
    }

    /// Returns the length of the segment in bytes, which is a multiple of the page size. Returns 0
    /// in a child of the rank's process (`fork`).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 5000)?;
    /// let segment = conduit.segment();
    /// assert!(segment.len() >= 5000);
    /// // An array of numbers fills it to the end.
    /// segment.put(segment.len() - 8, &1u64)?;
    /// assert!(segment.put(segment.len() - 7, &1u64).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn len(&self) -> usize {
        self.engine.memory().segment().map_or(0, |(_, len)| len)
    }

    /// Returns whether this rank has no segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
    /// let segment = conduit.segment();
    /// assert!(segment.is_empty());
    /// // No byte can be put.
    /// assert!(segment.put(0, &1u8).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a pointer to the first byte of the segment, which is aligned to a page. The pointer
    /// is valid as long as the [`Conduit`] exists. Returns null if the segment is empty.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 3, &200u8)?;
    /// let base = conduit.segment().as_ptr();
    /// // SAFETY: byte 3 is in the segment, and no rank writes it now.
    /// assert_eq!(unsafe { base.add(3).read() }, 200);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn as_ptr(&self) -> *mut u8 {
        let empty = (std::ptr::null_mut(), 0);
        self.engine.memory().segment().unwrap_or(empty).0
    }

    #[inline]
    fn error(&self, call: &'static str) -> impl Fn(conduit_core::kernel::Error) -> Error {
        let rank = self.engine.rank();
        move |error| Error::of(call, rank, error)
    }

    #[inline]
    fn range(&self, call: &'static str, offset: usize, len: usize) -> Result<*mut u8> {
        let range = self.engine.atomics().own_range(call, offset, len);
        range.map_err(self.error(call))
    }

    /// Copies from `offset` to `destination`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let segment = conduit.segment();
    /// conduit.put(peer, 100, &[0.1f64, 0.2, 0.3])?;
    /// conduit.barrier()?;
    /// let mut middle = 0.0f64;
    /// segment.get(&mut middle, 108)?;
    /// assert_eq!(middle, 0.2);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the range is not
    /// inside the segment, and [`EngineError::Forked`](crate::EngineError::Forked) in a child of
    /// the rank's process.
    #[inline]
    pub fn get<T: FromBytes + IntoBytes + ?Sized>(
        &self,
        destination: &mut T,
        offset: usize,
    ) -> Result<()> {
        let bytes = destination.as_mut_bytes();
        let from = self.range("Segment::get", offset, bytes.len())?;
        // SAFETY: `range` has checked that the range lies in the segment, which lives as long as
        // the engine. The destination is borrowed, so it is valid.
        unsafe { shared::load(from, bytes.as_mut_ptr(), bytes.len()) };
        // SYNC: this fence pairs with the Release of puts, as in the engine's gets.
        fence(Acquire);
        Ok(())
    }

    /// Copies `source` to `offset`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let segment = conduit.segment();
    /// segment.put(0, &[conduit.rank(); 3])?;
    /// conduit.barrier()?;
    /// // Any rank may now get these numbers.
    /// let mut found = [u32::MAX; 3];
    /// conduit.get(&mut found, peer, 0)?;
    /// assert_eq!(found, [peer; 3]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Segment::get`].
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(&self, offset: usize, source: &T) -> Result<()> {
        let bytes = source.as_bytes();
        let to = self.range("Segment::put", offset, bytes.len())?;
        // SYNC: this fence pairs with the Acquire of gets, as in the engine's puts.
        fence(Release);
        // SAFETY: `range` has checked that the range lies in the segment, which lives as long as
        // the engine. The source is borrowed, so it is valid.
        unsafe { shared::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    #[inline]
    fn fetch(&self, call: &'static str, offset: usize, request: AtomicRequest) -> Result<u64> {
        let old = self.engine.atomics().atomic_own(call, offset, request);
        old.map_err(self.error(call))
    }

    /// Applies `op` with `operand` to the number at `offset`. The operation is atomic with respect
    /// to the atomics of all ranks on this number.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// let segment = conduit.segment();
    /// segment.atomic(8, AtomicOp::Add, 5i64)?;
    /// conduit.atomic(peer, 8, AtomicOp::Sub, 7i64)?;
    /// assert_eq!(segment.atomic_get::<i64>(8)?, -2);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if the number is not
    /// inside the segment, [`EngineError::Misaligned`](crate::EngineError::Misaligned) if `offset`
    /// is not a multiple of the number's size, and
    /// [`EngineError::Forked`](crate::EngineError::Forked) in a child of the rank's process.
    ///
    /// If a network device performs this segment's atomics, also returns any error of
    /// [`Conduit::atomic_fetch`]. One of these is
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, because atomics of
    /// the processor would not be atomic with respect to those of the device, and a handler may not
    /// wait for the device.
    #[inline]
    pub fn atomic<T: Atom>(&self, offset: usize, op: T::Op, operand: T) -> Result<()> {
        self.fetch("Segment::atomic", offset, request(op, operand, operand))
            .map(drop)
    }

    /// Like [`Segment::atomic`], but returns the previous value.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// use conduit::AtomicOp;
    /// let segment = conduit.segment();
    /// let (first, second) = (
    ///     segment.atomic_fetch(0, AtomicOp::Set, 11u32)?,
    ///     segment.atomic_fetch(0, AtomicOp::Set, 12u32)?,
    /// );
    /// assert_eq!((first, second), (0, 11));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Segment::atomic`].
    #[inline]
    pub fn atomic_fetch<T: Atom>(&self, offset: usize, op: T::Op, operand: T) -> Result<T> {
        let old = self.fetch(
            "Segment::atomic_fetch",
            offset,
            request(op, operand, operand),
        )?;
        Ok(T::from_bits(old))
    }

    /// Reads the number at `offset` atomically. If an atomic has written the value, everything that
    /// was put before that atomic is visible too.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::AtomicOp;
    /// let segment = conduit.segment();
    /// conduit.put_signal(peer, 64, b"data", 0, AtomicOp::Set, 1u32)?;
    /// conduit.wait_until(|| Ok(segment.atomic_get::<u32>(0)? == 1))?;
    /// let mut data = *b"none";
    /// segment.get(&mut data, 64)?;
    /// assert_eq!(&data, b"data");
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Segment::atomic`].
    #[inline]
    pub fn atomic_get<T: Atom>(&self, offset: usize) -> Result<T> {
        let none = T::from_bits(0);
        let get = request(ni::AtomicOp::Get, none, none);
        Ok(T::from_bits(self.fetch(
            "Segment::atomic_get",
            offset,
            get,
        )?))
    }

    /// Writes `new` to the number at `offset` if the number equals `expected`. Returns the previous
    /// value in either case.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let segment = conduit.segment();
    /// let (idle, busy) = (0u32, 1);
    /// assert_eq!(segment.compare_swap(4, idle, busy)?, idle);
    /// assert_eq!(segment.compare_swap(4, idle, busy)?, busy);
    /// assert_eq!(segment.atomic_get::<u32>(4)?, busy);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Segment::atomic`].
    #[inline]
    pub fn compare_swap<T: Atom>(&self, offset: usize, expected: T, new: T) -> Result<T> {
        let swap = request(ni::AtomicOp::CompareSwap, new, expected);
        Ok(T::from_bits(self.fetch(
            "Segment::compare_swap",
            offset,
            swap,
        )?))
    }

    /// Returns the `count` elements from byte `offset` on as a slice.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.barrier()?;
    /// // SAFETY: no rank accesses these bytes between the barriers, and no other slice exists.
    /// let row = unsafe { conduit.segment().slice::<f64>(0, 100)? };
    /// row.fill(2.0);
    /// conduit.barrier()?;
    /// assert_eq!(conduit.get_value(peer, 99 * 8, 8)?, 2f64.to_bits());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Segment::get`], plus [`Error::Local`] if `offset` is not aligned for `T`.
    ///
    /// # Safety
    /// While the slice lives, no other rank may access these bytes, and this process may have no
    /// other slice of them. Programs usually ensure this with one barrier before the accesses and
    /// another barrier after them.
    pub unsafe fn slice<T: FromBytes + IntoBytes>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<&'a mut [T]> {
        const { assert!(size_of::<T>() > 0, "elements must not be zero-sized") };
        let base = self.elements::<T>("Segment::slice", offset, count)?;
        if !offset.is_multiple_of(align_of::<T>()) {
            return Err(self.refuse::<T>(
                "Segment::slice",
                offset,
                count,
                "are not aligned".into(),
            ));
        }
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the checks above ensure that the range lies in the segment and is aligned (a
        // segment starts at a page boundary). All bytes are a valid `T` (`FromBytes`). The caller
        // guarantees that no other rank and no other slice accesses the range. The memory lives as
        // long as the engine.
        Ok(unsafe { std::slice::from_raw_parts_mut(base.cast::<T>(), count) })
    }

    /// Returns the address of `count` elements at `offset`. Fails if the elements do not lie in the
    /// segment.
    fn elements<T>(&self, call: &'static str, offset: usize, count: usize) -> Result<*mut u8> {
        // If the multiplication overflows, the saturated length exceeds any segment.
        let bytes = count.saturating_mul(size_of::<T>());
        self.range(call, offset, bytes)
    }

    fn refuse<T>(&self, call: &'static str, offset: usize, count: usize, problem: String) -> Error {
        Error::Local {
            call,
            rank: self.engine.rank(),
            offset,
            count,
            size: size_of::<T>(),
            problem,
        }
    }
}

/// The location of a long's payload in this rank's segment.
pub struct Landed<'a, M: Mode = Seq> {
    /// The offset of the payload's first byte from the start of the segment.
    pub offset: usize,
    /// The payload's length in bytes.
    pub length: usize,
    segment: Segment<'a, M>,
}

impl<M: Mode> Clone for Landed<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mode> Copy for Landed<'_, M> {}

impl<M: Mode> fmt::Debug for Landed<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landed")
            .field("offset", &self.offset)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl<'a, M: Mode> Landed<'a, M> {
    pub(crate) fn new(segment: Segment<'a, M>, offset: usize, length: usize) -> Self {
        Self {
            offset,
            length,
            segment,
        }
    }

    fn refuse<T>(&self, call: &'static str, count: usize) -> Error {
        let problem = format!("do not match the payload's {} bytes", self.length);
        self.segment.refuse::<T>(call, self.offset, count, problem)
    }

    /// Copies the payload to `destination`, which must have the same length as the payload.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let add = handlers.long(|call, (), landed| {
    ///     let mut pair = [0u64; 2];
    ///     landed.get(&mut pair).expect("two numbers");
    ///     call.segment().put(0, &(pair[0] + pair[1])).expect("the sum");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_long(peer, add, (), &[30u64, 12], 512)?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 8)?, 42);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Local`] if `destination` is longer or shorter than the payload, and
    /// [`EngineError::Forked`](crate::EngineError::Forked) in a child of the rank's process.
    pub fn get<T: FromBytes + IntoBytes + ?Sized>(&self, destination: &mut T) -> Result<()> {
        let wanted = destination.as_mut_bytes().len();
        if wanted != self.length {
            return Err(self.refuse::<u8>("Landed::get", wanted));
        }
        self.segment.get(destination, self.offset)
    }

    /// Returns a copy of the payload as a vector of elements.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let sort = handlers.long(|call, (), landed| {
    ///     let mut keys: Vec<u16> = landed.to_vec().expect("whole keys");
    ///     keys.sort_unstable();
    ///     call.segment().put(landed.offset, &keys[..]).expect("the same place");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_long(peer, sort, (), &[9u16, 4, 7], 256)?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 256, 2)?, 4);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Local`] if the payload is not a whole number of elements, and
    /// [`EngineError::Forked`](crate::EngineError::Forked) in a child of the rank's process.
    pub fn to_vec<T: FromBytes + IntoBytes>(&self) -> Result<Vec<T>> {
        const CALL: &str = "Landed::to_vec";
        const { assert!(size_of::<T>() > 0, "elements must not be zero-sized") };
        let size = size_of::<T>();
        let count = self.length / size;
        if !self.length.is_multiple_of(size) {
            return Err(self.refuse::<T>(CALL, count));
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let from = self.segment.elements::<T>(CALL, self.offset, count)?;
        let mut copy: Vec<T> = Vec::with_capacity(count);
        // SAFETY: `elements` has checked that the range lies in the segment, and the vector has
        // room for `count` elements. All bytes are a valid `T` (`FromBytes`), so the elements are
        // initialised once they have been copied.
        unsafe {
            shared::load(from, copy.as_mut_ptr().cast(), self.length);
            copy.set_len(count);
        }
        Ok(copy)
    }

    /// Returns the payload in place, without copying it.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let count = handlers.long(|call, (), landed| {
    ///     // SAFETY: no rank writes there before the next `quiesce`.
    ///     let text = unsafe { landed.bytes() }.expect("a payload");
    ///     call.segment().put(0, &text.trim_ascii().len()).expect("the result");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_long(peer, count, (), b"  some text ", 1000)?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 8)?, 9);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Forked`](crate::EngineError::Forked) in a child of the rank's
    /// process, which has no segment.
    ///
    /// # Safety
    /// While the slice lives, these bytes must not be written. No rank may put or send a long
    /// there, and this process may have no mutable [slice](Segment::slice) of the bytes.
    pub unsafe fn bytes(&self) -> Result<&'a [u8]> {
        if self.length == 0 {
            return Ok(&[]);
        }
        let base = self
            .segment
            .elements::<u8>("Landed::bytes", self.offset, self.length)?;
        // SAFETY: `elements` has checked that the range lies in the segment, which lives as long as
        // the engine. The caller guarantees that nothing writes to the range while the slice lives.
        Ok(unsafe { std::slice::from_raw_parts(base, self.length) })
    }
}

impl<M: Mode> Conduit<M> {
    /// Returns this rank's own segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let segment = conduit.segment();
    /// segment.put(40, &[1u8, 2])?;
    /// let mut two = [0u8; 2];
    /// conduit.get(&mut two, peer, 40)?;
    /// assert_eq!(two, [1, 2]);
    /// # conduit.finish()
    /// # }
    /// ```
    #[inline]
    pub fn segment(&self) -> Segment<'_, M> {
        Segment::new(self.member.engine())
    }

    /// Returns the length of `rank`'s segment in bytes.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 10_000)?;
    /// # let peer = conduit.rank();
    /// let len = conduit.segment_len(peer)?;
    /// assert!(len >= 10_000); // whole pages
    /// conduit.put(peer, len - 4, &1u32)?;
    /// assert!(conduit.put(peer, len, &1u32).is_err());
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job has no such
    /// rank, and [`EngineError::Forked`](crate::EngineError::Forked) in a child of the rank's
    /// process.
    pub fn segment_len(&self, rank: Rank) -> Result<usize> {
        let segment = self.member.engine().memory().segment_of(rank);
        Ok(self.done("segment_len", segment)?.len)
    }

    /// Returns the address that `rank`'s segment has in the process of that rank.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// // Programs that exchange addresses compute offsets from them.
    /// let base = conduit.segment_address(peer)?;
    /// let address = conduit.segment().as_ptr() as u64 + 48;
    /// conduit.put(peer, (address - base) as usize, &8u8)?;
    /// assert_eq!(conduit.get_value(peer, 48, 1)?, 8);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::segment_len`].
    pub fn segment_address(&self, rank: Rank) -> Result<u64> {
        let segment = self.member.engine().memory().segment_of(rank);
        Ok(self.done("segment_address", segment)?.address)
    }

    /// Returns the address at which `rank`'s segment is mapped in this process, or `None` if the
    /// segment is not mapped here.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 1, &77u8)?;
    /// if let Some(window) = conduit.window(peer)? {
    ///     // SAFETY: byte 1 is in the segment, and no rank writes it now.
    ///     assert_eq!(unsafe { window.add(1).read() }, 77);
    /// }
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::segment_len`].
    pub fn window(&self, rank: Rank) -> Result<Option<*mut u8>> {
        let segment = self.member.engine().memory().segment_of(rank);
        let segment = self.done("window", segment)?;
        let window = segment.window.0;
        Ok((segment.len > 0 && !window.is_null()).then_some(window))
    }
}
