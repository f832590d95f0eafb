//! The table's operations on addresses.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::slice;

use na::Addr;

use crate::abi::{ADDR_FIREWALL, na_class};
use crate::class::{PluginClass, class_of, text};
use crate::log::Outlet;
use crate::report;
use crate::status::{Failure, Result, Return};

/// An address that was passed to the user, who frees it.
pub(crate) struct Address {
    class: *const PluginClass,
    addr: Addr,
}

/// The number of bytes before a serialised address that hold its length.
const LENGTH: usize = 2;

impl Address {
    pub(crate) fn new(class: &PluginClass, addr: Addr) -> Self {
        Self { class, addr }
    }

    pub(crate) fn addr(&self) -> &Addr {
        &self.addr
    }
}

/// Returns the address that a pointer refers to.
///
/// # Safety
/// The pointer must be null or refer to an address that was not freed.
pub(crate) unsafe fn address_of<'a>(
    class: &PluginClass,
    address: *const Address,
) -> Result<&'a Address> {
    // SAFETY: the caller guarantees that the pointer is null or refers to an address that was not
    // freed.
    match unsafe { address.as_ref() } {
        None => Err(Failure::invalid("no address given")),
        Some(address) if !ptr::eq(address.class, class) => {
            Err(Failure::invalid("the address belongs to another class"))
        }
        Some(address) => Ok(address),
    }
}

/// Returns the class and the address that were passed to a call.
///
/// # Safety
/// `class` must be null or a class of the library. `address` must be null or an address that was
/// not freed.
unsafe fn both<'a>(
    class: *mut na_class,
    address: *const Address,
) -> Result<(&'a PluginClass, &'a Address)> {
    // SAFETY: the caller guarantees that `class` is null or a class of the library, and that
    // `address` is null or was not freed.
    unsafe {
        let class = class_of(class)?;
        Ok((class, address_of(class, address)?))
    }
}

/// Creates an address with `make` and passes it to the user.
///
/// # Safety
/// The class must be null or one of the library's. `given` must be null or valid for writes.
unsafe fn give(
    class: *mut na_class,
    given: *mut *mut Address,
    make: impl FnOnce(&PluginClass) -> Result<Addr>,
) -> Result {
    // SAFETY: the caller guarantees that the class is null or one of the library's.
    let class = unsafe { class_of(class) }?;
    if given.is_null() {
        return Err(Failure::invalid("the output address is null"));
    }
    let address = Box::new(Address::new(class, make(class)?));
    // SAFETY: `given` is not null, so the caller guarantees that it is valid for writes.
    unsafe { *given = Box::into_raw(address) };
    Ok(())
}

/// Serialises an address for other processes.
fn serialised(address: &Address) -> Vec<u8> {
    let bytes = address.addr.to_bytes();
    // The cast is lossless, because addresses are much shorter than 64 KiB.
    let length = (bytes.len() as u16).to_le_bytes();
    [&length[..], &bytes].concat()
}

/// Returns the bytes of the serialised address at the beginning of a buffer.
fn deserialised(bytes: &[u8]) -> Result<&[u8]> {
    let malformed = || Failure::invalid("malformed address");
    let (length, rest) = bytes.split_first_chunk::<LENGTH>().ok_or_else(malformed)?;
    rest.get(..u16::from_le_bytes(*length).into())
        .ok_or_else(malformed)
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn addr_lookup(
    class: *mut na_class,
    name: *const c_char,
    found: *mut *mut Address,
) -> Return {
    // SAFETY: the library passes its class, a name that is null or zero-terminated, and a `found`
    // that is null or valid for writes.
    let looked_up = unsafe {
        give(class, found, |class| {
            let name = text(name, "the address")?;
            let name = name.ok_or_else(|| Failure::invalid("no address given"))?;
            Ok(class.class().lookup(name)?)
        })
    };
    report(Outlet::Address, c"addr_lookup", looked_up)
}

pub(crate) unsafe extern "C" fn addr_free(_class: *mut na_class, address: *mut Address) {
    if !address.is_null() {
        // SAFETY: this plugin passed the address to the user, who frees it only once.
        drop(unsafe { Box::from_raw(address) });
    }
}

/// Does nothing, because a peer is forgotten when its last address is freed.
pub(crate) unsafe extern "C" fn addr_set_remove(
    class: *mut na_class,
    address: *mut Address,
) -> Return {
    // SAFETY: the library passes its class and the user's address, which was not freed.
    let found = unsafe { both(class, address) }.map(drop);
    report(Outlet::Address, c"addr_set_remove", found)
}

pub(crate) unsafe extern "C" fn addr_self(class: *mut na_class, own: *mut *mut Address) -> Return {
    // SAFETY: the library passes its class, and an `own` that is null or valid for writes.
    let given = unsafe { give(class, own, |class| Ok(class.class().own())) };
    report(Outlet::Address, c"addr_self", given)
}

pub(crate) unsafe extern "C" fn addr_dup(
    class: *mut na_class,
    address: *mut Address,
    duplicate: *mut *mut Address,
) -> Return {
    // SAFETY: the library passes its class and the user's address, which was not freed.
    let given = unsafe {
        give(class, duplicate, |class| {
            Ok(address_of(class, address)?.addr.clone())
        })
    };
    report(Outlet::Address, c"addr_dup", given)
}

pub(crate) unsafe extern "C" fn addr_cmp(
    class: *mut na_class,
    one: *mut Address,
    other: *mut Address,
) -> bool {
    // SAFETY: the library passes its class and the user's addresses, which were not freed.
    let (one, other) = unsafe { (both(class, one), both(class, other)) };
    matches!((one, other), (Ok((_, one)), Ok((_, other))) if one.addr == other.addr)
}

pub(crate) unsafe extern "C" fn addr_is_self(class: *mut na_class, address: *mut Address) -> bool {
    // SAFETY: the library passes its class and the user's address, which was not freed.
    unsafe { both(class, address) }.is_ok_and(|(_, address)| address.addr.is_own())
}

pub(crate) unsafe extern "C" fn addr_to_string(
    class: *mut na_class,
    buffer: *mut c_char,
    size: *mut usize,
    address: *mut Address,
) -> Return {
    let print = || -> Result {
        // SAFETY: the library passes its class, the user's address, which was not freed, and a
        // pointer to the user's size, which is null or valid.
        let ((_, address), size) = unsafe { (both(class, address)?, size.as_mut()) };
        let size = size.ok_or_else(|| Failure::invalid("the output size is null"))?;
        let text = address.addr.to_string();
        let needed = text.len() + 1;
        if !buffer.is_null() {
            if needed > *size {
                return Err(Failure::new(
                    Return::Overflow,
                    format!("{text} requires {needed} bytes, but the buffer has {size}"),
                ));
            }
            // SAFETY: the user's buffer has `size` bytes, and the text with its terminator is not
            // longer.
            unsafe {
                ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
                *buffer.add(text.len()) = 0;
            }
        }
        *size = needed;
        Ok(())
    };
    report(Outlet::Address, c"addr_to_string", print())
}

pub(crate) unsafe extern "C" fn addr_get_serialize_size(
    class: *mut na_class,
    address: *mut Address,
) -> usize {
    // SAFETY: the library passes its class and the user's address, which was not freed.
    match unsafe { both(class, address) } {
        Ok((_, address)) => serialised(address).len(),
        Err(failure) => {
            report(Outlet::Address, c"addr_get_serialize_size", Err(failure));
            0
        }
    }
}

pub(crate) unsafe extern "C" fn addr_serialize(
    class: *mut na_class,
    buffer: *mut c_void,
    size: usize,
    address: *mut Address,
) -> Return {
    let serialise = || -> Result {
        // SAFETY: the library passes its class and the user's address, which was not freed.
        let (_, address) = unsafe { both(class, address) }?;
        // SAFETY: the user's buffer is null or valid for writes of `size` bytes.
        unsafe { store(&serialised(address), buffer, size) }
    };
    report(Outlet::Address, c"addr_serialize", serialise())
}

pub(crate) unsafe extern "C" fn addr_deserialize(
    class: *mut na_class,
    given: *mut *mut Address,
    buffer: *const c_void,
    size: usize,
    flags: u64,
) -> Return {
    // SAFETY: the library passes its class and the user's buffer, which is null or valid for reads
    // of `size` bytes.
    let deserialised = unsafe {
        give(class, given, |class| {
            if flags & ADDR_FIREWALL != 0 {
                return Err(Failure::new(
                    Return::OpNotSupported,
                    "NA_ADDR_FIREWALL: addresses behind a firewall are not supported",
                ));
            }
            let bytes = deserialised(load(buffer, size)?)?;
            Ok(class.class().address_of_bytes(bytes)?)
        })
    };
    report(Outlet::Address, c"addr_deserialize", deserialised)
}

/// Copies serialised bytes to a buffer.
///
/// # Safety
/// The buffer must be null or valid for writes of `size` bytes.
pub(crate) unsafe fn store(bytes: &[u8], buffer: *mut c_void, size: usize) -> Result {
    if buffer.is_null() {
        return Err(Failure::invalid("no buffer given"));
    }
    if size < bytes.len() {
        return Err(Failure::new(
            Return::Overflow,
            format!(
                "{} bytes are required, but the buffer has {size}",
                bytes.len()
            ),
        ));
    }
    // SAFETY: the caller guarantees that the buffer is valid for writes of `size` bytes, and the
    // bytes were just checked to fit.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
    Ok(())
}

/// Returns the bytes of a buffer that is to be deserialised.
///
/// # Safety
/// The buffer must be null or valid for reads of `size` bytes for as long as the result is used.
pub(crate) unsafe fn load<'a>(buffer: *const c_void, size: usize) -> Result<&'a [u8]> {
    if buffer.is_null() {
        return Err(Failure::invalid("no buffer given"));
    }
    // SAFETY: the caller guarantees that the buffer is valid for reads of `size` bytes.
    Ok(unsafe { slice::from_raw_parts(buffer.cast(), size) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_addresses_are_refused() {
        assert_eq!(deserialised(&[2, 0, 7, 8, 9]), Ok(&[7, 8][..]));
        assert_eq!(deserialised(&[0, 0]), Ok(&[][..]));
        for bytes in [&[][..], &[1], &[3, 0, 1, 2], &[0, 1, 0]] {
            let failure = deserialised(bytes).unwrap_err();
            assert_eq!(failure.code, Return::InvalidArg);
        }
    }
}
