//! What a handler knows about the message it runs for.

use std::cell::Cell;

use crate::{Context, ContextError, Flags, Header, Rank, Role};

/// Made when a message arrives, handed to its handler, gone when the handler returns.
///
/// Belongs to the thread that runs the handler (it is not `Sync`), so that `replied` costs no atomic.
///
/// In this order: a byte at a multiple of four may be read as four, and those have been written one by one just before, which
/// the processor's store buffer can't give back together. `replied` is read by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Token {
    /// The rank that sent the message; the one a reply goes to.
    pub source: Rank,
    /// The requester's chunk, see [`Header::chunk`].
    pub chunk: u32,
    /// Whether the handler has replied. If a request's handler returns without, the engine sends the implied reply.
    pub replied: Cell<bool>,
    /// The message's credit byte; a request's decides what its reply gives back.
    pub credit: u8,
    /// The message's flags.
    pub flags: Flags,
    /// What the message is: a request may be replied to, a reply not.
    pub role: Role,
}

impl Token {
    /// The token for a message from `source`.
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

    /// The context that the handler runs in.
    #[inline]
    #[must_use]
    pub const fn context(&self) -> Context {
        match self.role {
            Role::Request => Context::RequestHandler,
            Role::Reply => Context::ReplyHandler,
        }
    }

    /// May the handler reply now?
    ///
    /// # Errors
    /// In a reply handler, and after the first reply.
    #[inline]
    pub fn may_reply(&self) -> Result<(), ContextError> {
        self.context().may_reply(self.replied.get())
    }

    /// The handler replies: the second claim fails.
    ///
    /// # Errors
    /// As [`may_reply`](Token::may_reply).
    #[inline]
    pub fn claim_reply(&self) -> Result<(), ContextError> {
        self.may_reply()?;
        self.replied.set(true);
        Ok(())
    }

    /// Whether the engine owes the requester the implied reply, once the handler has returned.
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
