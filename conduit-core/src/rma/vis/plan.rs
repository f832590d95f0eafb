//! Which pieces go into a message.

use crate::rma::vis::runs::{Piece, Pieces, Run};
use crate::rma::vis::wire::Encoder;

/// What a message has room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Bytes of data, and of a request for them.
    pub(crate) payload: usize,
    /// Whether data and the list of its places share the payload (a put), or the data comes in the
    /// reply (a get).
    pub(crate) shared: bool,
}

impl Room {
    /// Pieces of at least as many bytes are transferred by themselves: what a message costs is
    /// little beside them, and no copy is made of them.
    pub(crate) fn large(&self) -> usize {
        (self.payload / 2).clamp(1, 1 << 14)
    }
}

/// A message being put together: the list of its places at the target, the same for this side where
/// that is to be kept, and the bytes that they have.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) remote: Encoder,
    pub(crate) local: Encoder,
    pub(crate) data: usize,
}

impl Message {
    /// Starts another one.
    pub(crate) fn clear(&mut self) {
        self.remote.clear();
        self.local.clear();
        self.data = 0;
    }

    /// Takes pieces as long as there is room; gives the first that is [large](Room::large), which
    /// the message leaves out. `None`: it is full, or there are no more.
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
