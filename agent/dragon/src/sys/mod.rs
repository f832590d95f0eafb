//! The binding to libdragon 0.15. It declares the functions and structures of the C interface
//! (`channels.h`, `managed_memory.h`) that an agent needs, under their C names. The test in
//! `layout` checks the structures against the headers.

#![allow(non_camel_case_types)]

use std::ffi::{CStr, c_char, c_int, c_short, c_void};

use agent::Code;
use libc::timespec;

#[cfg(test)]
mod layout;
mod load;

pub(crate) use load::text;
pub use load::{LoadError, VERSIONS};

/// A loaded libdragon, which any thread may use.
#[derive(Clone, Copy)]
pub struct Library(&'static Functions);

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

impl std::ops::Deref for Library {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        self.0
    }
}

/// Declares libdragon's functions, and the lookup of their addresses.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that are used.
        pub struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument: $type),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(
                address: impl Fn(&CStr) -> Result<*mut c_void, LoadError>,
            ) -> Result<Self, LoadError> {
                Ok(Self {
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(
                            concat!(stringify!($name), "\0").as_bytes()
                        ) {
                            Ok(name) => name,
                            Err(_) => panic!("no name has a zero byte"),
                        };
                        // SAFETY: the address is that of the function of that name, which the
                        // headers of the accepted versions declare with this type.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(address(NAME)?)
                        }
                    },)*
                })
            }
        }
    };
}

/// A result code (`dragonError_t`), which is 0 for success, or a code of `return_codes.h`.
pub(crate) type dragonError_t = u32;

functions! {
    dragon_get_rc_string(code: dragonError_t) -> *const c_char;
    dragon_gatewaymessage_silence_timeouts();
    // No header declares the next three functions.
    dragon_host_id(host: *mut u64) -> dragonError_t;
    dragon_set_host_id(host: u64) -> dragonError_t;
    dragon_base64_decode(text: *const c_char, length: *mut usize) -> *mut u8;

    dragon_memory_pool_attach_default(pool: *mut dragonMemoryPoolDescr_t) -> dragonError_t;
    dragon_memory_alloc_blocking(
        memory: *mut dragonMemoryDescr_t,
        pool: *const dragonMemoryPoolDescr_t,
        bytes: usize,
        timer: *const timespec
    ) -> dragonError_t;
    dragon_memory_serialize(
        serial: *mut Serial,
        memory: *const dragonMemoryDescr_t
    ) -> dragonError_t;
    dragon_memory_serial_free(serial: *mut Serial) -> dragonError_t;
    dragon_memory_attach(memory: *mut dragonMemoryDescr_t, from: *const Serial) -> dragonError_t;
    dragon_memory_detach(memory: *mut dragonMemoryDescr_t) -> dragonError_t;
    dragon_memory_descr_clone(
        new: *mut dragonMemoryDescr_t,
        old: *const dragonMemoryDescr_t,
        offset: isize,
        length: *mut usize
    ) -> dragonError_t;
    dragon_memory_free(memory: *mut dragonMemoryDescr_t) -> dragonError_t;
    dragon_memory_get_pointer(
        memory: *const dragonMemoryDescr_t,
        pointer: *mut *mut c_void
    ) -> dragonError_t;
    dragon_memory_get_size(memory: *const dragonMemoryDescr_t, bytes: *mut usize) -> dragonError_t;
    dragon_memory_get_pool(
        memory: *const dragonMemoryDescr_t,
        pool: *mut dragonMemoryPoolDescr_t
    ) -> dragonError_t;

    dragon_channel_attach(from: *const Serial, channel: *mut dragonChannelDescr_t) -> dragonError_t;
    dragon_channel_detach(channel: *mut dragonChannelDescr_t) -> dragonError_t;
    dragon_channel_is_local(channel: *const dragonChannelDescr_t) -> bool;
    dragon_channel_get_uid(from: *const Serial, uid: *mut u64) -> dragonError_t;
    dragon_channel_get_pool(
        channel: *const dragonChannelDescr_t,
        pool: *mut dragonMemoryPoolDescr_t
    ) -> dragonError_t;
    dragon_channel_notify_on_destroy(channel: *mut dragonChannelDescr_t) -> dragonError_t;
    dragon_channel_poll(
        channel: *const dragonChannelDescr_t,
        wait_mode: c_int,
        mask: c_short,
        timeout: *const timespec,
        result: *mut u64
    ) -> dragonError_t;

    dragon_channel_sendh(
        channel: *const dragonChannelDescr_t,
        handle: *mut dragonChannelSendh_t,
        attributes: *const c_void
    ) -> dragonError_t;
    dragon_chsend_open(handle: *mut dragonChannelSendh_t) -> dragonError_t;
    dragon_chsend_close(handle: *mut dragonChannelSendh_t) -> dragonError_t;
    dragon_chsend_send_msg(
        handle: *const dragonChannelSendh_t,
        message: *const dragonMessage_t,
        destination: *mut dragonMemoryDescr_t,
        timeout: *const timespec
    ) -> dragonError_t;
    dragon_channel_recvh(
        channel: *const dragonChannelDescr_t,
        handle: *mut dragonChannelRecvh_t,
        attributes: *const c_void
    ) -> dragonError_t;
    dragon_chrecv_open(handle: *mut dragonChannelRecvh_t) -> dragonError_t;
    dragon_chrecv_close(handle: *mut dragonChannelRecvh_t) -> dragonError_t;
    dragon_chrecv_get_msg(
        handle: *const dragonChannelRecvh_t,
        message: *mut dragonMessage_t
    ) -> dragonError_t;

    dragon_channel_message_attr_init(attributes: *mut dragonMessageAttr_t) -> dragonError_t;
    dragon_channel_message_init(
        message: *mut dragonMessage_t,
        memory: *mut dragonMemoryDescr_t,
        attributes: *const dragonMessageAttr_t
    ) -> dragonError_t;
    dragon_channel_message_destroy(message: *mut dragonMessage_t, free: bool) -> dragonError_t;
    dragon_channel_message_get_mem(
        message: *const dragonMessage_t,
        memory: *mut dragonMemoryDescr_t
    ) -> dragonError_t;

    dragon_channel_gatewaymessage_attach(
        from: *const Serial,
        message: *mut dragonGatewayMessage_t
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_destroy(message: *mut dragonGatewayMessage_t) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_start_send_cmplt(
        message: *mut dragonGatewayMessage_t,
        code: dragonError_t,
        deadline: *mut timespec
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_check_send_cmplt(
        message: *mut dragonGatewayMessage_t,
        deadline: *mut timespec
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_start_get_cmplt(
        message: *mut dragonGatewayMessage_t,
        received: *mut dragonMessage_t,
        code: dragonError_t,
        deadline: *mut timespec
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_check_get_cmplt(
        message: *mut dragonGatewayMessage_t,
        deadline: *mut timespec
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_start_event_cmplt(
        message: *mut dragonGatewayMessage_t,
        result: u64,
        code: dragonError_t,
        deadline: *mut timespec
    ) -> dragonError_t;
    dragon_channel_gatewaymessage_transport_check_event_cmplt(
        message: *mut dragonGatewayMessage_t,
        deadline: *mut timespec
    ) -> dragonError_t;
}

/// Defines structures whose content only libdragon knows, with their size and alignment.
macro_rules! opaque {
    ($($name:ident: $words:literal)*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name([u64; $words]);

        impl $name {
            /// Returns an empty structure for libdragon to fill.
            pub(crate) const fn empty() -> Self {
                Self([0; $words])
            }
        }
    )*};
}

opaque! {
    dragonMemoryDescr_t: 2
    dragonMemoryPoolDescr_t: 3
    dragonChannelDescr_t: 2
    dragonChannelSendh_t: 12
    dragonChannelRecvh_t: 9
}

/// A serialized descriptor: a `dragonChannelSerial_t`, a `dragonMemorySerial_t` or a
/// `dragonGatewayMessageSerial_t`.
#[repr(C)]
pub(crate) struct Serial {
    pub(crate) len: usize,
    pub(crate) data: *mut u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct dragonMessageAttr_t {
    pub(crate) hints: u64,
    pub(crate) clientid: u64,
    pub(crate) sendhid: [u8; 16],
    pub(crate) send_transfer_ownership: bool,
    pub(crate) no_copy_read_only: bool,
}

#[repr(C)]
pub(crate) struct dragonMessage_t {
    pub(crate) _attr: dragonMessageAttr_t,
    pub(crate) _mem_descr: *mut dragonMemoryDescr_t,
    pub(crate) _mem_descr_provided: bool,
    pub(crate) _mem_descr_inited: bool,
}

#[repr(C)]
pub(crate) struct dragonGatewayMessageHeader_t {
    before: [u64; 10],
    pub(crate) client_pid: *const u64,
    after: [u64; 18],
}

#[repr(C)]
pub(crate) struct dragonGatewayMessage_t {
    private: [u64; 4],
    pub(crate) _header: dragonGatewayMessageHeader_t,
    pub(crate) target_ch_ser: Serial,
    pub(crate) msg_kind: c_int,
    pub(crate) target_hostid: u64,
    pub(crate) target_rt_uid: u64,
    pub(crate) target_rt_bootstrap: [u64; 2],
    pub(crate) deadline: timespec,
    pub(crate) send_return_mode: c_int,
    pub(crate) send_payload_message: dragonMessage_t,
    pub(crate) send_dest_mem_descr_ser: *const Serial,
    pub(crate) get_dest_mem_descr_ser: *const Serial,
    pub(crate) event_mask: c_short,
    pub(crate) _send_immediate_buffered_complete: bool,
}

/// A node's address. The payload of a send to host 0 is an array of these structures.
#[repr(C)]
pub(crate) struct dragonNodeMap_t {
    pub(crate) host_id: u64,
    pub(crate) ip_addr: u32,
}

/// `DRAGON_IDLE_WAIT`.
pub(crate) const IDLE_WAIT: c_int = 0;
/// `DRAGON_CHANNEL_SEND_TRANSFER_OWNERSHIP`, a marker that is passed in place of a descriptor.
pub(crate) const TRANSFER_OWNERSHIP: *mut dragonMemoryDescr_t = std::ptr::without_provenance_mut(1);
/// `DRAGON_CHANNEL_TRYONCE_TIMEOUT`.
pub(crate) const TRY_ONCE: timespec = timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

pub(crate) const GATEWAY_MESSAGE_SEND: c_int = 0;
pub(crate) const GATEWAY_MESSAGE_GET: c_int = 1;
pub(crate) const GATEWAY_MESSAGE_EVENT: c_int = 2;

/// The result of a single attempt to wait at a barrier if the attempt would have to wait.
pub(crate) const BARRIER_WAIT_TRY_AGAIN: Code = Code(21);
pub(crate) const POLL_CAPACITY: u16 = 8;
pub(crate) const POLL_BARRIER_WAIT: u16 = 9;
pub(crate) const POLL_BARRIER_WAITERS: u16 = 13;
pub(crate) const CHANNEL_CLEANUP: u16 = 19;
