//! The layout of a rank's barrier cells: which message each cell receives.

/// Words per cache line of 64 bytes. Every round starts on a new line, so that a waiting rank polls
/// as few lines as possible.
const LINE_WORDS: usize = 8;

/// The smallest radix: one message per round.
pub const MIN_RADIX: u32 = 2;
/// The largest radix: fifteen messages per round, whose cells fill two cache lines.
pub const MAX_RADIX: u32 = 16;

/// One cell of a rank, identified by the message that it receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CellIndex {
    /// The lowest bit of the barrier's epoch.
    pub parity: u32,
    /// The round of the dissemination, from 0.
    pub round: u32,
    /// The sender's number within the round, from 1. The sender is `slot · radix^round` ranks
    /// behind the receiver.
    pub slot: u32,
}

/// The shape of a dissemination among `size` ranks: the number of rounds, and the positions of
/// their cells.
///
/// Cells are ordered by parity, then round, then slot. The cells of a round take `radix − 1` words,
/// padded to whole cache lines of 64 bytes. The first cell must be aligned to 64 bytes. All ranks
/// must use the same size and radix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    size: u32,
    radix: u32,
    rounds: u32,
    round_words: usize,
}

impl Layout {
    /// Creates the layout for `size` ranks (0 counts as 1) and a radix, which is clamped to
    /// [`MIN_RADIX`]`..=`[`MAX_RADIX`].
    #[must_use]
    pub fn new(size: u32, radix: u32) -> Self {
        let size = size.max(1);
        let radix = radix.clamp(MIN_RADIX, MAX_RADIX);
        let mut rounds = 0;
        let mut reach = 1_u64;
        while reach < u64::from(size) {
            reach *= u64::from(radix);
            rounds += 1;
        }
        Self {
            size,
            radix,
            rounds,
            round_words: (radix as usize - 1).next_multiple_of(LINE_WORDS),
        }
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the radix after clamping.
    #[must_use]
    pub fn radix(&self) -> u32 {
        self.radix
    }

    /// Returns the number of rounds of a barrier, which is the smallest `k` with `radix^k ≥ size`.
    /// It is 0 for one rank.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the number of cells (words of 64 bits) that each rank provides.
    #[must_use]
    pub fn cells(&self) -> usize {
        2 * self.rounds as usize * self.round_words
    }

    /// Returns the position of a cell among the rank's cells.
    #[inline]
    #[must_use]
    pub fn position(&self, cell: CellIndex) -> usize {
        let line = cell.parity as usize * self.rounds as usize + cell.round as usize;
        line * self.round_words + cell.slot as usize - 1
    }

    /// Returns the cell at a position, or `None` for padding and for positions beyond the end.
    /// Peers must store at neither.
    #[must_use]
    pub fn at(&self, position: usize) -> Option<CellIndex> {
        if position >= self.cells() {
            return None;
        }
        let (line, word) = (position / self.round_words, position % self.round_words);
        let cell = CellIndex {
            parity: (line / self.rounds as usize) as u32,
            round: (line % self.rounds as usize) as u32,
            slot: word as u32 + 1,
        };
        (cell.slot <= self.fan_out(self.distance(cell.round))).then_some(cell)
    }

    /// Returns `radix^round`: the distance to the nearest partner of a round.
    pub(super) fn distance(&self, round: u32) -> u32 {
        // Cannot overflow for a round that exists, whose distance is below the size. For any other
        // round, the result saturates.
        self.radix.saturating_pow(round)
    }

    /// Returns the number of messages that a rank sends in the round with this distance, which is
    /// also the number that it receives: the number of `j` in `1..radix` with `j · distance <
    /// size`.
    #[inline]
    pub(super) fn fan_out(&self, distance: u32) -> u32 {
        ((self.size - 1) / distance).min(self.radix - 1)
    }
}

/// Returns the number of cells (words of 64 bits) that each of `size` ranks provides for barriers
/// of this radix.
#[must_use]
pub fn cell_count(size: u32, radix: u32) -> usize {
    Layout::new(size, radix).cells()
}
