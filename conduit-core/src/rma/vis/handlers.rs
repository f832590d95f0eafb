//! The messages of transfers of ranges, and the handlers of these messages.

use am::handlers::{Accepts, Registration};
use am::{Category, Flags, Header, MAX_ARGS, NO_CHUNK, NO_LID, Role, Token};

use crate::engine::handlers::library_handler;
use crate::engine::{Call, Calls, Handler, subject};
use crate::kernel::error::Result;
use crate::messages::deliver::Receiver;
use crate::messages::payload::{Payload, ProtocolError};
use crate::ni::Ni;
use crate::rma::vis::segment::{gather, scatter};
use crate::threads::Mode;

/// A put's message. Arguments: the message's number, and the number of bytes. Payload: the bytes,
/// followed by the list of their destinations.
pub(crate) const PUT: u8 = 16;
/// A get's message. Arguments: the message's number, and the number of bytes requested. Payload:
/// the list of the ranges to read.
pub(crate) const GET: u8 = 17;
/// The reply to a put. Argument: the message's number.
const DONE: u8 = 18;
/// The reply to a get. Argument: the message's number. Payload: the bytes.
const DATA: u8 = 19;
/// The completion of a put at its target. Argument: the id of the client's handler that runs with
/// the payload.
pub(crate) const COMPLETE: u8 = 20;

/// Returns the registrations of the library's handlers. Their ids are part of the protocol.
pub(crate) fn handlers<N: Ni + 'static, M: Mode>() -> [Registration<Handler<N, M>>; 5] {
    const REQUEST: Accepts = Accepts::MEDIUM.union(Accepts::REQUEST);
    [
        library_handler(PUT, "put of ranges", 2, REQUEST, on_put),
        library_handler(GET, "get of ranges", 2, REQUEST, on_get),
        library_handler(
            DONE,
            "ranges put",
            1,
            Accepts::SHORT | Accepts::REPLY,
            on_answer,
        ),
        library_handler(
            DATA,
            "ranges got",
            1,
            Accepts::MEDIUM | Accepts::REPLY,
            on_answer,
        ),
        library_handler(COMPLETE, "peer completion", 1, REQUEST, on_complete),
    ]
}

// The handlers do not repeat the checks of the handler table, because only messages that pass these
// checks get here.

fn on_put<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    let (&[number, data], Payload::Medium(payload)) = (call.args(), call.payload()) else {
        return;
    };
    let engine = call.engine();
    let Some((data, list)) = payload.split_at_checked(data as usize) else {
        return engine
            .job()
            .fail_by_message(call.source(), ProtocolError::OutsideOfChunk.to_string());
    };
    match scatter(&engine.memory, &engine.kernel, list, data) {
        Ok(()) => engine.rma().replied(call.reply_short(DONE, &[number])),
        Err(error) => engine
            .job()
            .fail_by_message(call.source(), error.to_string()),
    }
}

fn on_get<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    let (&[number, data], Payload::Medium(list)) = (call.args(), call.payload()) else {
        return;
    };
    let (engine, data) = (call.engine(), data as usize);
    // `prepare_medium_reply` would refuse this too, but its error would not name the peer.
    if data > engine.messages().max_medium(MAX_ARGS) {
        return engine
            .job()
            .fail_by_message(call.source(), ProtocolError::OutsideOfChunk.to_string());
    }
    let mut reply = match call.prepare_medium_reply(data, data) {
        Ok(reply) => reply,
        Err(error) => return engine.job().fail(error),
    };
    match gather(&engine.memory, &engine.kernel, list, reply.payload()) {
        Ok(()) => engine.rma().replied(reply.commit(DATA, &[number], data)),
        Err(error) => engine
            .job()
            .fail_by_message(call.source(), error.to_string()),
    }
}

fn on_answer<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    let &[number] = call.args() else {
        return;
    };
    let data = match call.payload() {
        Payload::Medium(data) => data,
        _ => &[],
    };
    let engine = call.engine();
    match engine.rma.transfers.answer(number, call.source(), data) {
        Ok(op) => engine.kernel.finish(op),
        Err(error) => engine
            .job()
            .fail_by_message(call.source(), error.to_string()),
    }
}

/// Runs the client's handler in the context of a reply handler, in which it may not reply.
fn on_complete<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    let (&[id], payload @ Payload::Medium(_)) = (call.args(), call.payload()) else {
        return;
    };
    let (engine, source) = (call.engine(), call.source());
    let header = Header {
        flags: Flags::of(Category::Medium, Role::Reply),
        handler: id as u8,
        nargs: 0,
        credit: 0,
        chunk: NO_CHUNK,
        arg0: 0,
        lid: NO_LID,
    };
    let registered = engine.messages.handlers.get(header.handler);
    let checked = registered
        .filter(|_| u32::from(header.handler) == id)
        .ok_or(ProtocolError::NoHandler { id: header.handler })
        .and_then(|entry| Ok(entry.check(&header)?));
    match checked {
        Ok(()) => engine.run(
            header.handler,
            &Token::new(source, &header),
            &[],
            payload,
            None,
        ),
        Err(error) => engine.job().fail_by_message(source, error.to_string()),
    }
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Ends the job if a reply could not be sent, because its requester would wait for it.
    fn replied(self, sent: Result<()>) {
        if let Err(error) = sent {
            self.job().fail(error);
        }
    }
}
