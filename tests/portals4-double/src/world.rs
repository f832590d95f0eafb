//! The state of an interface, the effects of messages on it, and its progress thread.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use portals4_sys::*;

use crate::faults::Faults;
use crate::queue::Queue;
use crate::target::TableEntry;
use crate::wire::{Header, Kind, Wire};

/// The only interface, or `None` if it is not open. A poisoned lock is used like any other, because
/// only a test that fails anyway panics.
static WORLD: Mutex<Option<World>> = Mutex::new(None);

pub(crate) fn lock() -> MutexGuard<'static, Option<World>> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation in flight.
pub(crate) struct Operation {
    pub(crate) queue: u32,
    pub(crate) user: usize,
    /// The address and the length of the memory that gets the reply.
    pub(crate) destination: (usize, usize),
}

pub(crate) struct World {
    pub(crate) faults: Faults,
    pub(crate) wire: Wire,
    pub(crate) rank: u32,
    /// The process id of each rank.
    pub(crate) map: Vec<u32>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) descriptors: Vec<ptl_md_t>,
    pub(crate) table: Vec<Option<TableEntry>>,
    pub(crate) entries: u32,
    pub(crate) operations: HashMap<u64, Operation>,
    pub(crate) next: u64,
    thread: Option<thread::JoinHandle<()>>,
}

/// The number of table entries.
pub(crate) const INDICES: usize = 64;

// SAFETY: the pointers belong to the library's caller, who permits their use from any thread.
unsafe impl Send for World {}

impl World {
    pub(crate) fn open(faults: Faults) -> io::Result<()> {
        let mut world = Self {
            faults,
            wire: Wire::open()?,
            rank: 0,
            map: Vec::new(),
            queues: Vec::new(),
            descriptors: Vec::new(),
            table: (0..INDICES).map(|_| None).collect(),
            entries: 0,
            operations: HashMap::new(),
            next: 0,
            thread: None,
        };
        let fd = world.wire.fd();
        let pid = world.wire.pid;
        // The thread ends if it finds no interface, so the lock is held until the interface is
        // stored.
        let mut place = lock();
        world.thread = Some(thread::Builder::new().spawn(move || attend(fd, pid))?);
        *place = Some(world);
        Ok(())
    }

    pub(crate) fn close() {
        let world = lock().take();
        if let Some(mut world) = world {
            world.wire.flush();
            if let Some(thread) = world.thread.take() {
                // The thread polls the socket, so the socket stays open until the thread has ended.
                let _ = thread.join();
            }
        }
    }

    /// Sends and receives as many messages as possible.
    pub(crate) fn progress(&mut self) {
        self.wire.flush();
        while let Some((header, bytes)) = self.wire.receive() {
            match header.kind {
                Kind::Put | Kind::Get | Kind::Atomic | Kind::FetchAtomic => {
                    let (answer, bytes) = self.arrived(&header, &bytes);
                    if header.wants_ack {
                        self.wire.send(header.pid, &answer, &bytes);
                    }
                }
                Kind::Ack | Kind::Reply => self.answered(&header, &bytes),
            }
        }
    }

    fn answered(&mut self, header: &Header, bytes: &[u8]) {
        let Some(operation) = self.operations.remove(&header.operation) else {
            return;
        };
        let (address, room) = operation.destination;
        let destination = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the caller lets the library write a get's destination until the get's event, and
        // no more than `room` bytes are written.
        unsafe { destination.copy_from(bytes.as_ptr(), bytes.len().min(room)) };
        let mut event = ptl_event_t {
            user_ptr: std::ptr::without_provenance_mut(operation.user),
            mlength: header.length,
            remote_offset: header.offset,
            r#type: match header.kind {
                Kind::Reply => PTL_EVENT_REPLY,
                _ => PTL_EVENT_ACK,
            },
            ptl_list: header.list,
            ni_fail_type: header.fail,
            ..ptl_event_t::default()
        };
        self.stale(&mut event, true);
        self.raise(Some(operation.queue), event, false);
    }
}

/// Makes progress for an interface until the interface is closed.
fn attend(fd: i32, pid: u32) {
    let mut pause = 1;
    loop {
        wait(fd, pause);
        match &mut *lock() {
            Some(world) if world.wire.pid == pid => {
                world.progress();
                pause = if world.wire.has_unsent() { 1 } else { 20 };
            }
            _ => return,
        }
    }
}

/// Waits for a message, at most for this many milliseconds.
pub(crate) fn wait(fd: i32, milliseconds: i32) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one structure, as the count of 1 says.
    unsafe { libc::poll(&mut poll, 1, milliseconds) };
}
