//! Categories, roles and the flag byte.

use std::fmt;

/// What an AM carries besides its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Nothing.
    Short,
    /// A payload, which the handler sees in a buffer that lives as long as the handler runs.
    Medium,
    /// A payload, which lies at an address in the target's segment when the handler runs.
    Long,
}

/// Which way an AM goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Sent by a rank on its own account.
    Request,
    /// The answer to a request, to the rank that sent it; at most one.
    Reply,
}

bitflags::bitflags! {
    /// The flag byte of an AM (byte 1 of the match bits).
    ///
    /// The first five values are those of the original conduit; the others are this project's.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// A short.
        const SHORT = 0x01;
        /// A medium.
        const MEDIUM = 0x02;
        /// A long.
        const LONG = 0x04;
        /// A request; a reply without it.
        const REQUEST = 0x08;
        /// A long whose data follows its arguments in the same message.
        const PACKED = 0x10;
        /// The reply to this request need not go to a chunk; in a reply: it does not belong to one.
        const NO_CHUNK = 0x20;
        /// The implied reply: a short that runs no handler.
        const IMPLIED = 0x40;
        /// A long whose data already lies at its destination when the message arrives.
        const DEST_IN_PLACE = 0x80;
    }
}

/// One bit per flag byte: does that byte make sense?
const VALID: [u64; 4] = {
    let mut table = [0; 4];
    let mut bits = 0;
    while bits < 256 {
        if makes_sense(bits as u8) {
            table[bits >> 6] |= 1 << (bits & 63);
        }
        bits += 1;
    }
    table
};

const fn makes_sense(bits: u8) -> bool {
    let category = bits & Flags::CATEGORY.bits();
    let long = category == Flags::LONG.bits();
    let short = category == Flags::SHORT.bits();
    let medium = category == Flags::MEDIUM.bits();
    let packed = bits & Flags::PACKED.bits() != 0;
    let in_place = bits & Flags::DEST_IN_PLACE.bits() != 0;
    let implied = bits & Flags::IMPLIED.bits() != 0;
    let request = bits & Flags::REQUEST.bits() != 0;
    (short || medium || long)
        && (long || !(packed || in_place))
        && !(packed && in_place)
        && (!implied || (short && !request))
}

impl Flags {
    /// The bits of which exactly one is set.
    pub const CATEGORY: Flags = Flags::SHORT.union(Flags::MEDIUM).union(Flags::LONG);

    /// The flags of an AM of this category and role, without any of the others.
    #[inline]
    #[must_use]
    pub const fn of(category: Category, role: Role) -> Flags {
        let category = match category {
            Category::Short => Flags::SHORT,
            Category::Medium => Flags::MEDIUM,
            Category::Long => Flags::LONG,
        };
        match role {
            Role::Request => category.union(Flags::REQUEST),
            Role::Reply => category,
        }
    }

    /// Whether a sender that keeps the rules can have set these: one category; packed or in place only for a long and
    /// never both; the implied reply is a short reply.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let bits = self.bits();
        VALID[(bits >> 6) as usize] >> (bits & 63) & 1 != 0
    }

    /// The category of [valid](Flags::is_valid) flags.
    #[inline]
    #[must_use]
    pub const fn category(self) -> Category {
        if self.contains(Flags::LONG) {
            Category::Long
        } else if self.contains(Flags::MEDIUM) {
            Category::Medium
        } else {
            Category::Short
        }
    }

    /// Request or reply.
    #[inline]
    #[must_use]
    pub const fn role(self) -> Role {
        if self.contains(Flags::REQUEST) {
            Role::Request
        } else {
            Role::Reply
        }
    }

    /// Whether this is a long whose data comes in a message of its own.
    #[inline]
    #[must_use]
    pub const fn has_separate_data(self) -> bool {
        let long = Flags::LONG.union(Flags::PACKED).union(Flags::DEST_IN_PLACE);
        self.intersection(long).bits() == Flags::LONG.bits()
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Category::Short => "short",
            Category::Medium => "medium",
            Category::Long => "long",
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Request => "request",
            Role::Reply => "reply",
        })
    }
}
