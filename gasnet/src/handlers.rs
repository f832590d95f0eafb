//! Handlers: registration of C functions, calls to them, and the information in their tokens.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};

use am::MAX_ARGS;
use am::handlers::{Entry as AmEntry, Registration};
use conduit::{Handler, Message};
use conduit_core::messages::Payload;

use crate::Mode;
use crate::abi::{
    self, Entry, Flags, HandlerFlags, HandlerFn, LegacyEntry, TokenFields, TokenInfo,
};
use crate::fault::{Refusal, code, fatal};
use crate::job::Job;
use crate::objects::check;

/// The value that a `gex_Token_t` points to while the handler runs.
pub(crate) struct Token<'a> {
    pub(crate) message: &'a Message<'a, Mode>,
    registered: &'static Registered,
}

/// A registered handler. Registrations last as long as the process.
struct Registered {
    /// The index is written once more after registration if the client gave none.
    entry: UnsafeCell<Entry>,
}

// SAFETY: `cdata` and `name` are the client's pointers and only returned to it; any thread may call
// the function (GASNet's rule for handlers). An assigned index is unknown to other threads until
// the registration has returned, so no message is handled while it is written.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// Calls a function with the given first parameters, followed by the message's argument words.
macro_rules! call_with_words {
    ($function:expr, $first:tt, $words:expr) => {
        call_with_words!(@all $function, $first, $words,
            [] [a] [a b] [a b c] [a b c d] [a b c d e] [a b c d e f] [a b c d e f g] [a b c d e f g h]
            [a b c d e f g h i] [a b c d e f g h i j] [a b c d e f g h i j k] [a b c d e f g h i j k l]
            [a b c d e f g h i j k l m] [a b c d e f g h i j k l m n] [a b c d e f g h i j k l m n o]
            [a b c d e f g h i j k l m n o p])
    };
    (@all $function:expr, $first:tt, $words:expr, $([$($word:ident)*])*) => {
        match $words {
            $([$($word),*] => call_with_words!(@call $function, $first, $($word)*),)*
            // Messages have no more arguments.
            _ => (),
        }
    };
    (@call $function:expr, ($($type:ty: $value:expr),*), $($word:ident)*) => {{
        // SAFETY: see `Registered::call`.
        let function = unsafe {
            std::mem::transmute::<HandlerFn, unsafe extern "C" fn($($type,)* $(call_with_words!(@type $word)),*)>($function)
        };
        // SAFETY: as above.
        unsafe { function($($value,)* $(*$word),*) }
    }};
    (@type $word:ident) => { u32 };
}

impl Registered {
    fn entry(&self) -> &Entry {
        // SAFETY: only `assigned` writes it, and never concurrently with anything else.
        unsafe { &*self.entry.get() }
    }

    /// Stores the id that the registration has assigned.
    ///
    /// # Safety
    /// No other reference to the entry is in use: no handler with this id runs.
    unsafe fn assigned(&self, id: u8) {
        // SAFETY: the caller's promise.
        unsafe { (*self.entry.get()).index = id };
    }

    /// Runs the handler.
    ///
    /// The calls are sound if the client's registration is right: GASNet's contract is that a
    /// handler has the parameters of the messages sent to it. `gex_flags` and `gex_nargs` have been
    /// checked.
    #[inline]
    fn call(&'static self, message: &Message<'_, Mode>) {
        // `register` refuses `None`.
        let Some(function) = self.entry().function else {
            return;
        };
        let token = Token {
            message,
            registered: self,
        };
        let token: *const c_void = std::ptr::from_ref(&token).cast();
        let words = message.args();
        match message.payload() {
            Payload::None => call_with_words!(function, (*const c_void: token), words),
            Payload::Medium(bytes) => {
                let (base, len) = (bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len());
                call_with_words!(function, (*const c_void: token, *mut c_void: base, usize: len), words);
            }
            Payload::Long { offset, length } => {
                let base = landed(message, offset, length);
                call_with_words!(function, (*const c_void: token, *mut c_void: base, usize: length), words);
            }
        }
    }
}

/// Returns the address of a long's payload. For an empty payload, returns the address sent.
fn landed(message: &Message<'_, Mode>, offset: usize, length: usize) -> *mut c_void {
    let base = match message.engine().memory().segment() {
        Ok((base, _)) if length > 0 => base,
        _ => std::ptr::null_mut(),
    };
    base.wrapping_add(offset).cast()
}

/// Returns the engine's registration, and the entry that the handler's tokens show.
fn registration(
    entry: &Entry,
    place: usize,
) -> Result<(Registration<Handler<Mode>>, &'static Registered), Refusal> {
    if entry.function.is_none() {
        return Err(Refusal::bad(format_args!(
            "gex_fnptr of entry {place} is null"
        )));
    }
    let nargs = if entry.nargs == abi::ANY_NARGS {
        None
    } else {
        let count = u8::try_from(entry.nargs)
            .ok()
            .filter(|&count| usize::from(count) <= MAX_ARGS);
        let refusal = || {
            Refusal::bad(format_args!(
                "gex_nargs of entry {place} is {}, but at most {MAX_ARGS} is accepted",
                entry.nargs
            ))
        };
        Some(count.ok_or_else(refusal)?)
    };
    let name: Option<&'static CStr> = if entry.name.is_null() {
        None
    } else {
        // SAFETY: not null, so a C string by the client's contract. It is copied, and the copy is
        // never freed.
        Some(Box::leak(
            unsafe { CStr::from_ptr(entry.name) }
                .to_owned()
                .into_boxed_c_str(),
        ))
    };
    let registered: &'static Registered = Box::leak(Box::new(Registered {
        // Keeps the client's own pointers, as GASNet requires; the library's messages use the
        // copied name.
        entry: UnsafeCell::new(*entry),
    }));
    let handler: Handler<Mode> =
        Handler::new(move |message: &Message<'_, Mode>| registered.call(message));
    let registration = Registration {
        id: entry.index,
        entry: AmEntry {
            handler,
            accepts: entry.flags.accepts(),
            nargs,
            name: name.and_then(|name| name.to_str().ok()),
        },
    };
    Ok((registration, registered))
}

/// Registers entries, and writes the ids of those that had none.
pub(crate) fn register(job: &Job, entries: &mut [Entry]) -> Result<(), Refusal> {
    let (mut list, registered): (Vec<_>, Vec<_>) = entries
        .iter()
        .enumerate()
        .map(|(place, entry)| registration(entry, place))
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    job.engine().register(&mut list)?;
    for ((entry, registered), Registration { id, .. }) in
        entries.iter_mut().zip(registered).zip(&list)
    {
        if entry.index != *id {
            entry.index = *id;
            // SAFETY: the id was free until now, and no other thread learns it before this call
            // returns.
            unsafe { registered.assigned(*id) };
        }
    }
    Ok(())
}

/// Returns a table from C as a slice.
///
/// # Safety
/// `table` is null or valid for `count` entries, for as long as the slice is used.
pub(crate) unsafe fn table<'a, T>(table: *mut T, count: usize) -> Result<&'a mut [T], Refusal> {
    if count == 0 {
        return Ok(&mut []);
    }
    if table.is_null() || count > 256 {
        return Err(Refusal::bad(format_args!(
            "a table of {count} handlers at {table:p} is not valid"
        )));
    }
    // SAFETY: not null; the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(table, count) })
}

/// Registers handlers with an endpoint. Local; may be called again for other handlers.
///
/// # Safety
/// `entries` is valid for `count` entries, whose functions are handlers that match their flags and
/// counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_EP_RegisterHandlers(
    endpoint: *const c_void,
    entries: *mut Entry,
    count: usize,
) -> c_int {
    const CALL: &str = "gex_EP_RegisterHandlers";
    let job = Job::of(CALL);
    check(CALL, "endpoint", &job.objects.endpoint, endpoint);
    // SAFETY: the caller's promise.
    let entries = unsafe { table(entries, count) };
    code(CALL, entries.and_then(|entries| register(job, entries)))
}

/// Registers the handlers of GASNet-1's attach.
pub(crate) fn register_legacy(job: &Job, entries: &mut [LegacyEntry]) -> Result<(), Refusal> {
    let entry = |legacy: &LegacyEntry| Entry {
        index: legacy.index,
        function: legacy.function,
        flags: HandlerFlags::empty(),
        nargs: abi::ANY_NARGS,
        cdata: std::ptr::null(),
        name: std::ptr::null(),
    };
    let mut full: Vec<_> = entries.iter().map(entry).collect();
    register(job, &mut full)?;
    for (legacy, entry) in entries.iter_mut().zip(&full) {
        legacy.index = entry.index;
    }
    Ok(())
}

/// Returns the token that C has passed back.
///
/// # Safety
/// `token` is null or the token of a handler that is running.
#[inline]
pub(crate) unsafe fn token<'a>(call: &str, token: *const c_void) -> &'a Token<'a> {
    // SAFETY: the caller's promise: `Registered::call` made it and is still running.
    match unsafe { token.cast::<Token<'a>>().as_ref() } {
        Some(token) => token,
        None => fatal(call, &"the token is null"),
    }
}

/// Writes the fields of `wanted` that are available to `info`, and returns which they are.
///
/// # Safety
/// `handle` is the token of the handler that is running, `info` valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Token_Info(
    handle: *const c_void,
    info: *mut TokenInfo,
    wanted: TokenFields,
) -> TokenFields {
    const CALL: &str = "gex_Token_Info";
    // SAFETY: the caller's promise.
    let token = unsafe { token(CALL, handle) };
    // SAFETY: null, or valid for a write: the caller's promise.
    let Some(info) = (unsafe { info.cast::<std::mem::MaybeUninit<TokenInfo>>().as_mut() }) else {
        fatal(CALL, &"info is null")
    };
    info.write(TokenInfo {
        source: token.message.source(),
        endpoint: Job::of(CALL).objects.endpoint.handle(),
        entry: token.registered.entry.get().cast_const(),
        is_request: token.message.is_request().into(),
        is_long: matches!(token.message.payload(), Payload::Long { .. }).into(),
    });
    wanted & TokenFields::all()
}

/// Writes the rank that sent a message to `source`.
///
/// # Safety
/// `handle` is the token of the handler that is running, `source` valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_AMGetMsgSource(handle: *const c_void, source: *mut u32) -> c_int {
    const CALL: &str = "gasnet_AMGetMsgSource";
    // SAFETY: the caller's promise.
    let token = unsafe { token(CALL, handle) };
    if source.is_null() {
        return crate::fault::refuse(CALL, &Refusal::bad("the pointer for the rank is null"));
    }
    // SAFETY: not null; the caller's promise.
    unsafe { source.write(token.message.source()) };
    abi::OK
}

/// Returns arguments from C as a slice.
///
/// # Safety
/// `words` is valid for `count` words, and `count` is at most 16; the headers ensure both.
#[inline]
pub(crate) unsafe fn arguments<'a>(count: u32, words: *const u32) -> &'a [u32] {
    debug_assert!(count as usize <= MAX_ARGS && !words.is_null());
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(words, count as usize) }
}

/// Returns whether a range from C can be memory. A range of zero bytes always can.
#[inline]
pub(crate) fn is_memory(base: *const c_void, bytes: usize) -> bool {
    bytes == 0 || !base.is_null() && bytes <= isize::MAX as usize
}

/// Returns a payload from C as a slice. Zero bytes at any address are an empty one.
///
/// # Safety
/// `base` is null or valid for `bytes` bytes, which are not written while the slice is used.
#[inline]
pub(crate) unsafe fn payload<'a>(base: *const c_void, bytes: usize) -> Result<&'a [u8], Refusal> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if !is_memory(base, bytes) {
        return Err(Refusal::bad(format_args!(
            "a payload of {bytes} bytes at {base:p} is not valid memory"
        )));
    }
    // SAFETY: not null, not too long; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), bytes) })
}

const _: () = assert!(size_of::<c_char>() == 1 && Flags::all().bits() == u32::MAX);
