//! Types and structures.

use std::ffi::{c_int, c_uchar, c_uint, c_void};

pub type ptl_size_t = u64;
pub type ptl_pt_index_t = u32;
pub type ptl_match_bits_t = u64;
pub type ptl_hdr_data_t = u64;
/// Milliseconds.
pub type ptl_time_t = c_uint;
pub type ptl_interface_t = c_uint;
pub type ptl_nid_t = u32;
pub type ptl_pid_t = u32;
pub type ptl_rank_t = u32;
pub type ptl_uid_t = u32;
pub type ptl_sr_index_t = c_uint;
pub type ptl_sr_value_t = c_int;
pub type ptl_ni_fail_t = c_uchar;
pub type ptl_list_t = c_uchar;
pub type ptl_search_op_t = c_uchar;
pub type ptl_ack_req_t = c_uchar;
pub type ptl_op_t = c_uchar;
pub type ptl_datatype_t = c_uchar;
pub type ptl_event_kind_t = c_uchar;
pub type ptl_ct_type_t = c_uint;

pub type ptl_handle_any_t = u32;
pub type ptl_handle_ni_t = ptl_handle_any_t;
pub type ptl_handle_eq_t = ptl_handle_any_t;
pub type ptl_handle_ct_t = ptl_handle_any_t;
pub type ptl_handle_md_t = ptl_handle_any_t;
pub type ptl_handle_le_t = ptl_handle_any_t;
pub type ptl_handle_me_t = ptl_handle_any_t;

/// A process, identified by its physical id. In C, this is the unnamed structure in
/// [`ptl_process_t`].
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ptl_process_phys_t {
    pub nid: ptl_nid_t,
    pub pid: ptl_pid_t,
}

/// A process, identified by its rank on a logical interface and by its physical id on a physical
/// interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ptl_process_t {
    pub rank: ptl_rank_t,
    pub phys: ptl_process_phys_t,
}

impl ptl_process_t {
    /// Creates the value for the process with this rank. All bytes are initialised, because they
    /// are passed to the library.
    pub const fn from_rank(rank: ptl_rank_t) -> Self {
        Self::from_phys(rank, 0)
    }

    /// Creates the value for the process with this physical id.
    pub const fn from_phys(nid: ptl_nid_t, pid: ptl_pid_t) -> Self {
        Self {
            phys: ptl_process_phys_t { nid, pid },
        }
    }
}

/// Memory of an initiator.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ptl_md_t {
    pub start: *mut c_void,
    pub length: ptl_size_t,
    pub options: c_uint,
    pub eq_handle: ptl_handle_eq_t,
    pub ct_handle: ptl_handle_ct_t,
}

/// A piece of memory of an MD or entry with `PTL_IOVEC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ptl_iovec_t {
    pub iov_base: *mut c_void,
    pub iov_len: ptl_size_t,
}

/// Memory of a target, without matching.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ptl_le_t {
    pub start: *mut c_void,
    pub length: ptl_size_t,
    pub ct_handle: ptl_handle_ct_t,
    pub uid: ptl_uid_t,
    pub options: c_uint,
}

/// Memory of a target, with matching.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ptl_me_t {
    pub start: *mut c_void,
    pub length: ptl_size_t,
    pub ct_handle: ptl_handle_ct_t,
    pub uid: ptl_uid_t,
    pub options: c_uint,
    pub match_id: ptl_process_t,
    pub match_bits: ptl_match_bits_t,
    pub ignore_bits: ptl_match_bits_t,
    pub min_free: ptl_size_t,
}

/// Limits of an interface, requested and granted.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ptl_ni_limits_t {
    pub max_entries: c_int,
    pub max_unexpected_headers: c_int,
    pub max_mds: c_int,
    pub max_cts: c_int,
    pub max_eqs: c_int,
    pub max_pt_index: c_int,
    pub max_iovecs: c_int,
    pub max_list_size: c_int,
    pub max_triggered_ops: c_int,
    pub max_msg_size: ptl_size_t,
    pub max_atomic_size: ptl_size_t,
    pub max_fetch_atomic_size: ptl_size_t,
    pub max_waw_ordered_size: ptl_size_t,
    pub max_war_ordered_size: ptl_size_t,
    pub max_volatile_size: ptl_size_t,
    pub features: c_uint,
}

/// The counts of a counter.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ptl_ct_event_t {
    pub success: ptl_size_t,
    pub failure: ptl_size_t,
}

/// An event. Its kind determines which fields are meaningful; the library may leave others
/// unchanged.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ptl_event_t {
    pub start: *mut c_void,
    pub user_ptr: *mut c_void,
    pub hdr_data: ptl_hdr_data_t,
    pub match_bits: ptl_match_bits_t,
    pub rlength: ptl_size_t,
    pub mlength: ptl_size_t,
    pub remote_offset: ptl_size_t,
    pub initiator: ptl_process_t,
    pub uid: ptl_uid_t,
    pub pt_index: ptl_pt_index_t,
    pub r#type: ptl_event_kind_t,
    pub ptl_list: ptl_list_t,
    pub ni_fail_type: ptl_ni_fail_t,
    pub atomic_operation: ptl_op_t,
    pub atomic_type: ptl_datatype_t,
}

/// An event with all bytes zero, as space for the library to write to.
impl Default for ptl_event_t {
    fn default() -> Self {
        // SAFETY: the structure contains only integers and pointers, for which zero bytes are
        // valid.
        unsafe { std::mem::zeroed() }
    }
}
