//! The rules of UCX's usage tracker with its defaults, for comparison. Scores depend on presence in
//! a list of recently used peers, and decay. The best peers are promoted, and demoted once they
//! drop out of the table. A peer that does not promote in turn denies silently, and a score sent by
//! a peer never expires.

use std::cmp::Ordering;

const CAPACITY: usize = 20;
const THRESHOLD: usize = 10;
const DECAY: f64 = 0.8;
const REWARD: f64 = 0.2;
/// Scores that differ by less count as equal; promoted peers then come first.
const MARGIN: f64 = 0.2;

#[derive(Clone, Copy, Debug)]
struct Row {
    peer: u32,
    score: f64,
    peers_score: f64,
    is_promoted: bool,
}

impl Row {
    /// Not an order, because closeness is not transitive.
    fn compare(&self, other: &Self) -> Ordering {
        let value = |row: &Self| row.score.max(row.peers_score);
        let (one, two) = (value(self), value(other));
        if (one - two).abs() >= MARGIN {
            return two.total_cmp(&one);
        }
        let by_state = other.is_promoted.cmp(&self.is_promoted);
        by_state.then(self.peer.cmp(&other.peer))
    }
}

/// A promotion, with the peer's score, or a demotion.
pub(crate) enum Move {
    Promoted(u32, f64),
    Demoted(u32),
}

/// UCX's usage tracker.
#[derive(Debug, Default)]
pub(crate) struct Upstream {
    rows: Vec<Row>,
    /// The most recently used peers, latest last.
    recent: Vec<u32>,
    pub(crate) samples: u32,
}

impl Upstream {
    pub(crate) fn touch(&mut self, peer: u32) {
        self.samples += 1;
        self.recent.retain(|&other| other != peer);
        self.recent.push(peer);
        if self.recent.len() > CAPACITY {
            self.recent.remove(0);
        }
    }

    pub(crate) fn progress(&mut self, moves: &mut Vec<Move>) {
        self.samples = 0;
        for row in &mut self.rows {
            row.score *= DECAY;
            if let Some(at) = self.recent.iter().position(|&peer| peer == row.peer) {
                row.score += REWARD;
                self.recent.remove(at);
            }
        }
        let new = self.recent.drain(..).map(|peer| Row {
            peer,
            score: REWARD,
            peers_score: 0.0,
            is_promoted: false,
        });
        self.rows.extend(new);
        self.rank(moves);
    }

    /// Handles a peer's promotion of this rank, with its score; returns whether this rank has
    /// promoted the peer too.
    pub(crate) fn peer_promoted(&mut self, peer: u32, score: f64, moves: &mut Vec<Move>) -> bool {
        match self.rows.iter_mut().find(|row| row.peer == peer) {
            Some(row) => row.peers_score = score,
            None => self.rows.push(Row {
                peer,
                score: 0.0,
                peers_score: score,
                is_promoted: false,
            }),
        }
        self.rank(moves);
        self.is_promoted(peer)
    }

    /// Handles a peer's demotion of this rank, which cannot be refused.
    pub(crate) fn peer_demoted(&mut self, peer: u32) {
        self.rows.retain(|row| row.peer != peer);
    }

    pub(crate) fn is_promoted(&self, peer: u32) -> bool {
        self.rows
            .iter()
            .any(|row| row.peer == peer && row.is_promoted)
    }

    fn rank(&mut self, moves: &mut Vec<Move>) {
        // Insertion sort, because the standard library's sort may panic without a total order.
        for end in 1..self.rows.len() {
            let mut at = end;
            while at > 0 && self.rows[at].compare(&self.rows[at - 1]).is_lt() {
                self.rows.swap(at, at - 1);
                at -= 1;
            }
        }
        for row in self.rows.iter_mut().take(THRESHOLD) {
            if !row.is_promoted {
                moves.push(Move::Promoted(row.peer, row.score));
            }
            row.is_promoted = true;
        }
        let kept = self.rows.len().min(CAPACITY);
        let gone = self.rows.drain(kept..).filter(|row| row.is_promoted);
        moves.extend(gone.map(|row| Move::Demoted(row.peer)));
    }
}
