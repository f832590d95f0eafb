//! The real libfabric behind this library, and the functions that this library exports.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use libfabric_sys::{FI_ENODATA, FI_ENOMEM, Library, fi_fabric_attr, fi_info, fi_type, fid_fabric};

use crate::fabric::Fabric;
use crate::faults::Faults;
use crate::{BEHIND, FAULTS, MARK};

/// Returns the real library. If it can't be loaded, prints a message to standard error and returns
/// `None`.
pub(crate) fn behind() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let named = std::env::var(BEHIND).unwrap_or_default();
        let loaded = match named.as_str() {
            "" | "vendored" => {
                libfabric_vendored::provide();
                return Library::vendored();
            }
            "system" => Library::load(None),
            file => Library::load(Some(Path::new(file))),
        };
        loaded
            .inspect_err(|error| eprintln!("refusing-fabric: {BEHIND}: {error}"))
            .ok()
    });
    library.as_ref()
}

/// Returns the words of [`FAULTS`], each with the faults that it stands for.
fn words() -> &'static [(String, Faults)] {
    static WORDS: OnceLock<Vec<(String, Faults)>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let text = std::env::var(FAULTS).unwrap_or_default();
        let words = text.split_whitespace().filter_map(|word| {
            let faults = Faults::parse(word);
            if faults.is_none() {
                eprintln!("refusing-fabric: {FAULTS}: {word:?} means nothing");
            }
            Some((word.to_owned(), faults?))
        });
        words.collect()
    })
}

/// Splits the name of a domain or a provider into its own name and its faults.
pub(crate) fn take_apart(name: &str) -> (&str, Faults) {
    let Some((own, word)) = name.split_once(MARK) else {
        return (name, Faults::default());
    };
    (own, Faults::parse(word).unwrap_or_default())
}

/// Replaces a string by a copy of `name`.
///
/// # Safety
///
/// `place` must hold null or a string that `malloc` has allocated.
pub(crate) unsafe fn rename(place: &mut *mut c_char, name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: the caller guarantees that `place` holds null or a string that `malloc` has
    // allocated.
    unsafe {
        libc::free(place.cast());
        *place = libc::strdup(name.as_ptr());
    }
}

/// Appends a word that names faults to a name.
///
/// # Safety
///
/// Same as [`rename`].
unsafe fn mark(place: &mut *mut c_char, word: &str) {
    // SAFETY: the caller guarantees that `place` holds null or a string that `malloc` has
    // allocated.
    unsafe {
        let name = format!("{}{MARK}{word}", text(*place));
        rename(place, &name);
    }
}

/// Returns the text of a string. It is empty for null.
///
/// # Safety
///
/// `text` must be null or point to a string that ends with a zero byte.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees that `text`, which isn't null, points to a string that ends
    // with a zero byte.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Lends a string to C code. The returned pointer is valid until this thread's next call of `lent`.
fn lent(text: String) -> *mut c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    TEXT.with_borrow_mut(|place| {
        *place = CString::new(text).unwrap_or_default();
        place.as_ptr().cast_mut()
    })
}

#[unsafe(no_mangle)]
extern "C" fn fi_version() -> u32 {
    behind().map_or(0, Library::version)
}

/// # Safety
///
/// Same as fi_getinfo(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn fi_getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int {
    let Some(library) = behind() else {
        return -FI_ENODATA;
    };
    // SAFETY: the caller keeps the contract of fi_getinfo(3). The other calls get only null and
    // pointers that the real library has returned.
    unsafe {
        let get = |hints, first| library.getinfo(version, node, service, flags, hints, first);
        if hints.is_null() {
            return get(hints, info);
        }
        let named = match (*hints).fabric_attr.as_ref() {
            Some(fabric) => text(fabric.prov_name),
            None => String::new(),
        };
        // The real library knows no provider whose name is followed by a word.
        let (own, named_word) = match named.split_once(MARK) {
            Some((own, word)) => (own, Some(word)),
            None => (named.as_str(), None),
        };
        let mut first = ptr::null_mut();
        if named_word.is_none() {
            let result = get(hints, &mut first);
            if result != 0 {
                return result;
            }
        }
        let offered = match (*hints).domain_attr.as_ref() {
            Some(domain) => domain.mr_mode,
            None => 0,
        };
        let mut last = &mut first;
        for (word, faults) in words() {
            let is_meant = match named_word {
                Some(named) => named == word,
                None => named.is_empty() || !faults.sourceless,
            };
            if !is_meant || faults.mr_mode & !offered != 0 {
                continue;
            }
            // This library enforces the requirements itself, so the real library is asked without
            // them.
            let asked = library.dupinfo(hints);
            if asked.is_null() {
                return -FI_ENOMEM;
            }
            if faults.mr_mode != 0 {
                (*(*asked).domain_attr).mr_mode = 0;
            }
            if named_word.is_some() {
                rename(&mut (*(*asked).fabric_attr).prov_name, own);
            }
            while let Some(info) = last.as_mut() {
                last = &mut info.next;
            }
            let mut more = ptr::null_mut();
            if get(asked, &mut more) == 0 {
                *last = more;
                while let Some(info) = more.as_mut() {
                    let domain = &mut *info.domain_attr;
                    mark(&mut domain.name, word);
                    domain.mr_mode |= faults.mr_mode;
                    if faults.sourceless {
                        mark(&mut (*info.fabric_attr).prov_name, word);
                    }
                    more = info.next;
                }
            }
            library.freeinfo(asked);
        }
        *info = first;
        match first.is_null() {
            true => -FI_ENODATA,
            false => 0,
        }
    }
}

/// # Safety
///
/// Same as fi_freeinfo(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn fi_freeinfo(info: *mut fi_info) {
    if let Some(library) = behind() {
        // SAFETY: the caller keeps the contract of fi_freeinfo(3).
        unsafe { library.freeinfo(info) }
    }
}

/// # Safety
///
/// Same as fi_dupinfo(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn fi_dupinfo(info: *const fi_info) -> *mut fi_info {
    // SAFETY: the caller keeps the contract of fi_dupinfo(3).
    behind().map_or(ptr::null_mut(), |library| unsafe { library.dupinfo(info) })
}

/// # Safety
///
/// Same as fi_fabric(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn fi_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    let Some(library) = behind() else {
        return -FI_ENODATA;
    };
    let mut real = ptr::null_mut();
    // SAFETY: the caller keeps the contract of fi_fabric(3). The copy of the attributes and its own
    // name live during the call.
    unsafe {
        let name = text((*attr).prov_name);
        let own = CString::new(take_apart(&name).0).unwrap_or_default();
        let mut attr = fi_fabric_attr {
            prov_name: own.as_ptr().cast_mut(),
            ..*attr
        };
        let result = library.fabric(&mut attr, &mut real, context);
        if result == 0 {
            *fabric = Fabric::over(real, context);
        }
        result
    }
}

#[unsafe(no_mangle)]
extern "C" fn fi_strerror(errnum: c_int) -> *const c_char {
    lent(behind().map_or_else(String::new, |library| library.strerror(errnum)))
}

/// # Safety
///
/// Same as fi_tostr(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn fi_tostr(data: *const c_void, datatype: fi_type) -> *mut c_char {
    // SAFETY: the caller keeps the contract of fi_tostr(3).
    lent(behind().map_or_else(String::new, |library| unsafe {
        library.tostr(data, datatype)
    }))
}
