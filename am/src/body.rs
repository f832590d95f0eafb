//! The body of an AM, which contains the arguments, the descriptor of a long, and the payload.
//!
//! | part | bytes | in |
//! |---|---|---|
//! | arguments, if there are two or more (a single one is in the header) | 4 each, in the ranks' byte order | all categories |
//! | padding | up to a multiple of 16 bytes, unspecified; optional in a short | all categories |
//! | [`Long`] | 16 | long |
//! | payload | the rest | medium, packed long |
//!
//! If the body is aligned to 16 bytes, the payload is therefore aligned for every type. A handler
//! reads the arguments in place, as a slice.

use zerocopy::{FromBytes, IntoBytes};

use crate::{Flags, Header, HeaderError, MAX_ARGS};

const ALIGN: usize = 16;

/// The layout of a body, as functions.
#[derive(Clone, Copy, Debug)]
pub enum Body {}

impl Body {
    /// Returns the number of bytes that `nargs` arguments take in the body, including padding. It
    /// is a multiple of 16: 0 for zero or one argument, and 64 for 16 arguments.
    #[inline]
    #[must_use]
    pub const fn args_len(nargs: usize) -> usize {
        if nargs > 1 {
            (nargs * 4).next_multiple_of(ALIGN)
        } else {
            0
        }
    }

    /// Returns the body of a short with these arguments, which is the arguments themselves, without
    /// a copy.
    #[inline]
    #[must_use]
    pub fn of_short(args: &[u32]) -> &[u8] {
        if args.len() > 1 { args.as_bytes() } else { &[] }
    }

    /// Returns the offset of the payload in the body of an AM with these flags and `nargs`
    /// arguments.
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

    /// Writes `args` to the front of `body`. Returns [`args_len`](Body::args_len), the offset at
    /// which the next part starts. Leaves the padding unchanged.
    ///
    /// # Panics
    /// If `body` is too short for the arguments.
    #[inline]
    pub fn write_args(args: &[u32], body: &mut [u8]) -> usize {
        let bytes = Body::of_short(args);
        body[..bytes.len()].copy_from_slice(bytes);
        Body::args_len(args.len())
    }

    /// Returns the `header.nargs` arguments and the payload, both in place. The payload is all
    /// bytes after the arguments and a long's descriptor. A single argument is in the header; it is
    /// copied to `single`, and the returned slice refers to `single`.
    ///
    /// The arguments are read in place because a copy would be slow. A handler may load two
    /// arguments by a single 64-bit load. If they had just been copied one by one, that load would
    /// have to wait until both copies, and all stores before them, had left the processor's store
    /// buffer.
    ///
    /// # Errors
    /// If the header has more than [`MAX_ARGS`] arguments, the body ends before the payload would
    /// start (in a short, before the arguments end), or the body isn't aligned to 4 bytes.
    #[inline(always)]
    pub fn read_args<'a>(
        header: &Header,
        body: &'a [u8],
        single: &'a mut u32,
    ) -> Result<(&'a [u32], &'a [u8]), HeaderError> {
        Layout::of(header)?.read(header.arg0, body, single)
    }
}

/// The offsets of a body's parts, which follow from an AM's flags and argument count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    nargs: usize,
    /// The number of bytes that the arguments take in the body, including padding.
    args: usize,
    /// The offset of the payload.
    payload: usize,
    /// The minimum length of the body.
    needed: usize,
}

impl Layout {
    /// Returns the layout of the bodies of AMs with this header's flags and argument count.
    ///
    /// # Errors
    /// If the header has more than [`MAX_ARGS`] arguments.
    #[inline]
    pub const fn of(header: &Header) -> Result<Layout, HeaderError> {
        let nargs = header.nargs as usize;
        if nargs > MAX_ARGS {
            return Err(HeaderError::TooManyArgs {
                nargs: header.nargs,
            });
        }
        let args = if nargs > 1 { nargs * 4 } else { 0 };
        let payload = Body::payload_offset(header.flags, nargs);
        let short = header.flags.contains(Flags::SHORT);
        Ok(Layout {
            nargs,
            args,
            payload,
            needed: if short { args } else { payload },
        })
    }

    /// Returns the arguments and the payload of a body, as [`Body::read_args`] does.
    ///
    /// # Errors
    /// If the body ends before the payload would start (in a short, before the arguments end), or
    /// isn't aligned to 4 bytes.
    #[inline(always)]
    pub fn read<'a>(
        &self,
        arg0: u32,
        body: &'a [u8],
        single: &'a mut u32,
    ) -> Result<(&'a [u32], &'a [u8]), HeaderError> {
        self.check(body.len())?;
        *single = arg0;
        Ok((self.args(body, single)?, self.payload(body)))
    }

    /// Checks that a body of `length` bytes is long enough.
    ///
    /// # Errors
    /// If the body ends before the payload would start (in a short, before the arguments end).
    #[inline]
    pub const fn check(&self, length: usize) -> Result<(), HeaderError> {
        if length < self.needed {
            return Err(HeaderError::BodyTooShort {
                length,
                needed: self.needed,
            });
        }
        Ok(())
    }

    /// Returns the arguments of a body that has passed [`check`](Layout::check). `single` must hold
    /// the argument if there is only one.
    ///
    /// # Errors
    /// If the body isn't aligned to 4 bytes.
    ///
    /// # Panics
    /// If the body is too short for the arguments.
    #[inline(always)]
    pub fn args<'a>(&self, body: &'a [u8], single: &'a u32) -> Result<&'a [u32], HeaderError> {
        if self.nargs > 1 {
            <[u32]>::ref_from_bytes(&body[..self.args]).map_err(|_| HeaderError::Misaligned)
        } else {
            Ok(&std::slice::from_ref(single)[..self.nargs])
        }
    }

    /// Returns the descriptor in the body of a long, or `None` if the body is too short to hold
    /// one.
    #[inline(always)]
    #[must_use]
    pub fn long(&self, body: &[u8]) -> Option<Long> {
        let (front, _) = body.split_at_checked(self.payload)?;
        Some(Long::decode(front.last_chunk()?))
    }

    /// Returns the payload of a body that has passed [`check`](Layout::check).
    #[inline(always)]
    #[must_use]
    pub fn payload<'a>(&self, body: &'a [u8]) -> &'a [u8] {
        body.get(self.payload..).unwrap_or(&[])
    }
}

/// The destination and length of a long, which follow the arguments in the body of every long.
///
/// On the wire, the destination comes first and then the length. Each takes 64 bits, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    /// The destination, as an offset in bytes in the receiver's segment. An empty long carries an
    /// offset too, which its handler receives.
    pub dest: u64,
    /// The length of the data in bytes.
    pub length: u64,
}

impl Long {
    /// The length of the descriptor on the wire in bytes.
    pub const LEN: usize = 16;

    /// Returns the descriptor's bytes.
    #[inline]
    #[must_use]
    pub const fn encode(&self) -> [u8; Long::LEN] {
        (self.dest as u128 | (self.length as u128) << 64).to_le_bytes()
    }

    /// Decodes the descriptor. Every bit pattern is valid.
    #[inline]
    #[must_use]
    pub const fn decode(bytes: &[u8; Long::LEN]) -> Long {
        let both = u128::from_le_bytes(*bytes);
        Long {
            dest: both as u64,
            length: (both >> 64) as u64,
        }
    }

    /// Writes the descriptor after `nargs` arguments. Returns the offset after the descriptor, at
    /// which the payload starts.
    ///
    /// # Panics
    /// If `body` is too short for the arguments and the descriptor.
    #[inline]
    pub fn write(&self, nargs: usize, body: &mut [u8]) -> usize {
        let start = Body::args_len(nargs);
        body[start..start + Long::LEN].copy_from_slice(&self.encode());
        start + Long::LEN
    }

    /// Returns the descriptor in the body of a long with this header.
    ///
    /// Does not check the destination, because only the engine knows the segment.
    ///
    /// # Errors
    /// If the body ends before the descriptor does or, in a packed long, before the data does.
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
