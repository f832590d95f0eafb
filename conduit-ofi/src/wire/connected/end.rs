//! One end of a connection, which is that of this rank.

use std::collections::VecDeque;

use conduit_core::ni::Rank;
use conduit_portals::transport::CHANNELS;
use libfabric_sys::fid_ep;

use crate::wire::link::{Arriving, Sending};
use crate::wire::liveness::Nanos;

/// For each channel, the maximum number of frames that the peer may have sent without this rank
/// having taken them.
pub(super) const CREDITS: [u16; CHANNELS] = [32, 16];
/// The number of receives of an end. There is one for each of these frames, and some for frames
/// without fragments, which are handled at once.
pub(super) const RECEIVES: u32 = 32 + 16 + 8;
/// For each channel, the number of taken frames that are reported together.
const REPORTED: [u16; CHANNELS] = [CREDITS[0] / 2, CREDITS[1] / 2];

/// The stage of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The peer may request the connection.
    Expected,
    /// This rank has requested the connection, and the peer has to answer before this time.
    Asked(Nanos),
    /// The peer has requested the connection, and this rank has accepted.
    Accepted,
    /// The connection is established.
    Up,
    /// The connection was not established.
    Failed,
    /// The connection was established, and has ended.
    Gone,
}

/// The numbers of frames and fragments taken from a connection that are still to be reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// For each channel, the number of frames. On the command channel, every frame is a fragment.
    pub(super) frames: [u16; CHANNELS],
    /// The number of completed fragments of the data channel.
    pub(super) fragments: u16,
}

impl Taken {
    pub(super) fn is_due(&self, is_asked: bool) -> bool {
        let is_any = self.frames.iter().any(|frames| *frames > 0);
        is_any && is_asked || self.frames[0] >= REPORTED[0] || self.frames[1] >= REPORTED[1]
    }

    pub(super) fn encode(self) -> u64 {
        let [tiny, data] = self.frames.map(u64::from);
        tiny | data << 16 | u64::from(self.fragments) << 32
    }

    /// Decodes a report. Returns `None` if the report is malformed.
    pub(super) fn decode(bits: u64) -> Option<Self> {
        // Each cast keeps the lower bits, which are the field's.
        let taken = Self {
            frames: [bits as u16, (bits >> 16) as u16],
            fragments: (bits >> 32) as u16,
        };
        (bits >> 48 == 0).then_some(taken)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct End {
    pub(super) peer: Rank,
    /// The connection's number.
    pub(super) number: u32,
    pub(super) stage: Stage,
    pub(super) ep: Option<*mut fid_ep>,
    /// The number of the next frame to the peer.
    pub(super) next_out: u64,
    pub(super) next_in: u64,
    /// For each channel, the number of frames that may be sent.
    pub(super) credit: [u16; CHANNELS],
    /// For each channel, the number of fragments that the peer has not taken.
    pub(super) left: [u32; CHANNELS],
    /// For each channel, the number of fragments taken since the last query.
    pub(super) taken: [u32; CHANNELS],
    /// The fragments of the data channel that have not been written to frames completely.
    pub(super) queue: VecDeque<Sending>,
    /// For each channel, the frames that have arrived. Each is given by its buffer and its length.
    pub(super) arrived: [VecDeque<(u32, usize)>; CHANNELS],
    pub(super) arriving: Option<Arriving>,
    pub(super) owed: Taken,
    /// Whether the peer wants reports of taken frames without delay.
    pub(super) is_asked: bool,
    /// Whether this rank wants reports of taken frames without delay.
    pub(super) asks: bool,
    /// Whether this rank still has to ask the peer for such reports.
    pub(super) to_ask: bool,
    /// The receive buffers that could not be posted.
    pub(super) unposted: Vec<u32>,
    /// The number of sends that the library has not completed.
    pub(super) pending: u32,
}

// SAFETY: the endpoint belongs to the library, whose objects may be used by any thread, but only by
// one at a time.
unsafe impl Send for End {}

impl End {
    pub(super) fn new(peer: Rank, number: u32, stage: Stage, next_out: u64) -> Self {
        Self {
            peer,
            number,
            stage,
            ep: None,
            next_out,
            next_in: 0,
            credit: CREDITS,
            left: [0; CHANNELS],
            taken: [0; CHANNELS],
            queue: VecDeque::new(),
            arrived: [VecDeque::new(), VecDeque::new()],
            arriving: None,
            owed: Taken::default(),
            is_asked: false,
            asks: false,
            to_ask: false,
            unposted: Vec::new(),
            pending: 0,
        }
    }

    /// Handles the peer's report of taken frames. Returns `false` if the peer cannot have taken
    /// that number of frames.
    pub(super) fn on_taken(&mut self, taken: Taken) -> bool {
        let fragments = [u32::from(taken.frames[0]), u32::from(taken.fragments)];
        for channel in 0..CHANNELS {
            let credit = self.credit[channel].checked_add(taken.frames[channel]);
            let left = self.left[channel].checked_sub(fragments[channel]);
            let (Some(credit), Some(left)) = (credit, left) else {
                return false;
            };
            if credit > CREDITS[channel] {
                return false;
            }
            self.credit[channel] = credit;
            self.left[channel] = left;
            self.taken[channel] += fragments[channel];
        }
        true
    }

    /// Gives up the fragments whose bytes are read from the user's memory.
    pub(super) fn abandon(&mut self) {
        // The cast is lossless, because the queue is bounded.
        let dropped = self.queue.len() as u32;
        self.queue.clear();
        self.left[1] -= dropped;
        self.taken[1] += dropped;
    }

    /// Returns the number of items that may not have reached the peer.
    pub(super) fn outstanding(&self) -> usize {
        let untaken = match self.asks {
            true => self.left.iter().sum::<u32>() as usize,
            false => 0,
        };
        self.pending as usize + self.queue.len() + untaken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_reported_is_read(tiny: u16, data: u16, fragments: u16, above in 1_u64..1 << 16) {
            let taken = Taken { frames: [tiny, data], fragments };
            prop_assert_eq!(Taken::decode(taken.encode()), Some(taken));
            prop_assert_eq!(Taken::decode(taken.encode() | above << 48), None);
        }

        /// A peer that reports more frames than were sent to it is refused.
        #[test]
        fn credit_never_grows(sent in 0_u16..=16, tiny in 0_u16..40, data in 0_u16..20, fragments in 0_u16..20) {
            let mut end = End::new(1, 2, Stage::Up, 0);
            end.credit = CREDITS.map(|credit| credit - sent);
            end.left = [sent.into(), sent.into()];
            let is_honest = tiny <= sent && data <= sent && fragments <= sent;
            let taken = Taken { frames: [tiny, data], fragments };
            prop_assert_eq!(end.on_taken(taken), is_honest);
            prop_assert!((0..CHANNELS).all(|at| end.credit[at] <= CREDITS[at]));
        }
    }
}
