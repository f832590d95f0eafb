//! Handlers: typed functions that messages run, and the typed ids by which requests identify them.

use std::any::type_name;
use std::marker::PhantomData;

use am::handlers::{Accepts, CLIENT_FIRST, Entry, Registration};
use conduit_core::engine::Handler;
use conduit_core::messages::Payload as Carried;
use conduit_core::threads::{Mode, Runs, Seq};
use zerocopy::{CastError, FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Args, Call, Landed, Network};

/// A type that a medium can carry: bytes, numbers, slices of these, and types that derive
/// [`zerocopy`]'s `FromBytes`, `IntoBytes`, `Immutable` and `KnownLayout`.
///
/// Payloads are transmitted in their memory representation, so all ranks must run on the same kind
/// of machine. The alignment of the type must not exceed 16 bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the payload of a medium",
    note = "payloads are plain data: numbers, and `#[repr(C)]` structs without padding that derive \
            `FromBytes`, `IntoBytes`, `Immutable` and `KnownLayout` of `conduit::zerocopy`"
)]
pub trait Payload: FromBytes + IntoBytes + Immutable + KnownLayout {}

#[diagnostic::do_not_recommend]
impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + ?Sized> Payload for T {}

#[repr(align(4096))]
struct Page([u8; 16]);
static PAGE: Page = Page([0; 16]);

macro_rules! handler_id {
    ($(#[$doc:meta])* $name:ident, [$($params:tt)*], [$($bounds:tt)*], [$($args:tt)*], $of:ty) => {
        $(#[$doc])*
        pub struct $name<$($params)*> {
            pub(crate) id: u8,
            of: PhantomData<$of>,
        }

        impl<$($bounds)*> $name<$($args)*> {
            fn new(id: u8) -> Self {
                Self { id, of: PhantomData }
            }

            /// Returns the number that identifies the handler in messages, from 128 to 255.
            ///
            /// ```
            /// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
            /// let first = handlers.short(|_, ()| println!("first"));
            /// let second = handlers.medium(|_, (), bytes: &[u8]| println!("{}", bytes.len()));
            /// assert_eq!((first.id(), second.id()), (255, 254));
            /// ```
            pub fn id(self) -> u8 {
                self.id
            }
        }

        impl<$($bounds)*> Clone for $name<$($args)*> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($bounds)*> Copy for $name<$($args)*> {}

        impl<$($bounds)*> std::fmt::Debug for $name<$($args)*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.id)
            }
        }
    };
}

handler_id! {
    /// The id of a handler of shorts with arguments `A`.
    Short, [A], [A], [A], fn(A)
}
handler_id! {
    /// The id of a handler of mediums with arguments `A` and payload `P`.
    Medium, [A, P: ?Sized = [u8]], [A, P: ?Sized], [A, P], fn(A, *const P)
}
handler_id! {
    /// The id of a handler of longs with arguments `A`.
    Long, [A], [A], [A], fn(A)
}

/// The handlers of a rank, which [`crate::Job::attach`] registers.
///
/// All ranks must add the same handlers in the same order, because ids are assigned in this order,
/// from 255 downwards. [`Handlers::next_id`] sets a fixed id, for example an id on which another
/// library relies.
///
/// Handlers run on the thread that polls, inside a call into Conduit. A handler may reply once to a
/// request. It must not send requests, put, get, poll or wait. Debug builds refuse all of these.
/// Release builds refuse polls, barriers, and puts, gets and atomics that travel as messages. Any
/// other call that has to wait, such as a request without credits, fails the job with an error that
/// names the call, because the event for which the call waits may depend on the handler's return.
/// Calls that complete without waiting are carried out.
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
/// let add = handlers.medium(move |call, (start,): (u64,), bytes: &[u8]| {
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
    list: Vec<Added<M>>,
    next: Option<u8>,
    name: Option<&'static str>,
    /// The first problem found. [`crate::Job::attach`] reports it.
    problem: Option<String>,
}

/// A handler that was added.
struct Added<M: Mode> {
    id: u8,
    name: Option<&'static str>,
    kind: &'static str,
    accepts: Accepts,
    words: usize,
    /// The types of the handler's arguments and of its payload, as text.
    types: String,
    handler: Handler<Network<M>, M>,
}

impl<M: Mode> Added<M> {
    /// Returns the description of the handler in errors: its name or kind, and its types.
    fn title(&self) -> String {
        format!("{} {}", self.name.unwrap_or(self.kind), self.types)
    }

    /// Returns the description that ranks compare.
    fn signature(&self) -> String {
        let name = self.name.map(|name| format!(" {name:?}"));
        let name = name.unwrap_or_default();
        format!("{}{name}, {} of {}", self.id, self.kind, self.types)
    }
}

impl<M: Mode> std::fmt::Debug for Handlers<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let signatures = self.list.iter().map(Added::signature);
        f.debug_list().entries(signatures).finish()
    }
}

impl<M: Mode> Default for Handlers<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// The registrations for the engine, and the descriptions of the handlers, which ranks compare.
pub(crate) type Checked<M> = (Vec<Registration<Handler<Network<M>, M>>>, Vec<String>);

impl<M: Mode> Handlers<M> {
    /// Creates an empty list of handlers.
    ///
    /// ```
    /// use conduit::{Handlers, Seq};
    /// let mut handlers = Handlers::<Seq>::new();
    /// assert_eq!(format!("{handlers:?}"), "[]");
    /// handlers.short(|_, ()| println!("called"));
    /// assert_eq!(format!("{handlers:?}"), r#"["255, a short of ()"]"#);
    /// ```
    pub fn new() -> Self {
        Self {
            list: Vec::new(),
            next: None,
            name: None,
            problem: None,
        }
    }

    /// Sets the id of the next handler, which must be from 128 to 255. [`crate::Job::attach`]
    /// reports an invalid id.
    ///
    /// ```
    /// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
    /// let fixed = handlers.next_id(200).short(|_, ()| println!("200"));
    /// let free = handlers.short(|_, ()| println!("255"));
    /// assert_eq!((fixed.id(), free.id()), (200, 255));
    /// ```
    pub fn next_id(&mut self, id: u8) -> &mut Self {
        self.next = Some(id);
        self
    }

    /// Sets the name of the next handler, for error messages. The name must be the same on all
    /// ranks.
    ///
    /// ```
    /// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
    /// let insert = handlers.named("insert").short(|_, (key,): (u64,)| println!("{key}"));
    /// ```
    pub fn named(&mut self, name: &'static str) -> &mut Self {
        self.name = Some(name);
        self
    }

    /// Adds a handler of shorts.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use std::{cell::Cell, rc::Rc};
    /// # let mut handlers = conduit::Handlers::new();
    /// // Handlers of a sequential rank may share state with the program without locks.
    /// let total = Rc::new(Cell::new(0.0));
    /// let sum = total.clone();
    /// let add = handlers.short(move |_, (number,): (f64,)| sum.set(sum.get() + number));
    /// # let conduit = conduit::start()?.attach(handlers, 0)?;
    /// # let peer = conduit.rank();
    /// conduit.request(peer, add, (0.25,))?;
    /// conduit.quiesce()?;
    /// assert_eq!(total.get(), 0.25);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn short<A: Args, F>(&mut self, handler: F) -> Short<A>
    where
        F: Fn(&Call<'_, M>, A) + 'static,
        M: Runs<F>,
    {
        // SAFETY: the bound `M: Runs<F>` ensures that the mode can run the handler.
        unsafe { self.add_short(handler) }
    }

    /// Adds a handler of mediums. Until the handler returns, the payload lies in a buffer of
    /// Conduit's own, aligned to 16 bytes. If the sender is on this host, it shares the buffer (see
    /// [what is safe](crate#what-is-safe)).
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[zerocopy(crate = "conduit::zerocopy")]
    /// #[repr(C)]
    /// struct Edge {
    ///     from: u32,
    ///     to: u32,
    /// }
    ///
    /// let mut handlers = conduit::Handlers::new();
    /// let add = handlers.medium(|_, (), edges: &[Edge]| assert_eq!(edges[1].to, 3));
    /// let conduit = conduit::start()?.attach(handlers, 0)?;
    /// let edges = [Edge { from: 1, to: 2 }, Edge { from: 2, to: 3 }];
    /// conduit.request_medium(conduit.rank(), add, (), &edges[..])?;
    /// conduit.finish()
    /// # }
    /// ```
    pub fn medium<A: Args, P: Payload + ?Sized, F>(&mut self, handler: F) -> Medium<A, P>
    where
        F: Fn(&Call<'_, M>, A, &P) + 'static,
        M: Runs<F>,
    {
        // SAFETY: the bound `M: Runs<F>` ensures that the mode can run the handler.
        unsafe { self.add_medium(handler) }
    }

    /// Adds a handler of longs, whose payload lies in this rank's segment.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let mut handlers = conduit::Handlers::new();
    /// let copy = handlers.long(|call, (to,): (usize,), landed| {
    ///     let bytes: Vec<u8> = landed.to_vec().expect("the payload");
    ///     call.segment().put(to, &bytes[..]).expect("room for a copy");
    /// });
    /// # let conduit = conduit::start()?.attach(handlers, 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.request_long(peer, copy, (0,), b"twice", 1000)?;
    /// conduit.quiesce()?;
    /// assert_eq!(conduit.get_value(peer, 0, 4)?, conduit.get_value(peer, 1000, 4)?);
    /// # conduit.finish()
    /// # }
    /// ```
    pub fn long<A: Args, F>(&mut self, handler: F) -> Long<A>
    where
        F: Fn(&Call<'_, M>, A, Landed<'_, M>) + 'static,
        M: Runs<F>,
    {
        // SAFETY: the bound `M: Runs<F>` ensures that the mode can run the handler.
        unsafe { self.add_long(handler) }
    }

    /// Returns a view that adds handlers where the mode is unknown, as in generic functions. The
    /// view takes only handlers that are `Send` and `Sync`, which every mode can run.
    ///
    /// ```
    /// use conduit::{Handlers, Par, Seq, Short, threads::Mode};
    /// // A library that serves programs of every threading mode.
    /// fn register<M: Mode>(handlers: &mut Handlers<M>) -> Short<(u64,)> {
    ///     handlers.any_mode().short(|call, (key,)| println!("{key} of {}", call.source()))
    /// }
    /// assert_eq!(register(&mut Handlers::<Seq>::new()).id(), 255);
    /// assert_eq!(register(&mut Handlers::<Par>::new()).id(), 255);
    /// ```
    pub fn any_mode(&mut self) -> AnyMode<'_, M> {
        AnyMode(self)
    }

    /// # Safety
    /// The mode `M` must be able to run the handler.
    unsafe fn add_short<A: Args>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A) + 'static,
    ) -> Short<A> {
        let (kind, types) = ("a short", A::types());
        // SAFETY: the caller guarantees that the mode can run the handler.
        let id = unsafe { self.add::<A>(Accepts::SHORT, kind, types, handler) };
        Short::new(id)
    }

    /// # Safety
    /// The mode `M` must be able to run the handler.
    unsafe fn add_medium<A: Args, P: Payload + ?Sized>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A, &P) + 'static,
    ) -> Medium<A, P> {
        let (kind, payload) = ("a medium", type_name::<P>());
        let types = format!("{} with {payload}", A::types());
        // Payloads are aligned to 16 bytes. This address is aligned to 16 bytes too, but not to 32
        // bytes, so the cast fails for types that need a larger alignment.
        if let Err(CastError::Alignment(_)) = P::ref_from_bytes(&PAGE.0[16..16]) {
            self.refuse(kind, &types, "its payload is aligned to more than 16 bytes");
        }
        let handler = move |call: &Call<'_, M>, args: A| {
            let Carried::Medium(bytes) = call.payload() else {
                return;
            };
            match P::ref_from_bytes(bytes) {
                Ok(payload) => handler(call, args, payload),
                Err(_) => call.malformed(payload, bytes.len()),
            }
        };
        // SAFETY: the caller guarantees that the mode can run the handler. Besides the handler, the
        // closure captures only the name of the payload type, which any thread may use.
        let id = unsafe { self.add::<A>(Accepts::MEDIUM, kind, types, handler) };
        Medium::new(id)
    }

    /// # Safety
    /// The mode `M` must be able to run the handler.
    unsafe fn add_long<A: Args>(
        &mut self,
        handler: impl Fn(&Call<'_, M>, A, Landed<'_, M>) + 'static,
    ) -> Long<A> {
        let (kind, types) = ("a long", A::types());
        let handler = move |call: &Call<'_, M>, args: A| {
            if let Carried::Long { offset, length } = call.payload() {
                handler(call, args, call.landed(offset, length));
            }
        };
        // SAFETY: the caller guarantees that the mode can run the handler, and the closure captures
        // nothing else.
        let id = unsafe { self.add::<A>(Accepts::LONG, kind, types, handler) };
        Long::new(id)
    }

    /// # Safety
    /// The mode `M` must be able to run the handler.
    unsafe fn add<A: Args>(
        &mut self,
        category: Accepts,
        kind: &'static str,
        types: String,
        handler: impl Fn(&Call<'_, M>, A) + 'static,
    ) -> u8 {
        let id = match self.next.take() {
            Some(id) => self.fixed(id),
            None => self.automatic(),
        };
        let id = id.unwrap_or_else(|problem| {
            self.refuse(kind, &types, &problem);
            CLIENT_FIRST
        });
        // SAFETY: the caller guarantees that the mode can run the handler, and the closure captures
        // nothing else.
        let handler =
            unsafe { Handler::of_mode(move |call| handler(Call::new(call), A::read(call.args()))) };
        self.list.push(Added {
            id,
            name: self.name.take(),
            kind,
            accepts: category | Accepts::REQUEST | Accepts::REPLY,
            words: A::WORDS,
            types,
            handler,
        });
        id
    }

    /// Records a problem with the handler that is being added.
    fn refuse(&mut self, kind: &str, types: &str, problem: &str) {
        let name = self
            .name
            .map_or_else(String::new, |name| format!("{name:?}, "));
        self.problem
            .get_or_insert_with(|| format!("handler {name}{kind} of {types}: {problem}"));
    }

    fn fixed(&self, id: u8) -> Result<u8, String> {
        if id < CLIENT_FIRST {
            return Err(format!("id {id} is not in 128..=255"));
        }
        match self.list.iter().find(|added| added.id == id) {
            Some(other) => Err(format!(
                "its id is already used by handler {}",
                other.signature()
            )),
            None => Ok(id),
        }
    }

    fn automatic(&self) -> Result<u8, String> {
        (CLIENT_FIRST..=u8::MAX)
            .rev()
            .find(|&id| !self.is_taken(id))
            .ok_or_else(|| "all ids in 128..=255 are in use".to_owned())
    }

    fn is_taken(&self, id: u8) -> bool {
        self.list.iter().any(|added| added.id == id)
    }

    /// Returns the registrations, or a description of the handler that cannot be registered.
    pub(crate) fn checked(self) -> Result<Checked<M>, String> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if let Some(id) = self.next {
            return Err(format!("next_id({id}) without a handler after it"));
        }
        if let Some(name) = self.name {
            return Err(format!("named({name:?}) without a handler after it"));
        }
        let signatures = self.list.iter().map(Added::signature).collect();
        let registration = |added: Added<M>| Registration {
            id: added.id,
            entry: Entry {
                accepts: added.accepts,
                nargs: Some(added.words as u8),
                // The name is leaked on purpose, because the handler table lives as long as the
                // process.
                name: Some(Box::leak(added.title().into_boxed_str())),
                handler: added.handler,
            },
        };
        Ok((
            self.list.into_iter().map(registration).collect(),
            signatures,
        ))
    }
}

/// A view of [`Handlers`] that adds handlers that every mode can run; see [`Handlers::any_mode`].
#[derive(Debug)]
pub struct AnyMode<'a, M: Mode>(&'a mut Handlers<M>);

impl<M: Mode> AnyMode<'_, M> {
    /// Adds a handler of shorts, like [`Handlers::short`].
    pub fn short<A: Args>(
        self,
        handler: impl Fn(&Call<'_, M>, A) + Send + Sync + 'static,
    ) -> Short<A> {
        // SAFETY: any mode can run a function that is `Send` and `Sync`.
        unsafe { self.0.add_short(handler) }
    }

    /// Adds a handler of mediums, like [`Handlers::medium`].
    pub fn medium<A: Args, P: Payload + ?Sized>(
        self,
        handler: impl Fn(&Call<'_, M>, A, &P) + Send + Sync + 'static,
    ) -> Medium<A, P> {
        // SAFETY: any mode can run a function that is `Send` and `Sync`.
        unsafe { self.0.add_medium(handler) }
    }

    /// Adds a handler of longs, like [`Handlers::long`].
    pub fn long<A: Args>(
        self,
        handler: impl Fn(&Call<'_, M>, A, Landed<'_, M>) + Send + Sync + 'static,
    ) -> Long<A> {
        // SAFETY: any mode can run a function that is `Send` and `Sync`.
        unsafe { self.0.add_long(handler) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C, align(32))]
    struct Wide([u8; 32]);

    #[test]
    fn what_is_wrong_names_the_handler() {
        let problem = |add: fn(&mut Handlers)| {
            let mut handlers = Handlers::new();
            add(&mut handlers);
            handlers.checked().err().unwrap_or_default()
        };
        let wide = problem(|handlers| {
            handlers.named("wide").medium(|_, (), _: &Wide| {});
        });
        assert_eq!(
            wide,
            format!(
                "handler \"wide\", a medium of () with {}: its payload is aligned to more than 16 bytes",
                type_name::<Wide>()
            )
        );
        let low = problem(|handlers| {
            handlers.next_id(127).short(|_, (_,): (u64,)| {});
        });
        assert_eq!(low, "handler a short of (u64): id 127 is not in 128..=255");
        let taken = problem(|handlers| {
            handlers.named("one").next_id(200).short(|_, ()| {});
            handlers.named("other").next_id(200).long(|_, (), _| {});
        });
        assert_eq!(
            taken,
            "handler \"other\", a long of (): its id is already used by handler 200 \"one\", a short of ()"
        );
        let many = problem(|handlers| {
            for _ in 0..129 {
                handlers.named("many").short(|_, ()| {});
            }
        });
        assert_eq!(
            many,
            "handler \"many\", a short of (): all ids in 128..=255 are in use"
        );
        let name = problem(|handlers| {
            handlers.named("nobody");
        });
        assert_eq!(name, "named(\"nobody\") without a handler after it");
        let id = problem(|handlers| {
            handlers.next_id(200);
        });
        assert_eq!(id, "next_id(200) without a handler after it");
    }
}
