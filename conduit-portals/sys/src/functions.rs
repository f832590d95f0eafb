//! The functions of the library.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::NonNull;

use crate::*;

/// Defines a structure of the functions, its constructor, and methods of `Library` that call them.
/// Some libraries lack the functions of the second group.
macro_rules! functions {
    (
        required { $(
            $(#[$meta:meta])*
            fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty;
        )* }
        optional { $(
            $(#[$opt_meta:meta])*
            fn $opt:ident($($opt_arg:ident: $opt_type:ty),* $(,)?) -> $opt_ret:ty;
        )* }
    ) => {
        /// The functions of a library.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $($name: unsafe extern "C" fn($($arg: $type),*) -> $ret,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($opt_arg: $opt_type),*) -> $opt_ret>,)*
        }

        impl Functions {
            /// Takes each function's address from `symbol`. Returns the first error that `symbol`
            /// returns for a required function.
            ///
            /// # Safety
            ///
            /// `symbol` must return addresses of functions that have the types declared in the
            /// header.
            pub(crate) unsafe fn find<E>(
                symbol: impl Fn(&'static str) -> Result<NonNull<c_void>, E>,
            ) -> Result<Self, E> {
                Ok(Self {
                    // SAFETY: the caller guarantees that the address is that of this function; the
                    // types here are those of the header.
                    $($name: unsafe {
                        transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($arg: $type),*) -> $ret,
                        >(symbol(stringify!($name))?)
                    },)*
                    // SAFETY: the caller guarantees that the address is that of this function,
                    // whose type here is that of the header.
                    $($opt: symbol(stringify!($opt)).ok().map(|symbol| unsafe {
                        transmute::<
                            NonNull<c_void>,
                            unsafe extern "C" fn($($opt_arg: $opt_type),*) -> $opt_ret,
                        >(symbol)
                    }),)*
                })
            }
        }

        impl Library {
            $(
                $(#[$meta])*
                ///
                /// # Safety
                ///
                /// The caller must meet the specification's conditions: pointers must be valid, and
                /// memory lent to the library must stay valid until its last event.
                #[inline]
                pub unsafe fn $name(&self, $($arg: $type),*) -> $ret {
                    // SAFETY: the caller keeps the specification's conditions for this function.
                    unsafe { (self.functions.$name)($($arg),*) }
                }
            )*
            $(
                $(#[$opt_meta])*
                /// Returns `None` if the library lacks this function.
                ///
                /// # Safety
                ///
                /// The caller must meet the specification's conditions: pointers must be valid, and
                /// memory lent to the library must stay valid until its last event.
                #[inline]
                pub unsafe fn $opt(&self, $($opt_arg: $opt_type),*) -> Option<$opt_ret> {
                    // SAFETY: the caller keeps the specification's conditions for this function.
                    self.functions.$opt.map(|function| unsafe { function($($opt_arg),*) })
                }
            )*
        }
    };
}

functions! {
    required {
        /// Initialises the library. The library counts the calls.
        fn PtlInit() -> c_int;

        /// Reverts one `PtlInit`.
        fn PtlFini() -> ();

        /// Opens an interface; `actual` receives its limits.
        fn PtlNIInit(iface: ptl_interface_t, options: c_uint, pid: ptl_pid_t,
            desired: *const ptl_ni_limits_t, actual: *mut ptl_ni_limits_t,
            ni_handle: *mut ptl_handle_ni_t) -> c_int;

        /// Closes an interface.
        fn PtlNIFini(ni_handle: ptl_handle_ni_t) -> c_int;

        /// Reads a status register.
        fn PtlNIStatus(ni_handle: ptl_handle_ni_t, status_register: ptl_sr_index_t,
            status: *mut ptl_sr_value_t) -> c_int;

        /// Returns the interface to which an object belongs.
        fn PtlNIHandle(handle: ptl_handle_any_t, ni_handle: *mut ptl_handle_ni_t) -> c_int;

        /// Sets the map from ranks to processes.
        fn PtlSetMap(ni_handle: ptl_handle_ni_t, map_size: ptl_size_t,
            mapping: *const ptl_process_t) -> c_int;

        /// Reads the map from ranks to processes.
        fn PtlGetMap(ni_handle: ptl_handle_ni_t, map_size: ptl_size_t, mapping: *mut ptl_process_t,
            actual_map_size: *mut ptl_size_t) -> c_int;

        /// Allocates an entry of the portal table.
        fn PtlPTAlloc(ni_handle: ptl_handle_ni_t, options: c_uint, eq_handle: ptl_handle_eq_t,
            pt_index_req: ptl_pt_index_t, pt_index: *mut ptl_pt_index_t) -> c_int;

        /// Releases an entry of the portal table.
        fn PtlPTFree(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t) -> c_int;

        /// Makes a table entry refuse messages.
        fn PtlPTDisable(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t) -> c_int;

        /// Makes a table entry accept messages again.
        fn PtlPTEnable(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t) -> c_int;

        /// Returns the user's id.
        fn PtlGetUid(ni_handle: ptl_handle_ni_t, uid: *mut ptl_uid_t) -> c_int;

        /// Returns this process's physical id or rank, depending on the interface.
        fn PtlGetId(ni_handle: ptl_handle_ni_t, id: *mut ptl_process_t) -> c_int;

        /// Returns this process's physical id.
        fn PtlGetPhysId(ni_handle: ptl_handle_ni_t, id: *mut ptl_process_t) -> c_int;

        /// Creates an MD.
        fn PtlMDBind(ni_handle: ptl_handle_ni_t, md: *const ptl_md_t,
            md_handle: *mut ptl_handle_md_t) -> c_int;

        /// Releases an MD.
        fn PtlMDRelease(md_handle: ptl_handle_md_t) -> c_int;

        /// Appends an entry without matching to a list of a table entry.
        fn PtlLEAppend(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t, le: *const ptl_le_t,
            ptl_list: ptl_list_t, user_ptr: *mut c_void, le_handle: *mut ptl_handle_le_t) -> c_int;

        /// Unlinks an entry without matching. Returns `PTL_IN_USE` while a message is arriving in
        /// it.
        fn PtlLEUnlink(le_handle: ptl_handle_le_t) -> c_int;

        /// Searches for unexpected messages.
        fn PtlLESearch(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t, le: *const ptl_le_t,
            ptl_search_op: ptl_search_op_t, user_ptr: *mut c_void) -> c_int;

        /// Appends a match entry to a list of a table entry.
        fn PtlMEAppend(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t, me: *const ptl_me_t,
            ptl_list: ptl_list_t, user_ptr: *mut c_void, me_handle: *mut ptl_handle_me_t) -> c_int;

        /// Unlinks a match entry. Returns `PTL_IN_USE` while a message is arriving in it.
        fn PtlMEUnlink(me_handle: ptl_handle_me_t) -> c_int;

        /// Searches for unexpected messages that match.
        fn PtlMESearch(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t, me: *const ptl_me_t,
            ptl_search_op: ptl_search_op_t, user_ptr: *mut c_void) -> c_int;

        /// Creates a counter.
        fn PtlCTAlloc(ni_handle: ptl_handle_ni_t, ct_handle: *mut ptl_handle_ct_t) -> c_int;

        /// Releases a counter.
        fn PtlCTFree(ct_handle: ptl_handle_ct_t) -> c_int;

        /// Cancels the operations triggered by a counter.
        fn PtlCTCancelTriggered(ct_handle: ptl_handle_ct_t) -> c_int;

        /// Reads a counter.
        fn PtlCTGet(ct_handle: ptl_handle_ct_t, event: *mut ptl_ct_event_t) -> c_int;

        /// Waits until a counter has reached `test`, or has counted a failure.
        fn PtlCTWait(ct_handle: ptl_handle_ct_t, test: ptl_size_t,
            event: *mut ptl_ct_event_t) -> c_int;

        /// Waits until one of `size` counters has reached its value, up to `timeout` milliseconds.
        fn PtlCTPoll(ct_handles: *const ptl_handle_ct_t, tests: *const ptl_size_t, size: c_uint,
            timeout: ptl_time_t, event: *mut ptl_ct_event_t, which: *mut c_uint) -> c_int;

        /// Sets a counter.
        fn PtlCTSet(ct_handle: ptl_handle_ct_t, new_ct: ptl_ct_event_t) -> c_int;

        /// Adds to a counter.
        fn PtlCTInc(ct_handle: ptl_handle_ct_t, increment: ptl_ct_event_t) -> c_int;

        /// Starts a put.
        fn PtlPut(md_handle: ptl_handle_md_t, local_offset: ptl_size_t, length: ptl_size_t,
            ack_req: ptl_ack_req_t, target_id: ptl_process_t, pt_index: ptl_pt_index_t,
            match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user_ptr: *mut c_void,
            hdr_data: ptl_hdr_data_t) -> c_int;

        /// Starts a get.
        fn PtlGet(md_handle: ptl_handle_md_t, local_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void) -> c_int;

        /// Starts an atomic operation that does not fetch.
        fn PtlAtomic(md_handle: ptl_handle_md_t, local_offset: ptl_size_t, length: ptl_size_t,
            ack_req: ptl_ack_req_t, target_id: ptl_process_t, pt_index: ptl_pt_index_t,
            match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user_ptr: *mut c_void,
            hdr_data: ptl_hdr_data_t, operation: ptl_op_t, datatype: ptl_datatype_t) -> c_int;

        /// Starts an atomic operation that fetches the previous value.
        fn PtlFetchAtomic(get_md_handle: ptl_handle_md_t, local_get_offset: ptl_size_t,
            put_md_handle: ptl_handle_md_t, local_put_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void, hdr_data: ptl_hdr_data_t,
            operation: ptl_op_t, datatype: ptl_datatype_t) -> c_int;

        /// Starts a swap, with a comparand or mask in `operand` if `operation` has one.
        fn PtlSwap(get_md_handle: ptl_handle_md_t, local_get_offset: ptl_size_t,
            put_md_handle: ptl_handle_md_t, local_put_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void, hdr_data: ptl_hdr_data_t,
            operand: *const c_void, operation: ptl_op_t, datatype: ptl_datatype_t) -> c_int;

        /// Makes results of atomic operations visible to the processor's loads.
        fn PtlAtomicSync() -> c_int;

        /// Creates an event queue for `count` events.
        fn PtlEQAlloc(ni_handle: ptl_handle_ni_t, count: ptl_size_t, eq_handle: *mut ptl_handle_eq_t
            ) -> c_int;

        /// Releases an event queue.
        fn PtlEQFree(eq_handle: ptl_handle_eq_t) -> c_int;

        /// Takes an event, if there is one. `PTL_EQ_DROPPED` also returns an event.
        fn PtlEQGet(eq_handle: ptl_handle_eq_t, event: *mut ptl_event_t) -> c_int;

        /// Waits for an event.
        fn PtlEQWait(eq_handle: ptl_handle_eq_t, event: *mut ptl_event_t) -> c_int;

        /// Waits for an event in one of `size` queues, up to `timeout` milliseconds.
        fn PtlEQPoll(eq_handles: *const ptl_handle_eq_t, size: c_uint, timeout: ptl_time_t,
            event: *mut ptl_event_t, which: *mut c_uint) -> c_int;

        /// Starts a put when the counter has reached `threshold`.
        fn PtlTriggeredPut(md_handle: ptl_handle_md_t, local_offset: ptl_size_t, length: ptl_size_t,
            ack_req: ptl_ack_req_t, target_id: ptl_process_t, pt_index: ptl_pt_index_t,
            match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user_ptr: *mut c_void,
            hdr_data: ptl_hdr_data_t, trig_ct_handle: ptl_handle_ct_t,
            threshold: ptl_size_t) -> c_int;

        /// Starts a get when the counter has reached `threshold`.
        fn PtlTriggeredGet(md_handle: ptl_handle_md_t, local_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void, trig_ct_handle: ptl_handle_ct_t,
            threshold: ptl_size_t) -> c_int;

        /// Performs `PtlAtomic` when the counter has reached `threshold`.
        fn PtlTriggeredAtomic(md_handle: ptl_handle_md_t, local_offset: ptl_size_t,
            length: ptl_size_t, ack_req: ptl_ack_req_t, target_id: ptl_process_t,
            pt_index: ptl_pt_index_t,
            match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user_ptr: *mut c_void,
            hdr_data: ptl_hdr_data_t, operation: ptl_op_t, datatype: ptl_datatype_t,
            trig_ct_handle: ptl_handle_ct_t, threshold: ptl_size_t) -> c_int;

        /// Performs `PtlFetchAtomic` when the counter has reached `threshold`.
        fn PtlTriggeredFetchAtomic(get_md_handle: ptl_handle_md_t, local_get_offset: ptl_size_t,
            put_md_handle: ptl_handle_md_t, local_put_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void, hdr_data: ptl_hdr_data_t,
            operation: ptl_op_t, datatype: ptl_datatype_t, trig_ct_handle: ptl_handle_ct_t,
            threshold: ptl_size_t) -> c_int;

        /// Performs `PtlSwap` when the counter has reached `threshold`.
        fn PtlTriggeredSwap(get_md_handle: ptl_handle_md_t, local_get_offset: ptl_size_t,
            put_md_handle: ptl_handle_md_t, local_put_offset: ptl_size_t, length: ptl_size_t,
            target_id: ptl_process_t, pt_index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
            remote_offset: ptl_size_t, user_ptr: *mut c_void, hdr_data: ptl_hdr_data_t,
            operand: *const c_void, operation: ptl_op_t, datatype: ptl_datatype_t,
            trig_ct_handle: ptl_handle_ct_t, threshold: ptl_size_t) -> c_int;

        /// Adds to a counter when the other counter has reached `threshold`.
        fn PtlTriggeredCTInc(ct_handle: ptl_handle_ct_t, increment: ptl_ct_event_t,
            trig_ct_handle: ptl_handle_ct_t, threshold: ptl_size_t) -> c_int;

        /// Sets a counter when the other counter has reached `threshold`.
        fn PtlTriggeredCTSet(ct_handle: ptl_handle_ct_t, new_ct: ptl_ct_event_t,
            trig_ct_handle: ptl_handle_ct_t, threshold: ptl_size_t) -> c_int;

        /// Begins a group of operations that may be sent together.
        fn PtlStartBundle(ni_handle: ptl_handle_ni_t) -> c_int;

        /// Ends a group of operations.
        fn PtlEndBundle(ni_handle: ptl_handle_ni_t) -> c_int;

        /// Compares two handles. Returns nonzero if they are the same.
        fn PtlHandleIsEqual(handle1: ptl_handle_any_t, handle2: ptl_handle_any_t) -> c_int;
    }

    optional {
        /// Ends all waiting calls, and all later ones, with `PTL_ABORTED`.
        fn PtlAbort() -> ();

        /// Appends a match entry when the counter has reached `threshold`.
        fn PtlTriggeredMEAppend(ni_handle: ptl_handle_ni_t, pt_index: ptl_pt_index_t,
            me: *mut ptl_me_t, ptl_list: ptl_list_t, user_ptr: *mut c_void,
            me_handle: *mut ptl_handle_me_t,
            trig_ct_handle: ptl_handle_ct_t, threshold: ptl_size_t) -> c_int;

        /// Unlinks a match entry when the counter has reached `threshold`.
        fn PtlTriggeredMEUnlink(me_handle: ptl_handle_me_t, trig_ct_handle: ptl_handle_ct_t,
            threshold: ptl_size_t) -> c_int;
    }
}
