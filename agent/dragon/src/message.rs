//! Gateway messages, each of which carries one request of a process and the answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::Code;
use agent::host::{Limit, MAX_DESCRIPTOR, Message, Nanos, Operation, Outcome, ReturnMode};
use libc::{c_int, timespec};

use crate::channel::with_message;
use crate::memory::{Memory, Owner, code};
use crate::sys::{
    CHANNEL_CLEANUP, GATEWAY_MESSAGE_EVENT, GATEWAY_MESSAGE_GET, GATEWAY_MESSAGE_SEND, Library,
    Serial, dragonGatewayMessage_t, dragonMemoryDescr_t,
};

/// An attached gateway message.
///
/// Dropping a `GatewayMessage` destroys the message if its process has the answer or needs none.
/// Otherwise, the message is left in place, because the process may still look for the answer.
pub(crate) struct GatewayMessage {
    library: Library,
    kind: MessageKind,
    /// The requesting process.
    process: u64,
    /// Whether the process waits for the answer.
    awaited: bool,
    raw: Mutex<Box<Raw>>,
    /// Whether no process needs the message any more, so that it may be destroyed.
    settled: AtomicBool,
}

struct Raw {
    message: dragonGatewayMessage_t,
    /// The time until which the process may take the answer. libdragon sets it when the answer is
    /// given.
    deadline: timespec,
}

// SAFETY: the pointers point to memory that all threads of the process share, and any thread may
// call libdragon's functions.
unsafe impl Send for Raw {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageKind {
    Send,
    Get,
    Event,
}

/// The request in a gateway message.
pub(crate) enum Asks {
    /// Requests this operation of the agent.
    For(Ask),
    /// Announces addresses of nodes, which are in this memory.
    NodesAt(Memory),
    /// Announces that this channel was destroyed. The sender expects no answer.
    Destroyed(Box<[u8]>),
}

pub(crate) struct Ask {
    pub(crate) node: u64,
    pub(crate) channel: Box<[u8]>,
    pub(crate) limit: Limit,
    pub(crate) operation: Operation<Memory>,
}

/// An answer that its process has not taken yet.
pub(crate) struct Answered {
    message: Arc<GatewayMessage>,
    /// The message of a get, which passes to the process when the answer is taken.
    got: Option<Memory>,
}

impl GatewayMessage {
    /// Attaches to the gateway message whose descriptor was received from a gateway.
    ///
    /// # Safety
    /// `serial` must describe readable bytes that a Dragon process has written and that are
    /// followed by padding.
    pub(crate) unsafe fn attach(library: Library, serial: &Serial) -> Result<Self, Code> {
        let mut raw = Box::new(Raw {
            // SAFETY: zero is valid for the structure's integers, pointers and flags.
            message: unsafe { std::mem::zeroed() },
            deadline: NEVER,
        });
        // SAFETY: the caller guarantees that `serial` describes the bytes of a gateway message, and
        // `raw` has room for the result.
        code(unsafe { (library.dragon_channel_gatewaymessage_attach)(serial, &mut raw.message) })?;
        let kind = match raw.message.msg_kind {
            GATEWAY_MESSAGE_SEND => MessageKind::Send,
            GATEWAY_MESSAGE_GET => MessageKind::Get,
            GATEWAY_MESSAGE_EVENT => MessageKind::Event,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let immediate = matches!(
            mode(raw.message.send_return_mode),
            ReturnMode::Immediately | ReturnMode::None
        );
        Ok(Self {
            library,
            kind,
            // SAFETY: libdragon has just filled the message, so the pointer is valid.
            process: unsafe { *raw.message._header.client_pid },
            awaited: kind != MessageKind::Send || !immediate,
            raw: Mutex::new(raw),
            settled: AtomicBool::new(false),
        })
    }

    fn raw(&self) -> MutexGuard<'_, Box<Raw>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the request.
    ///
    /// # Errors
    /// Returns the code with which to answer the request at once.
    pub(crate) fn asks(self: &Arc<Self>) -> Result<Asks, Code> {
        let raw = self.raw();
        let raw = &raw.message;
        // SAFETY: libdragon has filled the message in `attach`, and its pointers are valid while it
        // is attached.
        let channel = unsafe { bytes(&raw.target_ch_ser) }?;
        let operation = match self.kind {
            MessageKind::Send => {
                let memory = self.payload(raw)?;
                let mode = mode(raw.send_return_mode);
                if raw.target_hostid == 0 && mode == ReturnMode::Immediately {
                    return Ok(Asks::NodesAt(memory));
                }
                let attributes = &raw.send_payload_message._attr;
                Operation::Send {
                    handle: u128::from_le_bytes(attributes.sendhid),
                    message: Message {
                        memory,
                        hints: attributes.hints,
                        client: attributes.clientid,
                    },
                    mode,
                    // SAFETY: the pointer is null or valid, for the same reason.
                    destination: unsafe { wish(raw.send_dest_mem_descr_ser) }?,
                }
            }
            MessageKind::Get => Operation::Get,
            MessageKind::Event => match raw.event_mask.cast_unsigned() {
                CHANNEL_CLEANUP => return Ok(Asks::Destroyed(channel)),
                mask => Operation::Poll { mask },
            },
        };
        Ok(Asks::For(Ask {
            node: raw.target_hostid,
            channel,
            limit: limit(raw.deadline),
            operation,
        }))
    }

    fn payload(self: &Arc<Self>, raw: &dragonGatewayMessage_t) -> Result<Memory, Code> {
        let mut descriptor = dragonMemoryDescr_t::empty();
        // SAFETY: libdragon has filled the message in `attach`, and `descriptor` has room for the
        // result. The memory lives as long as the gateway message, which the new owner keeps.
        unsafe {
            code((self.library.dragon_channel_message_get_mem)(
                &raw.send_payload_message,
                &mut descriptor,
            ))?;
            Memory::of(self.library, descriptor, Owner::Message(self.clone()))
        }
    }

    /// Returns where the process wants the message of its get.
    pub(crate) fn wish(&self) -> Result<Option<Box<[u8]>>, Code> {
        // SAFETY: libdragon has filled the message in `attach`, so the pointer is null or valid.
        unsafe { wish(self.raw().message.get_dest_mem_descr_ser) }
    }

    /// Returns the requesting process.
    pub(crate) fn process(&self) -> u64 {
        self.process
    }

    /// Returns whether the process waits for the answer.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Answers the request with its outcome.
    pub(crate) fn answer(self: Arc<Self>, outcome: Outcome<Memory>) -> Answered {
        let (result, mut message, value) = match outcome {
            Outcome::Sent => (Code::SUCCESS, None, 0),
            Outcome::Got(message) if message.memory.can_be_given() => {
                (Code::SUCCESS, Some(message), 0)
            }
            // A receiver cannot take over this memory.
            Outcome::Got(_) => (Code::FAILURE, None, 0),
            Outcome::Polled(value, code) => (code, None, value),
            Outcome::Failed(code) => (code, None, 0),
        };
        let mut refused = self.start(result, message.as_mut(), value);
        if refused != Code::SUCCESS && self.awaited {
            // Without any answer, the process would wait forever.
            message = None;
            refused = self.start(refused, None, 0);
        }
        if refused != Code::SUCCESS || (result != Code::SUCCESS && !self.awaited) {
            tracing::error!(
                "cannot report the outcome of a {:?} request to process {}: {result} ({refused})",
                self.kind,
                self.process,
            );
        }
        if refused != Code::SUCCESS {
            self.discard();
        }
        Answered {
            message: self,
            got: message.map(|message| message.memory),
        }
    }

    /// Records that no process waits for the answer.
    pub(crate) fn discard(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    fn start(&self, result: Code, message: Option<&mut Message<Memory>>, value: u64) -> Code {
        let library = self.library;
        let mut raw = self.raw();
        let Raw {
            message: raw,
            deadline,
        } = &mut **raw;
        // SAFETY: the gateway message is attached, and is answered successfully only once. The
        // memory of `message` lives until the answer is taken.
        Code(unsafe {
            match (self.kind, message) {
                (MessageKind::Send, _) => (library
                    .dragon_channel_gatewaymessage_transport_start_send_cmplt)(
                    raw, result.0, deadline,
                ),
                (
                    MessageKind::Get,
                    Some(Message {
                        memory,
                        hints,
                        client,
                    }),
                ) => with_message(library, memory.descriptor(), *hints, *client, |message| {
                    (library.dragon_channel_gatewaymessage_transport_start_get_cmplt)(
                        raw, message, result.0, deadline,
                    )
                }),
                (MessageKind::Get, None) => (library
                    .dragon_channel_gatewaymessage_transport_start_get_cmplt)(
                    raw,
                    std::ptr::null_mut(),
                    result.0,
                    deadline,
                ),
                (MessageKind::Event, _) => (library
                    .dragon_channel_gatewaymessage_transport_start_event_cmplt)(
                    raw, value, result.0, deadline,
                ),
            }
        })
    }
}

impl Answered {
    /// Returns whether the process has taken the answer or never will, without blocking.
    pub(crate) fn is_settled(&mut self) -> bool {
        let message = &self.message;
        if message.settled.load(Ordering::Relaxed) {
            return true;
        }
        let check = match message.kind {
            MessageKind::Send => {
                message
                    .library
                    .dragon_channel_gatewaymessage_transport_check_send_cmplt
            }
            MessageKind::Get => {
                message
                    .library
                    .dragon_channel_gatewaymessage_transport_check_get_cmplt
            }
            MessageKind::Event => {
                message
                    .library
                    .dragon_channel_gatewaymessage_transport_check_event_cmplt
            }
        };
        // SAFETY: the gateway message is attached, and its answer has been started.
        let result = unsafe {
            let mut raw = message.raw();
            let raw = &mut **raw;
            check(&mut raw.message, &mut raw.deadline)
        };
        match result {
            AGAIN => return false,
            0 => {
                if let Some(taken) = self.got.take() {
                    taken.given();
                }
            }
            // The process notices this too, and does not take the message.
            _ => tracing::warn!(
                "{:?} request: process {} was too late for its answer{}",
                message.kind,
                message.process,
                match self.got {
                    Some(_) => ", and the message that it requested is lost",
                    None => "",
                }
            ),
        }
        message.discard();
        true
    }
}

impl Drop for GatewayMessage {
    fn drop(&mut self) {
        if *self.settled.get_mut() {
            let library = self.library;
            // SAFETY: the gateway message is attached, and no other process uses it any more.
            unsafe { (library.dragon_channel_gatewaymessage_destroy)(&mut self.raw().message) };
        }
    }
}

/// `DRAGON_EAGAIN`.
const AGAIN: u32 = 2;
/// `DRAGON_CHANNEL_BLOCKING_NOTIMEOUT`.
const NEVER: timespec = timespec {
    tv_sec: i32::MAX as _,
    tv_nsec: i32::MAX as _,
};

/// Converts a deadline of libdragon, a time of the clock that all processes of the node share.
fn limit(deadline: timespec) -> Limit {
    match (deadline.tv_sec, deadline.tv_nsec) {
        (0, 0) => Limit::Once,
        never if never == (NEVER.tv_sec, NEVER.tv_nsec) => Limit::Never,
        (seconds, nanoseconds) => Limit::At(
            Nanos::try_from(seconds)
                .unwrap_or(0)
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds.try_into().unwrap_or(0)),
        ),
    }
}

fn mode(mode: c_int) -> ReturnMode {
    match mode {
        0 => ReturnMode::Immediately,
        1 => ReturnMode::Buffered,
        2 => ReturnMode::Deposited,
        3 => ReturnMode::Received,
        _ => ReturnMode::None,
    }
}

/// Copies a descriptor, or returns `None` if `serial` is null.
///
/// # Safety
/// `serial` must be null, or describe readable bytes.
unsafe fn wish(serial: *const Serial) -> Result<Option<Box<[u8]>>, Code> {
    // SAFETY: the caller guarantees that `serial` is null or describes readable bytes.
    unsafe { serial.as_ref().map(|serial| bytes(serial)).transpose() }
}

/// Copies a descriptor.
///
/// # Safety
/// `serial` must describe readable bytes, unless its length is 0.
unsafe fn bytes(serial: &Serial) -> Result<Box<[u8]>, Code> {
    match serial.len {
        0 => Ok(Box::default()),
        1..=MAX_DESCRIPTOR => {
            // SAFETY: the caller guarantees that `serial` describes readable bytes.
            let bytes = unsafe { std::slice::from_raw_parts(serial.data, serial.len) };
            Ok(bytes.into())
        }
        _ => Err(Code::INVALID_ARGUMENT),
    }
}
