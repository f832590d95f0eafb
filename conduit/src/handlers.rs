//! Handlers: typed functions that messages run, and the typed ids that requests name them by.

use std::marker::PhantomData;
use std::sync::Arc;

use am::handlers::{Accepts, CLIENT_FIRST, Entry, Registration};
use conduit_core::engine::{Handler, Payload};
use conduit_core::threads::{Mode, Seq};

use crate::Network;
use crate::call::{Call, Landed};
use crate::{Args, Error, Result};

macro_rules! handler_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name<A> {
            pub(crate) id: u8,
            args: PhantomData<fn(A)>,
        }

        impl<A> $name<A> {
            fn new(id: u8) -> Self {
                Self { id, args: PhantomData }
            }

            /// The number that travels, 128 to 255.
            pub fn id(self) -> u8 {
                self.id
            }
        }

        impl<A> Clone for $name<A> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<A> Copy for $name<A> {}

        impl<A> std::fmt::Debug for $name<A> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.id)
            }
        }
    };
}

handler_id! {
    /// Names a handler of shorts with arguments `A`.
    Short
}
handler_id! {
    /// Names a handler of mediums with arguments `A`.
    Medium
}
handler_id! {
    /// Names a handler of longs with arguments `A`.
    Long
}

/// The handlers of a rank, to be registered by [`crate::Job::attach`].
///
/// All ranks must add the same handlers in the same order: ids are given from 255 downwards. An id that another library
/// relies on can be fixed with [`Handlers::next_id`].
///
/// A handler runs on whichever thread polls, as part of a call into Conduit. It may reply once to a request, and must not
/// send, put, get, poll or wait. Debug builds refuse all of that. Release builds refuse polls, barriers, and puts, gets and
/// atomics that travel as messages; another call that would have to wait (a request without credits) ends the job with an error
/// that names it, as it might be for what the handler itself holds up; what ends by itself is done.
///
/// ```
/// # fn main() -> conduit::Result<()> {
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// let sum = Arc::new(AtomicU64::new(0));
/// let mut handlers = conduit::Handlers::new();
/// let done = handlers.short({
///     let sum = sum.clone();
///     move |_, (total,): (u64,)| sum.store(total, Relaxed)
/// });
/// let add = handlers.medium(move |call, (start,): (u64,), bytes| {
///     let total = start + bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
///     call.reply(done, (total,)).expect("the first reply to a request");
/// });
/// let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request_medium(conduit.rank(), add, (100,), &[1, 2, 3])?;
/// conduit.wait_until(|| sum.load(Relaxed) == 106)?;
/// conduit.finish()
/// # }
/// ```
pub struct Handlers<M: Mode = Seq> {
    pub(crate) list: Vec<Registration<Handler<Network<M>, M>>>,
    next: Option<u8>,
    pub(crate) error: Option<Error>,
}

impl<M: Mode> std::fmt::Debug for Handlers<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.list.iter().map(|registration| registration.id))
            .finish()
    }
}

impl<M: Mode> Default for Handlers<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Mode> Handlers<M> {
    /// No handlers.
    pub fn new() -> Self {
        Self {
            list: Vec::new(),
            next: None,
            error: None,
        }
    }

    /// Gives the next handler this id, 128 to 255. A wrong one is reported by [`crate::Job::attach`].
    pub fn next_id(&mut self, id: u8) -> &mut Self {
        self.next = Some(id);
        self
    }

    /// Adds a handler of shorts.
    pub fn short<A: Args>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A) + Send + Sync + 'static,
    ) -> Short<A> {
        let id = self.add::<A>(Accepts::SHORT, move |call, args| handler(call, args));
        Short::new(id)
    }

    /// Adds a handler of mediums. The payload lies in Conduit's own buffer, aligned to 16, until the handler returns; where the sender
    /// is on this host, in memory shared with it (see [what is safe](crate#what-is-safe)).
    pub fn medium<A: Args>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A, &[u8]) + Send + Sync + 'static,
    ) -> Medium<A> {
        let id = self.add::<A>(Accepts::MEDIUM, move |call, args| {
            if let Payload::Medium(payload) = call.payload() {
                handler(call, args, payload);
            }
        });
        Medium::new(id)
    }

    /// Adds a handler of longs, whose payload has landed in this rank's segment.
    pub fn long<A: Args>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A, Landed) + Send + Sync + 'static,
    ) -> Long<A> {
        let id = self.add::<A>(Accepts::LONG, move |call, args| {
            if let Payload::Long { offset, length } = call.payload() {
                handler(call, args, Landed { offset, length });
            }
        });
        Long::new(id)
    }

    fn add<A: Args>(
        &mut self,
        category: Accepts,
        handler: impl Fn(&Call<'_, M>, A) + Send + Sync + 'static,
    ) -> u8 {
        let id = match self.next.take() {
            Some(id) => self.fixed(id),
            None => self.automatic(),
        };
        let id = id.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            CLIENT_FIRST
        });
        let handler: Handler<Network<M>, M> =
            Arc::new(move |call| handler(Call::new(call), A::read(call.args())));
        self.list.push(Registration {
            id,
            entry: Entry {
                handler,
                accepts: category | Accepts::REQUEST | Accepts::REPLY,
                nargs: Some(A::WORDS as u8),
                name: None,
            },
        });
        id
    }

    fn fixed(&self, id: u8) -> Result<u8> {
        if id < CLIENT_FIRST {
            return Err(Error::HandlerId {
                id,
                problem: "not in 128..=255",
            });
        }
        if self.is_taken(id) {
            return Err(Error::HandlerId {
                id,
                problem: "taken already",
            });
        }
        Ok(id)
    }

    fn automatic(&self) -> Result<u8> {
        (CLIENT_FIRST..=u8::MAX)
            .rev()
            .find(|&id| !self.is_taken(id))
            .ok_or(Error::HandlerId {
                id: 0,
                problem: "not to be had: all of 128..=255 are taken",
            })
    }

    fn is_taken(&self, id: u8) -> bool {
        self.list.iter().any(|registration| registration.id == id)
    }
}
