//! Puts and gets of noncontiguous memory (GASNet's vector, indexed and strided transfers).

use conduit_core::kernel::{Blocking, Completion, Error};
use conduit_core::ni::Rank;
use conduit_core::rma::vis::Places;
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{Conduit, Result, Scope, Shape};

/// Returns the ranges of a segment that `shape` describes, in elements counted from byte `offset`.
fn remote<'a, T>(offset: usize, shape: Shape<'a>) -> Places<'a> {
    Places {
        origin: offset,
        unit: size_of::<T>(),
        shape,
    }
}

/// Returns the ranges that `shape` describes in a slice, counted from element `first`. The slice
/// has `count` elements at address `base`. Fails if the ranges exceed the slice.
fn local<'a, T>(
    operation: &'static str,
    target: Rank,
    (base, count): (usize, usize),
    first: usize,
    shape: Shape<'a>,
) -> Result<Places<'a>, Error> {
    let elements = Places {
        origin: first,
        unit: 1,
        shape,
    };
    elements.check(count).map_err(|outside| Error::Ranges {
        operation,
        rank: target,
        reason: format!(
            "{} elements from element {} on exceed a slice of {count}",
            outside.len,
            outside.start.cast_signed()
        ),
    })?;
    Ok(Places {
        // The check above ensures that the ranges lie in the slice or are empty. The origin of
        // empty ranges may lie anywhere, so the address may wrap.
        origin: base.wrapping_add(first.wrapping_mul(size_of::<T>())),
        unit: size_of::<T>(),
        shape,
    })
}

/// Each side of a transfer is a set of ranges, described by a [`Shape`]. The two sides must have
/// the same total number of elements, which are transferred in order. The unit of a shape is an
/// element of type `T`. On the local side, elements are counted from the element `first` of the
/// slice; on the remote side, from the byte `offset` in the target's segment. Ranges that are
/// written must not overlap. Ranges that are read may overlap.
///
/// If the target's segment is not mapped here, each message carries as many ranges as fit.
impl<M: Mode> Conduit<M> {
    /// Copies the ranges `from` in `source`, counted from element `first`, to the ranges `to` in
    /// `target`'s segment, counted from byte `offset`. The data is in place when the call returns.
    ///
    /// This example copies a column of a local matrix to a row at the target:
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::{Block, Shape};
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let right = (conduit.rank() + 1) % conduit.size();
    /// // 3 rows of 4.
    /// let matrix: Vec<f64> = (0..12).map(f64::from).collect();
    /// let column = Shape::Strided { strides: &[4], counts: &[3], element: 1 };
    /// let row = Shape::Vector(&[Block { start: 0, len: 3 }]);
    /// conduit.put_ranges(right, 64, row, &matrix, 2, column)?;
    /// conduit.barrier()?;
    /// let mut back = [0f64; 3];
    /// conduit.get(&mut back, conduit.rank(), 64)?;
    /// assert_eq!(back, [2.0, 6.0, 10.0]);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::Ranges`](crate::EngineError::Ranges) if a range is not inside the
    /// slice, if the numbers of elements on the two sides differ, or if a strided shape has
    /// different numbers of strides and counts. Returns
    /// [`EngineError::OutOfSegment`](crate::EngineError::OutOfSegment) if a range is not inside the
    /// target's segment, and [`EngineError::NoSuchRank`](crate::EngineError::NoSuchRank) if the job
    /// has no rank `target`. Nothing has been written in these cases. Also returns
    /// [`EngineError::Context`](crate::Error#calls-in-handlers) in a handler, and any [failure of
    /// the job](crate::Error#failure-of-the-job).
    pub fn put_ranges<T: IntoBytes + Immutable>(
        &self,
        target: Rank,
        offset: usize,
        to: Shape<'_>,
        source: &[T],
        first: usize,
        from: Shape<'_>,
    ) -> Result<()> {
        const CALL: &str = "put_ranges";
        let slice = (source.as_ptr().expose_provenance(), source.len());
        let here = self.done(CALL, local::<T>(CALL, target, slice, first, from))?;
        let there = remote::<T>(offset, to);
        // SAFETY: the ranges lie in a slice that is borrowed until this call returns, which is
        // after the put has completed.
        let put = unsafe { self.member.engine().rma().put_ranges(target, &there, &here) };
        self.done(CALL, put)
    }

    /// Copies the ranges `from` in `target`'s segment, counted from byte `offset`, to the ranges
    /// `to` in `destination`, counted from element `first`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::Shape;
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let own = conduit.rank();
    /// conduit.put(own, 0, &[10u32, 11, 12, 13, 14, 15])?;
    /// // Pairs in reverse order.
    /// let pairs = Shape::Indexed { starts: &[4, 2, 0], len: 2 };
    /// let all = Shape::Strided { strides: &[], counts: &[], element: 6 };
    /// let mut found = [0u32; 6];
    /// conduit.get_ranges(&mut found, 0, all, own, 0, pairs)?;
    /// assert_eq!(found, [14, 15, 12, 13, 10, 11]);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_ranges`].
    pub fn get_ranges<T: FromBytes + IntoBytes>(
        &self,
        destination: &mut [T],
        first: usize,
        to: Shape<'_>,
        target: Rank,
        offset: usize,
        from: Shape<'_>,
    ) -> Result<()> {
        const CALL: &str = "get_ranges";
        let slice = (
            destination.as_mut_ptr().expose_provenance(),
            destination.len(),
        );
        let here = self.done(CALL, local::<T>(CALL, target, slice, first, to))?;
        let there = remote::<T>(offset, from);
        // SAFETY: the ranges lie in a slice that is mutably borrowed until this call returns, which
        // is after the get has completed.
        let got = unsafe { self.member.engine().rma().get_ranges(&here, target, &there) };
        self.done(CALL, got)
    }
}

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// Starts a put of ranges from a borrowed source, like [`Conduit::put_ranges`]. The shapes are
    /// used only during this call.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::Shape;
    /// let matrix: Vec<u16> = (0..16).collect(); // 4 rows of 4
    /// let inner = Shape::Strided { strides: &[4], counts: &[2], element: 2 };
    /// let packed = Shape::Strided { strides: &[], counts: &[], element: 4 };
    /// conduit.scope(|scope| scope.put_ranges(peer, 0, packed, &matrix, 5, inner))?;
    /// let mut square = [0u16; 4];
    /// conduit.get(&mut square, peer, 0)?;
    /// assert_eq!(square, [5, 6, 9, 10]);
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_ranges`].
    pub fn put_ranges<T: IntoBytes + Immutable>(
        &'scope self,
        target: Rank,
        offset: usize,
        to: Shape<'_>,
        source: &'scope [T],
        first: usize,
        from: Shape<'_>,
    ) -> Result<()> {
        const CALL: &str = "Scope::put_ranges";
        let slice = (source.as_ptr().expose_provenance(), source.len());
        let conduit = self.conduit;
        let here = conduit.done(CALL, local::<T>(CALL, target, slice, first, from))?;
        let there = remote::<T>(offset, to);
        let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
        // SAFETY: the slice is borrowed until the scope ends, and the scope waits for the operation
        // before it ends.
        let started = unsafe {
            let engine = conduit.member.engine();
            engine
                .rma()
                .put_ranges_nb(target, &there, &here, completion, blocking)
        };
        conduit.done(CALL, started).map(drop)
    }

    /// Starts a get of ranges into a borrowed destination, like [`Conduit::get_ranges`]. The shapes
    /// are used only during this call.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// use conduit::Shape;
    /// conduit.put(peer, 0, b"abcdefgh")?;
    /// let odd = Shape::Indexed { starts: &[1, 3, 5, 7], len: 1 };
    /// let four = Shape::Indexed { starts: &[0], len: 4 };
    /// let mut letters = [0u8; 4];
    /// conduit.scope(|scope| scope.get_ranges(&mut letters, 0, four, peer, 0, odd))?;
    /// assert_eq!(&letters, b"bdfh");
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put_ranges`].
    pub fn get_ranges<T: FromBytes + IntoBytes>(
        &'scope self,
        destination: &'scope mut [T],
        first: usize,
        to: Shape<'_>,
        target: Rank,
        offset: usize,
        from: Shape<'_>,
    ) -> Result<()> {
        const CALL: &str = "Scope::get_ranges";
        let slice = (
            destination.as_mut_ptr().expose_provenance(),
            destination.len(),
        );
        let conduit = self.conduit;
        let here = conduit.done(CALL, local::<T>(CALL, target, slice, first, to))?;
        let there = remote::<T>(offset, from);
        let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
        // SAFETY: the slice is mutably borrowed until the scope ends, and the scope waits for the
        // operation before it ends.
        let started = unsafe {
            let engine = conduit.member.engine();
            engine
                .rma()
                .get_ranges_nb(&here, target, &there, completion, blocking)
        };
        conduit.done(CALL, started).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Block, Handlers, Shape, start};

    #[test]
    fn ranges_lie_in_slice_and_segment_and_are_as_many() {
        let conduit = start().unwrap().attach(Handlers::new(), 4096).unwrap();
        let line = |len| Shape::Strided {
            strides: &[],
            counts: &[],
            element: len,
        };
        let says = |there, here, first, offset, reason: &str| {
            let error = conduit
                .put_ranges(0, offset, there, &[1_u32, 2, 3, 4], first, here)
                .unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        };
        says(
            line(1),
            line(2),
            0,
            0,
            "the remote ranges have 4 bytes, the local ones 8",
        );
        says(line(5), line(5), 0, 0, "exceed a slice of 4");
        says(line(1), line(1), 4, 0, "1 elements from element 4 on");
        let back = Shape::Strided {
            strides: &[-2],
            counts: &[2],
            element: 1,
        };
        says(line(2), back, 1, 0, "from element -1 on");
        says(line(2), line(2), 0, 4092, "rank 0");
        says(back, line(2), 0, 4, "rank 0");
        let blocks = [
            Block { start: 0, len: 1 },
            Block {
                start: usize::MAX / 2,
                len: 1,
            },
        ];
        says(line(2), Shape::Vector(&blocks), 0, 0, "slice of 4");
        says(Shape::Vector(&blocks), line(2), 0, 0, "rank 0");
        let odd = Shape::Strided {
            strides: &[1],
            counts: &[],
            element: 1,
        };
        says(odd, line(1), 0, 0, "strides");
        says(line(1), odd, 0, 0, "strides");
        // An empty range is valid at any offset.
        conduit
            .put_ranges::<u32>(0, usize::MAX, line(0), &[], 7, line(0))
            .unwrap();
        assert!(
            conduit
                .put_ranges(1, 0, line(1), &[1_u8], 0, line(1))
                .is_err()
        );
        conduit.finish().unwrap();
    }

    #[test]
    fn a_scope_waits_for_ranges() {
        let conduit = start().unwrap().attach(Handlers::new(), 4096).unwrap();
        let source = [1_u16, 2, 3, 4];
        let mut back = [0_u16; 4];
        let odd = Shape::Indexed {
            starts: &[1, 3],
            len: 1,
        };
        let line = Shape::Strided {
            strides: &[1],
            counts: &[2],
            element: 1,
        };
        conduit
            .scope(|scope| scope.put_ranges(0, 8, line, &source, 0, odd))
            .unwrap();
        conduit
            .scope(|scope| scope.get_ranges(&mut back, 0, odd, 0, 8, line))
            .unwrap();
        assert_eq!(back, [0, 2, 0, 4]);
        conduit.finish().unwrap();
    }
}
