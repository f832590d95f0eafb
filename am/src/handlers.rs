//! The handler table: 256 places, and the rules by which handlers get theirs.
//!
//! | ids | whose |
//! |---|---|
//! | 0 | nobody's; in a registration: assign one |
//! | 1..=127 | the library's own |
//! | 128..=255 | the client's |

use crate::{Category, Flags, Header, MAX_ARGS, Role};

/// First id of the client's range, which ends at 255.
pub const CLIENT_FIRST: u8 = 128;

/// In a [`Registration`]: assign an id.
pub const AUTOMATIC: u8 = 0;

bitflags::bitflags! {
    /// Which AMs may run a handler. Bits of both groups are needed: a category and a role.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Accepts: u8 {
        /// Shorts.
        const SHORT = 0x01;
        /// Mediums.
        const MEDIUM = 0x02;
        /// Longs.
        const LONG = 0x04;
        /// Requests.
        const REQUEST = 0x08;
        /// Replies.
        const REPLY = 0x10;
    }
}

impl Accepts {
    /// What an AM of this category and role needs.
    #[inline]
    #[must_use]
    pub const fn needed(category: Category, role: Role) -> Accepts {
        let category = match category {
            Category::Short => Accepts::SHORT,
            Category::Medium => Accepts::MEDIUM,
            Category::Long => Accepts::LONG,
        };
        category.union(match role {
            Role::Request => Accepts::REQUEST,
            Role::Reply => Accepts::REPLY,
        })
    }

    /// What an AM with these (valid) flags needs. The category bits are the same in both bytes.
    #[inline]
    const fn needed_by(flags: Flags) -> Accepts {
        let role = if flags.contains(Flags::REQUEST) {
            Accepts::REQUEST
        } else {
            Accepts::REPLY
        };
        Accepts::from_bits_retain(flags.bits() & Flags::CATEGORY.bits()).union(role)
    }
}

const _: () = assert!(Accepts::SHORT.bits() == Flags::SHORT.bits());
const _: () = assert!(Accepts::MEDIUM.bits() == Flags::MEDIUM.bits());
const _: () = assert!(Accepts::LONG.bits() == Flags::LONG.bits());

/// A registered handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<H> {
    /// What to run; usually a function pointer.
    pub handler: H,
    /// Which AMs may run it.
    pub accepts: Accepts,
    /// The argument count it wants, if it insists on one.
    pub nargs: Option<u8>,
    /// Its name in messages.
    pub name: Option<&'static str>,
}

impl<H> Entry<H> {
    /// A handler for all AMs, with any argument count and without a name.
    #[inline]
    #[must_use]
    pub const fn new(handler: H) -> Entry<H> {
        Entry {
            handler,
            accepts: Accepts::all(),
            nargs: None,
            name: None,
        }
    }

    /// May the AM with this header run the handler?
    ///
    /// # Errors
    /// When its category, role or argument count is not what the handler was registered for.
    #[inline(always)]
    pub fn check(&self, header: &Header) -> Result<(), CallError> {
        if !self.accepts.contains(Accepts::needed_by(header.flags)) {
            return Err(CallError::Accepts {
                handler: header.handler,
                name: self.name,
                category: header.category(),
                role: header.role(),
            });
        }
        match self.nargs {
            Some(expected) if expected != header.nargs => Err(CallError::Args {
                handler: header.handler,
                name: self.name,
                found: header.nargs,
                expected,
            }),
            _ => Ok(()),
        }
    }
}

/// An AM is not one that its handler was registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Wrong category or role.
    #[error("handler {handler} ({}) does not take {category} {role} messages", name.unwrap_or("unnamed"))]
    Accepts {
        /// The handler's id.
        handler: u8,
        /// The handler's name.
        name: Option<&'static str>,
        /// The message's category.
        category: Category,
        /// The message's role.
        role: Role,
    },
    /// Wrong argument count.
    #[error("handler {handler} ({}) called with {found} arguments, it takes {expected}", name.unwrap_or("unnamed"))]
    Args {
        /// The handler's id.
        handler: u8,
        /// The handler's name.
        name: Option<&'static str>,
        /// The message's argument count.
        found: u8,
        /// The handler's.
        expected: u8,
    },
}

/// A handler to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration<H> {
    /// The id it shall have; [`AUTOMATIC`] is replaced by the assigned one.
    pub id: u8,
    /// What is entered.
    pub entry: Entry<H>,
}

impl<H> Registration<H> {
    /// Registers `handler` as `id` for all AMs, see [`Entry::new`].
    #[inline]
    #[must_use]
    pub const fn new(id: u8, handler: H) -> Registration<H> {
        Registration {
            id,
            entry: Entry::new(handler),
        }
    }
}

/// Why handlers could not be registered; none of the call's has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The id is not in the range that the caller may use.
    #[error("handler id {id} (place {index} of the list) is not in {first}..={last}")]
    OutOfRange {
        /// Place in the caller's list.
        index: usize,
        /// The id there.
        id: u8,
        /// First id allowed.
        first: u8,
        /// Last id allowed.
        last: u8,
    },
    /// The id is taken, by an earlier call or earlier in the list.
    #[error("handler id {id} (place {index} of the list) is already taken")]
    Duplicate {
        /// Place in the caller's list.
        index: usize,
        /// The id there.
        id: u8,
    },
    /// The handler insists on more arguments than an AM can have.
    #[error("handler at place {index} of the list wants {nargs} arguments, the most is {MAX_ARGS}")]
    TooManyArgs {
        /// Place in the caller's list.
        index: usize,
        /// The argument count there.
        nargs: u8,
    },
    /// More automatic ids are wanted than there are free ids.
    #[error("{wanted} automatic handler ids wanted, {free} are free")]
    Full {
        /// Automatic ids in the caller's list.
        wanted: usize,
        /// Ids left in the client's range after the fixed ones.
        free: usize,
    },
}

/// The handlers of a rank, by id.
#[derive(Clone, Debug)]
pub struct Table<H> {
    entries: Box<[Option<Entry<H>>; 256]>,
}

impl<H> Table<H> {
    /// A table without handlers.
    #[must_use]
    pub fn new() -> Table<H> {
        Table {
            entries: Box::new([const { None }; 256]),
        }
    }

    /// The handler `id`, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self, id: u8) -> Option<&Entry<H>> {
        self.entries[usize::from(id)].as_ref()
    }
}

impl<H: Clone> Table<H> {
    /// Registers the client's handlers: first those with an id, then those with [`AUTOMATIC`], from 255 downwards in the
    /// order of the list; the assigned ids are written back. May be called again for more handlers.
    ///
    /// # Errors
    /// [`RegisterError`]; table and list are then unchanged.
    pub fn register(&mut self, list: &mut [Registration<H>]) -> Result<(), RegisterError> {
        let taken = self.check(list, CLIENT_FIRST, 255, true)?;
        let mut free = (CLIENT_FIRST..=255)
            .rev()
            .filter(|&id| !taken[usize::from(id)]);
        for registration in list {
            if registration.id == AUTOMATIC {
                // `check` has counted the free ids.
                let Some(id) = free.next() else { break };
                registration.id = id;
            }
            self.enter(registration);
        }
        Ok(())
    }

    /// Registers handlers of the library itself, in 1..=127. Their ids are fixed, as they are part of the protocol.
    ///
    /// # Errors
    /// [`RegisterError`]; the table is then unchanged.
    pub fn register_reserved(&mut self, list: &[Registration<H>]) -> Result<(), RegisterError> {
        self.check(list, 1, CLIENT_FIRST - 1, false)?;
        list.iter()
            .for_each(|registration| self.enter(registration));
        Ok(())
    }

    fn enter(&mut self, registration: &Registration<H>) {
        self.entries[usize::from(registration.id)] = Some(registration.entry.clone());
    }

    /// Checks the whole list; gives the ids taken once its fixed ones are.
    fn check(
        &self,
        list: &[Registration<H>],
        first: u8,
        last: u8,
        automatic: bool,
    ) -> Result<[bool; 256], RegisterError> {
        let mut taken = [false; 256];
        for (taken, entry) in taken.iter_mut().zip(self.entries.iter()) {
            *taken = entry.is_some();
        }
        let mut wanted = 0;
        for (index, Registration { id, entry }) in list.iter().enumerate() {
            if let Some(nargs) = entry.nargs.filter(|&nargs| usize::from(nargs) > MAX_ARGS) {
                return Err(RegisterError::TooManyArgs { index, nargs });
            }
            if automatic && *id == AUTOMATIC {
                wanted += 1;
            } else if !(first..=last).contains(id) {
                return Err(RegisterError::OutOfRange {
                    index,
                    id: *id,
                    first,
                    last,
                });
            } else if std::mem::replace(&mut taken[usize::from(*id)], true) {
                return Err(RegisterError::Duplicate { index, id: *id });
            }
        }
        let free = taken[usize::from(first)..=usize::from(last)]
            .iter()
            .filter(|&&taken| !taken)
            .count();
        if wanted > free {
            return Err(RegisterError::Full { wanted, free });
        }
        Ok(taken)
    }
}

impl<H> Default for Table<H> {
    fn default() -> Table<H> {
        Table::new()
    }
}
