//! The operations that a thread may start in each context.

use std::fmt;

/// A thread's context with respect to active messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// Outside handlers, with no prepared payload.
    Outside,
    /// In the handler of a request.
    RequestHandler,
    /// In the handler of a reply.
    ReplyHandler,
    /// In a handler of either kind, if the caller does not distinguish the two.
    Handler,
    /// Between the preparation of an AM's payload and its commit or cancellation. GASNet-EX
    /// restricts the thread as in a reply handler.
    Prepared,
}

/// An operation that depends on the thread's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sending or preparing a request, or starting a put, get or remote atomic.
    Request,
    /// Sending or preparing a reply.
    Reply,
    /// Waiting for something that only polling can bring about.
    Block,
    /// Polling the network.
    Poll,
    /// Committing or cancelling a prepared payload.
    Commit,
}

/// A call that is not allowed in its thread's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// The operation is not allowed in this context.
    #[error("{operation} is not allowed {context}")]
    NotAllowed {
        /// The attempted operation.
        operation: Operation,
        /// The thread's context.
        context: Context,
    },
    /// The request handler has already sent its reply.
    #[error("the request has already been replied to")]
    AlreadyReplied,
}

impl Context {
    /// Checks that the thread may send or prepare a request, or start a put, get or remote atomic.
    /// This is allowed only outside handlers.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_request(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Request)
    }

    /// Checks that the thread may send or prepare a reply. This is allowed only in a request
    /// handler that has not `replied` yet.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`] in any other context, [`ContextError::AlreadyReplied`] after a
    /// first reply.
    #[inline]
    pub const fn may_reply(self, replied: bool) -> Result<(), ContextError> {
        match self {
            Context::RequestHandler if replied => Err(ContextError::AlreadyReplied),
            _ => self.only(Context::RequestHandler, Operation::Reply),
        }
    }

    /// Checks that the thread may wait for an operation, a barrier or an access region. This is
    /// allowed only outside handlers.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_block(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Block)
    }

    /// Checks that the thread may poll. This is allowed only outside handlers.
    ///
    /// # Errors
    /// [`ContextError::NotAllowed`].
    #[inline]
    pub const fn may_poll(self) -> Result<(), ContextError> {
        self.only(Context::Outside, Operation::Poll)
    }

    /// Checks that the thread may commit or cancel a payload. This is allowed only while a payload
    /// is prepared.
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
            Context::Outside => "outside a handler",
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
            Operation::Request => "a request, put or get",
            Operation::Reply => "a reply",
            Operation::Block => "waiting",
            Operation::Poll => "polling",
            Operation::Commit => "commit or cancel of a payload",
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
            "a reply is not allowed in a reply handler"
        );
    }
}
