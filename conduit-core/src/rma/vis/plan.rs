//! The selection of the pieces for a message.

use crate::rma::vis::runs::{Piece, Pieces, Run};
use crate::rma::vis::wire::Encoder;

/// The capacity of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Maximum size in bytes of the data in a message, and of the list that requests data.
    pub(crate) payload: usize,
    /// Whether the data and the list of its places share the payload, as they do in a put. In a
    /// get, the reply carries the data.
    pub(crate) shared: bool,
}

impl Room {
    /// Returns the length from which pieces are transferred separately. For such a piece the cost
    /// of a separate message is small, and the piece need not be copied into a packed message.
    pub(crate) fn large(&self) -> usize {
        (self.payload / 2).clamp(1, 1 << 14)
    }
}

/// A message being assembled: the list of the places at the target, the list of the local places if
/// it must be kept, and the number of bytes.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) remote: Encoder,
    pub(crate) local: Encoder,
    pub(crate) data: usize,
}

impl Message {
    /// Empties the message, so that it can be used for the next one.
    pub(crate) fn clear(&mut self) {
        self.remote.clear();
        self.local.clear();
        self.data = 0;
    }

    /// Takes pieces while there is room. Returns the first [large](Room::large) piece, which does
    /// not become a part of the message. Returns `None` if the message is full or no pieces are
    /// left.
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
