//! The table's operations on memory handles, and its puts and gets.

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

/// The maximum number of segments of a handle.
const MAX_SEGMENTS: usize = 1 << 16;

/// A memory handle that was passed to the user, who frees it.
pub(crate) struct MemHandle {
    class: *const PluginClass,
    kind: MemoryKind,
}

enum MemoryKind {
    /// Memory of this process. The lock of the memory must be taken before the lock of a class.
    Local(Mutex<Memory>),
    /// Memory of a peer, or memory of this process as seen by peers.
    Remote(Handle),
}

impl MemHandle {
    fn local(&self) -> Result<&Mutex<Memory>> {
        match &self.kind {
            MemoryKind::Local(memory) => Ok(memory),
            MemoryKind::Remote(_) => Err(Failure::invalid(
                "the handle was deserialised, so it is not memory of this process",
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

/// Returns the class and the handle that were passed to a call.
///
/// # Safety
/// `class` must be null or a class of the library. `handle` must be null or a handle that was not
/// freed.
unsafe fn both<'a>(
    class: *mut na_class,
    handle: *const MemHandle,
) -> Result<(&'a PluginClass, &'a MemHandle)> {
    // SAFETY: the caller guarantees that `class` is null or a class of the library, and that
    // `handle` is null or was not freed.
    unsafe {
        let class = class_of(class)?;
        Ok((class, handle_of(class, handle)?))
    }
}

/// Returns the handle that a pointer refers to.
///
/// # Safety
/// The pointer must be null or refer to a handle that was not freed.
unsafe fn handle_of<'a>(class: &PluginClass, handle: *const MemHandle) -> Result<&'a MemHandle> {
    // SAFETY: the caller guarantees that the pointer is null or refers to a handle that was not
    // freed.
    match unsafe { handle.as_ref() } {
        None => Err(Failure::invalid("no memory handle given")),
        Some(handle) if !ptr::eq(handle.class, class) => {
            Err(Failure::invalid("memory handle belongs to another class"))
        }
        Some(handle) => Ok(handle),
    }
}

/// Creates a handle with `make` and passes it to the user.
///
/// # Safety
/// The class must be null or one of the library's. `given` must be null or valid for writes.
unsafe fn give(
    class: *mut na_class,
    given: *mut *mut MemHandle,
    make: impl FnOnce(&PluginClass) -> Result<MemoryKind>,
) -> Result {
    // SAFETY: the caller guarantees that the class is null or one of the library's.
    let class = unsafe { class_of(class) }?;
    if given.is_null() {
        return Err(Failure::invalid("the output memory handle is null"));
    }
    let handle = Box::new(MemHandle {
        class,
        kind: make(class)?,
    });
    // SAFETY: `given` is not null, so the caller guarantees that it is valid for writes.
    unsafe { *given = Box::into_raw(handle) };
    Ok(())
}

/// Creates the description of memory of this process.
///
/// # Safety
/// Same as [`na::raw::Class::memory`].
unsafe fn memory(class: &PluginClass, segments: &[Segment], flags: c_ulong) -> Result<MemoryKind> {
    let rights = match flags {
        MEM_READ_ONLY => Rights::ReadOnly,
        MEM_WRITE_ONLY => Rights::WriteOnly,
        MEM_READWRITE => Rights::ReadWrite,
        flags => return Err(Failure::invalid(format!("invalid rights: {flags:#x}"))),
    };
    // SAFETY: the caller guarantees that the segments are valid as `na::raw::Class::memory`
    // requires.
    let memory = unsafe { class.class().memory(segments, rights) }?;
    Ok(MemoryKind::Local(Mutex::new(memory)))
}

// ---- entries of the table ----

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
    // SAFETY: the library passes its class, and a `given` that is null or valid for writes. The
    // user keeps the memory valid while it is registered or transfers with it are under way.
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
            return Err(Failure::invalid("no segments given"));
        }
        if count > MAX_SEGMENTS {
            return Err(Failure::invalid(format!(
                "{count} segments; a handle can have at most {MAX_SEGMENTS}"
            )));
        }
        // SAFETY: `segments` is not null, so the user guarantees that it has `count` entries.
        let segments = unsafe { slice::from_raw_parts(segments, count) };
        let segments: Vec<_> = segments
            .iter()
            .map(|segment| Segment {
                base: segment.base.cast(),
                length: segment.len,
            })
            .collect();
        // SAFETY: the user keeps the memory valid while it is registered or transfers with it are
        // under way.
        unsafe { memory(class, &segments, flags) }
    };
    // SAFETY: the library passes its class.
    let created = unsafe { give(class, given, make) };
    report(Outlet::Memory, c"mem_handle_create_segments", created)
}

pub(crate) unsafe extern "C" fn mem_handle_free(_class: *mut na_class, handle: *mut MemHandle) {
    if !handle.is_null() {
        // SAFETY: this plugin passed the handle to the user, who frees it only once.
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
        // SAFETY: the library passes its class and the user's handle, which was not freed.
        let (_, handle) = unsafe { both(class, handle) }?;
        if !matches!(kind, mem_type::HOST | mem_type::UNKNOWN) {
            let name = mem_type::NAMES
                .get(kind as usize)
                .unwrap_or(&"unknown device");
            return Err(Failure::new(
                Return::OpNotSupported,
                format!("{name} memory is not supported; only host memory can be registered"),
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
        // SAFETY: the library passes its class and the user's handle, which was not freed.
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
        // SAFETY: the library passes its class and the user's handle, which was not freed.
        let (_, handle) = unsafe { both(class, handle) }?;
        // SAFETY: the user's buffer is null or valid for writes of `size` bytes.
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
    // SAFETY: the library passes its class and the user's buffer, which is null or valid for reads
    // of `size` bytes.
    let deserialised = unsafe {
        give(class, given, |_| {
            Ok(MemoryKind::Remote(Handle::from_bytes(load(buffer, size)?)?))
        })
    };
    report(Outlet::Memory, c"mem_handle_deserialize", deserialised)
}

/// Defines the table's operation for puts or for gets.
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
                // SAFETY: the library passes its class and the user's handles and address, none of
                // which were freed.
                let (class, local, remote, address) = unsafe {
                    let class = class_of(class)?;
                    let (local, remote) = (handle_of(class, local)?, handle_of(class, remote)?);
                    (class, local, remote, address_of(class, address)?)
                };
                // The remote handle is read before the local handle is locked, because the two may
                // be the same handle.
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
                // SAFETY: the library passes its context and an operation that is null or not
                // destroyed. The user does not access the local memory until the callback is
                // called.
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
