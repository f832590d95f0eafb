//! Puts and gets of non-contiguous memory (GASNet's VIS: vector, indexed, strided). Most of this
//! module works without I/O: the caller's description, the runs of bytes that the description
//! denotes, and the encoding of runs in a message.
//!
//! | file | subject |
//! |---|---|
//! | `runs` | a description as contiguous runs, the two sides of a transfer as pieces that are contiguous on both |
//! | `plan` | selection of the pieces for a message |
//! | `wire` | runs in a message, as arithmetic progressions in variable-length integers |
//! | `copy` | runs copied within mapped memory |

pub(crate) mod calls;
mod copy;
pub(crate) mod handlers;
mod plan;
mod runs;
pub(crate) mod segment;
#[cfg(test)]
mod tests;
pub(crate) mod transfers;
mod wire;

pub(crate) use copy::{copy_all, copy_rows};
pub(crate) use plan::{Message, Room};
pub(crate) use runs::{Piece, Pieces, overlapping};
pub(crate) use wire::{Malformed, walk};

/// One range of a vector, in the unit of its [`Places`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// The first unit.
    pub start: usize,
    /// The length.
    pub len: usize,
}

/// A layout of ranges relative to an origin. All numbers are in the unit of the [`Places`].
#[derive(Debug, Clone, Copy)]
pub enum Shape<'a> {
    /// Ranges of any length.
    Vector(&'a [Block]),
    /// Ranges of the same length.
    Indexed {
        /// The first unit of each range.
        starts: &'a [usize],
        /// The length of each range.
        len: usize,
    },
    /// An array of any number of dimensions, the fastest-varying first. An array without dimensions
    /// is one element. An array with a count of 0 is empty.
    Strided {
        /// For each dimension, the distance from one element to the next.
        strides: &'a [isize],
        /// For each dimension, the number of elements.
        counts: &'a [usize],
        /// The length of an element.
        element: usize,
    },
}

/// One side of a transfer: ranges of memory, in the order in which their bytes are transferred.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The location to which the shape's starts are relative: an address, or an offset in a
    /// segment.
    pub origin: usize,
    /// The number of bytes per unit of the shape's starts, lengths and strides.
    pub unit: usize,
    /// The ranges.
    pub shape: Shape<'a>,
}

/// A range that lies outside its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outside {
    /// The location of the first byte. It has wrapped around if it would be negative.
    pub start: usize,
    /// The length in bytes.
    pub len: usize,
}

impl<'a> Places<'a> {
    /// Returns the number of bytes. Returns `None` if this number overflows, or if there are
    /// different numbers of counts and strides.
    pub fn bytes(&self) -> Option<usize> {
        let units = match self.shape {
            Shape::Vector(blocks) => blocks
                .iter()
                .try_fold(0_usize, |sum, block| sum.checked_add(block.len)),
            Shape::Indexed { starts, len } => starts.len().checked_mul(len),
            Shape::Strided {
                strides,
                counts,
                element,
            } => {
                if strides.len() != counts.len() {
                    return None;
                }
                // A count of 0 makes the array empty even if the product of the other counts would
                // overflow.
                if counts.contains(&0) {
                    return Some(0);
                }
                counts
                    .iter()
                    .try_fold(element, |product, &count| product.checked_mul(count))
            }
        };
        units?.checked_mul(self.unit)
    }

    /// Checks that all ranges lie in `[0, limit)`. Empty ranges always pass.
    ///
    /// # Errors
    /// The first range that does not lie there.
    pub fn check(&self, limit: usize) -> Result<(), Outside> {
        match self.shape {
            Shape::Vector(blocks) => blocks
                .iter()
                .try_for_each(|block| self.check_range(block.start, block.len, limit)),
            Shape::Indexed { starts, len } => starts
                .iter()
                .try_for_each(|&start| self.check_range(start, len, limit)),
            Shape::Strided {
                strides,
                counts,
                element,
            } => {
                if element == 0 || counts.contains(&0) {
                    return Ok(());
                }
                let outside = Outside {
                    start: self.origin,
                    len: element.saturating_mul(self.unit),
                };
                let (low, high) = extent(strides, counts).ok_or(outside)?;
                let unit = self.unit as i128;
                let low = low.checked_mul(unit).ok_or(outside)?;
                let high = high.checked_mul(unit).ok_or(outside)?;
                let last = high.checked_add(element as i128 * unit).ok_or(outside)?;
                let origin = self.origin as i128;
                let low = low.checked_add(origin).ok_or(outside)?;
                let last = last.checked_add(origin).ok_or(outside)?;
                if low < 0 || last > limit as i128 {
                    return Err(Outside {
                        start: low as usize,
                        len: usize::try_from(last - low).unwrap_or(usize::MAX),
                    });
                }
                Ok(())
            }
        }
    }

    #[inline]
    fn check_range(&self, start: usize, len: usize, limit: usize) -> Result<(), Outside> {
        if len == 0 {
            return Ok(());
        }
        // In C, the unit is a byte, and an address below the origin wraps around to an address that
        // exceeds every limit.
        let place = start
            .checked_mul(self.unit)
            .map(|start| self.origin.wrapping_add(start));
        let bytes = len.checked_mul(self.unit);
        match (place, bytes) {
            (Some(place), Some(bytes)) if bytes <= limit && place <= limit - bytes => Ok(()),
            _ => Err(Outside {
                start: self.origin.wrapping_add(start.wrapping_mul(self.unit)),
                len: len.saturating_mul(self.unit),
            }),
        }
    }
}

/// Returns the first unit of the lowest element and of the highest element, relative to the array's
/// first element.
fn extent(strides: &[isize], counts: &[usize]) -> Option<(i128, i128)> {
    let mut extent = (0_i128, 0_i128);
    for (&stride, &count) in strides.iter().zip(counts) {
        let last = (stride as i128).checked_mul(count as i128 - 1)?;
        let end = if last < 0 {
            &mut extent.0
        } else {
            &mut extent.1
        };
        *end = end.checked_add(last)?;
    }
    Some(extent)
}
