//! The bytes of a segment that the operations of a round use.

use conduit_core::ni::{AtomicOp, AtomicType};

use super::plan::CELLS;

/// Ranges in use by writers and readers.
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

    /// Claims bytes for reading; others may read them too. Returns false if another operation
    /// writes them.
    pub(super) fn read(&mut self, at: usize, len: usize) -> bool {
        self.claim(at, len, false)
    }

    /// Claims bytes for the exclusive use of one operation.
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

/// The use of one integer in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Use {
    #[default]
    None,
    /// Used by one rank, in the order of its calls.
    Alone {
        rank: u32,
        ty: AtomicType,
        open: bool,
    },
    /// Used by any rank, with an operation that commutes.
    Shared(AtomicOp, AtomicType),
}

/// The uses of a segment's integers.
#[derive(Debug, Clone, Default)]
pub(super) struct Cells([Use; CELLS]);

impl Cells {
    /// Claims an integer for an atomic. Returns whether its old value is known, or `None` if the
    /// atomic conflicts with others.
    ///
    /// `ends_later`: no later operation is ordered with this atomic.
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
        // The sum of floats depends on the order of the additions.
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
