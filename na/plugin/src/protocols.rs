//! The table's operations that list the available protocols and their interfaces.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use na::Protocol;

use crate::abi::{na_info, na_protocol_info};
use crate::class::text;
use crate::log::Outlet;
use crate::report;
use crate::status::{Failure, Result, Return};

/// This plugin's name in info strings.
pub(crate) const CLASS: &CStr = c"conduit";

/// Returns the names of the interfaces that have an address.
fn interfaces() -> BTreeSet<String> {
    // If the system cannot list the interfaces, the set is empty.
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    all.into_iter().map(|interface| interface.name).collect()
}

/// Returns the devices on which a protocol can be opened, in the form of the part of an info string
/// after `://`.
fn devices(protocol: Protocol) -> BTreeSet<String> {
    match protocol {
        Protocol::Shm => BTreeSet::from(["shm".to_owned()]),
        Protocol::Udp | Protocol::Ofi | Protocol::Conduit => interfaces(),
    }
}

/// Creates a list of the protocols and their devices, which the library frees.
fn list(protocols: impl Iterator<Item = Protocol>) -> Result<*mut na_protocol_info> {
    let mut first = ptr::null_mut();
    for protocol in protocols {
        for device in devices(protocol).into_iter().rev() {
            // SAFETY: `calloc` may be called with any size, and all zeros are a valid entry without
            // names.
            let entry = unsafe { libc::calloc(1, size_of::<na_protocol_info>()) }
                .cast::<na_protocol_info>();
            if entry.is_null() {
                return Err(Failure::new(
                    Return::NoMemory,
                    "out of memory for the list of protocols",
                ));
            }
            // SAFETY: the entry was just allocated, and the strings are zero-terminated.
            unsafe {
                (*entry).next = first;
                (*entry).class_name = libc::strdup(CLASS.as_ptr());
                (*entry).protocol_name = duplicate(protocol.name());
                (*entry).device_name = duplicate(&device);
            }
            first = entry;
        }
    }
    Ok(first)
}

/// Returns a copy of a string, which must be freed with `free`.
fn duplicate(text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: a `CString` is zero-terminated.
    unsafe { libc::strdup(text.as_ptr()) }
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn get_protocol_info(
    info: *const na_info,
    given: *mut *mut na_protocol_info,
) -> Return {
    let get = || -> Result {
        if given.is_null() {
            return Err(Failure::invalid("the output list is null"));
        }
        // SAFETY: the library passes null or its own structure.
        let name = match unsafe { info.as_ref() } {
            None => None,
            // SAFETY: the library's string is null or zero-terminated.
            Some(info) => unsafe { text(info.protocol_name, "the protocol") }?,
        };
        // The order is reversed, because `list` puts each entry in front of the previous ones.
        let protocols = Protocol::ALL.into_iter().rev();
        let chosen = protocols.filter(|(known, _)| name.is_none_or(|name| name == *known));
        let first = list(chosen.map(|(_, protocol)| protocol))?;
        // SAFETY: `given` is not null, so the library guarantees that it is valid for a write.
        unsafe { *given = first };
        Ok(())
    };
    report(Outlet::Class, c"get_protocol_info", get())
}

pub(crate) unsafe extern "C" fn check_protocol(name: *const c_char) -> bool {
    // SAFETY: the library's string is null or zero-terminated.
    let name = unsafe { text(name, "the protocol") };
    matches!(name, Ok(Some(name)) if Protocol::of(name).is_some())
}
