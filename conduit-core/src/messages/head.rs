//! The head of a message's body, which precedes the payload.

use am::{Body, Long, MAX_ARGS};

/// Maximum length of the head: the padded arguments and the descriptor of a long.
pub(crate) const MOST_HEAD: usize = Body::args_len(MAX_ARGS) + Long::LEN;

/// Assembles the head in `space`.
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
