//! A network whose type is hidden behind a table of functions.
//!
//! The conformance suite and the engine's model are large and generic over the network. If they
//! were compiled once per network, they would take two thirds of the compile time of all tests.
//! With [`AnyNi`] they are compiled only once. The networks' own code is compiled as usual.

use std::any::Any;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Claim, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError, PtIndex,
    Put, PutEvent, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};

/// A network of any type, called through a table of functions.
pub struct AnyNi(Box<dyn Object>);

impl AnyNi {
    /// Wraps a network and hides its type.
    pub fn new(network: impl Ni + 'static) -> Self {
        Self(Box::new(network))
    }

    /// Returns the wrapped network if it has this type.
    pub fn as_type<N: 'static>(&self) -> Option<&N> {
        self.0.any().downcast_ref()
    }
}

/// The methods of [`Ni`], without type parameters.
trait Object: Methods {
    fn any(&self) -> &dyn Any;
    fn poll(&self, eq: EqId, limit: u32, sink: &mut dyn FnMut(Event<'_>)) -> u32;
    fn poll_into(&self, eq: EqId, limit: u32, sink: &mut dyn Sink) -> u32;
}

impl<N: Ni + 'static> Object for N {
    fn any(&self) -> &dyn Any {
        self
    }
    fn poll(&self, eq: EqId, limit: u32, sink: &mut dyn FnMut(Event<'_>)) -> u32 {
        Ni::poll(self, eq, limit, sink)
    }
    fn poll_into(&self, eq: EqId, limit: u32, sink: &mut dyn Sink) -> u32 {
        Ni::poll_into(self, eq, limit, &mut Forward(sink))
    }
}

struct Forward<'a>(&'a mut dyn Sink);

impl Sink for Forward<'_> {
    fn event(&mut self, event: Event<'_>) {
        self.0.event(event);
    }
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }
    fn put(&mut self, put: PutEvent<'_>) {
        self.0.put(put);
    }
}

/// Forwards the methods of [`Ni`] that have no type parameters: from [`AnyNi`] to the trait
/// `Methods`, and from there to the wrapped network.
macro_rules! methods {
    (
        safe { $( fn $safe:ident($($name:ident: $type:ty),*) $(-> $result:ty)?; )* }
        unsafe { $( fn $raw:ident($($raw_name:ident: $raw_type:ty),*) -> $raw_result:ty; )* }
    ) => {
        trait Methods {
            $( fn $safe(&self, $($name: $type),*) $(-> $result)?; )*
            $( unsafe fn $raw(&self, $($raw_name: $raw_type),*) -> $raw_result; )*
        }

        impl<N: Ni> Methods for N {
            $( fn $safe(&self, $($name: $type),*) $(-> $result)? {
                Ni::$safe(self, $($name),*)
            } )*
            $( unsafe fn $raw(&self, $($raw_name: $raw_type),*) -> $raw_result {
                // SAFETY: the caller upholds the contract of this method, which is the contract of
                // the method of the same name in `Ni`.
                unsafe { Ni::$raw(self, $($raw_name),*) }
            } )*
        }

        impl Ni for AnyNi {
            $( fn $safe(&self, $($name: $type),*) $(-> $result)? {
                Methods::$safe(&*self.0, $($name),*)
            } )*
            $( unsafe fn $raw(&self, $($raw_name: $raw_type),*) -> $raw_result {
                // SAFETY: the caller upholds the contract of this method, which is the contract of
                // the method of the same name in `Methods`.
                unsafe { Methods::$raw(&*self.0, $($raw_name),*) }
            } )*
            fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, mut sink: S) -> u32 {
                Object::poll(&*self.0, eq, limit, &mut sink)
            }
            fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
                Object::poll_into(&*self.0, eq, limit, sink)
            }
        }
    };
}

methods! {
    safe {
        fn rank() -> Rank;
        fn size() -> u32;
        fn limits() -> &Limits;
        fn reach(peer: Rank) -> &Reach;
        fn region_create(len: usize) -> Result<Region, NiError>;
        fn window(peer: Rank, region: RegionId) -> Option<Window>;
        fn eq_create(slots: usize) -> Result<EqId, NiError>;
        fn pt_open(index: PtIndex, eq: Option<EqId>) -> Result<(), NiError>;
        fn me_append(index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError>;
        fn me_append_claimed(
            index: PtIndex,
            entry: MatchEntry,
            claim: Claim
        ) -> Result<MeId, NiError>;
        fn me_unlink(me: MeId) -> Result<Unlink, NiError>;
        fn md_release(md: MdId) -> Result<Unlink, NiError>;
        fn inject(inject: &Inject<'_>) -> Result<Submit, NiError>;
        fn atomic(atomic: &Atomic) -> Result<Submit, NiError>;
        fn abandon();
        fn ready() -> Ready;
        fn progress();
        fn wait(limit: Duration);
        fn arm() -> bool;
        fn disarm();
        fn notify(peer: Rank);
        fn failed_peer() -> Option<Rank>;
        fn failure(peer: Rank) -> String;
        fn bad_peer() -> Option<Rank>;
    }
    unsafe {
        fn region_adopt(base: *mut u8, len: usize) -> Result<Region, NiError>;
        fn md_bind(base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError>;
        fn put(put: &Put) -> Result<Submit, NiError>;
        fn get(get: &Get) -> Result<Submit, NiError>;
        fn memory_write(
            target: Rank,
            address: u64,
            source: *const u8,
            len: usize
        ) -> Result<(), NiError>;
        fn memory_read(
            destination: *mut u8,
            target: Rank,
            address: u64,
            len: usize
        ) -> Result<(), NiError>;
    }
}
