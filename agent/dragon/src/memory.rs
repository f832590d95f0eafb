//! Managed memory, which consists of allocations in pools that the node's processes share.

use std::sync::Arc;

use agent::Code;
use agent::host::{MAX_DESCRIPTOR, NoMemory};
use conduit_core::shared;

use crate::message::GatewayMessage;
use crate::sys::{Library, Serial, TRY_ONCE, dragonMemoryDescr_t, dragonMemoryPoolDescr_t};

/// Memory that holds a message.
pub struct Memory {
    library: Library,
    descriptor: dragonMemoryDescr_t,
    start: *mut u8,
    length: usize,
    owner: Owner,
}

// SAFETY: any thread may call libdragon's functions, and the memory is mapped for all threads of
// the process.
unsafe impl Send for Memory {}

/// The owner of an allocation, which frees it.
pub(crate) enum Owner {
    /// The agent, until a receiver gets it.
    Agent,
    /// A process, which only passed the location to the agent.
    Process,
    /// The gateway message of a request to send, which contains the memory of the sent message or
    /// lends it.
    Message(#[allow(dead_code, reason = "keeps the memory")] Arc<GatewayMessage>),
}

impl Memory {
    /// Wraps the memory that `descriptor` describes.
    ///
    /// # Safety
    /// libdragon must have filled the descriptor, and the memory must stay mapped as long as the
    /// `Memory` lives.
    pub(crate) unsafe fn of(
        library: Library,
        descriptor: dragonMemoryDescr_t,
        owner: Owner,
    ) -> Result<Self, Code> {
        let mut memory = Self {
            library,
            descriptor,
            start: std::ptr::null_mut(),
            length: 0,
            owner,
        };
        // SAFETY: the caller guarantees that the descriptor is filled, and the variables have room
        // for the results.
        unsafe {
            code((library.dragon_memory_get_size)(
                &memory.descriptor,
                &mut memory.length,
            ))?;
            let mut start = std::ptr::null_mut();
            code((library.dragon_memory_get_pointer)(
                &memory.descriptor,
                &mut start,
            ))?;
            memory.start = start.cast();
        }
        Ok(memory)
    }

    /// Allocates memory in a pool.
    pub(crate) fn allocate(
        library: Library,
        pool: &dragonMemoryPoolDescr_t,
        bytes: usize,
    ) -> Result<Self, NoMemory> {
        let mut descriptor = dragonMemoryDescr_t::empty();
        // SAFETY: `descriptor` has room for the result, and the pool's descriptor is filled.
        match unsafe {
            (library.dragon_memory_alloc_blocking)(&mut descriptor, pool, bytes, &TRY_ONCE)
        } {
            // SAFETY: libdragon has just filled the descriptor, and the allocation is not shared
            // yet.
            0 => unsafe { Self::of(library, descriptor, Owner::Agent) }.map_err(NoMemory::Ever),
            NOT_AVAILABLE | TIMEOUT => Err(NoMemory::Now),
            TOO_LARGE => Err(NoMemory::Ever(Code::OUT_OF_SPACE)),
            other => Err(NoMemory::Ever(Code(other))),
        }
    }

    /// Returns memory of `bytes` bytes at the place where a process wants a message. The place is
    /// the memory that `descriptor` describes, which must be large enough. If that memory has
    /// length zero, the place is a new allocation in its pool.
    pub(crate) fn at(library: Library, descriptor: &[u8], bytes: usize) -> Result<Self, NoMemory> {
        let mut padded = Padded::new(descriptor).map_err(NoMemory::Ever)?;
        let mut place = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor's bytes are followed by padding, and `place` has room for the
        // result.
        let attached = unsafe { (library.dragon_memory_attach)(&mut place, &padded.serial()) };
        code(attached).map_err(NoMemory::Ever)?;
        let memory = Self::in_place(library, &place, bytes);
        // SAFETY: `place` was attached above. The part of it that is in use has its own descriptor.
        unsafe { (library.dragon_memory_detach)(&mut place) };
        memory
    }

    /// Imports memory of this node that another agent has exported.
    pub(crate) fn import(library: Library, descriptor: &[u8]) -> Result<Self, Code> {
        let mut padded = Padded::new(descriptor)?;
        let mut memory = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor's bytes are followed by padding, and `memory` has room for the
        // result. `of` is called only if libdragon has filled it. The owner may free the memory at
        // any time, but its pool stays mapped while this process is attached.
        unsafe {
            code((library.dragon_memory_attach)(
                &mut memory,
                &padded.serial(),
            ))?;
            Self::of(library, memory, Owner::Process)
        }
    }

    fn in_place(
        library: Library,
        place: &dragonMemoryDescr_t,
        mut bytes: usize,
    ) -> Result<Self, NoMemory> {
        let mut room = 0;
        // SAFETY: the descriptor of the place is filled, and `room` has room for the result.
        code(unsafe { (library.dragon_memory_get_size)(place, &mut room) })
            .map_err(NoMemory::Ever)?;
        if room == 0 {
            let mut pool = dragonMemoryPoolDescr_t::empty();
            // SAFETY: the descriptor of the place is filled, and `pool` has room for the result.
            code(unsafe { (library.dragon_memory_get_pool)(place, &mut pool) })
                .map_err(NoMemory::Ever)?;
            return Self::allocate(library, &pool, bytes);
        }
        if room < bytes {
            return Err(NoMemory::Ever(Code::INVALID_ARGUMENT));
        }
        let mut part = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor of the place is filled, `part` has room for the result, and the
        // part is within the place, which the process keeps until it has the message.
        unsafe {
            code((library.dragon_memory_descr_clone)(
                &mut part, place, 0, &mut bytes,
            ))
            .and_then(|()| Self::of(library, part, Owner::Process))
            .map_err(NoMemory::Ever)
        }
    }

    pub(crate) fn descriptor(&mut self) -> &mut dragonMemoryDescr_t {
        &mut self.descriptor
    }

    /// Returns whether a receiver can take over this memory.
    pub(crate) fn can_be_given(&self) -> bool {
        !matches!(self.owner, Owner::Message(_))
    }

    /// Releases the memory to a receiver, which frees it.
    pub(crate) fn given(self) {
        // Forgetting the `Memory` leaks nothing, because this owner holds no resources.
        debug_assert!(self.can_be_given());
        std::mem::forget(self);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the descriptor is filled and not used again. A call fails only if the memory's
        // pool is gone, which is harmless.
        unsafe {
            match self.owner {
                Owner::Agent => (self.library.dragon_memory_free)(&mut self.descriptor),
                Owner::Process => (self.library.dragon_memory_detach)(&mut self.descriptor),
                Owner::Message(_) => 0,
            };
        }
    }
}

impl agent::host::Memory for Memory {
    fn length(&self) -> usize {
        self.length
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        let end = offset.checked_add(into.len());
        assert!(
            end.is_some_and(|end| end <= self.length),
            "the range exceeds the memory"
        );
        // SAFETY: the assertion has checked that the range is within the memory, which stays
        // mapped. Concurrent writes of other processes only make the bytes arbitrary.
        unsafe { shared::load(self.start.add(offset), into.as_mut_ptr(), into.len()) }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(
            end.is_some_and(|end| end <= self.length),
            "the range exceeds the memory"
        );
        // SAFETY: the assertion has checked that the range is within the memory, which stays
        // mapped. Concurrent accesses of other processes only make the bytes arbitrary.
        unsafe { shared::copy(bytes.as_ptr(), self.start.add(offset), bytes.len()) }
    }

    fn export(&self) -> Option<Box<[u8]>> {
        let mut serial = Serial {
            len: 0,
            data: std::ptr::null_mut(),
        };
        // SAFETY: the descriptor is filled, and `serial` has room for the result. The bytes are
        // read only if libdragon has filled `serial`, and are freed once.
        unsafe {
            code((self.library.dragon_memory_serialize)(
                &mut serial,
                &self.descriptor,
            ))
            .ok()?;
            let bytes = std::slice::from_raw_parts(serial.data, serial.len);
            let bytes = (bytes.len() <= MAX_DESCRIPTOR).then(|| bytes.into());
            (self.library.dragon_memory_serial_free)(&mut serial);
            bytes
        }
    }

    fn is_own(&self) -> bool {
        matches!(self.owner, Owner::Agent)
    }
}

const TIMEOUT: u32 = Code::TIMEOUT.0;
/// `DRAGON_DYNHEAP_REQUESTED_SIZE_TOO_LARGE`.
const TOO_LARGE: u32 = 63;
/// `DRAGON_DYNHEAP_REQUESTED_SIZE_NOT_AVAILABLE`.
const NOT_AVAILABLE: u32 = 64;

/// Converts a result code of libdragon.
pub(crate) fn code(code: u32) -> Result<(), Code> {
    match Code(code) {
        Code::SUCCESS => Ok(()),
        failed => Err(failed),
    }
}

/// A descriptor's bytes, padded with zeros. The padding is necessary because libdragon ignores the
/// length passed to it, and reads as many bytes as the lengths inside a descriptor indicate.
pub(crate) struct Padded {
    bytes: [u8; 2 * MAX_DESCRIPTOR],
    length: usize,
}

impl Padded {
    pub(crate) fn new(descriptor: &[u8]) -> Result<Self, Code> {
        let length = descriptor.len();
        if length > MAX_DESCRIPTOR {
            return Err(Code::INVALID_ARGUMENT);
        }
        let mut bytes = [0; _];
        bytes[..length].copy_from_slice(descriptor);
        Ok(Self { bytes, length })
    }

    pub(crate) fn serial(&mut self) -> Serial {
        Serial {
            len: self.length,
            data: self.bytes.as_mut_ptr(),
        }
    }
}
