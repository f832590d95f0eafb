//! What goes before a payload in the body of a message.

use am::{Body, Long, MAX_ARGS};

/// Arguments, padded, and a long's descriptor: what goes before a payload.
pub(crate) const MOST_HEAD: usize = Body::args_len(MAX_ARGS) + Long::LEN;

/// What goes before a payload, put together in `space`.
#[inline(always)]
pub(crate) fn head_in<'a>(
    space: &'a mut [u8; MOST_HEAD],
    args: &[u32],
    long: Option<Long>,
) -> &'a [u8] {
    let mut length = Body::write_args(args, space);
    if let Some(long) = long {
        length = long.write(args.len(), space);
    }
    &space[..length]
}
