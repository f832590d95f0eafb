//! Options of calls that start operations.

/// Whether an initiation may wait for resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Blocking {
    /// Poll until the operation can start.
    #[default]
    Wait,
    /// Don't start if that would block (GASNet-EX's immediate flag). Exact for everything on mapped
    /// memory. Where operations are messages, only credits and send tickets are checked; the call
    /// may still wait for a chunk, or for a piece of a transfer that needs more pieces than there
    /// are tickets, until operations in flight end.
    Immediate,
}

/// How a caller learns of the end of an operation that it has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Through its handle.
    Handle,
    /// With the other operations of this thread: it belongs to the thread's implicit puts or gets,
    /// or to its open access region. The handle is [`Handle::DONE`](crate::kernel::Handle::DONE).
    Implicit,
}

impl Completion {
    /// Returns the operation's name in errors.
    #[inline(always)]
    pub(crate) fn name(self, handle: &'static str, implicit: &'static str) -> &'static str {
        match self {
            Self::Handle => handle,
            Self::Implicit => implicit,
        }
    }
}
