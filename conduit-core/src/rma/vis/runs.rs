//! The conversion of descriptions to contiguous runs of bytes, which are merged if they are
//! adjacent.

use crate::rma::vis::{Places, Shape};

/// A contiguous range of bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The runs of one side of a transfer, in order. None of them is empty.
///
/// The places must have been checked: their number of bytes must fit in a `usize`, and the numbers
/// of counts and strides must match.
#[derive(Debug, Clone)]
pub(crate) struct Runs<'a> {
    origin: usize,
    unit: usize,
    rest: Rest<'a>,
}

#[derive(Debug, Clone)]
enum Rest<'a> {
    Vector(&'a [crate::rma::vis::Block]),
    Indexed { starts: &'a [usize], len: usize },
    Rows(Rows<'a>),
}

/// The rows of an array along its fastest dimension. Dimensions in which elements are adjacent have
/// been merged into the element.
#[derive(Debug, Clone)]
struct Rows<'a> {
    strides: &'a [isize],
    counts: &'a [usize],
    element: usize,
    /// The next element of this row, relative to the origin.
    at: usize,
    /// The number of elements left in this row.
    left: usize,
    /// The index of the next row.
    row: usize,
    /// The number of rows.
    rows: usize,
}

/// Merges leading dimensions into the element, as long as they have a count of one or their
/// elements are adjacent on both sides. Returns the number of merged dimensions, and the size of
/// the resulting element in bytes.
pub(super) fn collapse(
    sides: [&[isize]; 2],
    counts: &[usize],
    element: usize,
    unit: usize,
) -> (usize, usize) {
    let mut bytes = element.wrapping_mul(unit);
    let mut dimensions = 0;
    for (dimension, &count) in counts.iter().enumerate() {
        let follows = |strides: &[isize]| {
            strides[dimension].wrapping_mul(unit.cast_signed()) == bytes.cast_signed()
        };
        if count != 1 && !sides.iter().all(|strides| follows(strides)) {
            break;
        }
        bytes = bytes.wrapping_mul(count);
        dimensions += 1;
    }
    (dimensions, bytes)
}

impl<'a> Runs<'a> {
    pub(crate) fn new(places: &Places<'a>) -> Self {
        let rest = match places.shape {
            Shape::Vector(blocks) => Rest::Vector(blocks),
            Shape::Indexed { starts, len } => Rest::Indexed {
                starts: if len == 0 { &[] } else { starts },
                len: len.wrapping_mul(places.unit),
            },
            Shape::Strided {
                strides,
                counts,
                element,
            } => Rest::Rows(Rows::new(strides, counts, element, places.unit)),
        };
        Self {
            origin: places.origin,
            unit: places.unit,
            rest,
        }
    }
}

impl<'a> Rows<'a> {
    fn new(strides: &'a [isize], counts: &'a [usize], element: usize, unit: usize) -> Self {
        let (skipped, element) = collapse([strides, strides], counts, element, unit);
        let (strides, counts) = (&strides[skipped..], &counts[skipped..]);
        let outer = counts.get(1..).unwrap_or_default();
        let empty = element == 0 || counts.contains(&0);
        Self {
            strides,
            counts,
            element,
            at: 0,
            left: if empty {
                0
            } else {
                counts.first().copied().unwrap_or(1)
            },
            row: 1,
            rows: if empty { 0 } else { outer.iter().product() },
        }
    }

    fn next(&mut self, unit: usize) -> Option<usize> {
        if self.left == 0 {
            if self.row >= self.rows {
                return None;
            }
            let mut number = self.row;
            self.at = 0;
            for (&stride, &count) in self.strides.iter().zip(self.counts).skip(1) {
                let place = (number % count).cast_signed().wrapping_mul(stride);
                self.at = self
                    .at
                    .wrapping_add_signed(place.wrapping_mul(unit.cast_signed()));
                number /= count;
            }
            self.row += 1;
            self.left = self.counts[0];
        }
        self.left -= 1;
        let at = self.at;
        if let Some(&stride) = self.strides.first() {
            self.at = at.wrapping_add_signed(stride.wrapping_mul(unit.cast_signed()));
        }
        Some(at)
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let (origin, unit) = (self.origin, self.unit);
        let place = |start: usize| origin.wrapping_add(start.wrapping_mul(unit));
        match &mut self.rest {
            Rest::Vector(blocks) => {
                let mut run = Run { start: 0, len: 0 };
                while let Some((block, rest)) = blocks.split_first() {
                    let (start, len) = (place(block.start), block.len.wrapping_mul(unit));
                    if run.len == 0 {
                        run = Run { start, len };
                    } else if len > 0 && start == run.start.wrapping_add(run.len) {
                        run.len += len;
                    } else if len > 0 {
                        break;
                    }
                    *blocks = rest;
                }
                (run.len > 0).then_some(run)
            }
            Rest::Indexed { starts, len } => {
                let (&first, mut rest) = starts.split_first()?;
                let mut run = Run {
                    start: place(first),
                    len: *len,
                };
                while let Some((&next, after)) = rest.split_first()
                    && place(next) == run.start.wrapping_add(run.len)
                {
                    run.len += *len;
                    rest = after;
                }
                *starts = rest;
                Some(run)
            }
            Rest::Rows(rows) => {
                let at = rows.next(unit)?;
                Some(Run {
                    start: origin.wrapping_add(at),
                    len: rows.element,
                })
            }
        }
    }
}

/// Maximum number of runs that are checked for overlap. If there are more runs, they are not
/// checked.
const MOST_COMPARED: usize = 1 << 16;

/// Returns a run that overlaps another run, or `None` if none is found.
pub(crate) fn overlapping(places: &Places<'_>) -> Option<Run> {
    let runs = Runs::new(places).take(MOST_COMPARED + 1);
    let mut runs: Vec<Run> = runs.collect();
    if runs.len() > MOST_COMPARED {
        return None;
    }
    runs.sort_unstable_by_key(|run| run.start);
    let mut pairs = runs.windows(2);
    pairs.find_map(|pair| (pair[1].start - pair[0].start < pair[0].len).then_some(pair[1]))
}

/// A piece of a transfer that is contiguous on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) local: usize,
    pub(crate) remote: usize,
    pub(crate) len: usize,
}

/// The pieces of a transfer, in order. The two sides must have the same number of bytes.
#[derive(Debug, Clone)]
pub(crate) struct Pieces<'a> {
    local: Runs<'a>,
    remote: Runs<'a>,
    /// The rest of the two runs that contained the last piece.
    here: Run,
    there: Run,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(local: &Places<'a>, remote: &Places<'a>) -> Self {
        let none = Run { start: 0, len: 0 };
        Self {
            local: Runs::new(local),
            remote: Runs::new(remote),
            here: none,
            there: none,
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        if self.here.len == 0 {
            self.here = self.local.next()?;
        }
        if self.there.len == 0 {
            self.there = self.remote.next()?;
        }
        let len = self.here.len.min(self.there.len);
        let piece = Piece {
            local: self.here.start,
            remote: self.there.start,
            len,
        };
        for run in [&mut self.here, &mut self.there] {
            run.start = run.start.wrapping_add(len);
            run.len -= len;
        }
        Some(piece)
    }
}
