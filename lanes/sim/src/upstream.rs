//! The rules of UCX's usage tracker with its defaults, for comparison. A peer's score depends on
//! its presence in a list of recently used peers, and decays. The best peers are promoted, and they
//! are demoted once they drop out of the table. If a peer does not promote this rank in turn, it
//! thereby denies the promotion silently. A score that a peer has sent never expires.

use std::cmp::Ordering;

const CAPACITY: usize = 20;
const THRESHOLD: usize = 10;
const DECAY: f64 = 0.8;
const REWARD: f64 = 0.2;
/// Scores that differ by less than this count as equal. Of peers with equal scores, promoted ones
/// come first.
const MARGIN: f64 = 0.2;

#[derive(Clone, Copy, Debug)]
struct Row {
    peer: u32,
    score: f64,
    peers_score: f64,
    is_promoted: bool,
}

impl Row {
    /// Compares two rows. This is not a total order, because "nearly equal" is not transitive.
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

/// A promotion of a peer, with its score, or a demotion.
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

    /// Handles the message by which a peer promotes this rank, which carries the peer's score.
    /// Returns whether this rank has promoted the peer as well.
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

    /// Handles the message by which a peer demotes this rank. A demotion cannot be refused.
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
