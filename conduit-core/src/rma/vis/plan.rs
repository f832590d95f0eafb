//! Selection of the pieces for a message.

use crate::rma::vis::runs::{Piece, Pieces, Run};
use crate::rma::vis::wire::Encoder;

/// The capacity of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Maximum size in bytes of the data, and of a request for the data.
    pub(crate) payload: usize,
    /// Whether data and the list of its places share the payload, as in a put. In a get, the reply
    /// carries the data.
    pub(crate) shared: bool,
}

impl Room {
    /// Returns the length from which pieces are transferred separately. For such a piece, a
    /// message's cost is small, and the piece is not copied.
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
    /// Makes it empty, for the next message.
    pub(crate) fn clear(&mut self) {
        self.remote.clear();
        self.local.clear();
        self.data = 0;
    }

    /// Takes pieces while there is room. Returns the first [large](Room::large) piece, which the
    /// message skips. Returns `None` if the message is full or no pieces are left.
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
