//! Settings in the environment: `gasnett_getenv` and the functions with defaults. The latter report
//! the values that they find if `GASNET_VERBOSEENV` is set.

use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use crate::edge::{text, text_or_null, write_text};
use crate::failure::fatal;
use crate::job;
use crate::number::{self, NumberError};

/// Returns a variable's value in the job's environment or, if it has none there, in this process's
/// environment.
pub fn getenv(name: &CStr) -> Option<&'static CStr> {
    job::variable(name).or_else(|| {
        // SAFETY: `name` ends with a zero. As C's `getenv` requires, the caller keeps other threads
        // from changing the value.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: the pointer is not null, so it is a C string of the environment.
        (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
    })
}

/// Returns the value of a variable as Rust text, or `None` if the variable is not set or blank. An
/// empty value stands for the default, so that `NAME= program` resets a setting.
pub fn setting(name: &CStr) -> Option<String> {
    getenv(name)
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.trim().is_empty())
}

/// Reads a setting. Returns `None` if the default applies. A value that cannot be read ends the
/// process with an error that names the variable.
fn read_setting<T>(name: &CStr, read: impl Fn(&str) -> Result<T, NumberError>) -> Option<T> {
    let value = setting(name)?;
    Some(
        read(&value).unwrap_or_else(|error| {
            fatal(&format!("{}='{value}' {error}", name.to_string_lossy()))
        }),
    )
}

/// Reads a yes-or-no setting without reporting it.
pub(crate) fn yes_no(name: &CStr, default: bool) -> bool {
    read_setting(name, number::parse_yes_no).unwrap_or(default)
}

/// Reads a decimal setting without reporting it.
pub(crate) fn decimal(name: &CStr) -> Option<f64> {
    read_setting(name, number::parse_decimal)
}

fn is_verbose() -> bool {
    job::place().is_none_or(|place| place.rank == 0) && yes_no(c"GASNET_VERBOSEENV", false)
}

/// Reports a setting on standard error, once per name, if settings are reported on this rank.
pub fn report_text(name: &CStr, value: &str, is_default: bool) {
    static REPORTED: Mutex<Option<HashSet<Vec<u8>>>> = Mutex::new(None);
    if !is_verbose() {
        return;
    }
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported
        .get_or_insert_default()
        .insert(name.to_bytes().to_vec())
    {
        return;
    }
    let note = if is_default { "  (default)" } else { "" };
    let line = format!(
        "ENV parameter: {} = {value}{note}\n",
        name.to_string_lossy()
    );
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn report_decimal(name: &CStr, value: f64, is_default: bool) {
    report_text(name, &value.to_string(), is_default);
}

// ---- The edge to C ----

/// # Safety
/// `buf` must be valid for writes of `bufsz` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_format_number(
    val: i64,
    buf: *mut c_char,
    bufsz: usize,
    is_mem_size: c_int,
) -> *mut c_char {
    // SAFETY: the caller guarantees that `buf` is valid for writes of `bufsz` bytes.
    unsafe { write_text(buf, bufsz, number::format(val, is_mem_size != 0).as_bytes()) };
    buf
}

/// # Safety
/// `str` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_parse_int(str: *const c_char, mem_size_multiplier: u64) -> i64 {
    // SAFETY: the caller guarantees that `str` is null or a C string.
    let value = unsafe { text(str, "gasnett_parse_int", "str") }.to_string_lossy();
    number::parse_integer(&value, mem_size_multiplier)
        .unwrap_or_else(|error| fatal(&format!("gasnett_parse_int: '{value}' {error}")))
}

/// # Safety
/// Both pointers must be null or C strings. As with C's `setenv`, no other thread may read the
/// environment meanwhile.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_setenv(key: *const c_char, value: *const c_char) {
    // SAFETY: the caller guarantees that both pointers are null or C strings.
    let (key, value) = unsafe {
        (
            text(key, "gasnett_setenv", "key"),
            text(value, "gasnett_setenv", "value"),
        )
    };
    job::forget_variable(key);
    // SAFETY: both pointers have been checked to be C strings.
    if unsafe { libc::setenv(key.as_ptr(), value.as_ptr(), 1) } != 0 {
        fatal(&format!(
            "gasnett_setenv: '{}' cannot be set: {}",
            key.to_string_lossy(),
            std::io::Error::last_os_error()
        ));
    }
}

/// # Safety
/// Same as [`gasnett_setenv`].
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_unsetenv(key: *const c_char) {
    // SAFETY: the caller guarantees that the pointer is null or a C string.
    let key = unsafe { text(key, "gasnett_unsetenv", "key") };
    job::forget_variable(key);
    // SAFETY: the pointer has been checked to be a C string.
    if unsafe { libc::unsetenv(key.as_ptr()) } != 0 {
        fatal(&format!(
            "gasnett_unsetenv: '{}' cannot be unset: {}",
            key.to_string_lossy(),
            std::io::Error::last_os_error()
        ));
    }
}

/// # Safety
/// `keyname` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getenv(keyname: *const c_char) -> *mut c_char {
    // SAFETY: the caller guarantees that `keyname` is null or a C string.
    let name = unsafe { text(keyname, "gasnett_getenv", "keyname") };
    getenv(name).map_or(std::ptr::null_mut(), |value| value.as_ptr().cast_mut())
}

/// # Safety
/// `keyname` and `defaultval` must be null or C strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getenv_withdefault(
    keyname: *const c_char,
    defaultval: *const c_char,
) -> *mut c_char {
    // SAFETY: the caller guarantees that `keyname` and `defaultval` are null or C strings.
    let (name, default) = unsafe {
        (
            text(keyname, "gasnett_getenv_withdefault", "keyname"),
            text_or_null(defaultval),
        )
    };
    let value = getenv(name);
    let shown = value
        .or(default)
        .map_or("*not set*".into(), CStr::to_string_lossy);
    report_text(name, &shown, value.is_none());
    value.map_or(defaultval.cast_mut(), |value| value.as_ptr().cast_mut())
}

/// # Safety
/// `keyname` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getenv_yesno_withdefault(
    keyname: *const c_char,
    defaultval: c_int,
) -> c_int {
    // SAFETY: the caller guarantees that `keyname` is null or a C string.
    let name = unsafe { text(keyname, "gasnett_getenv_yesno_withdefault", "keyname") };
    let value = read_setting(name, number::parse_yes_no);
    let result = value.unwrap_or(defaultval != 0);
    report_text(name, if result { "YES" } else { "NO" }, value.is_none());
    c_int::from(result)
}

/// # Safety
/// `keyname` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getenv_int_withdefault(
    keyname: *const c_char,
    defaultval: i64,
    mem_size_multiplier: u64,
) -> i64 {
    // SAFETY: the caller guarantees that `keyname` is null or a C string.
    let name = unsafe { text(keyname, "gasnett_getenv_int_withdefault", "keyname") };
    let value = read_setting(name, |value| {
        number::parse_integer(value, mem_size_multiplier)
    });
    let result = value.unwrap_or(defaultval);
    report_text(
        name,
        &number::format(result, mem_size_multiplier != 0),
        value.is_none(),
    );
    result
}

/// # Safety
/// `keyname` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_getenv_dbl_withdefault(
    keyname: *const c_char,
    defaultval: f64,
) -> f64 {
    // SAFETY: the caller guarantees that `keyname` is null or a C string.
    let name = unsafe { text(keyname, "gasnett_getenv_dbl_withdefault", "keyname") };
    let value = decimal(name);
    let result = value.unwrap_or(defaultval);
    report_decimal(name, result, value.is_none());
    result
}

#[unsafe(no_mangle)]
extern "C" fn gasnett_verboseenv() -> c_int {
    c_int::from(is_verbose())
}

/// # Safety
/// `key` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_envint_display(
    key: *const c_char,
    val: i64,
    is_dflt: c_int,
    is_mem_size: c_int,
) {
    // SAFETY: the caller guarantees that `key` is null or a C string.
    let name = unsafe { text(key, "gasnett_envint_display", "key") };
    report_text(name, &number::format(val, is_mem_size != 0), is_dflt != 0);
}

/// # Safety
/// `key` and `val` must be null or C strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_envstr_display(
    key: *const c_char,
    val: *const c_char,
    is_dflt: c_int,
) {
    // SAFETY: the caller guarantees that `key` and `val` are null or C strings.
    let (name, value) = unsafe {
        (
            text(key, "gasnett_envstr_display", "key"),
            text_or_null(val),
        )
    };
    report_text(
        name,
        &value.map_or("*not set*".into(), CStr::to_string_lossy),
        is_dflt != 0,
    );
}

/// # Safety
/// `key` must be null or a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn gasnett_envdbl_display(key: *const c_char, val: f64, is_dflt: c_int) {
    // SAFETY: the caller guarantees that `key` is null or a C string.
    let name = unsafe { text(key, "gasnett_envdbl_display", "key") };
    report_decimal(name, val, is_dflt != 0);
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn the_jobs_value_goes_before_the_processs_until_that_is_set() {
        let own = |name: &CStr| CString::from(name);
        job::set_environment([(own(c"CONDUIT_TOOLS_TEST_A"), own(c"of the job"))]);
        assert_eq!(getenv(c"CONDUIT_TOOLS_TEST_A"), Some(c"of the job"));
        assert_eq!(getenv(c"CONDUIT_TOOLS_TEST_B"), None);
        // SAFETY: the two are C strings, and no other test of this crate reads these variables.
        unsafe { gasnett_setenv(c"CONDUIT_TOOLS_TEST_A".as_ptr(), c"own".as_ptr()) };
        assert_eq!(getenv(c"CONDUIT_TOOLS_TEST_A"), Some(c"own"));
        // SAFETY: the name is a C string, and no other test of this crate reads this variable.
        unsafe { gasnett_unsetenv(c"CONDUIT_TOOLS_TEST_A".as_ptr()) };
        assert_eq!(getenv(c"CONDUIT_TOOLS_TEST_A"), None);
    }
}
