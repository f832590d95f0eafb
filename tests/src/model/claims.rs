//! Who uses which bytes of a segment in a round.

use conduit_core::ni::{AtomicOp, AtomicType};

use super::plan::CELLS;

/// Ranges in use, by writers and readers.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims {
    ranges: Vec<(usize, usize, bool)>,
}

impl Claims {
    fn is_free(&self, at: usize, len: usize, for_writing: bool) -> bool {
        self.ranges.iter().all(|&(start, end, written)| {
            at + len <= start || end <= at || !(written || for_writing)
        })
    }

    /// Takes bytes that others may read as well. `false`: they are written by another.
    pub(super) fn read(&mut self, at: usize, len: usize) -> bool {
        self.claim(at, len, false)
    }

    /// Takes bytes for one alone.
    pub(super) fn write(&mut self, at: usize, len: usize) -> bool {
        self.claim(at, len, true)
    }

    fn claim(&mut self, at: usize, len: usize, write: bool) -> bool {
        let free = len == 0 || self.is_free(at, len, write);
        if free && len > 0 {
            self.ranges.push((at, at + len, write));
        }
        free
    }
}

/// The use of one integer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Use {
    #[default]
    None,
    /// By one rank, in the order of its calls.
    Alone {
        rank: u32,
        ty: AtomicType,
        open: bool,
    },
    /// By any rank, with an operation whose order makes no difference.
    Shared(AtomicOp, AtomicType),
}

/// The integers of a segment.
#[derive(Debug, Clone, Default)]
pub(super) struct Cells([Use; CELLS]);

impl Cells {
    /// Takes an integer for an atomic; gives whether its old value is known. `None`: it can't be had.
    ///
    /// `ends_later`: nothing that comes after this atomic is ordered with it.
    pub(super) fn claim(
        &mut self,
        cell: usize,
        rank: u32,
        op: AtomicOp,
        ty: AtomicType,
        ends_later: bool,
    ) -> Option<bool> {
        use AtomicOp::{Add, And, Max, Min, Or, Sub, Xor};
        let place = &mut self.0[cell];
        // What floats add up to depends on the order.
        let exact = !(ty.is_float() && op.is_arithmetic());
        let commutes = exact && matches!(op, Add | Sub | And | Or | Xor | Min | Max);
        match *place {
            Use::None if commutes && cell.is_multiple_of(2) => {
                *place = Use::Shared(op, ty);
                Some(false)
            }
            Use::Shared(first, of) if first == op && of == ty => Some(false),
            Use::None => {
                *place = Use::Alone {
                    rank,
                    ty,
                    open: !ends_later,
                };
                Some(true)
            }
            Use::Alone {
                rank: owner,
                ty: of,
                open: true,
            } if owner == rank && of == ty => {
                *place = Use::Alone {
                    rank,
                    ty,
                    open: !ends_later,
                };
                Some(true)
            }
            Use::Alone { .. } | Use::Shared(..) => None,
        }
    }
}
