//! The 64-bit name that an operation has on the network. It determines what to free when the
//! operation's event arrives, and which operation to complete.
//!
//! | bits | field |
//! |---|---|
//! | 60..64 | role: the resource that the event frees |
//! | 32..60 | chunk number, for roles that hold a chunk |
//! | 0..32 | operation id with generation, 0 for none |

use crate::kernel::handle::OpId;

/// The resource that the completion of a network operation frees in addition to its send ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// No resource. The operation is either the header of an active message, sent from a chunk that
    /// the reply will free, or a system message.
    Ticket,
    /// A put bounced through this ReqSB chunk.
    BouncedPut(u32),
    /// A get bounced through this ReqSB chunk.
    BouncedGet(u32),
    /// No chunk. The source or destination is the segment or a temporary descriptor, which the
    /// operation in the table holds.
    Direct,
    /// A reply sent from this RplSB chunk.
    Reply(u32),
    /// No chunk. The operation is an atomic, whose old value comes with the event.
    Atomic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) role: Role,
    pub(crate) op: Option<OpId>,
}

impl Token {
    pub(crate) fn new(role: Role, op: Option<OpId>) -> Self {
        Self { role, op }
    }

    pub(crate) fn bits(self) -> u64 {
        let (role, aux) = match self.role {
            Role::Ticket => (0, 0),
            Role::BouncedPut(chunk) => (1, chunk),
            Role::BouncedGet(chunk) => (2, chunk),
            Role::Direct => (3, 0),
            Role::Reply(chunk) => (4, chunk),
            Role::Atomic => (5, 0),
        };
        role << 60 | u64::from(aux & 0x0FFF_FFFF) << 32 | u64::from(self.op.map_or(0, OpId::bits))
    }

    /// Decodes a token. Returns `None` for bits that [`Token::bits`] never returns.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let aux = (bits >> 32) as u32 & 0x0FFF_FFFF;
        let role = match bits >> 60 {
            0 => Role::Ticket,
            1 => Role::BouncedPut(aux),
            2 => Role::BouncedGet(aux),
            3 => Role::Direct,
            4 => Role::Reply(aux),
            5 => Role::Atomic,
            _ => return None,
        };
        Some(Self {
            role,
            op: OpId::from_bits(bits as u32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_token_survives(chunk in 0u32..1 << 28, op in any::<u32>()) {
            let op = OpId::from_bits(op);
            for role in [
                Role::Ticket, Role::BouncedPut(chunk), Role::BouncedGet(chunk), Role::Direct, Role::Reply(chunk), Role::Atomic,
            ] {
                let token = Token::new(role, op);
                prop_assert_eq!(Token::from_bits(token.bits()), Some(token));
            }
        }

        #[test]
        fn no_bits_panic(bits in any::<u64>()) {
            let _ = Token::from_bits(bits);
        }
    }
}
