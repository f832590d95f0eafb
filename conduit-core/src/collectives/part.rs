//! One part of an operation at one rank: what it waits for, and what it has still to hand on.

use crate::collectives::CollectiveKind;
use crate::collectives::buffer::Buffer;
use crate::ni::Rank;

/// How data gets to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// After the receiver's ready message.
    Announced,
    /// At once. The receiver may have to refuse it, and asks for it by a ready message later.
    /// `told`: it tells when it has taken it, as nothing else would.
    Eager { told: bool },
    /// At once: the receiver is known to wait for it.
    Expected,
}

/// Where data to a neighbour is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// Not there yet, or the neighbour is not ready.
    Idle,
    /// Being sent.
    Queued,
    /// Sent; the neighbour has not said that it has taken it.
    Sent,
    /// Nothing more to do.
    Done,
}

/// A neighbour in the tree.
#[derive(Debug)]
pub(super) struct TreeLink {
    pub(super) peer: Rank,
    pub(super) out: Out,
    /// Its ready message has come.
    pub(super) ready: bool,
    /// Its data, which came before its turn.
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

/// A link's place in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkId {
    Parent,
    Child(usize),
}

/// See the module. The default is that of a part that is over.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// Its number in its team.
    pub(super) number: u32,
    /// Its operation's number here.
    pub(super) operation: u64,
    pub(super) kind: CollectiveKind,
    /// What all ranks must agree on, as one word.
    pub(super) signature: u32,
    /// First byte within the operation's vectors; of pairs, within the result.
    pub(super) start: usize,
    /// Of pairs: first byte within the source.
    pub(super) source: usize,
    /// Bytes; not 0.
    pub(super) len: usize,
    /// Largest message; of a reduction a multiple of its element, where a message can hold one.
    pub(super) piece: usize,
    /// Pieces hold no whole elements, so the data of a child is put together before it is reduced.
    pub(super) gathers: bool,
    pub(super) eager: bool,
    pub(super) parent: Option<TreeLink>,
    /// The smallest subtree first.
    pub(super) children: Vec<TreeLink>,
    /// What is known of the result of a reduction; ranks without children have none.
    pub(super) sum: Option<Buffer>,
    /// The child whose data is reduced now, in the order of the list, so that the order is always
    /// the same.
    pub(super) turn: usize,
    /// The data of the child whose turn it is, while it is put together.
    pub(super) gathered: Option<Buffer>,
    /// Bytes that have come from that child, later from the parent.
    pub(super) got: usize,
    /// The data of this rank's subtree is reduced.
    pub(super) is_reduced: bool,
    /// The result is in its place.
    pub(super) has_result: bool,
    /// Messages that have been taken to be sent.
    pub(super) in_hand: u32,
}

impl Part {
    pub(super) fn links(&mut self, parent: Option<Rank>, children: impl Iterator<Item = Rank>) {
        self.parent = parent.map(TreeLink::new);
        self.children.extend(children.map(TreeLink::new));
    }

    /// The link of a peer that has sent data. Of pairs, where one rank may be on both sides, data
    /// comes from the parent.
    pub(super) fn find_sender(&self, peer: Rank) -> Option<LinkId> {
        if self.parent.as_ref().is_some_and(|link| link.peer == peer) {
            return Some(LinkId::Parent);
        }
        match self.kind.is_of_pairs() {
            true => None,
            false => self.find_child(peer),
        }
    }

    /// The link of a peer that has answered, or asks for, data of this rank. Of pairs that is a
    /// child.
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

    /// How this rank's data goes to a neighbour; `None`: none goes there.
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

    /// Whether the data for a neighbour is there.
    pub(super) fn has_data(&self, to: LinkId) -> bool {
        match to {
            LinkId::Parent => self.is_reduced,
            LinkId::Child(_) => self.has_result || self.kind.is_of_pairs(),
        }
    }

    /// Neighbours whose data, ready message or word is awaited.
    pub(super) fn lacks(&self) -> Vec<Rank> {
        let (up, down) = match self.kind {
            CollectiveKind::ReduceToOne { .. } => (false, !self.is_reduced),
            kind if kind.reduces() => (self.is_reduced && !self.has_result, !self.is_reduced),
            _ => (!self.has_result, false),
        };
        let children = self.children.iter().enumerate().map(|(at, link)| {
            // Reduced in the order of the list; what came before its turn is parked.
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

    /// Whether an eager message asks to be told that it has been taken: known from its signature.
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
