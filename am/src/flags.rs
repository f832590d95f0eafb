//! Categories, roles and the flag byte.

use std::fmt;

/// The kind of an AM, which determines what the AM carries in addition to its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// The AM carries no payload.
    Short,
    /// The AM carries a payload in a buffer that is valid while the handler runs.
    Medium,
    /// The AM carries a payload that is in the target's segment when the handler runs.
    Long,
}

/// The direction of an AM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The AM starts an exchange.
    Request,
    /// The AM answers a request and goes to the request's sender. A request has at most one reply.
    Reply,
}

bitflags::bitflags! {
    /// The flag byte of an AM (byte 1 of the match bits).
    ///
    /// The first five values are those of the original conduit. The others are new in Conduit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// A short.
        const SHORT = 0x01;
        /// A medium.
        const MEDIUM = 0x02;
        /// A long.
        const LONG = 0x04;
        /// A request. If this flag is unset, the AM is a reply.
        const REQUEST = 0x08;
        /// A long whose data follows the arguments in the same message.
        const PACKED = 0x10;
        /// In a request, the reply need not be written to a chunk. In a reply, the reply belongs to
        /// no chunk.
        const NO_CHUNK = 0x20;
        /// An implied reply, which is a short that runs no handler.
        const IMPLIED = 0x40;
        /// A long whose data is already at its destination when the message arrives.
        const DEST_IN_PLACE = 0x80;
    }
}

/// One bit for each value of the flag byte, set if the value is valid.
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
    /// The category bits, of which exactly one is set.
    pub const CATEGORY: Flags = Flags::SHORT.union(Flags::MEDIUM).union(Flags::LONG);

    /// Returns the flags of an AM of this category and role, with no other flag set.
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

    /// Returns whether a conforming sender can have set these flags. Exactly one category must be
    /// set. A long may be packed or in place, but not both; no other category may be either. Only a
    /// short reply may be implied.
    #[inline]
    #[must_use]
    pub const fn is_valid(self) -> bool {
        let bits = self.bits();
        VALID[(bits >> 6) as usize] >> (bits & 63) & 1 != 0
    }

    /// Returns the category of [valid](Flags::is_valid) flags.
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

    /// Returns the role: request or reply.
    #[inline]
    #[must_use]
    pub const fn role(self) -> Role {
        if self.contains(Flags::REQUEST) {
            Role::Request
        } else {
            Role::Reply
        }
    }

    /// Returns whether this is a long whose data travels in a separate message.
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
