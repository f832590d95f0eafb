//! Channels of this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::Code;
use agent::host::{Attempt, Message};

use crate::memory::{Memory, Owner, Padded, code};
use crate::sys::{
    BARRIER_WAIT_TRY_AGAIN, CHANNEL_CLEANUP, IDLE_WAIT, Library, POLL_BARRIER_WAIT,
    POLL_BARRIER_WAITERS, POLL_CAPACITY, TRANSFER_OWNERSHIP, TRY_ONCE, dragonChannelDescr_t,
    dragonChannelRecvh_t, dragonChannelSendh_t, dragonMemoryDescr_t, dragonMemoryPoolDescr_t,
    dragonMessage_t, dragonMessageAttr_t,
};

/// An attached channel of this node.
pub struct Channel {
    library: Library,
    descriptor: dragonChannelDescr_t,
    /// The send handle, created on first use, because a channel that is a semaphore has none.
    sender: Option<dragonChannelSendh_t>,
    /// The receive handle, created on first use for the same reason.
    receiver: Option<dragonChannelRecvh_t>,
    /// Whether the channel has been destroyed, so that its memory may be reused. All attachments to
    /// the channel share the flag.
    destroyed: Arc<AtomicBool>,
}

impl Channel {
    pub(crate) fn attach(
        library: Library,
        descriptor: &[u8],
        destroyed: impl FnOnce() -> Arc<AtomicBool>,
    ) -> Result<Self, Code> {
        let mut padded = Padded::new(descriptor)?;
        let mut descriptor = dragonChannelDescr_t::empty();
        // SAFETY: the descriptor's bytes are followed by padding, and `descriptor` has room for the
        // result.
        code(unsafe { (library.dragon_channel_attach)(&padded.serial(), &mut descriptor) })?;
        let mut channel = Self {
            library,
            descriptor,
            sender: None,
            receiver: None,
            destroyed: Arc::default(),
        };
        // SAFETY: the channel is attached. If a call fails from here on, dropping `channel`
        // detaches from it.
        unsafe {
            // Refuses another node's channel: libdragon would use a gateway for it, and block
            // there.
            if !(library.dragon_channel_is_local)(&channel.descriptor) {
                return Err(Code::INVALID_ARGUMENT);
            }
            code((library.dragon_channel_notify_on_destroy)(
                &mut channel.descriptor,
            ))?;
        }
        channel.destroyed = destroyed();
        Ok(channel)
    }

    /// Returns the pool that contains the channel.
    pub(crate) fn pool(&self, pool: &mut dragonMemoryPoolDescr_t) -> Result<(), Code> {
        // SAFETY: the channel is attached, and `pool` has room for the result.
        code(unsafe { (self.library.dragon_channel_get_pool)(&self.descriptor, pool) })
    }

    fn check(&self) -> Result<(), Code> {
        match self.destroyed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Code::OBJECT_DESTROYED),
        }
    }

    fn sender(&mut self) -> Result<&dragonChannelSendh_t, Code> {
        self.check()?;
        if self.sender.is_none() {
            let mut handle = dragonChannelSendh_t::empty();
            // SAFETY: the channel is attached, and null selects the default attributes.
            unsafe {
                code((self.library.dragon_channel_sendh)(
                    &self.descriptor,
                    &mut handle,
                    std::ptr::null(),
                ))?;
                code((self.library.dragon_chsend_open)(&mut handle))?;
            }
            self.sender = Some(handle);
        }
        self.sender.as_ref().ok_or(Code::FAILURE)
    }

    fn receiver(&mut self) -> Result<&dragonChannelRecvh_t, Code> {
        self.check()?;
        if self.receiver.is_none() {
            let mut handle = dragonChannelRecvh_t::empty();
            // SAFETY: the channel is attached, and null selects the default attributes.
            unsafe {
                code((self.library.dragon_channel_recvh)(
                    &self.descriptor,
                    &mut handle,
                    std::ptr::null(),
                ))?;
                code((self.library.dragon_chrecv_open)(&mut handle))?;
            }
            self.receiver = Some(handle);
        }
        self.receiver.as_ref().ok_or(Code::FAILURE)
    }

    pub(crate) fn send(&mut self, message: &mut Option<Message<Memory>>) -> Attempt<()> {
        let library = self.library;
        let Some(sent) = message else {
            return Attempt::Failed(Code::INVALID_ARGUMENT);
        };
        let handle = match self.sender() {
            Ok(handle) => handle,
            Err(code) => return Attempt::Failed(code),
        };
        let given = sent.memory.can_be_given();
        // SAFETY: the handle is open, and the descriptor is filled. Its memory lives until this
        // message is taken or dropped.
        let result = unsafe {
            with_message(
                library,
                sent.memory.descriptor(),
                sent.hints,
                sent.client,
                |message| {
                    let destination = if given {
                        TRANSFER_OWNERSHIP
                    } else {
                        std::ptr::null_mut()
                    };
                    (library.dragon_chsend_send_msg)(handle, message, destination, &TRY_ONCE)
                },
            )
        };
        match Code(result) {
            Code::SUCCESS => {
                if let Some(message) = message.take().filter(|_| given) {
                    message.memory.given();
                }
                Attempt::Done(())
            }
            // There is no memory for a copy of the message.
            Code::TIMEOUT => Attempt::Blocked(Code::OUT_OF_SPACE),
            Code::CHANNEL_FULL => Attempt::Blocked(Code::CHANNEL_FULL),
            failed => Attempt::Failed(failed),
        }
    }

    pub(crate) fn get(&mut self) -> Attempt<Message<Memory>> {
        let library = self.library;
        let handle = match self.receiver() {
            Ok(handle) => handle,
            Err(code) => return Attempt::Failed(code),
        };
        let mut message = empty_message();
        // SAFETY: the handle is open, and the message is empty.
        match Code(unsafe { (library.dragon_chrecv_get_msg)(handle, &mut message) }) {
            Code::SUCCESS => {}
            Code::CHANNEL_EMPTY => return Attempt::Blocked(Code::CHANNEL_EMPTY),
            failed => return Attempt::Failed(failed),
        }
        let attributes = message._attr;
        let mut descriptor = dragonMemoryDescr_t::empty();
        // SAFETY: libdragon has filled the message. Destroying the message keeps the memory, which
        // belongs to the receiver unless it is shared and read-only.
        let memory = unsafe {
            let got = (library.dragon_channel_message_get_mem)(&message, &mut descriptor);
            (library.dragon_channel_message_destroy)(&mut message, false);
            let owner = match attributes.no_copy_read_only {
                true => Owner::Process,
                false => Owner::Agent,
            };
            code(got).and_then(|()| Memory::of(library, descriptor, owner))
        };
        match memory {
            Ok(memory) => Attempt::Done(Message {
                memory,
                hints: attributes.hints,
                client: attributes.clientid,
            }),
            Err(code) => Attempt::Failed(code),
        }
    }

    pub(crate) fn poll(&mut self, mask: u16) -> Attempt<(u64, Code)> {
        if let Err(code) = self.check() {
            return Attempt::Failed(code);
        }
        if mask == CHANNEL_CLEANUP {
            return Attempt::Failed(Code::INVALID_ARGUMENT);
        }
        // Refuses more waiters than the barrier has parties: another one would block until the
        // others are released, whatever its time-out is.
        if mask == POLL_BARRIER_WAIT
            && self.once(POLL_BARRIER_WAITERS).0 >= self.once(POLL_CAPACITY).0
        {
            return Attempt::Blocked(Code::TIMEOUT);
        }
        match self.once(mask) {
            // Some waiters have not left the barrier's last phase yet.
            (_, code @ (Code::TIMEOUT | BARRIER_WAIT_TRY_AGAIN)) => Attempt::Blocked(code),
            answer => Attempt::Done(answer),
        }
    }

    fn once(&self, mask: u16) -> (u64, Code) {
        let mut result = 0;
        // SAFETY: the channel is attached, and `result` has room for the result.
        let code = unsafe {
            (self.library.dragon_channel_poll)(
                &self.descriptor,
                IDLE_WAIT,
                mask.cast_signed(),
                &TRY_ONCE,
                &mut result,
            )
        };
        (result, Code(code))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let library = self.library;
        // SAFETY: the handles are open, the channel is attached, and neither is used again. A call
        // fails only if the object is gone already, which is harmless.
        unsafe {
            if let Some(handle) = &mut self.sender {
                (library.dragon_chsend_close)(handle);
            }
            if let Some(handle) = &mut self.receiver {
                (library.dragon_chrecv_close)(handle);
            }
            (library.dragon_channel_detach)(&mut self.descriptor);
        }
    }
}

/// Returns the number of the channel with this descriptor.
pub(crate) fn number(library: Library, descriptor: &[u8]) -> Result<u64, Code> {
    let mut padded = Padded::new(descriptor)?;
    let mut number = 0;
    // SAFETY: the descriptor's bytes are followed by padding, and `number` has room for the result.
    code(unsafe { (library.dragon_channel_get_uid)(&padded.serial(), &mut number) })?;
    Ok(number)
}

/// Returns a message for libdragon to fill.
pub(crate) fn empty_message() -> dragonMessage_t {
    dragonMessage_t {
        _attr: dragonMessageAttr_t {
            hints: 0,
            clientid: 0,
            sendhid: [0; 16],
            send_transfer_ownership: false,
            no_copy_read_only: false,
        },
        _mem_descr: std::ptr::null_mut(),
        _mem_descr_provided: false,
        _mem_descr_inited: false,
    }
}

/// Calls `call` with a message in the given memory. Returns the code of `call`, or of the libdragon
/// call that failed before it.
///
/// # Safety
/// libdragon must have filled the descriptor `memory`, and the memory must live until the call
/// returns.
pub(crate) unsafe fn with_message(
    library: Library,
    memory: &mut dragonMemoryDescr_t,
    hints: u64,
    client: u64,
    call: impl FnOnce(&mut dragonMessage_t) -> u32,
) -> u32 {
    let mut message = empty_message();
    // SAFETY: `attributes` and `message` have room for the results, and the caller guarantees that
    // `memory` is filled and lives during the calls. The message is destroyed without its memory.
    unsafe {
        let mut attributes = empty_message()._attr;
        let result = (library.dragon_channel_message_attr_init)(&mut attributes);
        if result != 0 {
            return result;
        }
        attributes.hints = hints;
        attributes.clientid = client;
        let result = (library.dragon_channel_message_init)(&mut message, memory, &attributes);
        if result != 0 {
            return result;
        }
        let result = call(&mut message);
        (library.dragon_channel_message_destroy)(&mut message, false);
        result
    }
}
