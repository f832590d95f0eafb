//! The simplest network that keeps the Ni contract. It has one process and one thread, and every
//! operation completes at once.
//!
//! The reference network is the suite's oracle, and its only goal is to be obviously correct. A
//! case that fails here is wrong.

mod arrive;
mod fabric;
mod memory;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Capabilities, Claim, EqId, Event, Exchange, Get, Inject, Limits, MatchEntry, MdId,
    MeId, Ni, NiError, PtIndex, Put, Rank, Reach, Region, RegionId, Submit, Unlink, Window,
};

use fabric::{Fabric, Kind, Message};

/// The maximum length of a message in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// The maximum length of a managed message in bytes.
const MAX_MANAGED: usize = 64 << 10;
/// The maximum length of an inject in bytes.
const INJECT: usize = 256;

/// One rank's end of the reference network.
#[derive(Debug)]
pub struct Reference {
    rank: Rank,
    fabric: Rc<RefCell<Fabric>>,
    limits: Limits,
    reach: Reach,
    unreachable: Reach,
    seen: Cell<Seen>,
}

/// Counts of requests to this rank's end that leave no other trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of injected messages by [`Exchange`]: one-way messages, those that expect a
    /// reply, and replies.
    pub injected: [u32; 3],
}

impl Reference {
    /// Creates the ends of all ranks of a job.
    pub fn job(ranks: u32) -> Vec<Self> {
        Self::job_of(ranks, Capabilities::all())
    }

    /// Creates the ends of all ranks of a job, whose peers have these capabilities.
    pub fn job_of(ranks: u32, capabilities: Capabilities) -> Vec<Self> {
        let limits = Limits {
            pt_indices: 8,
            event_queues: 8,
            match_entries: 128,
            memory_descriptors: 128,
            regions: 8,
            region_bytes: 4 << 20,
        };
        let fabric = Rc::new(RefCell::new(Fabric::new(ranks, limits.clone())));
        (0..ranks)
            .map(|rank| Self {
                rank,
                fabric: Rc::clone(&fabric),
                limits: limits.clone(),
                reach: Reach {
                    capabilities,
                    inject_size: INJECT,
                    max_message: MAX_MESSAGE,
                    max_managed: MAX_MANAGED,
                },
                unreachable: Reach {
                    capabilities: Capabilities::empty(),
                    inject_size: 0,
                    max_message: 0,
                    max_managed: 0,
                },
                seen: Cell::default(),
            })
            .collect()
    }

    /// Returns this end with injects of up to `size` bytes.
    #[must_use]
    pub fn with_inject(mut self, size: usize) -> Self {
        self.reach.inject_size = size;
        self
    }

    /// Returns the counts at this moment.
    pub fn seen(&self) -> Seen {
        self.seen.get()
    }

    /// Refuses a rank or an index that doesn't exist, and a length beyond the limits.
    fn check(
        &self,
        operation: &'static str,
        target: Rank,
        index: PtIndex,
        length: usize,
        limit: usize,
    ) -> Result<(), NiError> {
        if target >= self.size() {
            return Err(NiError::NoSuchRank {
                operation,
                rank: target,
                size: self.size(),
            });
        }
        if index.0 >= self.limits.pt_indices {
            return Err(NiError::NoSuchObject {
                operation,
                what: "index",
                value: index.0.into(),
            });
        }
        if length > limit {
            return Err(NiError::OverLimit {
                operation,
                what: "length",
                value: length as u64,
                limit: limit as u64,
            });
        }
        Ok(())
    }
}

impl Ni for Reference {
    fn rank(&self) -> Rank {
        self.rank
    }
    fn size(&self) -> u32 {
        self.fabric.borrow().size()
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn reach(&self, peer: Rank) -> &Reach {
        if peer < self.size() {
            &self.reach
        } else {
            &self.unreachable
        }
    }

    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        self.fabric.borrow_mut().region_create(self.rank, len)
    }
    unsafe fn region_adopt(&self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        self.fabric.borrow_mut().region_adopt(self.rank, base, len)
    }
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        let known = self.reach(peer).capabilities.contains(Capabilities::WINDOW);
        known.then(|| self.fabric.borrow().window(peer, region))?
    }

    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        self.fabric.borrow_mut().eq_create(self.rank, slots)
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.fabric.borrow_mut().pt_open(self.rank, index, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        self.fabric
            .borrow_mut()
            .me_append(self.rank, index, entry, None)
    }
    fn me_append_claimed(
        &self,
        index: PtIndex,
        entry: MatchEntry,
        claim: Claim,
    ) -> Result<MeId, NiError> {
        self.fabric
            .borrow_mut()
            .me_append(self.rank, index, entry, Some(claim))
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        self.fabric.borrow_mut().me_unlink(self.rank, me)
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        self.fabric.borrow_mut().md_bind(self.rank, base, len, eq)
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.fabric.borrow_mut().md_release(self.rank, md)
    }

    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        self.check("put", put.target, put.index, put.length, MAX_MESSAGE)?;
        let mut fabric = self.fabric.borrow_mut();
        let (source, eq) =
            fabric.md_piece("put", self.rank, put.md, put.local_offset, put.length)?;
        let message = Message {
            source: self.rank,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            offset: put.remote_offset,
            length: put.length,
            kind: Kind::Put(source),
        };
        let Some(end) = fabric.arrive(put.target, put.index, &message) else {
            return Ok(Submit::Again);
        };
        fabric.put_ended(self.rank, eq, put.ack, put.token, &end);
        Ok(Submit::Posted)
    }

    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let length = inject.head.len() + inject.body.len();
        let most = self.reach.inject_size;
        self.check("inject", inject.target, inject.index, length, most)?;
        let mut seen = self.seen();
        seen.injected[match inject.exchange {
            Exchange::OneWay => 0,
            Exchange::ExpectsReply => 1,
            Exchange::IsReply => 2,
        }] += 1;
        self.seen.set(seen);
        let mut bytes = [inject.head, inject.body].concat();
        let message = Message {
            source: self.rank,
            match_bits: inject.match_bits,
            hdr_data: inject.hdr_data,
            offset: 0,
            length,
            kind: Kind::Put(bytes.as_mut_ptr()),
        };
        let mut fabric = self.fabric.borrow_mut();
        let end = fabric.arrive(inject.target, inject.index, &message);
        Ok(if end.is_some() {
            Submit::Posted
        } else {
            Submit::Again
        })
    }

    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        self.check("get", get.target, get.index, get.length, MAX_MESSAGE)?;
        let mut fabric = self.fabric.borrow_mut();
        let (destination, eq) =
            fabric.md_piece("get", self.rank, get.md, get.local_offset, get.length)?;
        let message = Message {
            source: self.rank,
            match_bits: get.match_bits,
            hdr_data: 0,
            offset: get.remote_offset,
            length: get.length,
            kind: Kind::Get(destination),
        };
        let Some(end) = fabric.arrive(get.target, get.index, &message) else {
            return Ok(Submit::Again);
        };
        fabric.reply(self.rank, eq, get.token, &end);
        Ok(Submit::Posted)
    }

    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.check("atomic", atomic.target, atomic.index, 0, 0)?;
        let mut fabric = self.fabric.borrow_mut();
        fabric.queue("atomic", self.rank, atomic.eq)?;
        let message = Message {
            source: self.rank,
            match_bits: atomic.match_bits,
            hdr_data: 0,
            offset: atomic.remote_offset,
            length: atomic.ty.size(),
            kind: Kind::Atomic(*atomic),
        };
        let Some(end) = fabric.arrive(atomic.target, atomic.index, &message) else {
            return Ok(Submit::Again);
        };
        if atomic.fetch {
            fabric.reply(self.rank, atomic.eq, atomic.token, &end);
        } else {
            let ack = conduit_core::ni::Ack::Remote;
            fabric.put_ended(self.rank, atomic.eq, ack, atomic.token, &end);
        }
        Ok(Submit::Posted)
    }

    /// Does nothing, because every operation has ended when its submission returns.
    fn abandon(&self) {}

    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, mut sink: S) -> u32 {
        if !self.fabric.borrow_mut().begin_poll(self.rank, eq) {
            return 0;
        }
        let mut count = 0;
        while count < limit {
            // The fabric isn't borrowed while the sink runs, because the sink may call any method.
            let Some(next) = self.fabric.borrow_mut().next_event(self.rank, eq) else {
                break;
            };
            sink(next.held.event());
            self.fabric.borrow_mut().delivered(self.rank, eq, next);
            count += 1;
        }
        self.fabric.borrow_mut().end_poll(self.rank, eq);
        count
    }
    fn progress(&self) {}
    fn wait(&self, _limit: Duration) {}
    fn notify(&self, _peer: Rank) {}
    fn failed_peer(&self) -> Option<Rank> {
        None
    }
}
