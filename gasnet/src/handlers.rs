//! Handlers: C functions that the client registers, the library's calls to them, and their tokens.

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

/// A registered handler. It is never freed.
struct Registered {
    /// The entry that the client registered. If the client gave no index, the assigned index is
    /// written after registration.
    entry: UnsafeCell<Entry>,
}

// SAFETY: `cdata` and `name` are the client's pointers, which are only returned to it, and GASNet
// lets any thread call a handler. Other threads learn an assigned index only once the registration
// has returned, so no message is handled while the index is written.
unsafe impl Send for Registered {}
// SAFETY: sharing is sound for the same reasons as sending, given above.
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
            // A message has at most 16 arguments.
            _ => (),
        }
    };
    (@call $function:expr, ($($type:ty: $value:expr),*), $($word:ident)*) => {{
        // SAFETY: GASNet requires a handler to have the parameters of the messages sent to it, so
        // the function has this type (see `Registered::call`).
        let function = unsafe {
            std::mem::transmute::<HandlerFn, unsafe extern "C" fn($($type,)* $(call_with_words!(@type $word)),*)>($function)
        };
        // SAFETY: the function has this type, and the client registered it to be called with a
        // token, a payload and argument words. These outlive the call.
        unsafe { function($($value,)* $(*$word),*) }
    }};
    (@type $word:ident) => { u32 };
}

impl Registered {
    fn entry(&self) -> &Entry {
        // SAFETY: only `assigned` writes the entry, and never while another reference to it is in
        // use.
        unsafe { &*self.entry.get() }
    }

    /// Stores the id that the registration has assigned.
    ///
    /// # Safety
    /// No other reference to the entry may be in use. In particular, no handler with this id may be
    /// running.
    unsafe fn assigned(&self, id: u8) {
        // SAFETY: the caller guarantees that no other reference to the entry is in use.
        unsafe { (*self.entry.get()).index = id };
    }

    /// Runs the handler.
    ///
    /// The calls to C are sound because GASNet's contract requires a handler to have the parameters
    /// of the messages sent to it. The engine has checked the message against `gex_flags` and
    /// `gex_nargs`.
    #[inline]
    fn call(&'static self, message: &Message<'_, Mode>) {
        // The function is never `None`, because `registration` refuses such entries.
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

/// Returns the address of a long's payload. For an empty payload, returns the destination address
/// that the sender gave.
fn landed(message: &Message<'_, Mode>, offset: usize, length: usize) -> *mut c_void {
    let base = match message.engine().memory().segment() {
        Ok((base, _)) if length > 0 => base,
        _ => std::ptr::null_mut(),
    };
    base.wrapping_add(offset).cast()
}

/// Returns the registration to pass to the engine, and the entry that `gex_Token_Info` returns for
/// the handler.
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
        // SAFETY: the name is not null, so the client guarantees that it is a C string. The library
        // keeps a copy, which is never freed.
        Some(Box::leak(
            unsafe { CStr::from_ptr(entry.name) }
                .to_owned()
                .into_boxed_c_str(),
        ))
    };
    let registered: &'static Registered = Box::leak(Box::new(Registered {
        // The entry keeps the client's own pointers, as GASNet requires. The library's messages use
        // the copied name.
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

/// Registers entries, and writes the assigned ids to the entries that had none.
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
            // returns, so no handler with this id is running.
            unsafe { registered.assigned(*id) };
        }
    }
    Ok(())
}

/// Returns a table from C as a slice.
///
/// # Safety
/// `table` must be null or valid for reads and writes of `count` entries for as long as the slice
/// is used.
pub(crate) unsafe fn table<'a, T>(table: *mut T, count: usize) -> Result<&'a mut [T], Refusal> {
    if count == 0 {
        return Ok(&mut []);
    }
    if table.is_null() || count > 256 {
        return Err(Refusal::bad(format_args!(
            "a table of {count} handlers at {table:p} is not valid"
        )));
    }
    // SAFETY: `table` is not null, so the caller guarantees that it is valid for `count` entries.
    Ok(unsafe { std::slice::from_raw_parts_mut(table, count) })
}

/// Registers handlers with an endpoint. This call is local, and may be repeated to register more
/// handlers.
///
/// # Safety
/// `entries` must be null or valid for reads and writes of `count` entries. The entries' functions
/// must be handlers that match their flags and argument counts.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_EP_RegisterHandlers(
    endpoint: *const c_void,
    entries: *mut Entry,
    count: usize,
) -> c_int {
    const CALL: &str = "gex_EP_RegisterHandlers";
    let job = Job::of(CALL);
    check(CALL, "endpoint", &job.objects.endpoint, endpoint);
    // SAFETY: the caller guarantees that `entries` is null or valid for `count` entries.
    let entries = unsafe { table(entries, count) };
    code(CALL, entries.and_then(|entries| register(job, entries)))
}

/// Registers the handlers passed to GASNet-1's attach.
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
/// `token` must be null or the token of a handler that is running.
#[inline]
pub(crate) unsafe fn token<'a>(call: &str, token: *const c_void) -> &'a Token<'a> {
    // SAFETY: the caller guarantees that `token` is null or the token of a running handler. In the
    // latter case it points to the `Token` in `Registered::call`, which lives while the handler
    // runs.
    match unsafe { token.cast::<Token<'a>>().as_ref() } {
        Some(token) => token,
        None => fatal(call, &"the token is null"),
    }
}

/// Writes the token's information to `info`, and returns the set of those fields in `wanted` that
/// are available.
///
/// # Safety
/// `handle` must be the token of the handler that is running. `info` must be null or valid for a
/// write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Token_Info(
    handle: *const c_void,
    info: *mut TokenInfo,
    wanted: TokenFields,
) -> TokenFields {
    const CALL: &str = "gex_Token_Info";
    // SAFETY: the caller guarantees that `handle` is the running handler's token.
    let token = unsafe { token(CALL, handle) };
    // SAFETY: the caller guarantees that `info` is null or valid for a write.
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
/// `handle` must be the token of the handler that is running. `source` must be null or valid for a
/// write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnet_AMGetMsgSource(handle: *const c_void, source: *mut u32) -> c_int {
    const CALL: &str = "gasnet_AMGetMsgSource";
    // SAFETY: the caller guarantees that `handle` is the running handler's token.
    let token = unsafe { token(CALL, handle) };
    if source.is_null() {
        return crate::fault::refuse(CALL, &Refusal::bad("the pointer for the rank is null"));
    }
    // SAFETY: `source` is not null, so the caller guarantees that it is valid for a write.
    unsafe { source.write(token.message.source()) };
    abi::OK
}

/// Returns arguments from C as a slice.
///
/// # Safety
/// `words` must be valid for reads of `count` words, and `count` must be at most 16. The headers
/// ensure both.
#[inline]
pub(crate) unsafe fn arguments<'a>(count: u32, words: *const u32) -> &'a [u32] {
    debug_assert!(count as usize <= MAX_ARGS && !words.is_null());
    // SAFETY: the caller guarantees that `words` is valid for `count` words.
    unsafe { std::slice::from_raw_parts(words, count as usize) }
}

/// Returns whether a range from C can be memory. A range of zero bytes always can.
#[inline]
pub(crate) fn is_memory(base: *const c_void, bytes: usize) -> bool {
    bytes == 0 || !base.is_null() && bytes <= isize::MAX as usize
}

/// Returns a payload from C as a slice. If `bytes` is 0, the slice is empty and `base` may be any
/// address.
///
/// # Safety
/// `base` must be null or valid for reads of `bytes` bytes, which must not be written while the
/// slice is used.
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
    // SAFETY: `base` is not null and `bytes` is not too large, so the caller guarantees that the
    // bytes can be read and are not written meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(base.cast(), bytes) })
}

const _: () = assert!(size_of::<c_char>() == 1 && Flags::all().bits() == u32::MAX);
