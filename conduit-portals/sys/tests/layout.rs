//! Compares the structures with the numbers that a C compiler for x86-64 gets from the reference
//! library's header. The numbers are the same in both versions. The fields' types have the same
//! size and alignment on all 64-bit systems.

use std::mem::offset_of;

use portals4_sys::*;

#[test]
fn layouts_are_those_of_the_header() {
    macro_rules! check {
        ($($type:ident: $size:literal, $align:literal {
            $($($field:ident).+ = $offset:literal;)*
        })*) => {$(
            assert_eq!(size_of::<$type>(), $size, stringify!($type));
            assert_eq!(align_of::<$type>(), $align, stringify!($type));
            $(assert_eq!(
                offset_of!($type, $($field).+),
                $offset,
                concat!(stringify!($type), " ", $(stringify!($field)),+),
            );)*
        )*};
    }
    check! {
        ptl_process_t: 8, 4 {
            rank = 0;
            phys.nid = 0;
            phys.pid = 4;
        }
        ptl_md_t: 32, 8 {
            start = 0;
            length = 8;
            options = 16;
            eq_handle = 20;
            ct_handle = 24;
        }
        ptl_iovec_t: 16, 8 {
            iov_base = 0;
            iov_len = 8;
        }
        ptl_le_t: 32, 8 {
            start = 0;
            length = 8;
            ct_handle = 16;
            uid = 20;
            options = 24;
        }
        ptl_ni_limits_t: 96, 8 {
            max_entries = 0;
            max_unexpected_headers = 4;
            max_mds = 8;
            max_cts = 12;
            max_eqs = 16;
            max_pt_index = 20;
            max_iovecs = 24;
            max_list_size = 28;
            max_triggered_ops = 32;
            max_msg_size = 40;
            max_atomic_size = 48;
            max_fetch_atomic_size = 56;
            max_waw_ordered_size = 64;
            max_war_ordered_size = 72;
            max_volatile_size = 80;
            features = 88;
        }
        ptl_me_t: 64, 8 {
            start = 0;
            length = 8;
            ct_handle = 16;
            uid = 20;
            options = 24;
            match_id = 28;
            match_bits = 40;
            ignore_bits = 48;
            min_free = 56;
        }
        ptl_ct_event_t: 16, 8 {
            success = 0;
            failure = 8;
        }
        ptl_event_t: 80, 8 {
            start = 0;
            user_ptr = 8;
            hdr_data = 16;
            match_bits = 24;
            rlength = 32;
            mlength = 40;
            remote_offset = 48;
            initiator = 56;
            uid = 64;
            pt_index = 68;
            r#type = 72;
            ptl_list = 73;
            ni_fail_type = 74;
            atomic_operation = 75;
            atomic_type = 76;
        }
    }
}

#[test]
fn enumerations_are_as_wide_as_in_c() {
    assert_eq!(size_of::<ptl_sr_index_t>(), 4);
    assert_eq!(size_of::<ptl_ct_type_t>(), 4);
}

#[test]
fn a_process_has_a_rank_or_a_place() {
    let process = ptl_process_t::from_rank(7);
    // SAFETY: a rank was stored.
    assert_eq!(unsafe { process.rank }, 7);
    let process = ptl_process_t::from_phys(3, 4);
    // SAFETY: a physical id was stored.
    let phys = unsafe { process.phys };
    assert_eq!(phys, ptl_process_phys_t { nid: 3, pid: 4 });
}
