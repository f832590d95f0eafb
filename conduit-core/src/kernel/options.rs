//! How a call that starts something is to go about it.

/// Whether an initiation may wait for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocking {
    /// Poll until it can start.
    #[default]
    Wait,
    /// Don't start if that would block (GASNet-EX's immediate flag). Exact for everything on mapped
    /// memory. Where operations are messages, what is looked at is credits and send tickets; a
    /// chunk, or a piece of a transfer that needs more pieces than there are tickets, may still be
    /// waited for, which ends as soon as operations under way do.
    Immediate,
}

/// How a caller learns that an operation which it has started has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// By its handle.
    Handle,
    /// With the others of this thread: it belongs to its implicit puts or gets, or to its open
    /// access region. The handle is [`Handle::DONE`](crate::kernel::Handle::DONE).
    Implicit,
}

impl Completion {
    /// What the operation is called in errors.
    #[inline(always)]
    pub(crate) fn name(self, handle: &'static str, implicit: &'static str) -> &'static str {
        match self {
            Self::Handle => handle,
            Self::Implicit => implicit,
        }
    }
}
