//! A put with a signal: a put to a segment, followed by an atomic in the same segment once the data
//! is in place.
//!
//! If the target is mapped, the put is a copy and the signal an atomic of the processor. Otherwise
//! both are a long to the library's own handler, which performs the atomic at the target. The long
//! takes one message if the data fits in it. If the network performs the atomics on the segment, it
//! performs the signal too, once the put has ended.

use am::Category;
use am::handlers::{Accepts, Registration};

use crate::atomics::AtomicRequest;
use crate::engine::handlers::library_handler;
use crate::engine::{Call, Calls, Handler, subject};
use crate::kernel::error::Result;
use crate::kernel::options::Blocking;
use crate::memory::Source;
use crate::messages::request::Request;
use crate::ni::{AtomicOp, AtomicType, Ni, Rank};
use crate::threads::Mode;

/// The id of the handler. Arguments: the offset and the operand (two words each, low half first),
/// then one word for operation and type.
const SIGNAL: u8 = 4;
const WORDS: usize = 5;

const OPERATION: &str = "put_signal";

/// Returns the registration of the library's handler, whose id is part of the protocol.
pub(crate) fn handler<N: Ni + 'static, M: Mode>() -> Registration<Handler<N, M>> {
    let accepts = Accepts::LONG | Accepts::REQUEST;
    library_handler(SIGNAL, "signal", WORDS, accepts, on_signal)
}

fn encode(offset: usize, request: AtomicRequest) -> [u32; WORDS] {
    let (offset, operand) = (offset as u64, request.operand);
    let what = (request.op as u32) << 8 | request.ty as u32;
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let ([a, b], [c, d]) = (halves(offset), halves(operand));
    [a, b, c, d, what]
}

fn decode(words: &[u32]) -> Option<(usize, AtomicRequest)> {
    let &[a, b, c, d, what] = words else {
        return None;
    };
    let whole = |low, high| u64::from(low) | u64::from(high) << 32;
    let request = AtomicRequest {
        op: *AtomicOp::ALL.get((what >> 8) as usize)?,
        ty: *AtomicType::ALL.get((what & 0xff) as usize)?,
        operand: whole(c, d),
        comparand: 0,
    };
    Some((whole(a, b) as usize, request))
}

fn on_signal<N: Ni, M: Mode>(call: &Call<'_, N, M>) {
    let engine = call.engine();
    let done = decode(call.args())
        .map(|(offset, request)| engine.atomics().atomic_own(OPERATION, offset, request));
    let reason = match done {
        Some(Ok(_)) => return,
        Some(Err(error)) => error.to_string(),
        None => "a signal with an unknown operation".to_owned(),
    };
    engine.job().fail_by_message(call.source(), reason);
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Copies `source` to `offset` in the target's segment, and then performs the atomic `request`
    /// at offset `signal` in the same segment. A rank that sees the result of the atomic also sees
    /// the data. The source may be reused when this call returns. The completion of the atomic is
    /// not reported. If the target is not mapped, the atomic runs in a poll of the target, as a
    /// handler does.
    ///
    /// # Errors
    /// If a range lies outside the segment, the integer is misaligned, or more than
    /// [`am::limits::MAX_LONG`] bytes have to be sent in messages.
    pub fn put_signal(
        self,
        target: Rank,
        offset: usize,
        source: &[u8],
        signal: usize,
        request: AtomicRequest,
    ) -> Result<()> {
        let segment = self.engine.memory.remote_access(
            self.kernel(),
            OPERATION,
            target,
            offset,
            source.len(),
        )?;
        let number = self
            .engine
            .atomics()
            .remote_number(OPERATION, target, signal, request.ty)?;
        if !self.engine.atomics.by_processor {
            let source = Source::of(source);
            // SAFETY: `remote_access` has checked the range, the source is borrowed, and this call
            // waits for the put.
            unsafe { self.put_pieces_and_wait(OPERATION, target, offset, source) }?;
            return self
                .engine
                .atomics()
                .atomic_in(OPERATION, target, signal, request);
        }
        // SAFETY: `remote_access` has checked the range, and the source is borrowed, so it is
        // valid.
        if unsafe { segment.store(offset, source.as_ptr(), source.len()) } {
            let request = AtomicRequest {
                comparand: 0,
                ..request
            };
            // SAFETY: `remote_number` checked that the number is aligned and lies in the same
            // window. Others access the number as they access that of a plain atomic.
            unsafe { request.apply(number.window.0.add(signal)) };
            // The target may sleep until it sees the atomic's result, and nothing else would wake
            // it.
            self.job().ni.notify(target);
            return Ok(());
        }
        self.engine.atomics().check_segments(OPERATION)?;
        let words = encode(signal, request);
        let mapped = self
            .engine
            .messages()
            .check_request(OPERATION, target, &words)?;
        let (kind, wait) = (Category::Long, Blocking::Wait);
        let request = Request::new(OPERATION, kind, target, SIGNAL, &words, mapped, wait);
        // SAFETY: the source is borrowed, and with `wait` the call returns only once the source has
        // been read.
        unsafe {
            self.engine
                .messages()
                .long(request, Source::of(source), offset, true)
        }
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_survives_its_encoding_and_others_are_refused() {
        for op in AtomicOp::ALL {
            for ty in AtomicType::ALL {
                let request = AtomicRequest {
                    op,
                    ty,
                    operand: 0x0123_4567_89ab_cdef,
                    comparand: 0,
                };
                let words = encode(usize::MAX - 7, request);
                assert_eq!(decode(&words), Some((usize::MAX - 7, request)));
            }
        }
        assert_eq!(decode(&[0; 4]), None);
        assert_eq!(decode(&[0, 0, 0, 0, 0xff]), None);
        assert_eq!(decode(&[0, 0, 0, 0, 0xff00]), None);
    }
}
