//! The implementation of `Ni`. In a job of one host, each call goes straight to the intra-host
//! network.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Closure, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::{Lock, Mode};

use super::{Composite, MultiHost, Side};

/// The maximum time for which a rank waits on one network before it polls the other. It applies to
/// inter-host networks that cannot be armed, and is short compared with the latency between hosts.
const MOMENT: Duration = Duration::from_micros(50);

impl<Intra: Ni, Inter: Ni, M: Mode> Ni for Composite<Intra, Inter, M> {
    #[inline]
    fn rank(&self) -> Rank {
        match &self.multi_host {
            None => self.intra.rank(),
            Some(multi_host) => multi_host.inter.rank(),
        }
    }
    #[inline]
    fn size(&self) -> u32 {
        match &self.multi_host {
            None => self.intra.size(),
            Some(multi_host) => multi_host.inter.size(),
        }
    }
    fn limits(&self) -> &Limits {
        match &self.multi_host {
            None => self.intra.limits(),
            Some(multi_host) => &multi_host.limits,
        }
    }
    #[inline]
    fn reach(&self, peer: Rank) -> &Reach {
        match &self.multi_host {
            None => self.intra.reach(peer),
            Some(multi_host) => match multi_host.local_rank(peer) {
                Some(number) => match &multi_host.own_reach {
                    None => self.intra.reach(number),
                    Some(own) => own,
                },
                None => multi_host.inter.reach(peer),
            },
        }
    }

    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        self.region_create_prepared(len, &mut |_, _| {})
    }
    fn region_create_prepared(
        &self,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        match &self.multi_host {
            None => self.intra.region_create_prepared(len, prepare),
            Some(multi_host) => multi_host.create_region(&self.intra, len, prepare),
        }
    }
    #[inline]
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        match &self.multi_host {
            None => self.intra.window(peer, region),
            Some(multi_host) => match multi_host.local_rank(peer) {
                Some(number) => self.intra.window(number, region),
                None => multi_host.inter.window(peer, region),
            },
        }
    }

    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        match &self.multi_host {
            None => self.intra.eq_create(slots),
            Some(multi_host) => multi_host.create_queue(&self.intra, slots),
        }
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        match &self.multi_host {
            None => self.intra.pt_open(index, eq),
            Some(multi_host) => multi_host.open(&self.intra, index, eq),
        }
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        match &self.multi_host {
            None => self.intra.me_append(index, entry),
            Some(multi_host) => multi_host.append(&self.intra, index, entry),
        }
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        match &self.multi_host {
            None => self.intra.me_unlink(me),
            Some(multi_host) => multi_host.unlink(&self.intra, me),
        }
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        match &self.multi_host {
            // SAFETY: the caller guarantees what `Ni::md_bind` requires.
            None => unsafe { self.intra.md_bind(base, len, eq) },
            // SAFETY: the caller guarantees what `Ni::md_bind` requires.
            Some(multi_host) => unsafe { multi_host.bind(&self.intra, base, len, eq) },
        }
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        match &self.multi_host {
            None => self.intra.md_release(md),
            Some(multi_host) => multi_host.release(&self.intra, md),
        }
    }

    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        match &self.multi_host {
            // SAFETY: the caller guarantees what `Ni::put` requires.
            None => unsafe { self.intra.put(put) },
            // SAFETY: the caller guarantees what `Ni::put` requires.
            Some(multi_host) => unsafe { multi_host.put(&self.intra, put) },
        }
    }
    #[inline(always)]
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        match &self.multi_host {
            None => self.intra.inject(inject),
            // The struct is copied, so that the single-host path can keep it in registers.
            Some(multi_host) => multi_host.inject(&self.intra, &{ *inject }),
        }
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        match &self.multi_host {
            // SAFETY: the caller guarantees what `Ni::get` requires.
            None => unsafe { self.intra.get(get) },
            // SAFETY: the caller guarantees what `Ni::get` requires.
            Some(multi_host) => unsafe { multi_host.get(&self.intra, get) },
        }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        match &self.multi_host {
            None => self.intra.atomic(atomic),
            Some(multi_host) => multi_host.atomic(&self.intra, atomic),
        }
    }

    fn abandon(&self) {
        self.intra.abandon();
        if let Some(multi_host) = &self.multi_host {
            multi_host.inter.abandon();
        }
    }

    unsafe fn memory_write(
        &self,
        target: Rank,
        address: u64,
        source: *const u8,
        len: usize,
    ) -> Result<(), NiError> {
        let Some(multi_host) = &self.multi_host else {
            // SAFETY: the caller guarantees what `Ni::memory_write` requires.
            return unsafe { self.intra.memory_write(target, address, source, len) };
        };
        match multi_host.local_rank(target) {
            // SAFETY: the caller guarantees what `Ni::memory_write` requires.
            Some(number) => unsafe { self.intra.memory_write(number, address, source, len) }
                .map_err(|error| multi_host.with_job_rank(error)),
            // SAFETY: the caller guarantees what `Ni::memory_write` requires.
            None => unsafe { multi_host.inter.memory_write(target, address, source, len) },
        }
    }
    unsafe fn memory_read(
        &self,
        destination: *mut u8,
        target: Rank,
        address: u64,
        len: usize,
    ) -> Result<(), NiError> {
        let Some(multi_host) = &self.multi_host else {
            // SAFETY: the caller guarantees what `Ni::memory_read` requires.
            return unsafe { self.intra.memory_read(destination, target, address, len) };
        };
        match multi_host.local_rank(target) {
            // SAFETY: the caller guarantees what `Ni::memory_read` requires.
            Some(number) => unsafe { self.intra.memory_read(destination, number, address, len) }
                .map_err(|error| multi_host.with_job_rank(error)),
            // SAFETY: the caller guarantees what `Ni::memory_read` requires.
            None => unsafe {
                multi_host
                    .inter
                    .memory_read(destination, target, address, len)
            },
        }
    }

    #[inline]
    fn ready(&self) -> Ready {
        let intra = self.intra.ready();
        match &self.multi_host {
            None => intra,
            Some(multi_host) => multi_host.ready_throttled(intra),
        }
    }
    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        match &self.multi_host {
            None => self.intra.poll(eq, limit, sink),
            Some(_) => self.poll_into(eq, limit, &mut Closure(sink)),
        }
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        match &self.multi_host {
            None => self.intra.poll_into(eq, limit, sink),
            Some(multi_host) => self.poll_both(multi_host, eq, limit, sink),
        }
    }
    #[inline]
    fn progress(&self) {
        match &self.multi_host {
            None => self.intra.progress(),
            Some(multi_host) => self.progress_both(multi_host),
        }
    }
    fn wait(&self, limit: Duration) {
        match &self.multi_host {
            None => self.intra.wait(limit),
            Some(multi_host) => self.wait_for_both(multi_host, limit),
        }
    }
    #[inline]
    fn notify(&self, peer: Rank) {
        match &self.multi_host {
            None => self.intra.notify(peer),
            Some(multi_host) => match multi_host.local_rank(peer) {
                Some(number) => self.intra.notify(number),
                None => multi_host.inter.notify(peer),
            },
        }
    }
    fn failed_peer(&self) -> Option<Rank> {
        let intra = self.intra.failed_peer();
        match &self.multi_host {
            None => intra,
            Some(multi_host) => intra
                .map(|number| multi_host.rank_of(number))
                .or_else(|| multi_host.inter.failed_peer()),
        }
    }
    fn failure(&self, peer: Rank) -> String {
        match &self.multi_host {
            None => self.intra.failure(peer),
            Some(multi_host) => match multi_host.local_rank(peer) {
                Some(number) => self.intra.failure(number),
                None => multi_host.inter.failure(peer),
            },
        }
    }
    fn bad_peer(&self) -> Option<Rank> {
        let intra = self.intra.bad_peer();
        match &self.multi_host {
            None => intra,
            Some(multi_host) => intra
                .map(|number| multi_host.rank_of(number))
                .or_else(|| multi_host.inter.bad_peer()),
        }
    }
}

impl<Intra: Ni, Inter: Ni, M: Mode> Composite<Intra, Inter, M> {
    #[cold]
    fn wait_for_both(&self, multi_host: &MultiHost<Inter, M>, limit: Duration) {
        if self.is_anything_ready(multi_host) {
            return;
        }
        // If this rank is alone on its host, nothing can arrive on the intra-host network.
        if multi_host.neighbours.len() == 1 {
            return multi_host.inter.wait(limit);
        }
        if multi_host.inter.arm() {
            if !self.is_anything_ready(multi_host) {
                self.intra.wait(limit);
            }
            multi_host.inter.disarm();
            return;
        }
        multi_host.inter.wait(limit.min(MOMENT));
        if !self.is_anything_ready(multi_host) {
            self.intra.wait(limit.min(MOMENT));
        }
    }
}

impl<Inter: Ni, M: Mode> MultiHost<Inter, M> {
    fn create_region<Intra: Ni>(
        &self,
        intra: &Intra,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        let mut left = self.regions.lock();
        if len > *left {
            return Err(NiError::OverLimit {
                operation: "region_create",
                what: "length",
                value: len as u64,
                limit: *left as u64,
            });
        }
        let region = intra
            .region_create_prepared(len, prepare)
            .map_err(|error| self.with_job_rank(error))?;
        // SAFETY: the intra-host network keeps the region mapped until it is dropped, and
        // `Composite` drops it after the inter-host network.
        let adopted = unsafe { self.inter.region_adopt(region.base, region.len) }?;
        match adopted.id == region.id {
            true => {
                *left = left.saturating_sub(region.len);
                Ok(region)
            }
            false => Err(NiError::System {
                operation: "region_create",
                rank: self.inter.rank(),
                reason: format!(
                    "region has number {} in the intra-host network, but {} in the inter-host one",
                    region.id.0, adopted.id.0
                ),
            }),
        }
    }

    fn open<Intra: Ni>(
        &self,
        intra: &Intra,
        index: PtIndex,
        eq: Option<EqId>,
    ) -> Result<(), NiError> {
        self.check_index("pt_open", index)?;
        let eq = match eq {
            Some(eq) => eq,
            None => self.internal_queue(intra)?,
        };
        let inter = match self.queues.internal() == Some(eq) {
            true => self.queues.get(eq).map(|queue| queue.inter),
            false => Some(self.queues.inter("pt_open", eq)?),
        };
        intra
            .pt_open(index, Some(eq))
            .map_err(|error| self.with_job_rank(error))?;
        self.inter.pt_open(index, inter)?;
        self.indices[usize::from(index.0)].store(eq.0 + 1, Ordering::Release);
        Ok(())
    }

    /// See [`Ni::put`].
    ///
    /// # Safety
    /// Same as [`Ni::put`].
    #[cold]
    unsafe fn put<Intra: Ni>(&self, intra: &Intra, put: &Put) -> Result<Submit, NiError> {
        self.check("put", put.target, put.index)?;
        let mut put = *put;
        match self.local_rank(put.target) {
            Some(number) => {
                put.md = self.descriptors.get("put", put.md, Side::IntraHost)?;
                put.target = number;
                // SAFETY: the caller guarantees what `Ni::put` requires.
                unsafe { intra.put(&put) }.map_err(|error| self.with_job_rank(error))
            }
            None => {
                self.throttle.note_traffic();
                put.md = self.descriptors.get("put", put.md, Side::InterHost)?;
                // SAFETY: the caller guarantees what `Ni::put` requires.
                unsafe { self.inter.put(&put) }
            }
        }
    }

    #[inline(never)]
    fn inject<Intra: Ni>(&self, intra: &Intra, inject: &Inject<'_>) -> Result<Submit, NiError> {
        self.check("inject", inject.target, inject.index)?;
        match self.local_rank(inject.target) {
            Some(target) => intra
                .inject(&Inject { target, ..*inject })
                .map_err(|error| self.with_job_rank(error)),
            None => {
                self.throttle.note_traffic();
                self.inter.inject(inject)
            }
        }
    }

    /// See [`Ni::get`].
    ///
    /// # Safety
    /// Same as [`Ni::get`].
    #[cold]
    unsafe fn get<Intra: Ni>(&self, intra: &Intra, get: &Get) -> Result<Submit, NiError> {
        self.check("get", get.target, get.index)?;
        let mut get = *get;
        match self.local_rank(get.target) {
            Some(number) => {
                get.md = self.descriptors.get("get", get.md, Side::IntraHost)?;
                get.target = number;
                // SAFETY: the caller guarantees what `Ni::get` requires.
                unsafe { intra.get(&get) }.map_err(|error| self.with_job_rank(error))
            }
            None => {
                self.throttle.note_traffic();
                get.md = self.descriptors.get("get", get.md, Side::InterHost)?;
                // SAFETY: the caller guarantees what `Ni::get` requires.
                unsafe { self.inter.get(&get) }
            }
        }
    }

    fn atomic<Intra: Ni>(&self, intra: &Intra, atomic: &Atomic) -> Result<Submit, NiError> {
        self.check("atomic", atomic.target, atomic.index)?;
        let inter_eq = self.queues.inter("atomic", atomic.eq)?;
        match self.local_rank(atomic.target) {
            Some(target) if self.own_reach.is_none() => intra
                .atomic(&Atomic { target, ..*atomic })
                .map_err(|error| self.with_job_rank(error)),
            _ => {
                self.throttle.note_traffic();
                self.inter.atomic(&Atomic {
                    eq: inter_eq,
                    ..*atomic
                })
            }
        }
    }
}
