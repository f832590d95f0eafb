//! What a thread may do, by where it is.

use std::fmt;

/// Where a thread is with respect to active messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// In no handler, with no payload prepared.
    Outside,
    /// In the handler of a request.
    RequestHandler,
    /// In the handler of a reply.
    ReplyHandler,
    /// In a handler of either kind.
    Handler,
    /// Between preparing an AM's payload and its commit or cancel; restricted as in a reply handler (GASNet-EX).
    Prepared,
}

/// What a thread wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Send a request, or prepare one; also any put, get or remote atomic.
    Request,
    /// Send a reply, or prepare one.
    Reply,
    /// Wait for something that only polling brings.
    Block,
    /// Poll the network.
    Poll,
    /// Commit or cancel a prepared payload.
    Commit,
}

/// A thread wants what it may not do where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The operation is not allowed in this context.
    #[error("not allowed {context}: {operation}")]
    NotAllowed {
        /// What the thread wants.
        operation: Operation,
        /// Where it is.
        context: Context,
    },
    /// The request handler has replied before.
    #[error("the request has already been replied to")]
    AlreadyReplied,
}

impl Context {
    /// May the thread send a request, put, get, or prepare a request? Only outside.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_request(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Request)
    }

    /// May the thread reply (or prepare a reply), given whether the handler has `replied` before? Once, in a request
    /// handler.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`] elsewhere, [`ContextError::AlreadyReplied`] the second time.
    #[inline]
    pub const fn may_reply(self, replied: bool) -> Result<(), ContextError> {
        match self {
            Context::RequestHandler if replied => Err(ContextError::AlreadyReplied),
            _ => self.only(Context::RequestHandler, Operation::Reply),
        }
    }

    /// May the thread wait for an operation, a barrier or an access region? Only outside.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_block(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Block)
    }

    /// May the thread poll? Only outside.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_poll(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Poll)
    }

    /// May the thread commit or cancel a payload? Only after preparing one.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_commit(self) -> Result<(), ContextError> {
        self.only(Context::Prepared, Operation::Commit)
    }

    #[inline]
    const fn only(self, allowed: Context, operation: Operation) -> Result<(), ContextError> {
        if self as u8 == allowed as u8 {
            Ok(())
        } else {
            Err(ContextError::NotAllowed {
                operation,
                context: self,
            })
        }
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Context::Outside => "outside of a handler",
            Context::RequestHandler => "in a request handler",
            Context::ReplyHandler => "in a reply handler",
            Context::Handler => "in a handler",
            Context::Prepared => "between prepare and commit",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Request => "to request, put or get",
            Operation::Reply => "to reply",
            Operation::Block => "to wait",
            Operation::Poll => "to poll",
            Operation::Commit => "to commit or cancel a payload",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Context; 5] = [
        Context::Outside,
        Context::RequestHandler,
        Context::ReplyHandler,
        Context::Handler,
        Context::Prepared,
    ];

    #[test]
    fn only_outside_of_handlers_may_a_thread_request_wait_and_poll() {
        for context in ALL {
            let outside = context == Context::Outside;
            assert_eq!(context.may_request().is_ok(), outside);
            assert_eq!(context.may_block().is_ok(), outside);
            assert_eq!(context.may_poll().is_ok(), outside);
            assert_eq!(context.may_commit().is_ok(), context == Context::Prepared);
        }
    }

    #[test]
    fn a_request_handler_may_reply_once() {
        for context in ALL {
            assert_eq!(
                context.may_reply(false).is_ok(),
                context == Context::RequestHandler
            );
            assert!(context.may_reply(true).is_err());
        }
        assert_eq!(
            Context::RequestHandler.may_reply(true),
            Err(ContextError::AlreadyReplied)
        );
    }

    #[test]
    fn an_error_names_operation_and_context() {
        let error = Context::ReplyHandler.may_reply(false).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not allowed in a reply handler: to reply"
        );
    }
}
