//! Prints each provider's offers of reliable endpoints. Uses the vendored library, and then the
//! system's library or the one that LIBFABRIC names.
//!
//! `cargo run -p pgas-libfabric-sys --example providers [provider...]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::ffi::{c_int, c_void};

use libfabric_sys::*;
use support::{Hints, Offers, Rank, libraries, provider};

const BASE: u64 = FI_MSG | FI_RMA;

fn main() {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        wanted = ["tcp", "tcp;ofi_rxm", "shm", "udp;ofi_rxd"]
            .map(str::to_owned)
            .into();
    }
    for (name, library) in libraries() {
        println!("# {name}\n");
        for wanted in &wanted {
            match Offers::ask(&library, Some(wanted), BASE, |_| ()) {
                // SAFETY: `offers.first` is an offer of this library, and `offers` owns it.
                Ok(offers) => unsafe { describe(&library, wanted, offers.first) },
                Err(error) => println!("## {wanted}\n\nno offer: {}\n", library.strerror(error)),
            }
        }
    }
}

/// Prints everything about the first offer.
///
/// # Safety
///
/// `info` must be an offer of this library.
unsafe fn describe(library: &Library, wanted: &str, info: *mut fi_info) {
    // SAFETY: the caller guarantees that `info` is an offer of this library, and offers have all
    // attributes.
    let (tx, rx, ep, domain) = unsafe {
        (
            *(*info).tx_attr,
            *(*info).rx_attr,
            *(*info).ep_attr,
            *(*info).domain_attr,
        )
    };
    // SAFETY: the caller guarantees that `info` is an offer of this library.
    println!("## {wanted}, which is {}\n", provider(unsafe { &*info }));
    let text = |value: *const c_void, kind| {
        // SAFETY: each call below passes a pointer to a value of the type that `kind` states.
        unsafe { library.tostr(value, kind) }.replace("FI_", "")
    };
    // SAFETY: the caller guarantees that `info` is an offer of this library.
    let (caps, mode) = unsafe { ((*info).caps, (*info).mode) };
    let lines = [
        ("caps", text((&raw const caps).cast(), FI_TYPE_CAPS)),
        ("mode", text((&raw const mode).cast(), FI_TYPE_MODE)),
        (
            "mr_mode",
            text((&raw const domain.mr_mode).cast(), FI_TYPE_MR_MODE),
        ),
        ("max_msg_size", ep.max_msg_size.to_string()),
        ("inject_size", tx.inject_size.to_string()),
        ("tx, rx size", format!("{}, {}", tx.size, rx.size)),
        (
            "iov, rma_iov",
            format!("{}, {}", tx.iov_limit, tx.rma_iov_limit),
        ),
        ("total_buffered_recv", rx.total_buffered_recv.to_string()),
        (
            "msg_order tx",
            text((&raw const tx.msg_order).cast(), FI_TYPE_MSG_ORDER),
        ),
        (
            "msg_order rx",
            text((&raw const rx.msg_order).cast(), FI_TYPE_MSG_ORDER),
        ),
        (
            "max_order raw, war, waw",
            format!(
                "{}, {}, {}",
                ep.max_order_raw_size, ep.max_order_war_size, ep.max_order_waw_size
            ),
        ),
        (
            "threading",
            text((&raw const domain.threading).cast(), FI_TYPE_THREADING),
        ),
        (
            "control progress",
            text(
                (&raw const domain.control_progress).cast(),
                FI_TYPE_PROGRESS,
            ),
        ),
        (
            "data progress",
            text((&raw const domain.data_progress).cast(), FI_TYPE_PROGRESS),
        ),
        ("resource_mgmt", domain.resource_mgmt.to_string()),
        (
            "mr_key_size, cq_data_size",
            format!("{}, {}", domain.mr_key_size, domain.cq_data_size),
        ),
        (
            "cq_cnt, ep_cnt, mr_cnt",
            format!("{}, {}, {}", domain.cq_cnt, domain.ep_cnt, domain.mr_cnt),
        ),
        // SAFETY: the caller guarantees that `info` is an offer of this library.
        ("addr_format", unsafe { (*info).addr_format }.to_string()),
    ];
    for (name, value) in lines {
        println!("{name:26}{}", value.trim().replace('\n', " "));
    }
    println!("{:26}{}", "takes", accepted(library, wanted).join(" "));
    println!("{:26}{}", "refuses", refused(library, wanted).join(" "));
    waits(library, info);
    atomics(library, wanted);
    println!();
}

type Hint = (&'static str, u64, fn(Hints));

macro_rules! hints {
    (|$hints:ident| $($name:literal: $caps:expr, {$($adjust:tt)*})*) => {
        &[$(($name, $caps, |#[allow(unused)] $hints| {$($adjust)*})),*]
    };
}

/// The hints that a provider may accept or refuse. Each has a name, capabilities, and further
/// requirements.
const HINTS: &[Hint] = hints! { |hints|
    "TAGGED": FI_TAGGED, {}
    "ATOMIC": FI_ATOMIC, {}
    "MULTI_RECV": FI_MULTI_RECV, {}
    "SOURCE": FI_SOURCE, {}
    "DIRECTED_RECV": FI_DIRECTED_RECV, {}
    "RMA_EVENT": FI_RMA_EVENT, {}
    "FENCE": FI_FENCE, {}
    "TRIGGER": FI_TRIGGER, {}
    "SHARED_AV": FI_SHARED_AV, {}
    "NAMED_RX_CTX": FI_NAMED_RX_CTX, {}
    "LOCAL_COMM": FI_LOCAL_COMM, {}
    "REMOTE_COMM": FI_REMOTE_COMM, {}
    "TRANSMIT_COMPLETE": 0, { hints.tx.op_flags = FI_TRANSMIT_COMPLETE; }
    "DELIVERY_COMPLETE": 0, { hints.tx.op_flags = FI_DELIVERY_COMPLETE; }
    "ORDER_SAS": 0, { hints.tx.msg_order = FI_ORDER_SAS; hints.rx.msg_order = FI_ORDER_SAS; }
    "ORDER_WAS+WAW+RAW": 0, {
        hints.tx.msg_order = FI_ORDER_WAS | FI_ORDER_WAW | FI_ORDER_RAW;
        hints.rx.msg_order = hints.tx.msg_order;
    }
    "THREAD_SAFE": 0, { hints.domain.threading = FI_THREAD_SAFE; }
    "THREAD_FID": 0, { hints.domain.threading = FI_THREAD_FID; }
    "THREAD_ENDPOINT": 0, { hints.domain.threading = FI_THREAD_ENDPOINT; }
    "THREAD_COMPLETION": 0, { hints.domain.threading = FI_THREAD_COMPLETION; }
    "THREAD_DOMAIN": 0, { hints.domain.threading = FI_THREAD_DOMAIN; }
    "DATA_PROGRESS_AUTO": 0, { hints.domain.data_progress = FI_PROGRESS_AUTO; }
    "DATA_PROGRESS_MANUAL": 0, { hints.domain.data_progress = FI_PROGRESS_MANUAL; }
    "CONTROL_PROGRESS_AUTO": 0, { hints.domain.control_progress = FI_PROGRESS_AUTO; }
    "RM_ENABLED": 0, { hints.domain.resource_mgmt = FI_RM_ENABLED; }
    "AV_MAP": 0, { hints.domain.av_type = FI_AV_MAP; }
    "AV_TABLE": 0, { hints.domain.av_type = FI_AV_TABLE; }
    "no_mode_bits": 0, { *hints.mode = 0; }
    "mr_mode=0": 0, { hints.domain.mr_mode = 0; }
    "mr_mode-LOCAL": 0, { hints.domain.mr_mode &= !FI_MR_LOCAL; }
    "mr_mode-VIRT_ADDR": 0, { hints.domain.mr_mode &= !FI_MR_VIRT_ADDR; }
    "mr_mode-PROV_KEY": 0, { hints.domain.mr_mode &= !FI_MR_PROV_KEY; }
    "mr_mode-ENDPOINT": 0, { hints.domain.mr_mode &= !FI_MR_ENDPOINT; }
};

fn takes(library: &Library, wanted: &str, (_, caps, adjust): &Hint) -> bool {
    Offers::ask(library, Some(wanted), BASE | caps, adjust).is_ok()
}

fn accepted(library: &Library, wanted: &str) -> Vec<&'static str> {
    let hints = HINTS.iter().filter(|hint| takes(library, wanted, hint));
    hints.map(|hint| hint.0).collect()
}

fn refused(library: &Library, wanted: &str) -> Vec<&'static str> {
    let hints = HINTS.iter().filter(|hint| !takes(library, wanted, hint));
    hints.map(|hint| hint.0).collect()
}

/// Prints the objects on which a thread can wait for a queue.
fn waits(library: &Library, info: *mut fi_info) {
    for (name, object) in [
        ("WAIT_NONE", FI_WAIT_NONE),
        ("WAIT_UNSPEC", FI_WAIT_UNSPEC),
        ("WAIT_FD", FI_WAIT_FD),
        ("WAIT_POLLFD", FI_WAIT_POLLFD),
    ] {
        let answer = match Rank::open(library, info, object) {
            Err(error) => error,
            Ok(rank) => {
                let mut fid: *mut fid = rank.cq.cast();
                let mut descriptor: c_int = -1;
                // SAFETY: the fabric and the queue are open. For FI_WAIT_FD, the command FI_GETWAIT
                // writes an int, for which `descriptor` has room.
                unsafe {
                    let wait = match object {
                        FI_WAIT_FD => fi_control(fid, FI_GETWAIT, (&raw mut descriptor).cast()),
                        _ => 0,
                    };
                    let mut entry = fi_cq_data_entry::default();
                    let read = match object {
                        FI_WAIT_NONE | FI_WAIT_UNSPEC => 0,
                        _ => fi_cq_sread(rank.cq, (&raw mut entry).cast(), 1, std::ptr::null(), 1),
                    };
                    // Some providers crash when queried about a queue without a descriptor.
                    let trywait = match object {
                        FI_WAIT_NONE | FI_WAIT_UNSPEC => 0,
                        _ => fi_trywait(rank.fabric, &mut fid, 1),
                    };
                    format!(
                        "opens; GETWAIT {wait}, descriptor {descriptor}, sread {read}, trywait {trywait}"
                    )
                }
            }
        };
        println!("{name:26}{answer}");
    }
}

/// Prints which operations on which types are valid: those without a result, the fetching ones, and
/// the comparing ones.
fn atomics(library: &Library, wanted: &str) {
    let Ok(offers) = Offers::ask(library, Some(wanted), BASE | FI_ATOMIC, |_| ()) else {
        println!("{:26}none", "atomics");
        return;
    };
    let Ok(rank) = Rank::open(library, offers.first, FI_WAIT_NONE) else {
        println!("{:26}no endpoint", "atomics");
        return;
    };
    let types = [
        ("i32", FI_INT32),
        ("u32", FI_UINT32),
        ("i64", FI_INT64),
        ("u64", FI_UINT64),
        ("f32", FI_FLOAT),
        ("f64", FI_DOUBLE),
    ];
    for (name, datatype) in types {
        let mut answers = [String::new(), String::new(), String::new()];
        let mut most = 0;
        for op in FI_MIN..=FI_MSWAP {
            let mut count = [0; 3];
            // SAFETY: the endpoint is open, and the counts are valid for writes.
            let valid = unsafe {
                [
                    fi_atomicvalid(rank.ep, datatype, op, &mut count[0]),
                    fi_fetch_atomicvalid(rank.ep, datatype, op, &mut count[1]),
                    fi_compare_atomicvalid(rank.ep, datatype, op, &mut count[2]),
                ]
            };
            // SAFETY: `op` is an atomic operation, as the type states.
            let text = unsafe { library.tostr((&raw const op).cast(), FI_TYPE_ATOMIC_OP) };
            let text = text.trim_start_matches("FI_").trim_start_matches("ATOMIC_");
            for ((answer, valid), count) in answers.iter_mut().zip(valid).zip(count) {
                if valid == 0 && count > 0 {
                    *answer += &format!(" {text}");
                    most = most.max(count);
                }
            }
        }
        let [write, fetch, compare] = answers;
        println!(
            "{:26}up to {most}: write{write}; fetch{fetch}; compare{compare}",
            format!("atomics {name}")
        );
    }
}
