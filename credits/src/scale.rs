//! The size of a credit in bytes.

/// The number of bytes of event queue for each credit.
pub const EVENT_BYTES: u32 = 128;

/// The size of a credit and of a chunk, from which the cost of messages follows.
///
/// The original's credit is 256 bytes, with chunks of 1 or 2 KiB, so a full medium costs 4 or 8
/// credits. With larger chunks, a credit has more bytes, so the cost of a full medium always lies
/// in [`Scale::FULL_COSTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    bytes_per_credit: u32,
    chunk: u32,
}

/// The reason why the sizes of a credit and of a chunk do not fit each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// The size of a credit is not a power of two, although the hot path computes a cost by a
    /// shift.
    #[error("a credit has {bytes_per_credit} bytes, must be a power of two")]
    NotPowerOfTwo {
        /// The number of bytes per credit.
        bytes_per_credit: u32,
    },
    /// A full medium would cost so few credits that small messages would cost as much as large
    /// ones, or more credits than a message can carry.
    #[error(
        "a chunk of {chunk} bytes costs {cost} credits of {bytes_per_credit} bytes, must cost 4 to 8"
    )]
    FullCost {
        /// The number of bytes per chunk.
        chunk: u32,
        /// The number of bytes per credit.
        bytes_per_credit: u32,
        /// The cost of a chunk in credits.
        cost: u32,
    },
}

impl Scale {
    /// The possible costs of a full medium.
    pub const FULL_COSTS: std::ops::RangeInclusive<u32> = 4..=8;

    /// The cost of a long whose data travels apart from its header. It is one credit for the event
    /// of each of the two messages. The bytes of the header and the arguments fit into one credit.
    pub const LONG_COST: u8 = 2;

    /// The cost of a short, which fits into one credit with all its arguments.
    pub const SHORT_COST: u8 = 1;

    /// The size in bytes of the smallest credit, which is the original's.
    pub const LEAST_BYTES: u32 = 256;

    /// Creates the scale with these sizes.
    ///
    /// # Errors
    /// Fails if `bytes_per_credit` is not a power of two, or if a chunk does not cost 4 to 8
    /// credits.
    pub const fn new(chunk: u32, bytes_per_credit: u32) -> Result<Scale, ScaleError> {
        if !bytes_per_credit.is_power_of_two() {
            return Err(ScaleError::NotPowerOfTwo { bytes_per_credit });
        }
        let cost = chunk.div_ceil(bytes_per_credit);
        if cost < *Scale::FULL_COSTS.start() || cost > *Scale::FULL_COSTS.end() {
            return Err(ScaleError::FullCost {
                chunk,
                bytes_per_credit,
                cost,
            });
        }
        Ok(Scale {
            bytes_per_credit,
            chunk,
        })
    }

    /// Creates the scale for chunks of `chunk` bytes. A credit has the smallest size, from 256
    /// bytes, with which a full medium costs at most 8 credits.
    ///
    /// # Errors
    /// Fails if the chunk is so small that a full medium would cost fewer than 4 credits of 256
    /// bytes.
    pub const fn for_chunk(chunk: u32) -> Result<Scale, ScaleError> {
        let mut bytes_per_credit = Scale::LEAST_BYTES;
        while chunk.div_ceil(bytes_per_credit) > *Scale::FULL_COSTS.end() {
            bytes_per_credit *= 2;
        }
        Scale::new(chunk, bytes_per_credit)
    }

    /// Returns the number of bytes of request buffer per credit, which is a power of two.
    #[inline]
    #[must_use]
    pub const fn bytes_per_credit(self) -> u32 {
        self.bytes_per_credit
    }

    /// Returns the number of bytes per chunk, which is the maximum size of a request's body.
    #[inline]
    #[must_use]
    pub const fn chunk(self) -> u32 {
        self.chunk
    }

    /// Returns the number of credits, from 1 to 8, for a request with a body of `bytes` bytes. The
    /// body should be at most a chunk. A larger body, which cannot be sent, costs as much as a full
    /// chunk.
    #[inline]
    #[must_use]
    pub const fn cost(self, bytes: usize) -> u8 {
        let bytes = if bytes > self.chunk as usize {
            self.chunk as usize
        } else {
            bytes
        };
        let shift = self.bytes_per_credit.trailing_zeros();
        let cost = (bytes + (self.bytes_per_credit as usize - 1)) >> shift;
        if cost == 0 { 1 } else { cost as u8 }
    }

    /// Returns the number of credits, from 4 to 8, for a full medium. No rank is ever lent fewer
    /// credits.
    #[inline]
    #[must_use]
    pub const fn full_cost(self) -> u8 {
        self.cost(self.chunk as usize)
    }

    /// Returns the number of bytes of memory per credit, including its event.
    #[inline]
    #[must_use]
    pub const fn space_per_credit(self) -> u32 {
        self.bytes_per_credit + EVENT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_original_chunks_cost_four_and_eight() {
        let small = Scale::for_chunk(1024).unwrap();
        assert_eq!(
            (
                small.bytes_per_credit(),
                small.full_cost(),
                small.space_per_credit()
            ),
            (256, 4, 384)
        );
        let large = Scale::for_chunk(2048).unwrap();
        assert_eq!((large.bytes_per_credit(), large.full_cost()), (256, 8));
    }

    #[test]
    fn credits_grow_with_chunks() {
        for chunk in (769..=1 << 20).step_by(64) {
            let scale = Scale::for_chunk(chunk).unwrap();
            assert!(
                Scale::FULL_COSTS.contains(&u32::from(scale.full_cost())),
                "{chunk}"
            );
        }
        assert_eq!(Scale::for_chunk(65536).unwrap().bytes_per_credit(), 8192);
        assert_eq!(Scale::for_chunk(u32::MAX).unwrap().full_cost(), 8);
    }

    #[test]
    fn a_message_never_takes_more_bytes_than_its_credits_stand_for() {
        let scale = Scale::for_chunk(1024).unwrap();
        for bytes in 0..=1024 {
            let cost = usize::from(scale.cost(bytes));
            assert!(
                cost >= 1 && cost * 256 >= bytes && (cost == 1 || (cost - 1) * 256 < bytes),
                "{bytes}"
            );
        }
        assert_eq!(scale.cost(usize::MAX), 4);
    }

    #[test]
    fn odd_scales_are_refused() {
        assert_eq!(
            Scale::new(1024, 200),
            Err(ScaleError::NotPowerOfTwo {
                bytes_per_credit: 200
            })
        );
        assert_eq!(
            Scale::new(1024, 0),
            Err(ScaleError::NotPowerOfTwo {
                bytes_per_credit: 0
            })
        );
        assert!(matches!(
            Scale::new(1024, 64),
            Err(ScaleError::FullCost { cost: 16, .. })
        ));
        assert!(matches!(
            Scale::new(1024, 512),
            Err(ScaleError::FullCost { cost: 2, .. })
        ));
        assert!(matches!(
            Scale::for_chunk(768),
            Err(ScaleError::FullCost { cost: 3, .. })
        ));
    }
}
