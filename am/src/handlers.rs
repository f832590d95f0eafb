//! The handler table, which has 256 ids, and the rules that assign ids to handlers.
//!
//! | ids | owner |
//! |---|---|
//! | 0 | none; in a registration, requests an automatic id |
//! | 1..=127 | the library |
//! | 128..=255 | the client |

use crate::{Category, Flags, Header, MAX_ARGS, Role};

/// The first id of the client's range, which ends at 255.
pub const CLIENT_FIRST: u8 = 128;

/// The value of [`Registration::id`] that requests an automatic id.
pub const AUTOMATIC: u8 = 0;

bitflags::bitflags! {
    /// The AMs that may run a handler. An AM may run the handler only if the bits of the AM's
    /// category and of its role are both set.
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
    /// Returns the bits that must be set for an AM of this category and role.
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

    /// Returns the bits that must be set for an AM with these flags, which must be valid. [`Flags`]
    /// and [`Accepts`] use the same category bits.
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
    /// The handler, which is usually a function pointer.
    pub handler: H,
    /// The AMs that may run the handler.
    pub accepts: Accepts,
    /// The required number of arguments, or `None` if any number is accepted.
    pub nargs: Option<u8>,
    /// The handler's name in error messages.
    pub name: Option<&'static str>,
}

impl<H> Entry<H> {
    /// Returns an entry that accepts all AMs with any argument count and has no name.
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

    /// Checks that the AM with this header may run the handler.
    ///
    /// # Errors
    /// If the AM's category, role or argument count is not one for which the handler was
    /// registered.
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

/// An AM for which its handler was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The handler does not accept the message's category or role.
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
    /// The handler does not accept the message's number of arguments.
    #[error("handler {handler} ({}) was called with {found} arguments; it takes {expected}", name.unwrap_or("unnamed"))]
    Args {
        /// The handler's id.
        handler: u8,
        /// The handler's name.
        name: Option<&'static str>,
        /// The message's argument count.
        found: u8,
        /// The handler's argument count.
        expected: u8,
    },
}

/// A handler to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration<H> {
    /// The requested id. If it is [`AUTOMATIC`], it is replaced by the assigned id.
    pub id: u8,
    /// The table entry.
    pub entry: Entry<H>,
}

impl<H> Registration<H> {
    /// Returns a registration of `handler` under `id` for all AMs; see [`Entry::new`].
    #[inline]
    #[must_use]
    pub const fn new(id: u8, handler: H) -> Registration<H> {
        Registration {
            id,
            entry: Entry::new(handler),
        }
    }
}

/// The reason why a registration failed. None of the handlers in the list has been registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The id is not in the range that the caller may use.
    #[error("handler id {id} (entry {index} of the list) is not in {first}..={last}")]
    OutOfRange {
        /// The entry's index in the caller's list.
        index: usize,
        /// The id in that entry.
        id: u8,
        /// The first id allowed.
        first: u8,
        /// The last id allowed.
        last: u8,
    },
    /// The id is already taken, either by an earlier call or by an earlier entry in the list.
    #[error("handler id {id} (entry {index} of the list) is already taken")]
    Duplicate {
        /// The entry's index in the caller's list.
        index: usize,
        /// The id in that entry.
        id: u8,
    },
    /// The handler requires more arguments than an AM can have.
    #[error(
        "handler in entry {index} of the list needs {nargs} arguments; at most {MAX_ARGS} are allowed"
    )]
    TooManyArgs {
        /// The entry's index in the caller's list.
        index: usize,
        /// The number of arguments in that entry.
        nargs: u8,
    },
    /// The list requests more automatic ids than are free.
    #[error("{wanted} automatic handler ids requested; only {free} are free")]
    Full {
        /// The number of automatic ids that the caller's list requests.
        wanted: usize,
        /// The number of ids that are left in the client's range once the fixed ids in the list are
        /// assigned.
        free: usize,
    },
}

/// The handlers of a rank, by id.
#[derive(Clone, Debug)]
pub struct Table<H> {
    entries: Box<[Option<Entry<H>>; 256]>,
}

impl<H> Table<H> {
    /// Creates a table without handlers.
    #[must_use]
    pub fn new() -> Table<H> {
        Table {
            entries: Box::new([const { None }; 256]),
        }
    }

    /// Returns the handler with this id, if any.
    #[inline]
    #[must_use]
    pub fn get(&self, id: u8) -> Option<&Entry<H>> {
        self.entries[usize::from(id)].as_ref()
    }
}

impl<H: Clone> Table<H> {
    /// Registers the client's handlers. Handlers with a fixed id come first. Then handlers with
    /// [`AUTOMATIC`] get free ids, from 255 downwards in the order of the list. The assigned ids
    /// are written back to the list. May be called again to add more handlers.
    ///
    /// # Errors
    /// [`RegisterError`]. The table and the list are then unchanged.
    pub fn register(&mut self, list: &mut [Registration<H>]) -> Result<(), RegisterError> {
        let taken = self.check(list, CLIENT_FIRST, 255, true)?;
        let mut free = (CLIENT_FIRST..=255)
            .rev()
            .filter(|&id| !taken[usize::from(id)]);
        for registration in list {
            if registration.id == AUTOMATIC {
                // `check` has ensured that enough ids are free.
                let Some(id) = free.next() else { break };
                registration.id = id;
            }
            self.enter(registration);
        }
        Ok(())
    }

    /// Registers the library's own handlers, with ids in 1..=127. Their ids are fixed, because they
    /// are part of the protocol.
    ///
    /// # Errors
    /// [`RegisterError`]. The table is then unchanged.
    pub fn register_reserved(&mut self, list: &[Registration<H>]) -> Result<(), RegisterError> {
        self.check(list, 1, CLIENT_FIRST - 1, false)?;
        list.iter()
            .for_each(|registration| self.enter(registration));
        Ok(())
    }

    fn enter(&mut self, registration: &Registration<H>) {
        self.entries[usize::from(registration.id)] = Some(registration.entry.clone());
    }

    /// Checks the whole list. Returns which ids are taken, including the fixed ids in the list.
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
