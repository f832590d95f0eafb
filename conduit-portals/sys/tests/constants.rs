//! Compares the constants with the numbers that a C compiler gets from the reference library's
//! header, as it was from 2016 until September 2023, and as it has been since September 2024.

use portals4_sys::*;

#[test]
fn constants_are_those_of_the_header() {
    macro_rules! check {
        ($($name:ident = $value:expr;)*) => {
            $(assert_eq!($name, $value, stringify!($name));)*
        };
    }
    check! {
        PTL_OK = 0;
        PTL_ARG_INVALID = 1;
        PTL_CT_NONE_REACHED = 2;
        PTL_EQ_DROPPED = 3;
        PTL_EQ_EMPTY = 4;
        PTL_FAIL = 5;
        PTL_IGNORED = 6;
        PTL_IN_USE = 7;
        PTL_EQ_NONE = 0x3fffffff;
        PTL_CT_NONE = 0x5fffffff;
        PTL_INVALID_HANDLE = 0xffffffff;
        PTL_IFACE_DEFAULT = 0xffffffff;
        PTL_PID_ANY = 0xffff;
        PTL_PID_MAX = 0x400;
        PTL_NID_ANY = 0xffff;
        PTL_UID_ANY = 0xffffffff;
        PTL_PT_ANY = 0xffffffff;
        PTL_RANK_ANY = 0xffffffff;
        PTL_TIME_FOREVER = 0xffffffff;
        PTL_SIZE_MAX = 0xffffffffffffffff;
        PTL_NI_MATCHING = 1;
        PTL_NI_NO_MATCHING = 2;
        PTL_NI_LOGICAL = 4;
        PTL_NI_PHYSICAL = 8;
        PTL_NI_INIT_OPTIONS_MASK = 0xf;
        PTL_TARGET_BIND_INACCESSIBLE = 1;
        PTL_TOTAL_DATA_ORDERING = 2;
        PTL_COHERENT_ATOMICS = 4;
        PTL_SR_DROP_COUNT = 0;
        PTL_SR_PERMISSION_VIOLATIONS = 1;
        PTL_SR_OPERATION_VIOLATIONS = 2;
        PTL_SR_LAST = 3;
        PTL_NI_OK = 0;
        PTL_NI_UNDELIVERABLE = 1;
        PTL_NI_DROPPED = 2;
        PTL_NI_PT_DISABLED = 3;
        PTL_NI_PERM_VIOLATION = 4;
        PTL_NI_OP_VIOLATION = 5;
        PTL_NI_NO_MATCH = 6;
        PTL_NI_SEGV = 7;
        PTL_PT_ONLY_USE_ONCE = 1;
        PTL_PT_FLOWCTRL = 2;
        PTL_PT_ONLY_TRUNCATE = 4;
        PTL_PT_MATCH_UNORDERED = 8;
        PTL_IOVEC = 1;
        PTL_MD_EVENT_CT_SEND = 2;
        PTL_MD_EVENT_CT_REPLY = 4;
        PTL_MD_EVENT_CT_ACK = 8;
        PTL_MD_UNORDERED = 0x10;
        PTL_MD_EVENT_SUCCESS_DISABLE = 0x20;
        PTL_MD_VOLATILE = 0x40;
        PTL_MD_EVENT_SEND_DISABLE = 0x80;
        PTL_ME_OP_PUT = 2;
        PTL_ME_OP_GET = 4;
        PTL_ME_USE_ONCE = 8;
        PTL_LE_OP_PUT = 2;
        PTL_LE_OP_GET = 4;
        PTL_LE_USE_ONCE = 8;
        PTL_ME_APPEND_OPTIONS_MASK = 0x7ffff;
        PTL_PRIORITY_LIST = 0;
        PTL_OVERFLOW_LIST = 1;
        PTL_SEARCH_ONLY = 0;
        PTL_SEARCH_DELETE = 1;
        PTL_CT_OPERATION = 0;
        PTL_CT_BYTE = 1;
        PTL_NO_ACK_REQ = 0;
        PTL_ACK_REQ = 1;
        PTL_CT_ACK_REQ = 2;
        PTL_OC_ACK_REQ = 3;
        PTL_MIN = 0;
        PTL_MAX = 1;
        PTL_SUM = 2;
        PTL_PROD = 3;
        PTL_LOR = 4;
        PTL_LAND = 5;
        PTL_BOR = 6;
        PTL_BAND = 7;
        PTL_LXOR = 8;
        PTL_BXOR = 9;
        PTL_SWAP = 0xa;
        PTL_CSWAP = 0xb;
        PTL_CSWAP_NE = 0xc;
        PTL_CSWAP_LE = 0xd;
        PTL_CSWAP_LT = 0xe;
        PTL_CSWAP_GE = 0xf;
        PTL_CSWAP_GT = 0x10;
        PTL_MSWAP = 0x11;
        PTL_OP_LAST = 0x12;
        PTL_INT8_T = 0;
        PTL_UINT8_T = 1;
        PTL_INT16_T = 2;
        PTL_UINT16_T = 3;
        PTL_INT32_T = 4;
        PTL_UINT32_T = 5;
        PTL_FLOAT = 6;
        PTL_INT64_T = 7;
        PTL_UINT64_T = 8;
        PTL_DOUBLE = 9;
        PTL_FLOAT_COMPLEX = 0xa;
        PTL_DOUBLE_COMPLEX = 0xb;
        PTL_LONG_DOUBLE = 0xc;
        PTL_LONG_DOUBLE_COMPLEX = 0xd;
        PTL_DATATYPE_LAST = 0xe;
        PTL_EVENT_GET = 0;
        PTL_EVENT_GET_OVERFLOW = 1;
        PTL_EVENT_PUT = 2;
        PTL_EVENT_PUT_OVERFLOW = 3;
        PTL_EVENT_ATOMIC = 4;
        PTL_EVENT_ATOMIC_OVERFLOW = 5;
        PTL_EVENT_FETCH_ATOMIC = 6;
        PTL_EVENT_FETCH_ATOMIC_OVERFLOW = 7;
        PTL_EVENT_REPLY = 8;
        PTL_EVENT_SEND = 9;
        PTL_EVENT_ACK = 0xa;
        PTL_EVENT_PT_DISABLED = 0xb;
        PTL_EVENT_LINK = 0xc;
        PTL_EVENT_AUTO_UNLINK = 0xd;
        PTL_EVENT_AUTO_FREE = 0xe;
        PTL_EVENT_SEARCH = 0xf;
    }
}

#[test]
fn constants_of_each_version_are_those_of_its_header() {
    let (old, new) = (Constants::V4_0, Constants::V4_3);
    assert_eq!(Version::V4_0.constants(), &old);
    assert_eq!(Version::V4_3.constants(), &new);
    macro_rules! check {
        ($($name:ident = $old:expr, $new:expr;)*) => {
            $(assert_eq!((old.$name, new.$name), ($old, $new), stringify!($name));)*
            // Fails to compile if a constant is missing above.
            let _ = Constants { $($name: new.$name,)* };
        };
    }
    check! {
        PTL_INTERRUPTED = Some(8), None;
        PTL_LIST_TOO_LONG = 9, 8;
        PTL_NO_INIT = 0xa, 9;
        PTL_NO_SPACE = 0xb, 0xa;
        PTL_PID_IN_USE = 0xc, 0xb;
        PTL_PT_FULL = 0xd, 0xc;
        PTL_PT_EQ_NEEDED = 0xe, 0xd;
        PTL_PT_IN_USE = 0xf, 0xe;
        PTL_ABORTED = None, Some(0xf);
        PTL_STATUS_LAST = 0x10, 0xf;
        PTL_PT_ALLOC_DISABLED = None, Some(0x10);
        PTL_PT_ALLOC_OPTIONS_MASK = 0xf, 0x1f;
        PTL_MD_EVENT_CT_BYTES = 0x8000, 0x4000;
        PTL_MD_UNRELIABLE = None, Some(0x100);
        PTL_MD_OPTIONS_MASK = 0x80ff, 0x41ff;
        PTL_ME_ACK_DISABLE = Some(0x10), None;
        PTL_LE_ACK_DISABLE = Some(0x10), None;
        PTL_ME_UNEXPECTED_HDR_DISABLE = 0x20, 0x10;
        PTL_LE_UNEXPECTED_HDR_DISABLE = 0x20, 0x10;
        PTL_ME_IS_ACCESSIBLE = 0x40, 0x20;
        PTL_LE_IS_ACCESSIBLE = 0x40, 0x20;
        PTL_ME_EVENT_LINK_DISABLE = 0x80, 0x40;
        PTL_LE_EVENT_LINK_DISABLE = 0x80, 0x40;
        PTL_ME_EVENT_COMM_DISABLE = 0x100, 0x80;
        PTL_LE_EVENT_COMM_DISABLE = 0x100, 0x80;
        PTL_ME_EVENT_FLOWCTRL_DISABLE = 0x200, 0x100;
        PTL_LE_EVENT_FLOWCTRL_DISABLE = 0x200, 0x100;
        PTL_ME_EVENT_SUCCESS_DISABLE = 0x400, 0x200;
        PTL_LE_EVENT_SUCCESS_DISABLE = 0x400, 0x200;
        PTL_ME_EVENT_OVER_DISABLE = 0x800, 0x400;
        PTL_LE_EVENT_OVER_DISABLE = 0x800, 0x400;
        PTL_ME_EVENT_UNLINK_DISABLE = 0x1000, 0x800;
        PTL_LE_EVENT_UNLINK_DISABLE = 0x1000, 0x800;
        PTL_ME_EVENT_CT_COMM = 0x2000, 0x1000;
        PTL_LE_EVENT_CT_COMM = 0x2000, 0x1000;
        PTL_ME_EVENT_CT_OVERFLOW = 0x4000, 0x2000;
        PTL_LE_EVENT_CT_OVERFLOW = 0x4000, 0x2000;
        PTL_ME_EVENT_CT_BYTES = 0x8000, 0x4000;
        PTL_LE_EVENT_CT_BYTES = 0x8000, 0x4000;
        PTL_LE_APPEND_OPTIONS_MASK = 0xffff, 0x7fff;
        PTL_ME_MANAGE_LOCAL = 0x10000, 0x8000;
        PTL_ME_NO_TRUNCATE = 0x20000, 0x10000;
        PTL_ME_MAY_ALIGN = 0x40000, 0x20000;
        PTL_ME_LOCAL_INC_UH_RLENGTH = None, Some(0x40000);
    }
}

#[test]
fn return_codes_have_names() {
    let old = [
        "PTL_OK",
        "PTL_ARG_INVALID",
        "PTL_CT_NONE_REACHED",
        "PTL_EQ_DROPPED",
        "PTL_EQ_EMPTY",
        "PTL_FAIL",
        "PTL_IGNORED",
        "PTL_IN_USE",
        "PTL_INTERRUPTED",
        "PTL_LIST_TOO_LONG",
        "PTL_NO_INIT",
        "PTL_NO_SPACE",
        "PTL_PID_IN_USE",
        "PTL_PT_FULL",
        "PTL_PT_EQ_NEEDED",
        "PTL_PT_IN_USE",
    ];
    let mut new = old.to_vec();
    new.retain(|name| *name != "PTL_INTERRUPTED");
    new.push("PTL_ABORTED");
    for (version, names) in [(Version::V4_0, &old[..]), (Version::V4_3, &new)] {
        for (number, name) in (0..).zip(names) {
            assert_eq!(
                version.return_code(number).to_string(),
                *name,
                "{version:?}"
            );
        }
        for number in [-1, 16] {
            assert_eq!(version.return_code(number), ReturnCode::Unknown(number));
        }
    }
    assert_eq!(
        Version::V4_3.return_code(77).to_string(),
        "unknown return code 77"
    );
}
