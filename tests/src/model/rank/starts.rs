//! The ways of starting puts, gets and requests.

use am::Category;
use conduit_core::atomics::AtomicRequest;
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::ni::AtomicOp;
use conduit_core::rma::Class;
use conduit_core::threads::Mode;

use super::{Done, Fetch, Kept, REQUEST, Rank, Sending, Source, Way, text};

const HANDLE: Completion = Completion::Handle;
const IMPLICIT: Completion = Completion::Implicit;

impl<M: Mode> Rank<'_, M> {
    pub(super) fn put(&mut self, way: Way, target: u32, at: usize, source: &Source) -> Done {
        let engine = self.engine;
        let (own, memory) = match *source {
            Source::Own { at, len } => {
                let (base, _) = engine.memory().segment().map_err(text)?;
                (Some((base.wrapping_add(at), len)), Vec::new())
            }
            Source::Private(ref bytes) => (None, bytes.clone()),
        };
        let (base, len) = own.unwrap_or((memory.as_ptr().cast_mut(), memory.len()));
        // SAFETY: the bytes are either a part of the segment that nothing writes in this round, or
        // private memory that is kept.
        let bytes = unsafe { std::slice::from_raw_parts(base, len) };
        // SAFETY: this holds for all bulk calls below. Their source is the same memory, which is
        // kept until the operation has been synchronised.
        match way {
            Way::Blocking => engine.rma().put(target, at, bytes).map_err(text),
            Way::Handle => {
                let handle = engine
                    .rma()
                    .put_nb(target, at, bytes, HANDLE, Blocking::Wait);
                // The source may be reused already, so nothing needs to be kept.
                self.keep(handle.map_err(text)?, Kept::nothing())
            }
            Way::Immediate => {
                let handle = self.ask(|| {
                    engine
                        .rma()
                        .put_nb(target, at, bytes, HANDLE, Blocking::Immediate)
                })?;
                self.keep(Some(handle), Kept::nothing())
            }
            Way::Bulk => {
                // SAFETY: the source is kept until the operation has been synchronised, as stated
                // above.
                let handle = unsafe {
                    engine
                        .rma()
                        .put_nb_bulk(target, at, base, len, HANDLE, Blocking::Wait)
                };
                self.keep(handle.map_err(text)?, Kept::source(memory))
            }
            Way::Implicit => {
                let started = engine
                    .rma()
                    .put_nb(target, at, bytes, IMPLICIT, Blocking::Wait);
                self.keep_implicit(
                    started.map_err(text)?.is_some(),
                    Kept::nothing(),
                    Class::PUTS,
                )
            }
            Way::ImplicitBulk => {
                // SAFETY: the source is kept until the operation has been synchronised, as stated
                // above.
                let started = unsafe {
                    engine
                        .rma()
                        .put_nb_bulk(target, at, base, len, IMPLICIT, Blocking::Wait)
                };
                self.keep_implicit(
                    started.map_err(text)?.is_some(),
                    Kept::source(memory),
                    Class::PUTS,
                )
            }
        }
    }

    pub(super) fn get(
        &mut self,
        way: Way,
        target: u32,
        at: usize,
        expected: &[u8],
        own: Option<usize>,
    ) -> Done {
        let engine = self.engine;
        let len = expected.len();
        let mut memory = if own.is_some() {
            Vec::new()
        } else {
            vec![0x55; len]
        };
        let base = match own {
            Some(at) => engine.memory().segment().map_err(text)?.0.wrapping_add(at),
            None => memory.as_mut_ptr(),
        };
        let kept = |memory| Kept {
            memory,
            // The bytes of a get into the segment are checked when the round ends.
            expected: own.is_none().then(|| expected.to_vec()),
        };
        // SAFETY: this holds for all calls below. The destination is either a part of the segment
        // that no other operation uses in this round, or private memory that is kept until the
        // operation has been synchronised.
        match way {
            Way::Blocking => {
                // SAFETY: no other operation uses the destination, as stated above.
                let bytes = unsafe { std::slice::from_raw_parts_mut(base, len) };
                engine.rma().get(bytes, target, at).map_err(text)?;
                kept(memory).check()
            }
            Way::Handle | Way::Bulk => {
                // SAFETY: the destination is kept until the operation has been synchronised, as
                // stated above.
                let handle = unsafe {
                    engine
                        .rma()
                        .get_nb(base, target, at, len, HANDLE, Blocking::Wait)
                };
                self.keep(handle.map_err(text)?, kept(memory))
            }
            Way::Immediate => {
                // SAFETY: the destination is kept until the operation has been synchronised, as
                // stated above.
                let handle = self.ask(|| unsafe {
                    engine
                        .rma()
                        .get_nb(base, target, at, len, HANDLE, Blocking::Immediate)
                })?;
                self.keep(Some(handle), kept(memory))
            }
            Way::Implicit | Way::ImplicitBulk => {
                // SAFETY: the destination is kept until the operation has been synchronised, as
                // stated above.
                let started = unsafe {
                    engine
                        .rma()
                        .get_nb(base, target, at, len, IMPLICIT, Blocking::Wait)
                };
                self.keep_implicit(started.map_err(text)?.is_some(), kept(memory), Class::GETS)
            }
        }
    }

    /// Starts an atomic. `expected` is its old value if that is known.
    pub(super) fn atomic(
        &mut self,
        (target, at): (u32, usize),
        request: AtomicRequest,
        fetch: Fetch,
        expected: Option<u64>,
    ) -> Done {
        let (engine, size) = (self.engine, request.ty.size());
        let class = match (request.op, fetch) {
            (AtomicOp::Set, Fetch::Implicit) => Class::PUTS,
            (AtomicOp::Get, _) => Class::GETS,
            _ => Class::ATOMICS,
        };
        let expected = expected.map(|old| old.to_le_bytes()[..size].to_vec());
        let mut kept = Kept {
            memory: vec![0; size],
            expected,
        };
        let result = kept.memory.as_mut_ptr();
        // SAFETY: the destination is memory that is kept until the operation has been synchronised.
        let to = |completion, blocking| unsafe {
            engine
                .atomics()
                .atomic_fetch_nb(result, target, at, request, completion, blocking)
        };
        match fetch {
            Fetch::Value => {
                let old = engine
                    .atomics()
                    .atomic_fetch(target, at, request)
                    .map_err(text)?;
                kept.memory.copy_from_slice(&old.to_le_bytes()[..size]);
                kept.check()
            }
            Fetch::No => engine.atomics().atomic(target, at, request).map_err(text),
            Fetch::Handle => {
                let handle =
                    engine
                        .atomics()
                        .atomic_nb(target, at, request, HANDLE, Blocking::Wait);
                self.keep(handle.map_err(text)?, Kept::nothing())
            }
            Fetch::Implicit => {
                let started =
                    engine
                        .atomics()
                        .atomic_nb(target, at, request, IMPLICIT, Blocking::Wait);
                let started = started.map_err(text)?.is_some();
                self.keep_implicit(started, Kept::nothing(), class)
            }
            Fetch::HandleTo => {
                let handle = to(HANDLE, Blocking::Wait).map_err(text)?;
                self.keep(handle, kept)
            }
            Fetch::ImmediateTo => {
                let handle = self.ask(|| to(HANDLE, Blocking::Immediate))?;
                self.keep(Some(handle), kept)
            }
            Fetch::ImplicitTo => {
                let started = to(IMPLICIT, Blocking::Wait).map_err(text)?.is_some();
                self.keep_implicit(started, kept, class)
            }
        }
    }

    pub(super) fn request(&mut self, number: u32, sending: Sending) -> Done {
        let engine = self.engine;
        let message = &self.plan.messages[number as usize];
        let (to, request) = (message.to, message.request);
        let (args, payload) = (request.args(number, false), request.payload(number, false));
        let blocking = match sending {
            Sending::Immediate => Blocking::Immediate,
            _ => Blocking::Wait,
        };
        if sending == Sending::InPlace && request.category == Category::Medium {
            let prepared = engine.messages().prepare_medium(
                to,
                payload.len(),
                payload.len() + 100,
                Blocking::Wait,
            );
            let mut prepared = prepared.map_err(text)?.ok_or("not prepared")?;
            prepared.payload()[..payload.len()].copy_from_slice(&payload);
            return prepared.commit(REQUEST, &args, payload.len()).map_err(text);
        }
        if sending == Sending::InPlace {
            let source = (payload.as_ptr(), payload.len());
            // SAFETY: the payload is kept until the round ends. The reply arrives before that,
            // because every long in place has a reply in the plan.
            let sent = unsafe {
                engine
                    .messages()
                    .request_long_async(to, REQUEST, &args, source, request.at, blocking)
            };
            self.longs.push(payload);
            return sent.map(drop).map_err(text);
        }
        self.ask(|| {
            let sent = match request.category {
                Category::Short => engine
                    .messages()
                    .request_short(to, REQUEST, &args, blocking),
                Category::Medium => engine
                    .messages()
                    .request_medium(to, REQUEST, &args, &payload, blocking),
                Category::Long => engine
                    .messages()
                    .request_long(to, REQUEST, &args, &payload, request.at, blocking),
            };
            Ok(sent?.then_some(()))
        })
    }
}
