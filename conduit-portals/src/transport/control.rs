//! The control queue of each peer, which holds responses, replies, and messages about direct access
//! and leaving.
//!
//! Messages wait here, in the order in which they became due, until the transport takes them. They
//! carry window updates. An update that is due while no message waits is sent in a separate
//! fragment.

use conduit_core::ni::{MeId, Outcome, Rank};

use super::Inner;
use super::buffers::Buffer;
use super::fragment::{Fragment, Payload, Refused};
use super::inbound::LongReply;
use super::interface::Transport;
use super::receive::LONG_REPLY;
use super::state::{Portals, schedule};
use super::wire::{Header, Left, WindowUpdate};

/// A message in a peer's control queue.
#[derive(Debug)]
pub(crate) enum Control {
    /// The outcome of a put or an atomic.
    Response {
        operation: u32,
        outcome: Outcome,
        length: u32,
        value: u64,
    },
    /// The outcome of a get and its data, which fit in a tiny fragment.
    Reply {
        operation: u32,
        outcome: Outcome,
        data: Buffer,
    },
    /// The reply to a get whose data don't fit in a tiny fragment and are read in place.
    LongReply(LongReply),
    /// The announcement that this rank leaves.
    Leave(Left),
    /// An advertisement: the peer may access an entry directly.
    Advertise(MeId),
    /// A withdrawal: the peer has to stop accessing an entry directly.
    Withdraw(MeId),
    /// The answer to a withdrawal: this rank has stopped accessing an entry of the peer directly.
    Withdrawn(MeId),
    /// A message about a wide window.
    Lane(::lanes::Message),
}

impl Control {
    /// Returns the message's header, or `None` if the message is obsolete because its entry is
    /// gone.
    #[inline]
    fn header(&self, portals: &mut Portals) -> Option<Header> {
        Some(match *self {
            Self::Response {
                operation,
                outcome,
                length,
                value,
            } => Header::Response {
                operation,
                outcome,
                length,
                value,
            },
            Self::Reply {
                operation, outcome, ..
            } => Header::Reply { operation, outcome },
            Self::LongReply(ref reply) => Header::Reply {
                operation: reply.operation,
                outcome: Outcome::Done,
            },
            Self::Leave(left) => Header::Leave(left),
            Self::Advertise(entry) => return portals.advertisement(entry),
            Self::Withdraw(entry) => Header::Withdraw(entry),
            Self::Withdrawn(entry) => Header::Withdrawn(entry),
            Self::Lane(message) => Header::Lane(message),
        })
    }
}

impl Portals {
    pub(crate) fn queue_control(&mut self, to: Rank, control: Control) {
        if let Some(link) = self.links.get(to) {
            link.control.push_back(control);
            schedule(&mut self.outgoing, link);
        }
    }

    /// Drops messages that can't be sent any more.
    pub(crate) fn drop_control(&mut self, dropped: impl IntoIterator<Item = Control>) {
        for control in dropped {
            if let Control::LongReply(reply) = control {
                self.end_long_reply(reply, false);
            }
        }
    }
}

impl<T: Transport> Inner<T> {
    /// Sends the messages in the control queues, and the window updates that are due.
    #[inline(never)]
    pub(crate) fn flush_control(&mut self) {
        let mut unflushed = Vec::new();
        for peer in std::mem::take(&mut self.portals.outgoing) {
            if !self.flush_control_to(peer) {
                unflushed.push(peer);
            }
        }
        // New messages may have been scheduled meanwhile.
        for peer in unflushed {
            if let Some(link) = self.portals.links.get(peer) {
                schedule(&mut self.portals.outgoing, link);
            }
        }
    }

    /// Flushes the control queue of one peer; returns `false` if messages are left because the
    /// transport is full.
    fn flush_control_to(&mut self, peer: Rank) -> bool {
        let Self {
            transport, portals, ..
        } = self;
        let window = portals.window;
        let has_drained = portals.has_drained(peer);
        loop {
            let Some(link) = portals.links.get(peer) else {
                return true;
            };
            link.scheduled = false;
            if link.failure.is_some() {
                let dropped = std::mem::take(&mut link.control);
                portals.drop_control(dropped);
                return true;
            }
            let Some(control) = link.control.pop_front() else {
                break;
            };
            let update = link.window_update(window);
            let Some(header) = control.header(portals) else {
                continue;
            };
            let is_tiny = !matches!(control, Control::LongReply(_));
            let refused = match control {
                Control::LongReply(reply) => send_long(transport, portals, peer, &header, reply),
                Control::Reply {
                    data,
                    operation,
                    outcome,
                } => match send_copied(transport, peer, &header, update, data.bytes()) {
                    Ok(()) => {
                        portals.pool.give(data);
                        None
                    }
                    Err(refused) => {
                        let reply = Control::Reply {
                            data,
                            operation,
                            outcome,
                        };
                        Some((refused, reply))
                    }
                },
                other => {
                    let sent = send_copied(transport, peer, &header, update, &[]);
                    sent.err().map(|refused| (refused, other))
                }
            };
            match refused {
                None => {
                    if is_tiny && let Some(link) = portals.links.get(peer) {
                        let units = link.receive.update_sent(update);
                        portals.reported(peer, units);
                    }
                }
                Some((Refused::Full, control)) => {
                    if let Some(link) = portals.links.get(peer) {
                        link.control.push_front(control);
                    }
                    return false;
                }
                // The message is dropped, because the transport itself reports the failure.
                Some((Refused::Dead | Refused::TooLong | Refused::NoSuchRank, control)) => {
                    portals.drop_control([control]);
                    return true;
                }
            }
        }
        while let Some(link) = portals.links.get(peer)
            // The queue is empty here, so `window_update` reports everything that is new, and the
            // loop ends.
            && link.receive.is_due(window)
        {
            let update = link.window_update(window);
            if let Err(refused) = send_copied(transport, peer, &Header::WindowUpdate, update, &[]) {
                return refused != Refused::Full;
            }
            let units = link.receive.update_sent(update);
            portals.counters.window_updates += 1;
            portals.reported(peer, units);
        }
        has_drained
    }
}

fn send_copied<T: Transport>(
    transport: &mut T,
    peer: Rank,
    header: &Header,
    update: WindowUpdate,
    bytes: &[u8],
) -> Result<(), Refused> {
    let header = header.encode(Some(update));
    let fragment = Fragment {
        header: header.as_slice(),
        payload: Payload::Copied(&[bytes]),
    };
    transport.send(peer, &fragment)
}

/// Sends a long reply. If the transport refuses it, returns the reason and the reply.
fn send_long<T: Transport>(
    transport: &mut T,
    portals: &mut Portals,
    peer: Rank,
    header: &Header,
    reply: LongReply,
) -> Option<(Refused, Control)> {
    // The cast is lossless: a message's size fits in 32 bits.
    let length = reply.length as u32;
    let at = portals.long_replies.insert(reply);
    let header = header.encode(None);
    let fragment = Fragment {
        header: header.as_slice(),
        payload: Payload::Read {
            token: LONG_REPLY | at as u64,
            length,
        },
    };
    let sent = transport.send(peer, &fragment);
    let refused = sent.err()?;
    Some((refused, Control::LongReply(portals.long_replies.remove(at))))
}
