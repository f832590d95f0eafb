//! The time to seal and open a packet on one core, which is the part of a network's time that is
//! spent on security.

use std::time::{Duration, Instant};

use conduit_udp::protocol::{Seal, TAG};
use seal::{Protection, Sealer, Secret};

use crate::Error;
use crate::piece::Piece;
use crate::side::Side;

/// The number of bytes at the start of a packet that are never encrypted.
const CLEAR: usize = 16;

/// A limit in which side 0 seals a packet and opens it again. An operation is both together.
#[derive(Debug)]
pub struct SealAndOpen {
    here: Sealer,
    there: Sealer,
    packet: Vec<u8>,
    number: u64,
}

impl SealAndOpen {
    /// Creates a limit with packets of `size` bytes, including the tag. `size` must be at least 32.
    #[must_use]
    pub fn new(size: usize, protection: Protection) -> Self {
        let sealer = |rank| Sealer::new(Secret::from_bytes([7; 32]), protection, rank, vec![1, 2]);
        Self {
            here: sealer(0),
            there: sealer(1),
            packet: vec![3; size.max(CLEAR + TAG)],
            number: 0,
        }
    }
}

impl Piece for SealAndOpen {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let start = Instant::now();
        if side.rank() != 0 {
            return Ok(start.elapsed());
        }
        for _ in 0..count {
            self.number += 1;
            self.here.seal(1, self.number, &mut self.packet, CLEAR);
            let opened = self.there.open(0, self.number, &mut self.packet, CLEAR);
            if !opened {
                return Err(Error::Corrupt {
                    what: "a sealed packet",
                    got: 0,
                    expected: 1,
                });
            }
        }
        Ok(start.elapsed())
    }
}
