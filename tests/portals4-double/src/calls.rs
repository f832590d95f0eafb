//! The functions that the library exports.

use std::ffi::{c_int, c_uint, c_void};
use std::time::{Duration, Instant};

use portals4_sys::*;

use crate::queue::Queue;
use crate::target::{Entry, SPARED, TableEntry};
use crate::wire::{Header, Kind, MOST};
use crate::world::{INDICES, Operation, World, lock, wait};

const CONSTANTS: &Constants = &Constants::V4_3;
const NI: ptl_handle_ni_t = 7;
/// The node id of the only node.
const NID: u32 = 1;
/// With the fault `in_use`, one in this many attempts to unlink an entry succeeds.
const ATTEMPTS: u32 = 4;

/// Runs a call on the interface, if it is open.
fn on(call: impl FnOnce(&mut World) -> c_int) -> c_int {
    match &mut *lock() {
        Some(world) => call(world),
        None => CONSTANTS.PTL_NO_INIT,
    }
}

/// Defines functions as the C library exports them. Their callers must comply with the
/// specification.
macro_rules! exported {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty $body:block)*) => {
        $(
            // SAFETY: no other library in the process defines a function of this name.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> $ret $body
        )*
    };
}

/// Defines functions that Conduit doesn't call. They always fail.
macro_rules! absent {
    ($($name:ident)*) => {
        $(
            // SAFETY: no other library in the process defines a function of this name.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> c_int {
                PTL_FAIL
            }
        )*
    };
}

absent! {
    PtlNIStatus PtlNIHandle PtlGetMap PtlPTDisable PtlGetUid PtlLEAppend PtlLEUnlink PtlLESearch
    PtlMESearch PtlCTAlloc PtlCTFree PtlCTCancelTriggered PtlCTGet PtlCTWait PtlCTPoll PtlCTSet
    PtlCTInc PtlAtomicSync PtlEQWait PtlTriggeredPut
    PtlTriggeredGet PtlTriggeredAtomic PtlTriggeredFetchAtomic PtlTriggeredSwap PtlTriggeredCTInc
    PtlTriggeredCTSet PtlStartBundle PtlEndBundle PtlHandleIsEqual PtlAbort
}

/// Returns the header of a message to an index of a target.
fn to(kind: Kind, index: u32, match_bits: u64, offset: u64) -> Header {
    Header {
        kind,
        pid: 0,
        rank: 0,
        operation: 0,
        wants_ack: true,
        index,
        match_bits,
        offset,
        hdr_data: 0,
        length: 0,
        fail: PTL_NI_OK,
        list: 0,
        atomic: (0, 0),
        comparand: 0,
    }
}

/// Sends a message from the memory of descriptor `from`. A reply is written to the memory of
/// descriptor `back`.
fn start(
    world: &mut World,
    from: (ptl_handle_md_t, u64),
    back: (ptl_handle_md_t, u64),
    length: u64,
    header: Header,
    target: ptl_process_t,
    user: *mut c_void,
) -> c_int {
    if world.faults.no_space && header.index < SPARED && fastrand::u32(..8) == 0 {
        return CONSTANTS.PTL_NO_SPACE;
    }
    let find = |md: u32| world.descriptors.get(md as usize);
    let (Some(source), Some(destination)) = (find(from.0), find(back.0)) else {
        return PTL_ARG_INVALID;
    };
    let address = |md: &ptl_md_t, offset: u64| (md.start as usize).wrapping_add(offset as usize);
    let (source, queue) = (address(source, from.1), destination.eq_handle);
    let destination = address(destination, back.1);
    // SAFETY: all bytes of `target` are initialised, so they form a valid rank.
    let Some(&pid) = world.map.get(unsafe { target.rank } as usize) else {
        return PTL_ARG_INVALID;
    };
    if length > MOST as u64 {
        return PTL_ARG_INVALID;
    }
    let operation = world.next;
    world.next += 1;
    let replies = matches!(header.kind, Kind::Get | Kind::FetchAtomic);
    if header.wants_ack {
        world.operations.insert(
            operation,
            Operation {
                queue,
                user: user.addr(),
                destination: (destination, if replies { length as usize } else { 0 }),
            },
        );
    }
    let header = Header {
        pid: world.wire.pid,
        rank: world.rank,
        operation,
        length,
        ..header
    };
    let bytes = match header.kind == Kind::Get || length == 0 {
        true => &[],
        // SAFETY: the caller keeps the source of a put valid until the put's event, which comes
        // after this call.
        false => unsafe {
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance(source), length as usize)
        },
    };
    world.wire.send(pid, &header, bytes);
    PTL_OK
}

exported! {
    fn PtlInit() -> c_int {
        PTL_OK
    }

    fn PtlFini() -> () {}

    fn PtlNIInit(_iface: ptl_interface_t, _options: c_uint, _pid: ptl_pid_t,
        desired: *const ptl_ni_limits_t, actual: *mut ptl_ni_limits_t,
        ni: *mut ptl_handle_ni_t) -> c_int {
        if lock().is_some() {
            return CONSTANTS.PTL_PID_IN_USE;
        }
        let Ok(faults) = crate::own_faults() else {
            return PTL_ARG_INVALID;
        };
        if World::open(faults).is_err() {
            return PTL_FAIL;
        }
        // SAFETY: the caller guarantees that `desired` is valid for reads, and `actual` and `ni`
        // for writes.
        unsafe {
            let mut limits = *desired;
            limits.max_entries = limits.max_entries.min(1024);
            limits.max_list_size = limits.max_list_size.min(1024);
            limits.max_eqs = limits.max_eqs.min(1024);
            limits.max_pt_index = INDICES as c_int - 1;
            limits.max_msg_size = limits.max_msg_size.min(MOST as u64);
            actual.write(limits);
            ni.write(NI);
        }
        PTL_OK
    }

    fn PtlNIFini(_ni: ptl_handle_ni_t) -> c_int {
        World::close();
        PTL_OK
    }

    fn PtlSetMap(_ni: ptl_handle_ni_t, size: ptl_size_t, map: *const ptl_process_t) -> c_int {
        on(|world| {
            // SAFETY: the caller guarantees that `map` points to `size` ids.
            let map = unsafe { std::slice::from_raw_parts(map, size as usize) };
            // SAFETY: all bytes of these ids are initialised, so they form valid process ids.
            world.map = map.iter().map(|process| unsafe { process.phys.pid }).collect();
            let own = world.map.iter().position(|pid| *pid == world.wire.pid);
            match own {
                Some(rank) => {
                    world.rank = rank as u32;
                    PTL_OK
                }
                None => PTL_ARG_INVALID,
            }
        })
    }

    fn PtlGetId(_ni: ptl_handle_ni_t, id: *mut ptl_process_t) -> c_int {
        on(|world| {
            // SAFETY: the caller guarantees that `id` is valid for writes.
            unsafe { id.write(ptl_process_t::from_rank(world.rank)) };
            PTL_OK
        })
    }

    fn PtlGetPhysId(_ni: ptl_handle_ni_t, id: *mut ptl_process_t) -> c_int {
        on(|world| {
            // SAFETY: the caller guarantees that `id` is valid for writes.
            unsafe { id.write(ptl_process_t::from_phys(NID, world.wire.pid)) };
            PTL_OK
        })
    }

    fn PtlPTAlloc(_ni: ptl_handle_ni_t, options: c_uint, queue: ptl_handle_eq_t,
        asked: ptl_pt_index_t, got: *mut ptl_pt_index_t) -> c_int {
        on(|world| {
            let free = |at: &usize| world.table[*at].is_none();
            let index = match asked {
                PTL_PT_ANY => (0..INDICES).rev().find(free),
                asked => Some(asked as usize).filter(|at| *at < INDICES).filter(free),
            };
            let Some(index) = index else {
                return CONSTANTS.PTL_PT_IN_USE;
            };
            if options & PTL_PT_FLOWCTRL != 0 && queue == PTL_EQ_NONE {
                return CONSTANTS.PTL_PT_EQ_NEEDED;
            }
            world.table[index] = Some(TableEntry {
                queue: (queue != PTL_EQ_NONE).then_some(queue),
                options,
                ..TableEntry::default()
            });
            // SAFETY: the caller guarantees that `got` is valid for writes.
            unsafe { got.write(index as u32) };
            PTL_OK
        })
    }

    fn PtlPTFree(_ni: ptl_handle_ni_t, index: ptl_pt_index_t) -> c_int {
        on(|world| {
            match world.table.get_mut(index as usize) {
                Some(entry) => *entry = None,
                None => return PTL_ARG_INVALID,
            }
            PTL_OK
        })
    }

    fn PtlPTEnable(_ni: ptl_handle_ni_t, index: ptl_pt_index_t) -> c_int {
        on(|world| match world.table.get_mut(index as usize) {
            Some(Some(entry)) => {
                entry.disabled = false;
                PTL_OK
            }
            _ => PTL_ARG_INVALID,
        })
    }

    fn PtlMDBind(_ni: ptl_handle_ni_t, md: *const ptl_md_t, handle: *mut ptl_handle_md_t) -> c_int {
        on(|world| {
            // SAFETY: the caller guarantees that `md` is valid for reads and `handle` for writes.
            unsafe {
                world.descriptors.push(*md);
                handle.write(world.descriptors.len() as u32 - 1);
            }
            PTL_OK
        })
    }

    fn PtlMDRelease(_md: ptl_handle_md_t) -> c_int {
        PTL_OK
    }

    fn PtlMEAppend(_ni: ptl_handle_ni_t, index: ptl_pt_index_t, me: *const ptl_me_t,
        list: ptl_list_t, user: *mut c_void, handle: *mut ptl_handle_me_t) -> c_int {
        on(|world| {
            let Some(Some(index)) = world.table.get_mut(index as usize) else {
                return PTL_ARG_INVALID;
            };
            world.entries += 1;
            // SAFETY: the caller guarantees that `me` is valid for reads and `handle` for writes.
            unsafe {
                let entry = Entry::new(world.entries, *me, user.addr());
                index.lists[usize::from(list)].push(entry);
                handle.write(world.entries);
            }
            PTL_OK
        })
    }

    fn PtlMEUnlink(handle: ptl_handle_me_t) -> c_int {
        on(|world| {
            if world.faults.in_use && fastrand::u32(..ATTEMPTS) > 0 {
                return PTL_IN_USE;
            }
            for list in world.table.iter_mut().flatten().flat_map(|entry| &mut entry.lists) {
                if let Some(at) = list.iter().position(|entry| entry.handle == handle) {
                    list.remove(at);
                    return PTL_OK;
                }
            }
            PTL_ARG_INVALID
        })
    }

    fn PtlPut(md: ptl_handle_md_t, offset: ptl_size_t, length: ptl_size_t, ack: ptl_ack_req_t,
        target: ptl_process_t, index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
        remote_offset: ptl_size_t, user: *mut c_void, hdr_data: ptl_hdr_data_t) -> c_int {
        let header = Header {
            wants_ack: ack != PTL_NO_ACK_REQ,
            hdr_data,
            ..to(Kind::Put, index, match_bits, remote_offset)
        };
        on(|world| start(world, (md, offset), (md, offset), length, header, target, user))
    }

    fn PtlGet(md: ptl_handle_md_t, offset: ptl_size_t, length: ptl_size_t,
        target: ptl_process_t, index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
        remote_offset: ptl_size_t, user: *mut c_void) -> c_int {
        let header = to(Kind::Get, index, match_bits, remote_offset);
        on(|world| start(world, (md, offset), (md, offset), length, header, target, user))
    }

    fn PtlAtomic(md: ptl_handle_md_t, offset: ptl_size_t, length: ptl_size_t, ack: ptl_ack_req_t,
        target: ptl_process_t, index: ptl_pt_index_t, match_bits: ptl_match_bits_t,
        remote_offset: ptl_size_t, user: *mut c_void, hdr_data: ptl_hdr_data_t,
        operation: ptl_op_t, datatype: ptl_datatype_t) -> c_int {
        let header = Header {
            wants_ack: ack != PTL_NO_ACK_REQ,
            hdr_data,
            atomic: (operation, datatype),
            ..to(Kind::Atomic, index, match_bits, remote_offset)
        };
        match operation >= PTL_SWAP {
            true => PTL_ARG_INVALID,
            false => {
                on(|world| start(world, (md, offset), (md, offset), length, header, target, user))
            }
        }
    }

    fn PtlFetchAtomic(get_md: ptl_handle_md_t, get_offset: ptl_size_t, md: ptl_handle_md_t,
        offset: ptl_size_t, length: ptl_size_t, target: ptl_process_t, index: ptl_pt_index_t,
        match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user: *mut c_void,
        hdr_data: ptl_hdr_data_t, operation: ptl_op_t, datatype: ptl_datatype_t) -> c_int {
        let header = Header {
            hdr_data,
            atomic: (operation, datatype),
            ..to(Kind::FetchAtomic, index, match_bits, remote_offset)
        };
        let back = (get_md, get_offset);
        match operation >= PTL_SWAP {
            true => PTL_ARG_INVALID,
            false => on(|world| start(world, (md, offset), back, length, header, target, user)),
        }
    }

    fn PtlSwap(get_md: ptl_handle_md_t, get_offset: ptl_size_t, md: ptl_handle_md_t,
        offset: ptl_size_t, length: ptl_size_t, target: ptl_process_t, index: ptl_pt_index_t,
        match_bits: ptl_match_bits_t, remote_offset: ptl_size_t, user: *mut c_void,
        hdr_data: ptl_hdr_data_t, operand: *const c_void, operation: ptl_op_t,
        datatype: ptl_datatype_t) -> c_int {
        let comparand = match (operation, length) {
            // SAFETY: the caller guarantees that `operand` points to a comparand of the integer's
            // length.
            (PTL_CSWAP, 4) => unsafe { operand.cast::<u32>().read_unaligned() }.into(),
            // SAFETY: the caller guarantees that `operand` points to a comparand of the integer's
            // length.
            (PTL_CSWAP, 8) => unsafe { operand.cast::<u64>().read_unaligned() },
            (PTL_SWAP, _) => 0,
            _ => return PTL_ARG_INVALID,
        };
        let header = Header {
            hdr_data,
            atomic: (operation, datatype),
            comparand,
            ..to(Kind::FetchAtomic, index, match_bits, remote_offset)
        };
        let back = (get_md, get_offset);
        on(|world| start(world, (md, offset), back, length, header, target, user))
    }

    fn PtlEQAlloc(_ni: ptl_handle_ni_t, size: ptl_size_t, handle: *mut ptl_handle_eq_t) -> c_int {
        on(|world| {
            world.queues.push(Queue::new(size as usize, world.faults.unordered));
            // SAFETY: the caller guarantees that `handle` is valid for writes.
            unsafe { handle.write(world.queues.len() as u32 - 1) };
            PTL_OK
        })
    }

    fn PtlEQFree(_queue: ptl_handle_eq_t) -> c_int {
        PTL_OK
    }

    fn PtlEQGet(queue: ptl_handle_eq_t, event: *mut ptl_event_t) -> c_int {
        on(|world| {
            let Some(queue) = world.queues.get_mut(queue as usize) else {
                return PTL_ARG_INVALID;
            };
            match queue.pop() {
                Some(found) => {
                    // SAFETY: the caller guarantees that `event` is valid for writes.
                    unsafe { event.write(found) };
                    match std::mem::take(&mut queue.dropped) {
                        true => PTL_EQ_DROPPED,
                        false => PTL_OK,
                    }
                }
                None => {
                    world.progress();
                    PTL_EQ_EMPTY
                }
            }
        })
    }

    fn PtlEQPoll(queues: *const ptl_handle_eq_t, size: c_uint, milliseconds: ptl_time_t,
        event: *mut ptl_event_t, which: *mut c_uint) -> c_int {
        let end = Instant::now() + Duration::from_millis(milliseconds.into());
        loop {
            for at in 0..size {
                // SAFETY: the caller guarantees that `queues` has an element at `at` and that
                // `event` is valid for writes.
                let got = unsafe { PtlEQGet(*queues.add(at as usize), event) };
                if got != PTL_EQ_EMPTY {
                    // SAFETY: the caller guarantees that `which` is valid for writes.
                    unsafe { which.write(at) };
                    return got;
                }
            }
            let fd = match &*lock() {
                Some(world) => world.wire.fd(),
                None => return CONSTANTS.PTL_NO_INIT,
            };
            if Instant::now() >= end {
                return PTL_EQ_EMPTY;
            }
            wait(fd, 1);
        }
    }
}
