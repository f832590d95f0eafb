//! The protocol between clients and their agent. Its messages are headers of the local network's
//! fragments.
//!
//! A client numbers each of its requests. A request gets one reply, which has the request's number,
//! unless its kind has none ([`FrameKind::is_awaited`]). Requests to send travel on the data
//! channel with the message's bytes, so that a client's sends stay in order. All other requests
//! travel on the command channel.
//!
//! Numbers are in native byte order, because both sides are processes of one host. Each request
//! states the version of the protocol, which must be the same on both sides.

use agent::host::{Limit, ReturnMode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::descriptor::Descriptor;

/// The version of the protocol, which every request contains.
const VERSION: u8 = 1;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Sends a message to a channel.
    Send {
        mode: ReturnMode,
        /// The client's handle; sends with the same handle stay in order.
        handle: u64,
        hints: u64,
    },
    Get,
    Poll {
        mask: u16,
    },
    /// Creates a channel on this node.
    Create {
        capacity: u64,
        block: u64,
        outlives: bool,
    },
    /// Destroys a channel.
    Destroy,
    /// Gives up waiting for the reply to the request with the same number. This request has no
    /// reply.
    Abandon,
}

impl FrameKind {
    /// Returns whether the request has a reply.
    pub(crate) fn is_awaited(self) -> bool {
        match self {
            Self::Abandon => false,
            Self::Send { mode, .. } => mode != ReturnMode::None,
            _ => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: u32,
    pub(crate) kind: FrameKind,
    pub(crate) limit: Limit,
    /// Unused in [`FrameKind::Create`] and [`FrameKind::Abandon`].
    pub(crate) channel: Descriptor,
}

/// The header of a request.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RequestHeader {
    version: u8,
    kind: u8,
    mode: u8,
    outlives: u8,
    mask: u16,
    zero: u16,
    id: u32,
    zero_too: u32,
    /// The deadline in nanoseconds. 0 stands for [`Limit::Once`] and the maximum for
    /// [`Limit::Never`].
    limit: u64,
    node: u64,
    epoch: u64,
    number: u64,
    /// The handle of a send, or the capacity of a new channel.
    first: u64,
    /// The hints of a send, or the block size of a new channel.
    second: u64,
}

pub(crate) const REQUEST: usize = size_of::<RequestHeader>();
const _: () = assert!(REQUEST == conduit_portals::transport::fragment::MAX_HEADER);

const MODES: [ReturnMode; 5] = [
    ReturnMode::Immediately,
    ReturnMode::Buffered,
    ReturnMode::Deposited,
    ReturnMode::Received,
    ReturnMode::None,
];

/// Returns the number of a mode. Dragon uses the same numbers.
pub(crate) fn mode_number(mode: ReturnMode) -> u8 {
    // The cast is lossless, because there are five modes.
    MODES.iter().position(|other| *other == mode).unwrap_or(0) as u8
}

/// Returns the mode with this number.
pub(crate) fn mode_of(number: u8) -> Option<ReturnMode> {
    MODES.get(usize::from(number)).copied()
}

impl Request {
    pub(crate) fn encode(&self) -> [u8; REQUEST] {
        let mut header = RequestHeader {
            version: VERSION,
            kind: 0,
            mode: 0,
            outlives: 0,
            mask: 0,
            zero: 0,
            id: self.id,
            zero_too: 0,
            limit: match self.limit {
                Limit::Once => 0,
                Limit::At(at) => at.clamp(1, u64::MAX - 1),
                Limit::Never => u64::MAX,
            },
            node: self.channel.node,
            epoch: self.channel.epoch,
            number: self.channel.number,
            first: 0,
            second: 0,
        };
        match self.kind {
            FrameKind::Send {
                mode,
                handle,
                hints,
            } => {
                header.mode = mode_number(mode);
                (header.first, header.second) = (handle, hints);
            }
            FrameKind::Get => header.kind = 1,
            FrameKind::Poll { mask } => (header.kind, header.mask) = (2, mask),
            FrameKind::Create {
                capacity,
                block,
                outlives,
            } => {
                (header.kind, header.outlives) = (3, outlives.into());
                (header.first, header.second) = (capacity, block);
            }
            FrameKind::Destroy => header.kind = 4,
            FrameKind::Abandon => header.kind = 5,
        }
        zerocopy::transmute!(header)
    }

    /// Decodes a header. Returns `None` if it is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let header = RequestHeader::read_from_bytes(bytes).ok()?;
        if header.version != VERSION || header.zero != 0 || header.zero_too != 0 {
            return None;
        }
        let kind = match header.kind {
            0 => FrameKind::Send {
                mode: mode_of(header.mode)?,
                handle: header.first,
                hints: header.second,
            },
            1 => FrameKind::Get,
            2 => FrameKind::Poll { mask: header.mask },
            3 => FrameKind::Create {
                capacity: header.first,
                block: header.second,
                outlives: match header.outlives {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            4 => FrameKind::Destroy,
            5 => FrameKind::Abandon,
            _ => return None,
        };
        Some(Self {
            id: header.id,
            kind,
            limit: match header.limit {
                0 => Limit::Once,
                u64::MAX => Limit::Never,
                at => Limit::At(at),
            },
            channel: Descriptor {
                node: header.node,
                epoch: header.epoch,
                number: header.number,
            },
        })
    }
}

/// The result of a request, which is sent to the client. The reply to a get is followed by the
/// message's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Reply {
    pub(crate) id: u32,
    /// The number of a [`Code`](agent::Code).
    pub(crate) code: u32,
    /// The value of a poll, the hints of a received message, or the number of a created channel.
    pub(crate) value: u64,
    /// The sender of a received message, or the epoch of a created channel.
    pub(crate) second: u64,
    /// The node of a created channel.
    pub(crate) node: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn requests() -> impl Strategy<Value = Request> {
        let kind = prop_oneof![
            (0u8..5, any::<u64>(), any::<u64>()).prop_map(|(mode, handle, hints)| {
                FrameKind::Send {
                    mode: mode_of(mode).expect("one of five"),
                    handle,
                    hints,
                }
            }),
            Just(FrameKind::Get),
            any::<u16>().prop_map(|mask| FrameKind::Poll { mask }),
            any::<(u64, u64, bool)>().prop_map(|(capacity, block, outlives)| FrameKind::Create {
                capacity,
                block,
                outlives
            }),
            Just(FrameKind::Destroy),
            Just(FrameKind::Abandon),
        ];
        let limit = prop_oneof![
            Just(Limit::Once),
            Just(Limit::Never),
            (1..u64::MAX).prop_map(Limit::At)
        ];
        (any::<(u32, u64, u64, u64)>(), kind, limit).prop_map(
            |((id, node, epoch, number), kind, limit)| Request {
                id,
                kind,
                limit,
                channel: Descriptor {
                    node,
                    epoch,
                    number,
                },
            },
        )
    }

    proptest! {
        #[test]
        fn what_a_client_says_is_understood(request in requests()) {
            prop_assert_eq!(Request::decode(&request.encode()), Some(request));
        }

        #[test]
        fn any_bytes_have_a_meaning_or_none(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Request::decode(&bytes);
        }
    }
}
