//! The tracker of the peers with the most traffic.

use crate::Weight;

/// The default number of rows of a [`Tracker`].
pub const ROWS: usize = 48;

/// The weight of one new sample. A smaller weight is that of a decayed sample.
pub const SAMPLE: Weight = 256;

const _: () = assert!(size_of::<Tracker>() < 1024);

/// A tracker of the weights of the peers with the most traffic, which needs constant memory.
///
/// [`touch`](Self::touch) notes samples, and [`progress`](Self::progress) ends a round. At the end
/// of a round, all weights decay by the same factor. A weight is thus a sum of samples that lose
/// value with each round.
///
/// A full table uses Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent
/// and Top-k Elements in Data Streams", 2005): a newcomer takes over the row of the lightest peer
/// together with its count, which may overestimate the newcomer's traffic by that much. A peer with
/// more than one in `ROWS` samples therefore always has a row. The weight is the certain part of
/// the count, which is the count minus the possible error. Therefore a newcomer starts with the
/// weight of its own samples, and only its own traffic increases that weight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracker<const ROWS: usize = { self::ROWS }> {
    peers: [u32; ROWS],
    counts: [Weight; ROWS],
    errors: [Weight; ROWS],
    /// The number of rows in use, which come before the unused ones.
    used: u32,
    /// The number of samples in this round.
    samples: u32,
    decay: u32,
}

impl<const ROWS: usize> Tracker<ROWS> {
    /// Creates an empty tracker whose weights lose 1 part in 2^`decay` per round. `decay` must be
    /// from 1 to 16.
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

    /// Notes samples of traffic with a peer. Zero samples change nothing.
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

    /// Assigns a peer a new row or, if the table is full, that of the lightest peer.
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

    /// Returns the number of samples in this round.
    #[must_use]
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Ends a round.
    pub fn progress(&mut self) {
        self.samples = 0;
        for row in (0..self.used as usize).rev() {
            self.counts[row] = decayed(self.counts[row], self.decay);
            // The error is rounded in the same way as the count, so it never exceeds the count.
            self.errors[row] = decayed(self.errors[row], self.decay);
            if self.counts[row] == 0 {
                self.remove(row);
            }
        }
    }

    /// Forgets a peer, for example a dead one.
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

    /// Returns a peer's weight, which is the certain part of its traffic, or 0 if the peer has no
    /// row.
    #[must_use]
    pub fn weight(&self, peer: u32) -> Weight {
        self.row(peer).map_or(0, |row| self.row_weight(row))
    }

    fn row_weight(&self, row: usize) -> Weight {
        self.counts[row] - self.errors[row]
    }

    /// Returns all peers with a row and their weights, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Weight)> {
        (0..self.used as usize).map(|row| (self.peers[row], self.row_weight(row)))
    }

    /// Returns the number of peers with at least the weight `floor`, and an array that begins with
    /// these peers and their weights. The heaviest come first, and equally heavy ones are in the
    /// order of their ranks.
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

/// Returns a weight after one round of decay. Repeated decay reaches 0.
pub(crate) fn decayed(weight: Weight, decay: u32) -> Weight {
    weight - weight.div_ceil(1 << decay)
}
