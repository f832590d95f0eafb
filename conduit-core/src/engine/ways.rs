//! What is known of the way that requests to a peer take: found out once, at start.

use atomic::Atomic;

/// The way that requests to a peer take; general once the job has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::NoUninit)]
#[repr(u8)]
pub(super) enum Way {
    /// Nothing is known: each is checked. Its number is 0: a child knows nothing else.
    General = 0,
    /// Straight into a queue that is mapped here.
    Mapped,
    /// By the network; a chunk is held for the reply.
    Unmapped,
}

const _: () = assert!(Atomic::<Way>::is_lock_free());
