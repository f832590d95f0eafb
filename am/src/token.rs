//! The token, which contains the facts that a handler knows about its message.

use std::cell::Cell;

use crate::{Context, ContextError, Flags, Header, Rank, Role};

/// The message for which a handler runs. The token is created when the message arrives, passed to
/// the handler, and dropped when the handler returns.
///
/// A token belongs to the thread that runs the handler (it is not `Sync`), so `replied` need not be
/// atomic.
///
/// The order of the fields matters. The compiler may load a byte at an offset divisible by four
/// together with the three bytes that follow. If these four bytes have just been written one by
/// one, the processor's store buffer can't forward them to that load. `replied` is at such an
/// offset, because it is always read alone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Token {
    /// The rank of the sender, to which a reply goes.
    pub source: Rank,
    /// The offset of the requester's chunk; see [`Header::chunk`].
    pub chunk: u32,
    /// Whether the handler has replied. If the handler of a request returns without a reply, the
    /// engine sends the implied reply.
    pub replied: Cell<bool>,
    /// The credit byte of the message. In a request, it determines the number of credits that the
    /// reply returns.
    pub credit: u8,
    /// The message's flags.
    pub flags: Flags,
    /// The role of the message. A handler may reply only to a request.
    pub role: Role,
}

impl Token {
    /// Creates the token for a message from `source`.
    #[inline]
    #[must_use]
    pub const fn new(source: Rank, header: &Header) -> Token {
        Token {
            source,
            role: header.role(),
            credit: header.credit,
            chunk: header.chunk,
            flags: header.flags,
            replied: Cell::new(false),
        }
    }

    /// Returns the context in which the handler runs.
    #[inline]
    #[must_use]
    pub const fn context(&self) -> Context {
        match self.role {
            Role::Request => Context::RequestHandler,
            Role::Reply => Context::ReplyHandler,
        }
    }

    /// Checks that the handler may reply now.
    ///
    /// # Errors
    /// If the handler is a reply handler, or has already replied.
    #[inline]
    pub fn may_reply(&self) -> Result<(), ContextError> {
        self.context().may_reply(self.replied.get())
    }

    /// Claims the only reply that the handler may send. A second claim fails.
    ///
    /// # Errors
    /// Same as [`may_reply`](Token::may_reply).
    #[inline]
    pub fn claim_reply(&self) -> Result<(), ContextError> {
        self.may_reply()?;
        self.replied.set(true);
        Ok(())
    }

    /// Returns whether the engine must send the implied reply to the requester once the handler has
    /// returned.
    #[inline]
    #[must_use]
    pub fn owes_reply(&self) -> bool {
        self.role == Role::Request && !self.replied.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Category;

    fn token(role: Role) -> Token {
        let flags = Flags::of(Category::Short, role);
        Token::new(
            3,
            &Header {
                flags,
                handler: 200,
                nargs: 0,
                credit: 0x21,
                chunk: 7,
                arg0: 0,
                lid: 0,
            },
        )
    }

    #[test]
    fn a_request_is_replied_to_once_and_owed_an_implied_reply_until_then() {
        let token = token(Role::Request);
        assert!(token.owes_reply());
        assert_eq!(token.claim_reply(), Ok(()));
        assert!(!token.owes_reply());
        assert_eq!(token.claim_reply(), Err(ContextError::AlreadyReplied));
        assert_eq!((token.source, token.credit, token.chunk), (3, 0x21, 7));
    }

    #[test]
    fn a_reply_is_not_replied_to() {
        let token = token(Role::Reply);
        assert!(!token.owes_reply());
        assert!(matches!(
            token.claim_reply(),
            Err(ContextError::NotAllowed { .. })
        ));
        assert!(!token.replied.get());
    }
}
