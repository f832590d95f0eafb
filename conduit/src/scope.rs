//! Scopes, in which puts, gets and atomics can safely overlap. The operations use borrowed buffers
//! and complete before the scope ends.

use std::marker::PhantomData;

use conduit_core::atomics::AtomicRequest;
use conduit_core::kernel::{Blocking, Completion};
use conduit_core::ni::{self, Rank};
use conduit_core::threads::Mode;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::atomics::request;
use crate::{Atom, Conduit, Result};

/// A scope for operations that complete before the scope ends. [`Conduit::scope`] creates it.
#[derive(Debug)]
pub struct Scope<'scope, 'env, M: Mode> {
    pub(crate) conduit: &'env Conduit<M>,
    /// Makes the type invariant in both lifetimes, as `std::thread::Scope` is.
    borrows: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
    /// Makes the type `!Send`. The access region belongs to one thread, so the scope would not wait
    /// for operations that other threads start.
    thread: PhantomData<*const ()>,
}

/// A guard that ends the access region, even if the scope's closure panics.
struct Region<'a, M: Mode> {
    conduit: &'a Conduit<M>,
    ended: bool,
}

impl<M: Mode> Region<'_, M> {
    fn end(&mut self) -> Result<()> {
        self.ended = true;
        let ended = self.conduit.member.engine().rma().end_scope();
        self.conduit.done("scope", ended)
    }
}

impl<M: Mode> Drop for Region<'_, M> {
    fn drop(&mut self) {
        if !self.ended {
            // The thread is already panicking, so an error cannot be returned. If `end` fails, the
            // job has failed, and the engine no longer accesses the buffers.
            let _ = self.end();
        }
    }
}

impl<M: Mode> Conduit<M> {
    /// Runs `f`, which may start operations on borrowed buffers. Returns once all these operations
    /// have completed.
    ///
    /// A scope is an access region. Scopes do not nest, and implicit operations that are started
    /// inside a scope belong to the scope. A scope belongs to the thread that opened it; other
    /// threads must open their own scopes.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let (left, right) = (conduit.rank(), conduit.rank());
    /// let row = vec![1.0f64; 100];
    /// let mut other = vec![0.0f64; 100];
    /// conduit.scope(|scope| {
    ///     scope.put(left, 0, &row[..])?;
    ///     scope.get(&mut other[..], right, 1024)
    /// })?;
    /// let mut back = vec![0.0f64; 100];
    /// conduit.get(&mut back[..], left, 0)?;
    /// assert_eq!(back, row);
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// A scope cannot be used on another thread, so this program does not compile:
    ///
    /// ```compile_fail,E0277
    /// # fn shared(conduit: &conduit::Conduit<conduit::Par>, row: &[f64]) -> conduit::Result<()> {
    /// conduit.scope(|scope| {
    ///     std::thread::scope(|threads| threads.spawn(|| scope.put(0, 0, row)).join().unwrap())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`EngineError::AccessRegion`](crate::EngineError::AccessRegion), without calling
    /// `f`, if an access region or another scope is open on this thread. Returns the error of `f`.
    /// If operations are still under way, also returns any [failure of the
    /// job](crate::Error#failure-of-the-job).
    pub fn scope<'env, R>(
        &'env self,
        f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, M>) -> Result<R>,
    ) -> Result<R> {
        self.done("scope", self.member.engine().rma().begin_scope())?;
        let mut region = Region {
            conduit: self,
            ended: false,
        };
        let scope = Scope {
            conduit: self,
            borrows: PhantomData,
            thread: PhantomData,
        };
        let result = f(&scope);
        region.end()?;
        result
    }
}

impl<'scope, M: Mode> Scope<'scope, '_, M> {
    /// Starts a put from a borrowed source.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// let (ghost, edge) = ([1.0f32; 16], [2.0f32; 16]);
    /// conduit.scope(|scope| {
    ///     scope.put(peer, 0, &ghost)?;
    ///     scope.put(peer, 64, &edge)
    /// })?;
    /// assert_eq!(conduit.get_value(peer, 124, 4)?, u64::from(2f32.to_bits()));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn put<T: IntoBytes + Immutable + ?Sized>(
        &'scope self,
        target: Rank,
        offset: usize,
        source: &'scope T,
    ) -> Result<()> {
        let (engine, bytes) = (self.conduit.member.engine(), source.as_bytes());
        let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
        // SAFETY: the source is borrowed until the scope ends, and the scope waits for the
        // operation before it ends.
        let started = unsafe {
            let (base, len) = (bytes.as_ptr(), bytes.len());
            engine
                .rma()
                .put_nb_bulk(target, offset, base, len, completion, blocking)
        };
        self.conduit.done("Scope::put", started).map(drop)
    }

    /// Starts a get into a borrowed destination.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// conduit.put(peer, 0, b"ab")?;
    /// let (mut one, mut other) = (0u8, 0u8);
    /// conduit.scope(|scope| {
    ///     scope.get(&mut one, peer, 0)?;
    ///     scope.get(&mut other, peer, 1)
    /// })?;
    /// assert_eq!((one, other), (b'a', b'b'));
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::put`].
    #[inline]
    pub fn get<T: FromBytes + IntoBytes + ?Sized>(
        &'scope self,
        destination: &'scope mut T,
        target: Rank,
        offset: usize,
    ) -> Result<()> {
        let (engine, bytes) = (self.conduit.member.engine(), destination.as_mut_bytes());
        let (completion, blocking) = (Completion::Implicit, Blocking::Wait);
        // SAFETY: the destination is mutably borrowed until the scope ends, and the scope waits for
        // the operation before it ends.
        let started = unsafe {
            let (base, len) = (bytes.as_mut_ptr(), bytes.len());
            engine
                .rma()
                .get_nb(base, target, offset, len, completion, blocking)
        };
        self.conduit.done("Scope::get", started).map(drop)
    }

    /// Starts an atomic that stores the previous value in a borrowed `result`. If that value is not
    /// needed, use [`Conduit::atomic_nbi`] instead, whose operation belongs to the enclosing scope
    /// too.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// use conduit::AtomicOp;
    /// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// let mut tickets = [0u64; 4];
    /// conduit.scope(|scope| {
    ///     for (queue, ticket) in tickets.iter_mut().enumerate() {
    ///         scope.atomic_fetch(ticket, 0, queue * 8, AtomicOp::Add, 1)?;
    ///     }
    ///     Ok(())
    /// })?;
    /// assert!(tickets.iter().all(|ticket| *ticket < u64::from(conduit.size())));
    /// conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn atomic_fetch<T: Atom>(
        &'scope self,
        result: &'scope mut T,
        target: Rank,
        offset: usize,
        op: T::Op,
        operand: T,
    ) -> Result<()> {
        let request = request(op, operand, operand);
        self.fetch("Scope::atomic_fetch", result, target, offset, request)
    }

    /// Starts a compare-and-swap as [`Conduit::compare_swap`] does, and stores the previous value
    /// in a borrowed `result`.
    ///
    /// ```
    /// # fn main() -> conduit::Result<()> {
    /// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 4096)?;
    /// # let peer = conduit.rank();
    /// // Tries to take two locks at once.
    /// let mut found = [9u32; 2];
    /// let [left, right] = &mut found;
    /// conduit.scope(|scope| {
    ///     scope.compare_swap(left, peer, 0, 0, 1)?;
    ///     scope.compare_swap(right, peer, 4, 0, 1)
    /// })?;
    /// assert_eq!(found, [0, 0], "both were free");
    /// # conduit.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same as [`Conduit::atomic_fetch`].
    #[inline]
    pub fn compare_swap<T: Atom>(
        &'scope self,
        result: &'scope mut T,
        target: Rank,
        offset: usize,
        expected: T,
        new: T,
    ) -> Result<()> {
        let request = request(ni::AtomicOp::CompareSwap, new, expected);
        self.fetch("Scope::compare_swap", result, target, offset, request)
    }

    #[inline]
    fn fetch<T: Atom>(
        &'scope self,
        call: &'static str,
        result: &'scope mut T,
        target: Rank,
        offset: usize,
        request: AtomicRequest,
    ) -> Result<()> {
        let (conduit, implicit) = (self.conduit, Completion::Implicit);
        // SAFETY: the destination is mutably borrowed until the scope ends, and the scope waits for
        // the operation before it ends.
        unsafe { conduit.fetch_to(call, result, target, offset, request, implicit) }.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Handlers, start};

    #[test]
    fn a_region_cannot_be_taken_from_its_scope() {
        let conduit = start().unwrap().attach(Handlers::new(), 4096).unwrap();
        let row = [1_u8; 8];
        conduit
            .scope(|scope| {
                scope.put(0, 0, &row)?;
                assert!(conduit.end_region().is_err());
                assert!(conduit.begin_region().is_err());
                Ok(())
            })
            .unwrap();
        conduit.begin_region().unwrap();
        conduit.wait(conduit.end_region().unwrap()).unwrap();
        conduit.finish().unwrap();
    }
}
