//! Operations that [`Chaos`](super::Chaos) has accepted but not yet submitted to the inner network.

use conduit_core::ni::{
    Atomic, Exchange, Get, Inject, MdId, Ni, NiError, PtIndex, Put, Rank, Submit,
};

use super::State;

/// The maximum number of operations deferred per target. The limit is per target so that a target
/// that accepts none doesn't delay the others.
const PER_TARGET: usize = 4;

/// An operation of a rank. An inject carries a copy of its bytes.
#[derive(Debug)]
pub(super) enum Operation {
    Put(Put),
    Get(Get),
    Atomic(Atomic),
    Inject {
        target: Rank,
        index: PtIndex,
        match_bits: u64,
        hdr_data: u64,
        head: Vec<u8>,
        body: Vec<u8>,
        exchange: Exchange,
    },
}

#[derive(Debug)]
pub(super) struct Deferred {
    operation: Operation,
}

impl Operation {
    pub(super) fn inject(inject: &Inject<'_>) -> Self {
        Self::Inject {
            target: inject.target,
            index: inject.index,
            match_bits: inject.match_bits,
            hdr_data: inject.hdr_data,
            head: inject.head.to_vec(),
            body: inject.body.to_vec(),
            exchange: inject.exchange,
        }
    }

    pub(super) fn target(&self) -> Rank {
        match self {
            Self::Put(put) => put.target,
            Self::Get(get) => get.target,
            Self::Atomic(atomic) => atomic.target,
            Self::Inject { target, .. } => *target,
        }
    }

    pub(super) fn index(&self) -> PtIndex {
        match self {
            Self::Put(put) => put.index,
            Self::Get(get) => get.index,
            Self::Atomic(atomic) => atomic.index,
            Self::Inject { index, .. } => *index,
        }
    }

    fn md(&self) -> Option<MdId> {
        match self {
            Self::Put(put) => Some(put.md),
            Self::Get(get) => Some(get.md),
            Self::Atomic(_) | Self::Inject { .. } => None,
        }
    }

    /// Submits the operation to the inner network.
    pub(super) fn submit<N: Ni>(&self, inner: &N) -> Result<Submit, NiError> {
        match self {
            // SAFETY: the caller of `Chaos::put` keeps the source valid and unchanged until the
            // operation's event, which the inner network delivers only after this call.
            Self::Put(put) => unsafe { inner.put(put) },
            // SAFETY: the caller of `Chaos::get` keeps the destination valid and doesn't access it
            // until the operation's event, which the inner network delivers only after this call.
            Self::Get(get) => unsafe { inner.get(get) },
            Self::Atomic(atomic) => inner.atomic(atomic),
            Self::Inject {
                target,
                index,
                match_bits,
                hdr_data,
                head,
                body,
                exchange,
            } => inner.inject(&Inject {
                target: *target,
                index: *index,
                match_bits: *match_bits,
                hdr_data: *hdr_data,
                head,
                body,
                exchange: *exchange,
            }),
        }
    }
}

impl State {
    pub(super) fn has_room_for(&self, target: Rank) -> bool {
        let same = |deferred: &&Deferred| deferred.operation.target() == target;
        self.deferred.iter().filter(same).count() < PER_TARGET
    }

    pub(super) fn defer(&mut self, operation: Operation) {
        self.deferred.push(Deferred { operation });
    }

    /// Returns whether a deferred operation uses this descriptor.
    pub(super) fn defers(&self, md: MdId) -> bool {
        let mut all = self.deferred.iter();
        all.any(|deferred| deferred.operation.md() == Some(md))
    }

    /// Returns whether this operation may be deferred.
    pub(super) fn may_keep(&self, operation: &Operation) -> bool {
        !self.abandoned || operation.md().is_none()
    }

    /// Drops the deferred operations that read or write their callers' memory.
    pub(super) fn forget_operations_with_memory(&mut self) {
        self.abandoned = true;
        self.deferred
            .retain(|deferred| deferred.operation.md().is_none());
    }

    /// Submits some of the deferred operations, in random order.
    pub(super) fn flush<N: Ni>(&mut self, inner: &N) {
        self.random.shuffle(&mut self.deferred);
        let random = &mut self.random;
        self.deferred.retain(|deferred| {
            if random.bool() {
                return true;
            }
            match deferred.operation.submit(inner) {
                Ok(answer) => answer == Submit::Again,
                // The operation was checked when it was accepted. An inner network that refuses it
                // now violates the contract.
                Err(error) => panic!("refused after it was accepted: {error}"),
            }
        });
    }
}
