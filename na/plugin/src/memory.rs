//! Memory handles, puts and gets.

use std::ffi::{c_uint, c_ulong, c_void};
use std::ptr;
use std::slice;

use na::raw::{Memory, Segment};
use na::{Handle, Part, Rights};
use parking_lot::Mutex;

use crate::abi::{
    CallbackType, MEM_READ_ONLY, MEM_READWRITE, MEM_WRITE_ONLY, mem_type, na_cb_t, na_class,
    na_context, na_segment,
};
use crate::address::{Address, address_of, load, store};
use crate::class::{PluginClass, class_of};
use crate::log::Outlet;
use crate::operation::{self, Begin, Op};
use crate::report;
use crate::status::{Failure, Result, Return};

/// Most segments of a handle.
const MAX_SEGMENTS: usize = 1 << 16;

/// A memory handle, which its user frees.
pub(crate) struct MemHandle {
    class: *const PluginClass,
    kind: MemoryKind,
}

enum MemoryKind {
    /// Memory of this process. Its lock is taken before a class's.
    Local(Mutex<Memory>),
    /// A peer's, or this process's as peers see it.
    Remote(Handle),
}

impl MemHandle {
    fn local(&self) -> Result<&Mutex<Memory>> {
        match &self.kind {
            MemoryKind::Local(memory) => Ok(memory),
            MemoryKind::Remote(_) => Err(Failure::invalid(
                "the handle was deserialised: it is not memory of this process",
            )),
        }
    }

    fn handle(&self) -> Result<Handle> {
        match &self.kind {
            MemoryKind::Local(memory) => Ok(memory.lock().handle()?),
            MemoryKind::Remote(handle) => Ok(*handle),
        }
    }
}

/// Class and handle of a call.
///
/// # Safety
/// They are null, or the library's and a handle that was not freed.
unsafe fn both<'a>(
    class: *mut na_class,
    handle: *const MemHandle,
) -> Result<(&'a PluginClass, &'a MemHandle)> {
    // SAFETY: the caller's promise.
    unsafe {
        let class = class_of(class)?;
        Ok((class, handle_of(class, handle)?))
    }
}

/// What is behind a pointer to a handle.
///
/// # Safety
/// It is null, or a handle that was not freed.
unsafe fn handle_of<'a>(class: &PluginClass, handle: *const MemHandle) -> Result<&'a MemHandle> {
    // SAFETY: the caller's promise.
    match unsafe { handle.as_ref() } {
        None => Err(Failure::invalid("no memory handle is given")),
        Some(handle) if !ptr::eq(handle.class, class) => {
            Err(Failure::invalid("the memory handle is another class's"))
        }
        Some(handle) => Ok(handle),
    }
}

/// Makes a handle by `make`, and gives it to the user.
///
/// # Safety
/// The class is null or the library's; `given` is null or valid for writes.
unsafe fn give(
    class: *mut na_class,
    given: *mut *mut MemHandle,
    make: impl FnOnce(&PluginClass) -> Result<MemoryKind>,
) -> Result {
    // SAFETY: the caller's promise.
    let class = unsafe { class_of(class) }?;
    if given.is_null() {
        return Err(Failure::invalid("there is no place for the memory handle"));
    }
    let handle = Box::new(MemHandle {
        class,
        kind: make(class)?,
    });
    // SAFETY: the caller's promise.
    unsafe { *given = Box::into_raw(handle) };
    Ok(())
}

/// Memory of this process.
///
/// # Safety
/// As for [`na::raw::Class::memory`].
unsafe fn memory(class: &PluginClass, segments: &[Segment], flags: c_ulong) -> Result<MemoryKind> {
    let rights = match flags {
        MEM_READ_ONLY => Rights::ReadOnly,
        MEM_WRITE_ONLY => Rights::WriteOnly,
        MEM_READWRITE => Rights::ReadWrite,
        flags => return Err(Failure::invalid(format!("rights to memory are {flags:#x}"))),
    };
    // SAFETY: the caller's promise.
    let memory = unsafe { class.class().memory(segments, rights) }?;
    Ok(MemoryKind::Local(Mutex::new(memory)))
}

// ---- the table's ----

pub(crate) unsafe extern "C" fn mem_handle_create(
    class: *mut na_class,
    buffer: *mut c_void,
    size: usize,
    flags: c_ulong,
    given: *mut *mut MemHandle,
) -> Return {
    let segment = Segment {
        base: buffer.cast(),
        length: size,
    };
    // SAFETY: the library's; the user keeps the memory as long as it is registered, or transfers
    // are under way.
    let created = unsafe { give(class, given, |class| memory(class, &[segment], flags)) };
    report(Outlet::Memory, c"mem_handle_create", created)
}

pub(crate) unsafe extern "C" fn mem_handle_create_segments(
    class: *mut na_class,
    segments: *mut na_segment,
    count: usize,
    flags: c_ulong,
    given: *mut *mut MemHandle,
) -> Return {
    let make = |class: &PluginClass| {
        if segments.is_null() || count == 0 {
            return Err(Failure::invalid("no segments are given"));
        }
        if count > MAX_SEGMENTS {
            return Err(Failure::invalid(format!(
                "{count} segments, of {MAX_SEGMENTS} that a handle can have"
            )));
        }
        // SAFETY: the user's, of that many.
        let segments = unsafe { slice::from_raw_parts(segments, count) };
        let segments: Vec<_> = segments
            .iter()
            .map(|segment| Segment {
                base: segment.base.cast(),
                length: segment.len,
            })
            .collect();
        // SAFETY: as for `mem_handle_create`.
        unsafe { memory(class, &segments, flags) }
    };
    // SAFETY: the library's.
    let created = unsafe { give(class, given, make) };
    report(Outlet::Memory, c"mem_handle_create_segments", created)
}

pub(crate) unsafe extern "C" fn mem_handle_free(_class: *mut na_class, handle: *mut MemHandle) {
    if !handle.is_null() {
        // SAFETY: given to the user by this plugin, and freed once.
        drop(unsafe { Box::from_raw(handle) });
    }
}

pub(crate) unsafe extern "C" fn mem_handle_get_max_segments(_class: *const na_class) -> usize {
    MAX_SEGMENTS
}

pub(crate) unsafe extern "C" fn mem_register(
    class: *mut na_class,
    handle: *mut MemHandle,
    kind: c_uint,
    _device: u64,
) -> Return {
    let register = || -> Result {
        // SAFETY: the library's, and the user's.
        let (_, handle) = unsafe { both(class, handle) }?;
        if !matches!(kind, mem_type::HOST | mem_type::UNKNOWN) {
            let name = mem_type::NAMES
                .get(kind as usize)
                .unwrap_or(&"an unknown device");
            return Err(Failure::new(
                Return::OpNotSupported,
                format!("memory of {name} can't be registered, the host's alone"),
            ));
        }
        handle.local()?.lock().register()?;
        Ok(())
    };
    report(Outlet::Memory, c"mem_register", register())
}

pub(crate) unsafe extern "C" fn mem_deregister(
    class: *mut na_class,
    handle: *mut MemHandle,
) -> Return {
    let deregister = || -> Result {
        // SAFETY: the library's, and the user's.
        let (_, handle) = unsafe { both(class, handle) }?;
        handle.local()?.lock().deregister();
        Ok(())
    };
    report(Outlet::Memory, c"mem_deregister", deregister())
}

pub(crate) unsafe extern "C" fn mem_handle_get_serialize_size(
    _class: *mut na_class,
    _handle: *mut MemHandle,
) -> usize {
    Handle::BYTES
}

pub(crate) unsafe extern "C" fn mem_handle_serialize(
    class: *mut na_class,
    buffer: *mut c_void,
    size: usize,
    handle: *mut MemHandle,
) -> Return {
    let serialise = || -> Result {
        // SAFETY: the library's, and the user's.
        let (_, handle) = unsafe { both(class, handle) }?;
        // SAFETY: the user's buffer.
        unsafe { store(&handle.handle()?.to_bytes(), buffer, size) }
    };
    report(Outlet::Memory, c"mem_handle_serialize", serialise())
}

pub(crate) unsafe extern "C" fn mem_handle_deserialize(
    class: *mut na_class,
    given: *mut *mut MemHandle,
    buffer: *const c_void,
    size: usize,
) -> Return {
    // SAFETY: the library's, and the user's buffer.
    let deserialised = unsafe {
        give(class, given, |_| {
            Ok(MemoryKind::Remote(Handle::from_bytes(load(buffer, size)?)?))
        })
    };
    report(Outlet::Memory, c"mem_handle_deserialize", deserialised)
}

/// Puts and gets.
macro_rules! transfer {
    ($name:ident, $kind:ident, $text:literal) => {
        pub(crate) unsafe extern "C" fn $name(
            class: *mut na_class,
            context: *mut na_context,
            callback: na_cb_t,
            arg: *mut c_void,
            local: *mut MemHandle,
            local_offset: u64,
            remote: *mut MemHandle,
            remote_offset: u64,
            length: usize,
            address: *mut Address,
            _target: u8,
            op: *mut Op,
        ) -> Return {
            let transfer = || -> Result {
                // SAFETY: the library's, and the user's.
                let (class, local, remote, address) = unsafe {
                    let class = class_of(class)?;
                    let (local, remote) = (handle_of(class, local)?, handle_of(class, remote)?);
                    (class, local, remote, address_of(class, address)?)
                };
                // Before the other one's lock: both may be the same.
                let handle = remote.handle()?;
                let remote = Part {
                    memory: &handle,
                    offset: remote_offset,
                };
                let memory = local.local()?.lock();
                let local = Part {
                    memory: &*memory,
                    offset: local_offset,
                };
                let (length, peer) = (length as u64, address.addr());
                let begin = Begin {
                    callback,
                    arg,
                    kind: CallbackType::$kind,
                    buffer: ptr::null_mut(),
                };
                // SAFETY: the user leaves the local memory alone until the callback is called.
                unsafe {
                    operation::start(class, context, op, begin, |context, cookie| {
                        class
                            .class()
                            .$name(context, cookie, local, remote, length, peer)
                    })
                }
            };
            report(Outlet::Transfer, $text, transfer())
        }
    };
}

transfer!(put, Put, c"put");
transfer!(get, Get, c"get");
