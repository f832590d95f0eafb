//! One part of an operation at one rank: the messages that the rank still expects, and the messages
//! that it still has to send.

use crate::collectives::CollectiveKind;
use crate::collectives::buffer::Buffer;
use crate::ni::Rank;

/// The protocol by which data is passed to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// The data is sent once the receiver's ready message has arrived.
    Announced,
    /// The data is sent at once. A receiver that has to refuse the data requests it later by a
    /// ready message. `told` is whether the receiver acknowledges the data, which it must if no
    /// other message would show that it took the data.
    Eager { told: bool },
    /// The data is sent at once, because the receiver is known to wait for it.
    Expected,
}

/// The state of the data for one neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// The data is not available yet, or the neighbour is not ready for it.
    Idle,
    /// The data is queued or is being sent.
    Queued,
    /// The data has been sent, but the neighbour has not acknowledged it yet.
    Sent,
    /// Nothing more has to be sent or acknowledged.
    Done,
}

/// A neighbour in the tree.
#[derive(Debug)]
pub(super) struct TreeLink {
    pub(super) peer: Rank,
    pub(super) out: Out,
    /// Whether the neighbour's ready message has arrived.
    pub(super) ready: bool,
    /// The neighbour's data, if it arrived before the neighbour's turn.
    pub(super) parked: Option<Buffer>,
}

impl TreeLink {
    fn new(peer: Rank) -> Self {
        Self {
            peer,
            out: Out::Idle,
            ready: false,
            parked: None,
        }
    }
}

/// The position of a link in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkId {
    Parent,
    Child(usize),
}

/// One part of an operation. The default is a part that is over.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The part's number in its team.
    pub(super) number: u32,
    /// The operation's number at this rank.
    pub(super) operation: u64,
    pub(super) kind: CollectiveKind,
    /// The value that must be the same on all ranks.
    pub(super) signature: u32,
    /// The offset of the part within the operation's vectors or, for operations of pairs, within
    /// the result.
    pub(super) start: usize,
    /// For operations of pairs, the offset of the part within the source.
    pub(super) source: usize,
    /// The length in bytes, which is not 0.
    pub(super) len: usize,
    /// Maximum size of a message in bytes. In a reduction, it is a multiple of the element size if
    /// a message can hold an element.
    pub(super) piece: usize,
    /// Whether messages are smaller than an element. If so, a child's data is assembled before it
    /// is reduced.
    pub(super) gathers: bool,
    pub(super) eager: bool,
    pub(super) parent: Option<TreeLink>,
    /// The children, in order of subtree size from the smallest.
    pub(super) children: Vec<TreeLink>,
    /// The partial result of a reduction, or `None` at ranks without children.
    pub(super) sum: Option<Buffer>,
    /// The index of the child whose data is being reduced. Children take turns in list order, so
    /// that a reduction of the same data always yields the same bits.
    pub(super) turn: usize,
    /// The data of the child whose turn it is, while the data is being assembled.
    pub(super) gathered: Option<Buffer>,
    /// The number of bytes received from the child whose turn it is, and later from the parent.
    pub(super) got: usize,
    /// Whether the data of this rank's subtree has been reduced.
    pub(super) is_reduced: bool,
    /// Whether the result is in place.
    pub(super) has_result: bool,
    /// The number of this part's messages that have been taken for sending but not yet reported as
    /// sent.
    pub(super) in_hand: u32,
}

impl Part {
    pub(super) fn links(&mut self, parent: Option<Rank>, children: impl Iterator<Item = Rank>) {
        self.parent = parent.map(TreeLink::new);
        self.children.extend(children.map(TreeLink::new));
    }

    /// Returns the link to a peer that has sent data. In operations of pairs, where the same rank
    /// may be both parent and child, data comes from the parent.
    pub(super) fn find_sender(&self, peer: Rank) -> Option<LinkId> {
        if self.parent.as_ref().is_some_and(|link| link.peer == peer) {
            return Some(LinkId::Parent);
        }
        match self.kind.is_of_pairs() {
            true => None,
            false => self.find_child(peer),
        }
    }

    /// Returns the link to a peer that has acknowledged or requested this rank's data. In
    /// operations of pairs, such a peer is a child.
    pub(super) fn find_receiver(&self, peer: Rank) -> Option<LinkId> {
        match self.kind.is_of_pairs() {
            true => self.find_child(peer),
            false => self.find_sender(peer),
        }
    }

    fn find_child(&self, peer: Rank) -> Option<LinkId> {
        let child = self.children.iter().position(|link| link.peer == peer)?;
        Some(LinkId::Child(child))
    }

    pub(super) fn link(&mut self, id: LinkId) -> Option<&mut TreeLink> {
        match id {
            LinkId::Parent => self.parent.as_mut(),
            LinkId::Child(child) => self.children.get_mut(child),
        }
    }

    /// Returns how this rank sends data to a neighbour, or `None` if it sends none.
    pub(super) fn passing(&self, to: LinkId) -> Option<Passing> {
        let told = !self.kind.reduces_to_all();
        match (self.kind, to) {
            (CollectiveKind::ReduceToOne { .. }, LinkId::Child(_)) => None,
            (kind, LinkId::Parent) if !kind.reduces() => None,
            (kind, LinkId::Child(_)) if kind.reduces_to_all() => Some(Passing::Expected),
            _ if self.eager => Some(Passing::Eager { told }),
            _ => Some(Passing::Announced),
        }
    }

    /// Returns whether the data for a neighbour is available.
    pub(super) fn has_data(&self, to: LinkId) -> bool {
        match to {
            LinkId::Parent => self.is_reduced,
            LinkId::Child(_) => self.has_result || self.kind.is_of_pairs(),
        }
    }

    /// Returns the neighbours whose data, ready message or acknowledgement is missing.
    pub(super) fn lacks(&self) -> Vec<Rank> {
        let (up, down) = match self.kind {
            CollectiveKind::ReduceToOne { .. } => (false, !self.is_reduced),
            kind if kind.reduces() => (self.is_reduced && !self.has_result, !self.is_reduced),
            _ => (!self.has_result, false),
        };
        let children = self.children.iter().enumerate().map(|(at, link)| {
            // Children take turns in list order. Data that arrived before its turn is in `parked`.
            let data = down && at >= self.turn && link.parked.is_none();
            (LinkId::Child(at), link, data)
        });
        let parent = self.parent.iter().map(|link| (LinkId::Parent, link, up));
        let answer = |id: LinkId, link: &TreeLink| match self.passing(id) {
            Some(Passing::Announced) => self.has_data(id) && link.out == Out::Idle,
            Some(Passing::Eager { .. }) => link.out == Out::Sent,
            _ => false,
        };
        parent
            .chain(children)
            .filter(|&(id, link, data)| data || answer(id, link))
            .map(|(_, link, _)| link.peer)
            .collect()
    }

    /// Returns whether the part is finished at this rank.
    pub(super) fn is_over(&self) -> bool {
        let done = |link: &TreeLink| link.out == Out::Done;
        let sent_up = self.parent.as_ref().is_none_or(done);
        let sent_down = || self.children.iter().all(done);
        self.in_hand == 0
            && match self.kind {
                CollectiveKind::ReduceToOne { .. } => self.is_reduced && sent_up,
                kind if kind.reduces() => self.has_result && sent_up && sent_down(),
                _ => self.has_result && sent_down(),
            }
    }
}
