//! Handlers: registering C's functions, calling them, and what their tokens tell.

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

/// What a `gex_Token_t` points to, while the handler runs.
pub(crate) struct Token<'a> {
    pub(crate) message: &'a Message<'a, Mode>,
    registered: &'static Registered,
}

/// A handler as it was registered. Registrations last as long as the process.
struct Registered {
    /// Its index is written once more after the registration, when there was none before.
    entry: UnsafeCell<Entry>,
}

// SAFETY: the pointers in it are the client's: `cdata` and `name` are only given back to it, the function may be called
// from any thread (GASNet's rule for handlers). Nobody knows an index that is assigned before the registration has
// returned, so no message is handled while it is written.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// Calls a function with the first parameters given, and as many words after them as there are.
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
            // No message has more arguments.
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
        // SAFETY: written by `assigned` only, which nothing else runs beside.
        unsafe { &*self.entry.get() }
    }

    /// The id that the registration has found.
    ///
    /// # Safety
    /// No other reference to the entry is used meanwhile: no handler of this id runs.
    unsafe fn assigned(&self, id: u8) {
        // SAFETY: the caller's promise.
        unsafe { (*self.entry.get()).index = id };
    }

    /// Runs the handler.
    ///
    /// The calls are sound as far as the client's registration is right: GASNet's contract is that a handler has the
    /// parameters of the messages that are sent to it. What can be checked has been (`gex_flags`, `gex_nargs`).
    #[inline]
    fn call(&'static self, message: &Message<'_, Mode>) {
        // `None` was refused by `register`.
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

/// The address of a long's payload. That of an empty one travels as it is.
fn landed(message: &Message<'_, Mode>, offset: usize, length: usize) -> *mut c_void {
    let base = match message.engine().memory().segment() {
        Ok((base, _)) if length > 0 => base,
        _ => std::ptr::null_mut(),
    };
    base.wrapping_add(offset).cast()
}

/// A registration for the engine, and the entry that its handler shows.
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
                "gex_nargs of entry {place} is {}, the most is {MAX_ARGS}",
                entry.nargs
            ))
        };
        Some(count.ok_or_else(refusal)?)
    };
    let name: Option<&'static CStr> = if entry.name.is_null() {
        None
    } else {
        // SAFETY: not null, so a C string: the client's contract. It is copied, and the copy stays.
        Some(Box::leak(
            unsafe { CStr::from_ptr(entry.name) }
                .to_owned()
                .into_boxed_c_str(),
        ))
    };
    let registered: &'static Registered = Box::leak(Box::new(Registered {
        // With the client's own pointers, as GASNet says; the copy of the name is for this library's messages.
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

/// Registers entries and writes the ids of those that had none.
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
            // SAFETY: the id was free until now, and is told to nobody before this call returns.
            unsafe { registered.assigned(*id) };
        }
    }
    Ok(())
}

/// A table from C as a slice.
///
/// # Safety
/// `table` is null or valid for `count` entries, for as long as the slice is used.
pub(crate) unsafe fn table<'a, T>(table: *mut T, count: usize) -> Result<&'a mut [T], Refusal> {
    if count == 0 {
        return Ok(&mut []);
    }
    if table.is_null() || count > 256 {
        return Err(Refusal::bad(format_args!(
            "a table of {count} handlers at {table:p}"
        )));
    }
    // SAFETY: not null; the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(table, count) })
}

/// Registers handlers with an endpoint. Local, may be called again for others.
///
/// # Safety
/// `entries` is valid for `count` entries, whose functions are handlers as their flags and counts say.
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

/// The handlers of GASNet-1's attach.
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

/// The token that C gave back.
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

/// What a token tells: the fields of `wanted` that there are, which are returned.
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

/// The rank that sent a message.
///
/// # Safety
/// `handle` is the token of the handler that is running, `source` valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_AMGetMsgSource(handle: *const c_void, source: *mut u32) -> c_int {
    const CALL: &str = "gasnet_AMGetMsgSource";
    // SAFETY: the caller's promise.
    let token = unsafe { token(CALL, handle) };
    if source.is_null() {
        return crate::fault::refuse(CALL, &Refusal::bad("the place for the rank is null"));
    }
    // SAFETY: not null; the caller's promise.
    unsafe { source.write(token.message.source()) };
    abi::OK
}

/// Arguments from C.
///
/// # Safety
/// `words` is valid for `count` words, and `count` at most 16 (the headers make both).
#[inline]
pub(crate) unsafe fn arguments<'a>(count: u32, words: *const u32) -> &'a [u32] {
    debug_assert!(count as usize <= MAX_ARGS && !words.is_null());
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(words, count as usize) }
}

/// Whether a range from C can be memory: anything of no bytes is.
#[inline]
pub(crate) fn is_memory(base: *const c_void, bytes: usize) -> bool {
    bytes == 0 || !base.is_null() && bytes <= isize::MAX as usize
}

/// A payload from C; anything of no bytes is an empty one.
///
/// # Safety
/// `base` is null or valid for `bytes` bytes, which nobody writes while the slice is used.
#[inline]
pub(crate) unsafe fn payload<'a>(base: *const c_void, bytes: usize) -> Result<&'a [u8], Refusal> {
    if bytes == 0 {
        return Ok(&[]);
    }
    if !is_memory(base, bytes) {
        return Err(Refusal::bad(format_args!(
            "a payload of {bytes} bytes at {base:p}"
        )));
    }
    // SAFETY: not null, not too long; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), bytes) })
}

const _: () = assert!(size_of::<c_char>() == 1 && Flags::all().bits() == u32::MAX);
