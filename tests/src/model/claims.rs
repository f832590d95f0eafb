//! Claims: which bytes of a segment the operations of a round use.

use conduit_core::ni::{AtomicOp, AtomicType};

use super::plan::CELLS;

/// The ranges of a segment that are in use, each by readers or by one writer.
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

    /// Claims bytes for reading. Other operations may also read them. Returns false if another
    /// operation writes any of them.
    pub(super) fn read(&mut self, at: usize, len: usize) -> bool {
        self.claim(at, len, false)
    }

    /// Claims bytes for the exclusive use of one operation. Returns false if another operation uses
    /// any of them.
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
    /// One rank uses the integer, in the order of its calls.
    Alone {
        rank: u32,
        ty: AtomicType,
        open: bool,
    },
    /// Any rank may use the integer, but only with this operation, which commutes.
    Shared(AtomicOp, AtomicType),
}

/// How each integer of a segment is used.
#[derive(Debug, Clone, Default)]
pub(super) struct Cells([Use; CELLS]);

impl Cells {
    /// Claims an integer for an atomic. Returns whether the atomic's old value is known, or `None`
    /// if the atomic conflicts with others.
    ///
    /// `ends_later` tells that no later operation is ordered after this atomic.
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
        // A sum of floats isn't exact, because it depends on the order of the additions.
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
