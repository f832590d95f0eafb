//! Registration of the clients' handlers and of the library's own, and a guard for their execution.

use std::sync::Arc;

use am::handlers::{Accepts, Entry, Registration};

use super::{Call, Engine, Handler};
use crate::kernel::context;
use crate::kernel::error::{Error, Result};
use crate::messages::Payload;
use crate::messages::deliver::{Receiver, Subjects};
use crate::messages::reserve::ReplyReserve;
use crate::ni::Ni;
use crate::threads::Mode;

/// Ends the job when dropped, which happens only if the handler panics. The message must not be
/// handled again, and threads that wait for an effect of the handler must get an error.
struct Panicking<'a, N: Ni, M: Mode>(&'a Engine<N, M>, u8);

impl<N: Ni, M: Mode> Drop for Panicking<'_, N, M> {
    #[cold]
    fn drop(&mut self) {
        let Self(engine, handler) = *self;
        let name = engine
            .messages
            .handlers
            .get(handler)
            .and_then(|entry| entry.name);
        engine.kernel.job.fail(Error::HandlerPanicked {
            rank: engine.kernel.job.rank,
            handler: match name {
                Some(name) => format!("{handler} ({name})"),
                None => handler.to_string(),
            },
        });
    }
}

/// Creates the registration of one of the library's own handlers, whose id is part of the protocol.
pub(crate) fn library_handler<N: Ni + 'static, M: Mode>(
    id: u8,
    name: &'static str,
    nargs: usize,
    accepts: Accepts,
    handler: fn(&Call<'_, N, M>),
) -> Registration<Handler<N, M>> {
    Registration {
        id,
        entry: Entry {
            handler: Handler(Arc::new(handler)),
            accepts,
            // The cast is lossless: a message has at most `am::MAX_ARGS` arguments.
            nargs: Some(nargs as u8),
            name: Some(name),
        },
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Registers more handlers. Each id in `list` that is [`am::handlers::AUTOMATIC`] is replaced
    /// by the id assigned. This call is local and does not poll.
    pub fn register(&self, list: &mut [Registration<Handler<N, M>>]) -> Result<()>
    where
        N: 'static,
    {
        let mut entered = checked(list, self.kernel.job.has_checks());
        self.messages
            .register(&self.kernel, |table| table.register(&mut entered))?;
        for (registration, entered) in list.iter_mut().zip(entered) {
            registration.id = entered.id;
        }
        Ok(())
    }

    /// Registers handlers of the library itself.
    pub(crate) fn register_own(&self, list: &[Registration<Handler<N, M>>]) -> Result<()>
    where
        N: 'static,
    {
        let entered = checked(list, self.kernel.job.has_checks());
        self.messages
            .register(&self.kernel, |table| table.register_reserved(&entered))
    }
}

/// Returns the registrations. With `checks`, each handler is wrapped in a function that sets its
/// thread's context. Without `checks`, handlers are not wrapped, so calls cost nothing extra.
fn checked<N: Ni + 'static, M: Mode>(
    list: &[Registration<Handler<N, M>>],
    checks: bool,
) -> Vec<Registration<Handler<N, M>>> {
    let mut list = list.to_vec();
    if checks {
        for Registration { entry, .. } in &mut list {
            let handler = entry.handler.clone();
            entry.handler = Handler(Arc::new(move |call| {
                let _entered = context::Entered::new(call.token.context());
                (handler.0)(call);
            }));
        }
    }
    list
}

impl<N: Ni, M: Mode> Receiver for Engine<N, M> {
    type Ni = N;
    type Mode = M;
    type Handler = Handler<N, M>;

    #[inline(always)]
    fn subjects(&self) -> Subjects<'_, Self> {
        (&self.kernel, &self.memory, &self.messages)
    }

    #[inline(always)]
    fn run(
        &self,
        id: u8,
        token: &am::Token,
        args: &[u32],
        payload: Payload<'_>,
        reserve: Option<&ReplyReserve>,
    ) {
        let Some(entry) = self.messages.handlers.get(id) else {
            return;
        };
        let panicking = Panicking(self, id);
        (entry.handler.0)(&Call {
            engine: self,
            token,
            reserve,
            args,
            payload,
        });
        std::mem::forget(panicking);
    }
}
