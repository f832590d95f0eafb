//! Tests with two ranks in one process. They perform a message, a write, a read and an atomic over
//! each provider without hardware, with each available library.

use std::ptr;

use crate::support::{Memory, Offers, Rank, complete, libraries, patiently, submit};
use libfabric_sys::*;

/// Runs all steps over the provider's first offer. Returns `None` if the library lacks the
/// provider.
fn round_trip(library: &Library, provider: &str) -> Option<String> {
    let atomics = Offers::ask(library, Some(provider), FI_MSG | FI_RMA | FI_ATOMIC, |_| ());
    let (offers, atomics) = match atomics {
        Ok(offers) => (offers, true),
        Err(_) => {
            let offers = Offers::ask(library, Some(provider), FI_MSG | FI_RMA, |_| ()).ok()?;
            (offers, false)
        }
    };
    let open = || Rank::open(library, offers.first, FI_WAIT_NONE).expect("an endpoint");
    let (mut a, mut b) = (open(), open());
    let (to_b, to_a) = (a.insert(&b.name()), b.insert(&a.name()));
    assert_eq!((to_a, to_b), (0, 0), "a table counts from 0");
    let mut at_a = Memory::register(&a, 64, 17).expect("registration");
    let mut at_b = Memory::register(&b, 64, 18).expect("registration");

    // Send a message of one word, with remote data.
    at_a.bytes[0] = 0x0123_4567_89ab_cdef;
    let (received, sent) = (b.context(), a.context());
    submit(&[&a, &b], || {
        // SAFETY: the endpoint is open, and the memory is registered until the test ends.
        unsafe {
            fi_recv(
                b.ep,
                at_b.pointer(1),
                16,
                at_b.desc(),
                FI_ADDR_UNSPEC,
                received,
            )
        }
    });
    submit(&[&a, &b], || {
        // SAFETY: the endpoint is open, and the memory is registered until the test ends.
        unsafe { fi_senddata(a.ep, at_a.pointer(0), 8, at_a.desc(), 77, to_b, sent) }
    });
    let entries = complete([&a, &b], [1, 1]);
    let entry = entries.iter().find(|entry| entry.op_context == received);
    let entry = entry.expect("the receive has completed");
    assert_eq!((entry.len, entry.data), (8, 77));
    assert_ne!(entry.flags & FI_REMOTE_CQ_DATA, 0);
    assert!(entries.iter().any(|entry| entry.op_context == sent));
    assert_eq!(at_b.bytes[1], at_a.bytes[0]);

    // Write, with a completion once the data are in the peer's memory.
    at_a.bytes[8..16].fill(0x5555_aaaa_0f0f_f0f0);
    let iov = iovec {
        iov_base: at_a.pointer(8),
        iov_len: 64,
    };
    let rma_iov = fi_rma_iov {
        addr: at_b.remote(32),
        len: 64,
        key: at_b.key(),
    };
    let mut desc = at_a.desc();
    let write = fi_msg_rma {
        msg_iov: &iov,
        desc: &mut desc,
        iov_count: 1,
        addr: to_b,
        rma_iov: &rma_iov,
        rma_iov_count: 1,
        context: a.context(),
        data: 0,
    };
    let flags = FI_DELIVERY_COMPLETE | FI_COMPLETION;
    // SAFETY: the endpoint is open, and the memory is registered until the test ends.
    submit(&[&a, &b], || unsafe { fi_writemsg(a.ep, &write, flags) });
    complete([&a, &b], [1, 0]);
    assert_eq!(at_b.bytes[32..40], at_a.bytes[8..16]);
    assert_eq!((at_b.bytes[31], at_b.bytes[40]), (0, 0));

    // Read from the peer's memory.
    at_b.bytes[50] = 0x00c0_ffee_00c0_ffee;
    let (addr, key) = (at_b.remote(50), at_b.key());
    let context = a.context();
    submit(&[&a, &b], || {
        // SAFETY: the endpoint is open, and the memory is registered until the test ends.
        unsafe {
            fi_read(
                a.ep,
                at_a.pointer(20),
                8,
                at_a.desc(),
                to_b,
                addr,
                key,
                context,
            )
        }
    });
    complete([&a, &b], [1, 0]);
    assert_eq!(at_a.bytes[20], at_b.bytes[50]);

    // Fetch and add.
    let mut count = 0;
    // SAFETY: the endpoint is open, and `count` is valid for writes.
    let valid =
        unsafe { fi_fetch_atomicvalid(a.ep, FI_UINT64, FI_SUM, &mut count) } == 0 && count > 0;
    if !(atomics && valid) {
        return Some("no atomics".to_owned());
    }
    at_b.bytes[60] = 1000;
    at_a.bytes[30] = 234;
    let (addr, key) = (at_b.remote(60), at_b.key());
    let (operand, result, context) = (at_a.pointer(30), at_a.pointer(31), a.context());
    submit(&[&a, &b], || {
        // SAFETY: the endpoint is open, and the memory is registered until the test ends.
        unsafe {
            fi_fetch_atomic(
                a.ep,
                operand,
                1,
                at_a.desc(),
                result,
                at_a.desc(),
                to_b,
                addr,
                key,
                FI_UINT64,
                FI_SUM,
                context,
            )
        }
    });
    complete([&a, &b], [1, 0]);
    assert_eq!((at_a.bytes[31], at_b.bytes[60]), (1000, 1234));
    Some("with atomics".to_owned())
}

fn over(provider: &str) {
    for (name, library) in libraries() {
        match round_trip(&library, provider) {
            Some(how) => println!("{provider}, {name}: {how}"),
            None => {
                println!("{provider}, {name}: not in this library");
                assert!(
                    library.path().is_some(),
                    "the vendored library lacks {provider}"
                );
            }
        }
    }
}

#[test]
fn tcp() {
    over("tcp");
}

#[test]
fn shm() {
    over("shm");
}

#[test]
fn udp() {
    over("udp;ofi_rxd");
}

/// Returns the descriptors on which to sleep for a queue with this kind of wait.
fn descriptors(rank: &Rank, kind: fi_wait_obj) -> Vec<libc::pollfd> {
    let queue: *mut fid = rank.cq.cast();
    let none = libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut found = vec![none; 16];
    if kind == FI_WAIT_FD {
        // SAFETY: the queue is open with FI_WAIT_FD, so the command writes an int, for which there
        // is room.
        let result = unsafe { fi_control(queue, FI_GETWAIT, (&raw mut found[0].fd).cast()) };
        assert_eq!(result, 0);
        found.truncate(1);
    } else {
        let mut entry = fi_cq_data_entry::default();
        let mut answer = fi_wait_pollfd {
            change_index: 0,
            nfds: 0,
            fd: ptr::null_mut(),
        };
        patiently("the list of descriptors stays incomplete", || {
            answer.nfds = found.len();
            answer.fd = found.as_mut_ptr();
            // SAFETY: the queue is open with FI_WAIT_POLLFD, so the command writes at most the
            // number of descriptors for which there is room. Nothing has been received that the
            // wait could take.
            let result = unsafe {
                fi_cq_sread(rank.cq, (&raw mut entry).cast(), 1, ptr::null(), 2);
                fi_control(queue, FI_GETWAIT, (&raw mut answer).cast())
            };
            assert_eq!(result, 0);
            (answer.nfds > 1).then_some(())
        });
        found.truncate(answer.nfds);
    }
    assert!(found.iter().all(|found| found.fd >= 0), "{found:?}");
    found
}

/// Sleeps on the descriptors of the rank's queue until there is a completion. Returns the number of
/// times that it slept.
fn wait(rank: &Rank, descriptors: &mut [libc::pollfd]) -> usize {
    let mut queue: *mut fid = rank.cq.cast();
    let mut slept = 0;
    while rank.poll().is_none() {
        // SAFETY: the fabric and the queue are open.
        match unsafe { fi_trywait(rank.fabric, &mut queue, 1) } {
            0 => {
                let count = descriptors.len() as libc::nfds_t;
                // SAFETY: `descriptors` has the number of descriptors that is passed.
                let ready = unsafe { libc::poll(descriptors.as_mut_ptr(), count, 30_000) };
                assert!(ready > 0, "nothing has arrived");
                slept += 1;
            }
            again => assert_eq!(again, -FI_EAGAIN),
        }
    }
    slept
}

#[test]
fn a_rank_sleeps_on_its_queue() {
    sleeps(FI_WAIT_FD);
}

#[test]
fn a_rank_sleeps_on_all_descriptors_of_its_queue() {
    sleeps(FI_WAIT_POLLFD);
}

fn sleeps(kind: fi_wait_obj) {
    for (name, library) in libraries() {
        let offers = Offers::ask(&library, Some("tcp"), FI_MSG, |_| ()).expect("tcp");
        let open = || Rank::open(&library, offers.first, kind).expect("an endpoint");
        let (mut a, mut b) = (open(), open());
        let mut found = descriptors(&b, kind);
        let to_b = a.insert(&b.name());
        let mut word = 0u64;
        let received = b.context();
        submit(&[&a, &b], || {
            // SAFETY: the endpoint is open, and the word lives until the receive has completed.
            unsafe {
                fi_recv(
                    b.ep,
                    (&raw mut word).cast(),
                    8,
                    ptr::null_mut(),
                    FI_ADDR_UNSPEC,
                    received,
                )
            }
        });
        let (slept, _b) = std::thread::scope(|scope| {
            let sleeper = scope.spawn(move || (wait(&b, &mut found), b));
            let (bytes, sent) = (7u64, a.context());
            submit(&[&a], || {
                // SAFETY: the endpoint is open, and the word lives until the send has completed.
                unsafe {
                    fi_send(
                        a.ep,
                        (&raw const bytes).cast(),
                        8,
                        ptr::null_mut(),
                        to_b,
                        sent,
                    )
                }
            });
            patiently("the send does not complete", || a.poll());
            sleeper.join().expect("the sleeper")
        });
        assert_eq!(word, 7);
        println!("tcp, {name}: slept {slept} times");
    }
}

#[test]
fn an_absent_table_is_an_error() {
    let mut table = fi_ops_msg {
        size: std::mem::offset_of!(fi_ops_msg, send),
        // SAFETY: the table consists of a size and of functions that may be absent, for which zeros
        // are valid.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: the endpoint consists of pointers, for which null is valid, and of integers.
    let mut ep: fid_ep = unsafe { std::mem::zeroed() };
    let absent = -(FI_ENOSYS as isize);
    let send = |ep: &mut fid_ep| {
        // SAFETY: the table has either no such operation or `seven`, which uses no argument.
        unsafe { fi_send(ep, ptr::null(), 0, ptr::null_mut(), 0, ptr::null_mut()) }
    };
    assert_eq!(send(&mut ep), absent, "no table");
    unsafe extern "C" fn seven(
        _: *mut fid_ep,
        _: *const std::ffi::c_void,
        _: usize,
        _: *mut std::ffi::c_void,
        _: fi_addr_t,
        _: *mut std::ffi::c_void,
    ) -> isize {
        7
    }
    table.send = Some(seven);
    ep.msg = &mut table;
    assert_eq!(send(&mut ep), absent, "table too short");
    table.size = std::mem::offset_of!(fi_ops_msg, sendv);
    ep.msg = &mut table;
    assert_eq!(send(&mut ep), 7);
    table.send = None;
    ep.msg = &mut table;
    assert_eq!(send(&mut ep), absent, "no entry");
}
