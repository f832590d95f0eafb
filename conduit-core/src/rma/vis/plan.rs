//! Selection of the pieces for a message.

use crate::rma::vis::runs::{Piece, Pieces, Run};
use crate::rma::vis::wire::Encoder;

/// The capacity of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Maximum bytes of data, and of a request for them.
    pub(crate) payload: usize,
    /// Whether data and the list of its places share the payload (a put), or the reply carries the
    /// data (a get).
    pub(crate) shared: bool,
}

impl Room {
    /// Returns the length from which pieces are transferred separately: a message's cost is small
    /// compared with theirs, and they are not copied.
    pub(crate) fn large(&self) -> usize {
        (self.payload / 2).clamp(1, 1 << 14)
    }
}

/// A message being assembled: the list of its places at the target, the list of local places if
/// they must be kept, and the number of bytes.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) remote: Encoder,
    pub(crate) local: Encoder,
    pub(crate) data: usize,
}

impl Message {
    /// Resets it for another message.
    pub(crate) fn clear(&mut self) {
        self.remote.clear();
        self.local.clear();
        self.data = 0;
    }

    /// Takes pieces while there is room. Returns the first [large](Room::large) piece, which the
    /// message skips. `None`: the message is full, or no pieces are left.
    pub(crate) fn fill(&mut self, pieces: &mut Pieces<'_>, room: Room) -> Option<Piece> {
        loop {
            let before = pieces.clone();
            let piece = pieces.next()?;
            if piece.len >= room.large() {
                return Some(piece);
            }
            let data = self.data + piece.len;
            let list = self.remote.most();
            let fits = match room.shared {
                true => data + list <= room.payload,
                false => data <= room.payload && list <= room.payload,
            };
            if !fits {
                *pieces = before;
                return None;
            }
            self.data = data;
            self.remote.push(Run {
                start: piece.remote,
                len: piece.len,
            });
            if !room.shared {
                self.local.push(Run {
                    start: piece.local,
                    len: piece.len,
                });
            }
        }
    }
}
