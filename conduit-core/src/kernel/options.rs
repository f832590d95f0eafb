//! Options of calls that start operations.

/// Whether a call that starts an operation may wait for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocking {
    /// Polls until the operation can start.
    #[default]
    Wait,
    /// Does not start the operation if that would block (GASNet-EX's immediate flag). On mapped
    /// memory this is exact. Where operations are messages, only credits and send tickets are
    /// checked. The call may then still wait until operations in flight end, because it needs a
    /// chunk, or because its transfer consists of more pieces than there are tickets.
    Immediate,
}

/// How the caller learns that an operation has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Through the operation's handle.
    Handle,
    /// Together with the other operations of this thread. The operation belongs to the thread's
    /// implicit puts or gets, or to its open access region. The handle is
    /// [`Handle::DONE`](crate::kernel::Handle::DONE).
    Implicit,
}

impl Completion {
    /// Returns the name that errors give the operation: `handle` or `implicit`.
    #[inline(always)]
    pub(crate) fn name(self, handle: &'static str, implicit: &'static str) -> &'static str {
        match self {
            Self::Handle => handle,
            Self::Implicit => implicit,
        }
    }
}
