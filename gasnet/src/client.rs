//! Variables of the library that a client may set before it joins or attaches.

use std::borrow::Cow;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// The client's C function, or null if the client has none. Attach calls the function with the
/// address and length of this rank's new segment.
#[unsafe(no_mangle)]
static gasnet_client_attach_hook: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

// The two variables are common symbols, like C's tentative definitions, so that a client may define
// them itself instead of assigning to them. A Rust static would conflict with such a definition.
std::arch::global_asm!(
    ".comm gasnet_max_segsize_str, {bytes}, {bytes}",
    ".comm gasnet_max_segsize, 8, 8",
    bytes = const size_of::<*const c_char>(),
);

unsafe extern "C" {
    static gasnet_max_segsize_str: AtomicPtr<c_char>;
    static gasnet_max_segsize: AtomicU64;
}

/// The limit on the segment size that the client has chosen.
#[derive(Debug, PartialEq)]
pub(crate) enum Chosen {
    /// The size in the format of `GASNET_MAX_SEGSIZE`.
    Text(Cow<'static, str>),
    /// The size per process, in bytes.
    Bytes(u64),
}

/// Returns the client's default for `GASNET_MAX_SEGSIZE`, if it has set one.
pub(crate) fn most_segment() -> Option<Chosen> {
    // SAFETY: the two variables are defined above or by the client, with this size and alignment,
    // and the client writes them only before it joins the job.
    let (text, bytes) = unsafe {
        (
            gasnet_max_segsize_str.load(Relaxed),
            gasnet_max_segsize.load(Relaxed),
        )
    };
    if !text.is_null() {
        // SAFETY: `text` is not null, so the client has set it to a C string.
        let text = unsafe { CStr::from_ptr(text) };
        return Some(Chosen::Text(text.to_string_lossy()));
    }
    (bytes > 0).then_some(Chosen::Bytes(bytes))
}

/// Calls the client's hook, if there is one, so that the client can prepare its new segment before
/// other ranks can reach it.
pub(crate) fn attached(base: *mut u8, bytes: usize) {
    let hook = gasnet_client_attach_hook.load(Relaxed);
    if hook.is_null() {
        return;
    }
    // SAFETY: the hook is not null, so it is a function of this type that the client has stored.
    let hook =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void, usize)>(hook) };
    hook(base.cast(), bytes);
}
