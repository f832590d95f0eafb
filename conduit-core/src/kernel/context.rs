//! The context of this thread, which is recorded if checks are on: the handler that the thread is
//! running, if any, and whether it has a prepared payload.

use std::cell::Cell;

use am::{Context, ContextError, Operation};

thread_local! {
    static CONTEXT: Cell<Context> = const { Cell::new(Context::Outside) };
}

pub(crate) fn check(what: Operation) -> Result<(), ContextError> {
    let context = CONTEXT.get();
    match what {
        Operation::Request => context.may_request(),
        Operation::Reply => context.may_reply(false),
        Operation::Block => context.may_block(),
        Operation::Poll => context.may_poll(),
        Operation::Commit => context.may_commit(),
    }
}

pub(crate) fn is_prepared() -> bool {
    CONTEXT.get() == Context::Prepared
}

/// A guard that restores the previous context when dropped.
pub(crate) struct Entered(Context);

impl Entered {
    pub(crate) fn new(context: Context) -> Self {
        Self(CONTEXT.replace(context))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CONTEXT.set(self.0);
    }
}
