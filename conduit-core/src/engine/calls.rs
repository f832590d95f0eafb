//! The calls of each subject, as views of the engine. A call may wait and therefore poll, and a
//! poll reaches all subjects. Code that stays within one subject takes the kernel instead, and is
//! in the layers below the engine.

use std::marker::PhantomData;

use super::Engine;
use crate::kernel::{Job, Kernel};
use crate::ni::Ni;
use crate::threads::Mode;

/// The subjects that have calls.
pub mod subject {
    /// Segments, and other memory that peers access.
    #[derive(Debug)]
    pub enum Memory {}
    /// Active messages.
    #[derive(Debug)]
    pub enum Messages {}
    /// Puts and gets.
    #[derive(Debug)]
    pub enum Rma {}
    /// Remote atomics.
    #[derive(Debug)]
    pub enum Atomics {}
    /// Barriers of all ranks.
    #[derive(Debug)]
    pub enum Barriers {}
    /// Collective operations, and teams.
    #[derive(Debug)]
    pub enum Collectives {}
}

/// The calls of a [subject].
#[derive(Debug)]
pub struct Calls<'e, N: Ni, M: Mode, S> {
    pub(crate) engine: &'e Engine<N, M>,
    subject: PhantomData<S>,
}

impl<N: Ni, M: Mode, S> Clone for Calls<'_, N, M, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<N: Ni, M: Mode, S> Copy for Calls<'_, N, M, S> {}

impl<'e, N: Ni, M: Mode, S> Calls<'e, N, M, S> {
    #[inline(always)]
    fn of(engine: &'e Engine<N, M>) -> Self {
        Self {
            engine,
            subject: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn kernel(self) -> &'e Kernel<N, M> {
        &self.engine.kernel
    }

    #[inline(always)]
    pub(crate) fn job(self) -> &'e Job<N> {
        &self.engine.kernel.job
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Returns the calls for segments and for other memory that peers access.
    #[inline(always)]
    pub fn memory(&self) -> Calls<'_, N, M, subject::Memory> {
        Calls::of(self)
    }

    /// Returns the calls for active messages.
    #[inline(always)]
    pub fn messages(&self) -> Calls<'_, N, M, subject::Messages> {
        Calls::of(self)
    }

    /// Returns the calls for puts and gets.
    #[inline(always)]
    pub fn rma(&self) -> Calls<'_, N, M, subject::Rma> {
        Calls::of(self)
    }

    /// Returns the calls for remote atomics.
    #[inline(always)]
    pub fn atomics(&self) -> Calls<'_, N, M, subject::Atomics> {
        Calls::of(self)
    }

    /// Returns the calls for barriers of all ranks.
    #[inline(always)]
    pub fn barriers(&self) -> Calls<'_, N, M, subject::Barriers> {
        Calls::of(self)
    }

    /// Returns the calls for collective operations and teams.
    #[inline(always)]
    pub fn collectives(&self) -> Calls<'_, N, M, subject::Collectives> {
        Calls::of(self)
    }
}
