//! Writing to Mercury's log, with Mercury's own function and settings if these can be found.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::panic::Location;

use crate::library;

/// The part of NA that a log line refers to. `HG_LOG_SUBSYS` selects the parts that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlet {
    Class,
    Context,
    Operation,
    Address,
    Message,
    Memory,
    Transfer,
    Poll,
}

/// The severity of a log line, numbered as in `enum hg_log_level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Fatal = 1,
    Error = 2,
    Warning = 3,
}

/// The first members of `struct hg_log_outlet`.
#[repr(C)]
struct OutletState {
    name: *const c_char,
    state: c_uint,
    level: c_uint,
}

/// `hg_log_write`.
type Write = unsafe extern "C" fn(
    outlet: *mut c_void,
    level: c_uint,
    module: *const c_char,
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
    no_return: bool,
    format: *const c_char,
    ...
) -> c_int;

impl Outlet {
    fn symbol(self) -> &'static CStr {
        match self {
            Self::Class => c"na_cls_log_outlet_g",
            Self::Context => c"na_ctx_log_outlet_g",
            Self::Operation => c"na_op_log_outlet_g",
            Self::Address => c"na_addr_log_outlet_g",
            Self::Message => c"na_msg_log_outlet_g",
            Self::Memory => c"na_mem_log_outlet_g",
            Self::Transfer => c"na_rma_log_outlet_g",
            Self::Poll => c"na_poll_log_outlet_g",
        }
    }
}

/// Writes a log line that names the operation `call`.
#[track_caller]
pub(crate) fn write(outlet: Outlet, level: Level, call: &CStr, text: &str) {
    let (Some(state), Some(function)) = (
        library::symbol(outlet.symbol()),
        library::symbol(c"hg_log_write"),
    ) else {
        if is_asked_for(std::env::var("HG_LOG_LEVEL").ok().as_deref(), level) {
            eprintln!("# conduit: {}(): {text}", call.to_string_lossy());
        }
        return;
    };
    // SAFETY: Mercury's variable of this name is such a structure. The library sets the level when
    // it is loaded or when its user requests another level, and this code may read the old or the
    // new value.
    let wanted = unsafe { (&raw const (*state.cast::<OutletState>()).level).read_volatile() };
    if wanted < level as c_uint {
        return;
    }
    let location = Location::caller();
    let (file, text) = (terminated(location.file()), terminated(text));
    // SAFETY: Mercury's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Write>(function) };
    // SAFETY: the outlet is Mercury's, all strings are zero-terminated, and the format's `%s` takes
    // the last string.
    unsafe {
        function(
            state,
            level as c_uint,
            std::ptr::null(),
            file.as_ptr(),
            location.line(),
            call.as_ptr(),
            false,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}

fn terminated(text: &str) -> CString {
    // Cannot fail, because no zero bytes are left.
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Returns whether Mercury would write lines of this level under the given `HG_LOG_LEVEL`.
fn is_asked_for(setting: Option<&str>, level: Level) -> bool {
    let most = match setting {
        Some("none") => 0,
        Some("error") => Level::Error as c_uint,
        Some("warning" | "min_debug" | "info" | "debug") => Level::Warning as c_uint,
        _ => Level::Fatal as c_uint,
    };
    level as c_uint <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_setting_of_mercury() {
        for (setting, errors, warnings) in [
            (None, false, false),
            (Some("none"), false, false),
            (Some("fatal"), false, false),
            (Some("error"), true, false),
            (Some("warning"), true, true),
            (Some("debug"), true, true),
        ] {
            let fatal = is_asked_for(setting, Level::Fatal);
            assert_eq!(fatal, setting != Some("none"), "{setting:?}");
            assert_eq!(is_asked_for(setting, Level::Error), errors, "{setting:?}");
            assert_eq!(
                is_asked_for(setting, Level::Warning),
                warnings,
                "{setting:?}"
            );
        }
    }

    #[test]
    fn a_text_with_a_zero_is_written() {
        assert_eq!(terminated("a\0b").as_c_str(), c"a b");
    }
}
