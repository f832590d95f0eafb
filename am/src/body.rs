//! The body of an AM: arguments, a long's descriptor, payload.
//!
//! | part | bytes | in |
//! |---|---|---|
//! | arguments 1.. | 4 each, little endian (argument 0 is in the header) | all categories |
//! | padding | up to a multiple of 16, contents of no meaning | all categories |
//! | [`Long`] | 16 | long |
//! | payload | the rest | medium, packed long |
//!
//! So a payload is aligned for every type as soon as the body is (16 bytes).

use crate::{Flags, Header, HeaderError, MAX_ARGS};

const ALIGN: usize = 16;

/// The layout of a body, as functions.
#[derive(Clone, Copy, Debug)]
pub enum Body {}

impl Body {
    /// Bytes that `nargs` arguments take in the body, with padding: a multiple of 16, 0 for 0 and 1, 64 for 16.
    #[inline]
    #[must_use]
    pub const fn args_len(nargs: usize) -> usize {
        // Four arguments to a block of 16 bytes, the first block from the second argument on.
        (nargs + 2) / 4 * ALIGN
    }

    /// Where the payload of an AM with these flags and `nargs` arguments starts.
    #[inline]
    #[must_use]
    pub const fn payload_offset(flags: Flags, nargs: usize) -> usize {
        let long = if flags.contains(Flags::LONG) {
            Long::LEN
        } else {
            0
        };
        Body::args_len(nargs) + long
    }

    /// Writes all of `args` but the first to the front of `body` and gives [`args_len`](Body::args_len), where the next
    /// part starts. Padding is left as it was.
    ///
    /// # Panics
    /// When `body` is too short for the arguments: the caller has chosen both.
    #[inline]
    pub fn write_args(args: &[u32], body: &mut [u8]) -> usize {
        // Few arguments by hand, as calling memcpy costs more than copying them.
        match *args {
            [] | [_] => {}
            [_, a] => put(body, [a]),
            [_, a, b] => put(body, [a, b]),
            [_, a, b, c] => put(body, [a, b, c]),
            [_, a, b, c, d] => put(body, [a, b, c, d]),
            [_, ref rest @ ..] => {
                for (to, arg) in body[..rest.len() * 4].chunks_exact_mut(4).zip(rest) {
                    to.copy_from_slice(&arg.to_le_bytes());
                }
            }
        }
        Body::args_len(args.len())
    }

    /// Reads the `header.nargs` arguments to the front of `args` (what the others are then has no meaning) and gives the
    /// [payload's offset](Body::payload_offset), which lies within the body.
    ///
    /// # Errors
    /// When the header has more than [`MAX_ARGS`] arguments or the body ends before the payload would start.
    #[inline(always)]
    pub fn read_args(
        header: &Header,
        body: &[u8],
        args: &mut [u32; MAX_ARGS],
    ) -> Result<usize, HeaderError> {
        let nargs = usize::from(header.nargs);
        if nargs > MAX_ARGS {
            return Err(HeaderError::TooManyArgs {
                nargs: header.nargs,
            });
        }
        let offset = Body::payload_offset(header.flags, nargs);
        if body.len() < offset {
            return Err(HeaderError::BodyTooShort {
                length: body.len(),
                needed: offset,
            });
        }
        args[0] = header.arg0;
        match body.first_chunk() {
            _ if nargs <= 1 => {}
            // All in the first block, which is read whole, as calling memcpy costs more than that.
            Some(block) if nargs <= 5 => args[1..5].copy_from_slice(&get(block)),
            _ => {
                let (words, _) = body.as_chunks::<4>();
                for (arg, word) in args.iter_mut().take(nargs).skip(1).zip(words) {
                    *arg = u32::from_le_bytes(*word);
                }
            }
        }
        Ok(offset)
    }
}

/// Writes `args` to the front of `body`.
#[inline]
fn put<const N: usize>(body: &mut [u8], args: [u32; N]) {
    let (words, _) = body[..N * 4].as_chunks_mut::<4>();
    for (to, arg) in words.iter_mut().zip(args) {
        *to = arg.to_le_bytes();
    }
}

/// The four arguments in a block.
#[inline]
fn get(block: &[u8; ALIGN]) -> [u32; 4] {
    let (words, _) = block.as_chunks::<4>();
    std::array::from_fn(|i| u32::from_le_bytes(words[i]))
}

/// Where a long's data goes and how much there is; in every long's body, behind the arguments.
///
/// On the wire: destination, then length, each 64 bits, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    /// Destination, as an offset in the receiver's segment in bytes. Delivered for empty longs too.
    pub dest: u64,
    /// Length of the data in bytes.
    pub length: u64,
}

impl Long {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// The descriptor's bytes.
    #[inline]
    #[must_use]
    pub const fn encode(&self) -> [u8; Long::LEN] {
        (self.dest as u128 | (self.length as u128) << 64).to_le_bytes()
    }

    /// The descriptor in these bytes; any are one.
    #[inline]
    #[must_use]
    pub const fn decode(bytes: &[u8; Long::LEN]) -> Long {
        let both = u128::from_le_bytes(*bytes);
        Long {
            dest: both as u64,
            length: (both >> 64) as u64,
        }
    }

    /// Writes the descriptor behind `nargs` arguments and gives the offset behind it, where the payload starts.
    ///
    /// # Panics
    /// When `body` is too short for both: the caller has chosen it.
    #[inline]
    pub fn write(&self, nargs: usize, body: &mut [u8]) -> usize {
        let start = Body::args_len(nargs);
        body[start..start + Long::LEN].copy_from_slice(&self.encode());
        start + Long::LEN
    }

    /// The descriptor in the body of a long with this header.
    ///
    /// The destination is not checked, as only the engine knows the segment.
    ///
    /// # Errors
    /// When the body ends before the descriptor does, or a packed long's before its data does.
    #[inline]
    pub fn read(header: &Header, body: &[u8]) -> Result<Long, HeaderError> {
        let (_, rest) = body
            .split_at_checked(Body::args_len(usize::from(header.nargs)))
            .unwrap_or((body, &[]));
        let Some((bytes, payload)) = rest.split_first_chunk() else {
            let needed = Body::args_len(usize::from(header.nargs)) + Long::LEN;
            return Err(HeaderError::BodyTooShort {
                length: body.len(),
                needed,
            });
        };
        let long = Long::decode(bytes);
        if header.flags.contains(Flags::PACKED) && long.length > payload.len() as u64 {
            return Err(HeaderError::PayloadTooShort {
                length: long.length,
                carried: payload.len(),
            });
        }
        Ok(long)
    }
}
