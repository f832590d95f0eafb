//! Managed memory: allocations in pools that processes of the node share.

use std::sync::Arc;

use agent::Code;
use agent::host::{MAX_DESCRIPTOR, NoMemory};
use conduit_core::shared;

use crate::message::GatewayMessage;
use crate::sys::{Library, Serial, TRY_ONCE, dragonMemoryDescr_t, dragonMemoryPoolDescr_t};

/// Memory with a message.
pub struct Memory {
    library: Library,
    descriptor: dragonMemoryDescr_t,
    start: *mut u8,
    length: usize,
    owner: Owner,
}

// SAFETY: libdragon's functions may be called by any thread, and its memory is mapped for all of them.
unsafe impl Send for Memory {}

/// Who gives an allocation back.
pub(crate) enum Owner {
    /// The agent, until a receiver gets it.
    Agent,
    /// A process, which has only told the agent where it is.
    Process,
    /// The message of a request; that of a send is in it, or lent by it.
    Message(#[allow(dead_code, reason = "keeps the memory")] Arc<GatewayMessage>),
}

impl Memory {
    /// What `descriptor` is the descriptor of.
    ///
    /// # Safety
    /// libdragon has filled it, and the memory stays where it is until its owner gives it back.
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
        // SAFETY: the descriptor is a filled one, by the caller's word.
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

    /// A new allocation, in a pool that libdragon knows.
    pub(crate) fn allocate(
        library: Library,
        pool: &dragonMemoryPoolDescr_t,
        bytes: usize,
    ) -> Result<Self, NoMemory> {
        let mut descriptor = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor has room for one; the pool's is a filled one.
        match unsafe {
            (library.dragon_memory_alloc_blocking)(&mut descriptor, pool, bytes, &TRY_ONCE)
        } {
            // SAFETY: just filled, and nobody else knows the allocation.
            0 => unsafe { Self::of(library, descriptor, Owner::Agent) }.map_err(NoMemory::Ever),
            NOT_AVAILABLE | TIMEOUT => Err(NoMemory::Now),
            TOO_LARGE => Err(NoMemory::Ever(Code::OUT_OF_SPACE)),
            other => Err(NoMemory::Ever(Code(other))),
        }
    }

    /// Where a process wants a message of so many bytes, by the descriptor that it has given: in the memory there, which
    /// must be large enough, or, if that has no bytes at all, in a new allocation of its pool.
    pub(crate) fn at(library: Library, descriptor: &[u8], bytes: usize) -> Result<Self, NoMemory> {
        let mut padded = Padded::new(descriptor).map_err(NoMemory::Ever)?;
        let mut place = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor's bytes, and room for what it describes.
        let attached = unsafe { (library.dragon_memory_attach)(&mut place, &padded.serial()) };
        code(attached).map_err(NoMemory::Ever)?;
        let memory = Self::in_place(library, &place, bytes);
        // SAFETY: attached above. A part of it that is in use is a descriptor of its own.
        unsafe { (library.dragon_memory_detach)(&mut place) };
        memory
    }

    /// Memory of this node that another agent of it has exported.
    pub(crate) fn import(library: Library, descriptor: &[u8]) -> Result<Self, Code> {
        let mut padded = Padded::new(descriptor)?;
        let mut memory = dragonMemoryDescr_t::empty();
        // SAFETY: the descriptor's bytes, and room for what it describes, which is filled then. Who has allocated it may
        // give it back at any time, but its pool stays mapped as long as this process is attached to it.
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
        // SAFETY: the place's descriptor is a filled one.
        code(unsafe { (library.dragon_memory_get_size)(place, &mut room) })
            .map_err(NoMemory::Ever)?;
        if room == 0 {
            let mut pool = dragonMemoryPoolDescr_t::empty();
            // SAFETY: as above.
            code(unsafe { (library.dragon_memory_get_pool)(place, &mut pool) })
                .map_err(NoMemory::Ever)?;
            return Self::allocate(library, &pool, bytes);
        }
        if room < bytes {
            return Err(NoMemory::Ever(Code::INVALID_ARGUMENT));
        }
        let mut part = dragonMemoryDescr_t::empty();
        // SAFETY: as above; the part is within the place.
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

    /// Whether a receiver can have this very memory.
    pub(crate) fn can_be_given(&self) -> bool {
        !matches!(self.owner, Owner::Message(_))
    }

    /// A receiver has it now, and gives it back.
    pub(crate) fn given(self) {
        // The owner in it is one of those that keep nothing.
        debug_assert!(self.can_be_given());
        std::mem::forget(self);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: a filled descriptor, which nobody uses any more. If it is refused, its pool is gone.
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
        assert!(end.is_some_and(|end| end <= self.length), "a range of it");
        // SAFETY: the range is within the memory, as just seen; the owner keeps it. Other processes may write to it
        // meanwhile, and then the bytes are any.
        unsafe { shared::load(self.start.add(offset), into.as_mut_ptr(), into.len()) }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.length), "a range of it");
        // SAFETY: as for `read`.
        unsafe { shared::copy(bytes.as_ptr(), self.start.add(offset), bytes.len()) }
    }

    fn export(&self) -> Option<Box<[u8]>> {
        let mut serial = Serial {
            len: 0,
            data: std::ptr::null_mut(),
        };
        // SAFETY: the descriptor is a filled one; room for where its bytes are, which are given back once.
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

/// A result code of libdragon as one of ours.
pub(crate) fn code(code: u32) -> Result<(), Code> {
    match Code(code) {
        Code::SUCCESS => Ok(()),
        failed => Err(failed),
    }
}

/// The bytes of a descriptor with zeros behind. libdragon reads as far as the lengths in a descriptor say, not as far as
/// it was told that the descriptor goes.
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
