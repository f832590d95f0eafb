//! The handling of arguments at every edge to C.

use std::ffi::{CStr, c_char};

use crate::failure::fatal;

/// Returns the text of an argument. If the pointer is null, ends the process with an error that
/// names the function and the argument.
///
/// # Safety
/// `pointer` must be null or point to a C string that outlives `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, function: &str, argument: &str) -> &'a CStr {
    // SAFETY: the caller guarantees that `pointer` is null or points to a C string that outlives
    // `'a`.
    unsafe { text_or_null(pointer) }
        .unwrap_or_else(|| fatal(&format!("{function}: {argument} is a null pointer")))
}

/// Same as [`text`], but returns `None` if the pointer is null.
///
/// # Safety
/// Same as [`text`].
pub(crate) unsafe fn text_or_null<'a>(pointer: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the pointer is not null, so the caller guarantees that it points to a C string that
    // outlives `'a`.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) })
}

/// Copies text into a C buffer and ends it with a zero. Text that does not fit is truncated.
///
/// # Safety
/// `buffer` must be null or valid for writes of `room` bytes.
pub(crate) unsafe fn write_text(buffer: *mut c_char, room: usize, text: &[u8]) {
    if room == 0 || buffer.is_null() {
        return;
    }
    let length = text.len().min(room - 1);
    // SAFETY: `buffer` is not null, so the caller guarantees that it is valid for `room` bytes, and
    // `length + 1 <= room`.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast::<u8>(), length);
        buffer.add(length).write(0);
    }
}
