//! Constants that have the same value in all versions of the library.

use std::ffi::{c_int, c_uint};

use crate::*;

// Return codes. Codes from 8 on depend on the version; see `Constants`.
pub const PTL_OK: c_int = 0;
pub const PTL_ARG_INVALID: c_int = 1;
pub const PTL_CT_NONE_REACHED: c_int = 2;
pub const PTL_EQ_DROPPED: c_int = 3;
pub const PTL_EQ_EMPTY: c_int = 4;
pub const PTL_FAIL: c_int = 5;
pub const PTL_IGNORED: c_int = 6;
pub const PTL_IN_USE: c_int = 7;

// Values for "none" and "any", and limits.
pub const PTL_EQ_NONE: ptl_handle_eq_t = 0x3fff_ffff;
pub const PTL_CT_NONE: ptl_handle_ct_t = 0x5fff_ffff;
pub const PTL_INVALID_HANDLE: ptl_handle_any_t = 0xffff_ffff;
pub const PTL_IFACE_DEFAULT: ptl_interface_t = 0xffff_ffff;
pub const PTL_PID_ANY: ptl_pid_t = 0xffff;
pub const PTL_PID_MAX: ptl_pid_t = 1024;
pub const PTL_NID_ANY: ptl_nid_t = 0xffff;
pub const PTL_UID_ANY: ptl_uid_t = 0xffff_ffff;
pub const PTL_PT_ANY: ptl_pt_index_t = 0xffff_ffff;
pub const PTL_RANK_ANY: ptl_rank_t = 0xffff_ffff;
pub const PTL_TIME_FOREVER: ptl_time_t = 0xffff_ffff;
pub const PTL_SIZE_MAX: ptl_size_t = u64::MAX;

// Options of an interface.
pub const PTL_NI_MATCHING: c_uint = 1 << 0;
pub const PTL_NI_NO_MATCHING: c_uint = 1 << 1;
pub const PTL_NI_LOGICAL: c_uint = 1 << 2;
pub const PTL_NI_PHYSICAL: c_uint = 1 << 3;
pub const PTL_NI_INIT_OPTIONS_MASK: c_uint = (1 << 4) - 1;

// Features of an interface.
pub const PTL_TARGET_BIND_INACCESSIBLE: c_uint = 1 << 0;
pub const PTL_TOTAL_DATA_ORDERING: c_uint = 1 << 1;
pub const PTL_COHERENT_ATOMICS: c_uint = 1 << 2;

// Status registers.
pub const PTL_SR_DROP_COUNT: ptl_sr_index_t = 0;
pub const PTL_SR_PERMISSION_VIOLATIONS: ptl_sr_index_t = 1;
pub const PTL_SR_OPERATION_VIOLATIONS: ptl_sr_index_t = 2;
pub const PTL_SR_LAST: ptl_sr_index_t = PTL_SR_OPERATION_VIOLATIONS + 1;

// Reasons for the failure of an operation.
pub const PTL_NI_OK: ptl_ni_fail_t = 0;
pub const PTL_NI_UNDELIVERABLE: ptl_ni_fail_t = 1;
pub const PTL_NI_DROPPED: ptl_ni_fail_t = 2;
pub const PTL_NI_PT_DISABLED: ptl_ni_fail_t = 3;
pub const PTL_NI_PERM_VIOLATION: ptl_ni_fail_t = 4;
pub const PTL_NI_OP_VIOLATION: ptl_ni_fail_t = 5;
pub const PTL_NI_NO_MATCH: ptl_ni_fail_t = 6;
pub const PTL_NI_SEGV: ptl_ni_fail_t = 7;

// Options of a table entry.
pub const PTL_PT_ONLY_USE_ONCE: c_uint = 1 << 0;
pub const PTL_PT_FLOWCTRL: c_uint = 1 << 1;
pub const PTL_PT_ONLY_TRUNCATE: c_uint = 1 << 2;
pub const PTL_PT_MATCH_UNORDERED: c_uint = 1 << 3;

/// An option of MDs and of entries.
pub const PTL_IOVEC: c_uint = 1 << 0;

// Options of an MD.
pub const PTL_MD_EVENT_CT_SEND: c_uint = 1 << 1;
pub const PTL_MD_EVENT_CT_REPLY: c_uint = 1 << 2;
pub const PTL_MD_EVENT_CT_ACK: c_uint = 1 << 3;
pub const PTL_MD_UNORDERED: c_uint = 1 << 4;
pub const PTL_MD_EVENT_SUCCESS_DISABLE: c_uint = 1 << 5;
pub const PTL_MD_VOLATILE: c_uint = 1 << 6;
pub const PTL_MD_EVENT_SEND_DISABLE: c_uint = 1 << 7;

// Options of an entry. Most options depend on the version; see `Constants`.
pub const PTL_ME_OP_PUT: c_uint = 1 << 1;
pub const PTL_ME_OP_GET: c_uint = 1 << 2;
pub const PTL_ME_USE_ONCE: c_uint = 1 << 3;
pub const PTL_LE_OP_PUT: c_uint = PTL_ME_OP_PUT;
pub const PTL_LE_OP_GET: c_uint = PTL_ME_OP_GET;
pub const PTL_LE_USE_ONCE: c_uint = PTL_ME_USE_ONCE;
pub const PTL_ME_APPEND_OPTIONS_MASK: c_uint = (1 << 19) - 1;

// Lists of a table entry, and the operations of a search in them.
pub const PTL_PRIORITY_LIST: ptl_list_t = 0;
pub const PTL_OVERFLOW_LIST: ptl_list_t = 1;
pub const PTL_SEARCH_ONLY: ptl_search_op_t = 0;
pub const PTL_SEARCH_DELETE: ptl_search_op_t = 1;

// The units of a counter.
pub const PTL_CT_OPERATION: ptl_ct_type_t = 0;
pub const PTL_CT_BYTE: ptl_ct_type_t = 1;

// Acknowledgements.
pub const PTL_NO_ACK_REQ: ptl_ack_req_t = 0;
pub const PTL_ACK_REQ: ptl_ack_req_t = 1;
pub const PTL_CT_ACK_REQ: ptl_ack_req_t = 2;
pub const PTL_OC_ACK_REQ: ptl_ack_req_t = 3;

// Atomic operations.
pub const PTL_MIN: ptl_op_t = 0;
pub const PTL_MAX: ptl_op_t = 1;
pub const PTL_SUM: ptl_op_t = 2;
pub const PTL_PROD: ptl_op_t = 3;
pub const PTL_LOR: ptl_op_t = 4;
pub const PTL_LAND: ptl_op_t = 5;
pub const PTL_BOR: ptl_op_t = 6;
pub const PTL_BAND: ptl_op_t = 7;
pub const PTL_LXOR: ptl_op_t = 8;
pub const PTL_BXOR: ptl_op_t = 9;
pub const PTL_SWAP: ptl_op_t = 10;
pub const PTL_CSWAP: ptl_op_t = 11;
pub const PTL_CSWAP_NE: ptl_op_t = 12;
pub const PTL_CSWAP_LE: ptl_op_t = 13;
pub const PTL_CSWAP_LT: ptl_op_t = 14;
pub const PTL_CSWAP_GE: ptl_op_t = 15;
pub const PTL_CSWAP_GT: ptl_op_t = 16;
pub const PTL_MSWAP: ptl_op_t = 17;
pub const PTL_OP_LAST: ptl_op_t = 18;

// Types of the operands of atomic operations.
pub const PTL_INT8_T: ptl_datatype_t = 0;
pub const PTL_UINT8_T: ptl_datatype_t = 1;
pub const PTL_INT16_T: ptl_datatype_t = 2;
pub const PTL_UINT16_T: ptl_datatype_t = 3;
pub const PTL_INT32_T: ptl_datatype_t = 4;
pub const PTL_UINT32_T: ptl_datatype_t = 5;
pub const PTL_FLOAT: ptl_datatype_t = 6;
pub const PTL_INT64_T: ptl_datatype_t = 7;
pub const PTL_UINT64_T: ptl_datatype_t = 8;
pub const PTL_DOUBLE: ptl_datatype_t = 9;
pub const PTL_FLOAT_COMPLEX: ptl_datatype_t = 10;
pub const PTL_DOUBLE_COMPLEX: ptl_datatype_t = 11;
pub const PTL_LONG_DOUBLE: ptl_datatype_t = 12;
pub const PTL_LONG_DOUBLE_COMPLEX: ptl_datatype_t = 13;
pub const PTL_DATATYPE_LAST: ptl_datatype_t = 14;

// Kinds of events.
pub const PTL_EVENT_GET: ptl_event_kind_t = 0;
pub const PTL_EVENT_GET_OVERFLOW: ptl_event_kind_t = 1;
pub const PTL_EVENT_PUT: ptl_event_kind_t = 2;
pub const PTL_EVENT_PUT_OVERFLOW: ptl_event_kind_t = 3;
pub const PTL_EVENT_ATOMIC: ptl_event_kind_t = 4;
pub const PTL_EVENT_ATOMIC_OVERFLOW: ptl_event_kind_t = 5;
pub const PTL_EVENT_FETCH_ATOMIC: ptl_event_kind_t = 6;
pub const PTL_EVENT_FETCH_ATOMIC_OVERFLOW: ptl_event_kind_t = 7;
pub const PTL_EVENT_REPLY: ptl_event_kind_t = 8;
pub const PTL_EVENT_SEND: ptl_event_kind_t = 9;
pub const PTL_EVENT_ACK: ptl_event_kind_t = 10;
pub const PTL_EVENT_PT_DISABLED: ptl_event_kind_t = 11;
pub const PTL_EVENT_LINK: ptl_event_kind_t = 12;
pub const PTL_EVENT_AUTO_UNLINK: ptl_event_kind_t = 13;
pub const PTL_EVENT_AUTO_FREE: ptl_event_kind_t = 14;
pub const PTL_EVENT_SEARCH: ptl_event_kind_t = 15;
