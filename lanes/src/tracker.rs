//! Who the traffic is with.

use crate::Weight;

/// Rows of a [`Tracker`] that nobody has asked to be of another size.
pub const ROWS: usize = 48;

/// A sample counts as so much. The rest is fractions that are left by decay.
pub const SAMPLE: Weight = 256;

const _: () = assert!(size_of::<Tracker>() < 1024);

/// Weights of the peers that the traffic is mostly with, in constant memory.
///
/// [`touch`](Self::touch) notes a sample, [`progress`](Self::progress) ends a round: all weights
/// decay by the same part. A weight is thus a sum of samples, each worth less with every round
/// since.
///
/// A full table works as Space-Saving does (Metwally, Agrawal, El Abbadi: "Efficient Computation of
/// Frequent and Top-k Elements in Data Streams", 2005): a newcomer takes the row of the lightest
/// peer, with its count, which may be up to that much too high from then on. So a peer with more
/// than 1 of `ROWS` samples has a row, whatever the others do. As weight counts what is certain,
/// the count less what may be wrong: a newcomer begins with its one sample, and rises by its own
/// traffic alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracker<const ROWS: usize = { self::ROWS }> {
    peers: [u32; ROWS],
    counts: [Weight; ROWS],
    errors: [Weight; ROWS],
    /// Rows in use: the first ones.
    used: u32,
    /// Samples in this round.
    samples: u32,
    decay: u32,
}

impl<const ROWS: usize> Tracker<ROWS> {
    /// An empty one, of whose weights a part of 1 in 2^`decay` (from 1 to 16) goes with each round.
    #[must_use]
    pub fn new(decay: u32) -> Self {
        const { assert!(ROWS > 0) };
        Self {
            peers: [0; ROWS],
            counts: [0; ROWS],
            errors: [0; ROWS],
            used: 0,
            samples: 0,
            decay: decay.clamp(1, 16),
        }
    }

    /// Notes so many samples of traffic with a peer; 0 changes nothing.
    pub fn touch(&mut self, peer: u32, samples: u32) {
        if samples == 0 {
            return;
        }
        self.samples = self.samples.saturating_add(samples);
        let row = self.row(peer).unwrap_or_else(|| self.admit(peer));
        self.counts[row] = self.counts[row].saturating_add(samples.saturating_mul(SAMPLE));
    }

    fn row(&self, peer: u32) -> Option<usize> {
        self.peers[..self.used as usize]
            .iter()
            .position(|&other| other == peer)
    }

    /// Gives a peer a new row, or the lightest one's.
    fn admit(&mut self, peer: u32) -> usize {
        let used = self.used as usize;
        let row = if used < ROWS {
            self.used += 1;
            self.counts[used] = 0;
            used
        } else {
            (0..ROWS).min_by_key(|&row| self.counts[row]).unwrap_or(0)
        };
        self.peers[row] = peer;
        self.errors[row] = self.counts[row];
        row
    }

    /// Samples since the last round.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Ends a round.
    pub fn progress(&mut self) {
        self.samples = 0;
        for row in (0..self.used as usize).rev() {
            self.counts[row] = decayed(self.counts[row], self.decay);
            // Rounded as the count is, so never above it.
            self.errors[row] = decayed(self.errors[row], self.decay);
            if self.counts[row] == 0 {
                self.remove(row);
            }
        }
    }

    /// Forgets a peer, as one that is dead.
    pub fn forget(&mut self, peer: u32) {
        if let Some(row) = self.row(peer) {
            self.remove(row);
        }
    }

    fn remove(&mut self, row: usize) {
        self.used -= 1;
        let last = self.used as usize;
        self.peers[row] = self.peers[last];
        self.counts[row] = self.counts[last];
        self.errors[row] = self.errors[last];
    }

    /// A peer's weight: what of its traffic is certain. 0 if it has no row.
    #[must_use]
    pub fn weight(&self, peer: u32) -> Weight {
        self.row(peer).map_or(0, |row| self.row_weight(row))
    }

    fn row_weight(&self, row: usize) -> Weight {
        self.counts[row] - self.errors[row]
    }

    /// All peers that have a row, with their weights, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Weight)> {
        (0..self.used as usize).map(|row| (self.peers[row], self.row_weight(row)))
    }

    /// Peers from a weight on, the heaviest first and of equals the lowest: how many, and who.
    #[must_use]
    pub fn heaviest(&self, floor: Weight) -> (usize, [(Weight, u32); ROWS]) {
        let mut found = [(0, 0); ROWS];
        let mut count = 0;
        for (peer, weight) in self.iter().filter(|&(_, weight)| weight >= floor) {
            found[count] = (weight, peer);
            count += 1;
        }
        found[..count].sort_unstable_by_key(|&(weight, peer)| (std::cmp::Reverse(weight), peer));
        (count, found)
    }
}

/// What is left of a weight after a round. It comes to 0 in the end.
pub(crate) fn decayed(weight: Weight, decay: u32) -> Weight {
    weight - weight.div_ceil(1 << decay)
}
