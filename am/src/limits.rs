//! The limits on payloads, which follow from the size of a chunk and the number of arguments.
//!
//! GASNet requires that a limit be at least 512 bytes, be the same on all ranks, be constant for
//! the job, and not grow with the number of arguments. The limits here fulfil this, because the
//! chunk size is a setting of the whole job.

use crate::{Body, Long, MAX_ARGS};

/// The smallest maximum payload that GASNet allows, in bytes.
pub const LEAST_PAYLOAD: usize = 512;

/// The smallest chunk size, in bytes, at which every category can carry the [least
/// payload](LEAST_PAYLOAD). It is a multiple of 64, because chunk offsets are in units of 64 bytes.
pub const MIN_CHUNK: usize =
    (LEAST_PAYLOAD + Body::args_len(MAX_ARGS) + Long::LEN).next_multiple_of(64);

/// Maximum length of a long in bytes, for any number of arguments. The data of a long is one put,
/// which is not bound to a chunk.
///
/// The limit is the same as in GASNet's conduits for shared memory and libfabric. It fits in the
/// types of the C interface on every platform.
pub const MAX_LONG: usize = i32::MAX as usize;

/// Returns the maximum payload in bytes of a medium with `nargs` arguments, for chunks of `chunk`
/// bytes.
///
/// The limit for [`MAX_ARGS`] arguments holds for every number of arguments.
#[inline]
#[must_use]
pub const fn max_medium(chunk: usize, nargs: usize) -> usize {
    chunk.saturating_sub(Body::args_len(nargs))
}

/// Returns the maximum length in bytes of a packed long with `nargs` arguments, for chunks of
/// `chunk` bytes.
#[inline]
#[must_use]
pub const fn max_packed_long(chunk: usize, nargs: usize) -> usize {
    chunk.saturating_sub(Body::args_len(nargs) + Long::LEN)
}

const _: () = assert!(max_medium(MIN_CHUNK, MAX_ARGS) >= LEAST_PAYLOAD);
const _: () = assert!(max_packed_long(MIN_CHUNK, MAX_ARGS) >= LEAST_PAYLOAD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_do_not_grow_with_the_argument_count_and_start_at_512_bytes() {
        for chunk in [MIN_CHUNK, 1024, 2048, 65_536] {
            for limit in [max_medium, max_packed_long] {
                assert!((0..MAX_ARGS).all(|nargs| limit(chunk, nargs) >= limit(chunk, nargs + 1)));
                assert!(limit(chunk, MAX_ARGS) >= LEAST_PAYLOAD);
            }
            let body = Body::args_len(MAX_ARGS) + max_medium(chunk, MAX_ARGS);
            assert_eq!(body, chunk);
        }
        assert_eq!(
            (max_medium(0, MAX_ARGS), max_packed_long(79, MAX_ARGS)),
            (0, 0)
        );
    }
}
