//! The Ni contract: straight to the near network where it is alone.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Closure, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::{Lock, Mode};

use super::{Beyond, Mixed, Side};

/// How long a rank waits on one network before it looks at the other, where nothing tells it to: short against what a
/// message between hosts takes.
const MOMENT: Duration = Duration::from_micros(50);

impl<Near: Ni, Far: Ni, M: Mode> Ni for Mixed<Near, Far, M> {
    #[inline]
    fn rank(&self) -> Rank {
        match &self.beyond {
            None => self.near.rank(),
            Some(beyond) => beyond.far.rank(),
        }
    }
    #[inline]
    fn size(&self) -> u32 {
        match &self.beyond {
            None => self.near.size(),
            Some(beyond) => beyond.far.size(),
        }
    }
    fn limits(&self) -> &Limits {
        match &self.beyond {
            None => self.near.limits(),
            Some(beyond) => &beyond.limits,
        }
    }
    #[inline]
    fn reach(&self, peer: Rank) -> &Reach {
        match &self.beyond {
            None => self.near.reach(peer),
            Some(beyond) => match beyond.near_rank(peer) {
                Some(number) => self.near.reach(number),
                None => beyond.far.reach(peer),
            },
        }
    }

    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        match &self.beyond {
            None => self.near.region_create(len),
            Some(beyond) => beyond.create_region(&self.near, len),
        }
    }
    #[inline]
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        match &self.beyond {
            None => self.near.window(peer, region),
            Some(beyond) => match beyond.near_rank(peer) {
                Some(number) => self.near.window(number, region),
                None => beyond.far.window(peer, region),
            },
        }
    }

    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        match &self.beyond {
            None => self.near.eq_create(slots),
            Some(beyond) => beyond.create_queue(&self.near, slots),
        }
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        match &self.beyond {
            None => self.near.pt_open(index, eq),
            Some(beyond) => beyond.open(&self.near, index, eq),
        }
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        match &self.beyond {
            None => self.near.me_append(index, entry),
            Some(beyond) => beyond.append(&self.near, index, entry),
        }
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        match &self.beyond {
            None => self.near.me_unlink(me),
            Some(beyond) => beyond.unlink(&self.near, me),
        }
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        match &self.beyond {
            // SAFETY: the caller's promise.
            None => unsafe { self.near.md_bind(base, len, eq) },
            // SAFETY: the caller's promise.
            Some(beyond) => unsafe { beyond.bind(&self.near, base, len, eq) },
        }
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        match &self.beyond {
            None => self.near.md_release(md),
            Some(beyond) => beyond.release(&self.near, md),
        }
    }

    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        match &self.beyond {
            // SAFETY: the caller's promise.
            None => unsafe { self.near.put(put) },
            // SAFETY: the caller's promise.
            Some(beyond) => unsafe { beyond.put(&self.near, put) },
        }
    }
    #[inline(always)]
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        match &self.beyond {
            None => self.near.inject(inject),
            // A copy, so that the other one never has to be in memory.
            Some(beyond) => beyond.inject(&self.near, &{ *inject }),
        }
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        match &self.beyond {
            // SAFETY: the caller's promise.
            None => unsafe { self.near.get(get) },
            // SAFETY: the caller's promise.
            Some(beyond) => unsafe { beyond.get(&self.near, get) },
        }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        match &self.beyond {
            None => self.near.atomic(atomic),
            Some(beyond) => beyond.atomic(&self.near, atomic),
        }
    }

    fn abandon(&self) {
        self.near.abandon();
        if let Some(beyond) = &self.beyond {
            beyond.far.abandon();
        }
    }

    unsafe fn memory_write(
        &self,
        target: Rank,
        address: u64,
        source: *const u8,
        len: usize,
    ) -> Result<(), NiError> {
        let Some(beyond) = &self.beyond else {
            // SAFETY: the caller's promise.
            return unsafe { self.near.memory_write(target, address, source, len) };
        };
        match beyond.near_rank(target) {
            // SAFETY: the caller's promise.
            Some(number) => unsafe { self.near.memory_write(number, address, source, len) }
                .map_err(|error| beyond.of_near(error)),
            // SAFETY: the caller's promise.
            None => unsafe { beyond.far.memory_write(target, address, source, len) },
        }
    }
    unsafe fn memory_read(
        &self,
        destination: *mut u8,
        target: Rank,
        address: u64,
        len: usize,
    ) -> Result<(), NiError> {
        let Some(beyond) = &self.beyond else {
            // SAFETY: the caller's promise.
            return unsafe { self.near.memory_read(destination, target, address, len) };
        };
        match beyond.near_rank(target) {
            // SAFETY: the caller's promise.
            Some(number) => unsafe { self.near.memory_read(destination, number, address, len) }
                .map_err(|error| beyond.of_near(error)),
            // SAFETY: the caller's promise.
            None => unsafe { beyond.far.memory_read(destination, target, address, len) },
        }
    }

    #[inline]
    fn ready(&self) -> Ready {
        let near = self.near.ready();
        match &self.beyond {
            None => near,
            Some(beyond) => beyond.look(near),
        }
    }
    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        match &self.beyond {
            None => self.near.poll(eq, limit, sink),
            Some(_) => self.poll_into(eq, limit, &mut Closure(sink)),
        }
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        match &self.beyond {
            None => self.near.poll_into(eq, limit, sink),
            Some(beyond) => self.poll_both(beyond, eq, limit, sink),
        }
    }
    #[inline]
    fn progress(&self) {
        match &self.beyond {
            None => self.near.progress(),
            Some(beyond) => self.progress_both(beyond),
        }
    }
    fn wait(&self, limit: Duration) {
        match &self.beyond {
            None => self.near.wait(limit),
            Some(beyond) => self.wait_for_both(beyond, limit),
        }
    }
    #[inline]
    fn notify(&self, peer: Rank) {
        match &self.beyond {
            None => self.near.notify(peer),
            Some(beyond) => match beyond.near_rank(peer) {
                Some(number) => self.near.notify(number),
                None => beyond.far.notify(peer),
            },
        }
    }
    fn failed_peer(&self) -> Option<Rank> {
        let near = self.near.failed_peer();
        match &self.beyond {
            None => near,
            Some(beyond) => near
                .map(|number| beyond.rank_of(number))
                .or_else(|| beyond.far.failed_peer()),
        }
    }
    fn failure(&self, peer: Rank) -> String {
        match &self.beyond {
            None => self.near.failure(peer),
            Some(beyond) => match beyond.near_rank(peer) {
                Some(number) => self.near.failure(number),
                None => beyond.far.failure(peer),
            },
        }
    }
    fn bad_peer(&self) -> Option<Rank> {
        let near = self.near.bad_peer();
        match &self.beyond {
            None => near,
            Some(beyond) => near
                .map(|number| beyond.rank_of(number))
                .or_else(|| beyond.far.bad_peer()),
        }
    }
}

impl<Near: Ni, Far: Ni, M: Mode> Mixed<Near, Far, M> {
    #[cold]
    fn wait_for_both(&self, beyond: &Beyond<Far, M>, limit: Duration) {
        if self.is_anything_ready(beyond) {
            return;
        }
        // Alone on its host: nothing else can come.
        if beyond.neighbours.len() == 1 {
            return beyond.far.wait(limit);
        }
        if beyond.far.arm() {
            if !self.is_anything_ready(beyond) {
                self.near.wait(limit);
            }
            beyond.far.disarm();
            return;
        }
        beyond.far.wait(limit.min(MOMENT));
        if !self.is_anything_ready(beyond) {
            self.near.wait(limit.min(MOMENT));
        }
    }
}

impl<Far: Ni, M: Mode> Beyond<Far, M> {
    fn create_region<Near: Ni>(&self, near: &Near, len: usize) -> Result<Region, NiError> {
        let mut left = self.regions.lock();
        if len > *left {
            return Err(NiError::OverLimit {
                operation: "region_create",
                what: "length",
                value: len as u64,
                limit: *left as u64,
            });
        }
        let region = near
            .region_create(len)
            .map_err(|error| self.of_near(error))?;
        // SAFETY: a region of the near network, which is dropped after the far one (`Mixed`).
        let adopted = unsafe { self.far.region_adopt(region.base, region.len) }?;
        match adopted.id == region.id {
            true => {
                *left = left.saturating_sub(region.len);
                Ok(region)
            }
            false => Err(NiError::System {
                operation: "region_create",
                rank: self.far.rank(),
                reason: format!(
                    "the near network numbers the region {}, the far one {}",
                    region.id.0, adopted.id.0
                ),
            }),
        }
    }

    fn open<Near: Ni>(&self, near: &Near, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.check_index("pt_open", index)?;
        let eq = match eq {
            Some(eq) => eq,
            None => self.quiet_queue(near)?,
        };
        let far = match self.queues.quiet() == Some(eq) {
            true => self.queues.get(eq).map(|queue| queue.far),
            false => Some(self.queues.far("pt_open", eq)?),
        };
        near.pt_open(index, Some(eq))
            .map_err(|error| self.of_near(error))?;
        self.far.pt_open(index, far)?;
        self.indices[usize::from(index.0)].store(eq.0 + 1, Ordering::Release);
        Ok(())
    }

    /// See [`Ni::put`].
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn put<Near: Ni>(&self, near: &Near, put: &Put) -> Result<Submit, NiError> {
        self.check("put", put.target, put.index)?;
        let mut put = *put;
        match self.near_rank(put.target) {
            Some(number) => {
                put.md = self.descriptors.get("put", put.md, Side::Near)?;
                put.target = number;
                // SAFETY: the caller's promise.
                unsafe { near.put(&put) }.map_err(|error| self.of_near(error))
            }
            None => {
                self.pace.note_traffic();
                put.md = self.descriptors.get("put", put.md, Side::Far)?;
                // SAFETY: the caller's promise.
                unsafe { self.far.put(&put) }
            }
        }
    }

    #[inline(never)]
    fn inject<Near: Ni>(&self, near: &Near, inject: &Inject<'_>) -> Result<Submit, NiError> {
        self.check("inject", inject.target, inject.index)?;
        match self.near_rank(inject.target) {
            Some(target) => near
                .inject(&Inject { target, ..*inject })
                .map_err(|error| self.of_near(error)),
            None => {
                self.pace.note_traffic();
                self.far.inject(inject)
            }
        }
    }

    /// See [`Ni::get`].
    ///
    /// # Safety
    /// As there.
    #[cold]
    unsafe fn get<Near: Ni>(&self, near: &Near, get: &Get) -> Result<Submit, NiError> {
        self.check("get", get.target, get.index)?;
        let mut get = *get;
        match self.near_rank(get.target) {
            Some(number) => {
                get.md = self.descriptors.get("get", get.md, Side::Near)?;
                get.target = number;
                // SAFETY: the caller's promise.
                unsafe { near.get(&get) }.map_err(|error| self.of_near(error))
            }
            None => {
                self.pace.note_traffic();
                get.md = self.descriptors.get("get", get.md, Side::Far)?;
                // SAFETY: the caller's promise.
                unsafe { self.far.get(&get) }
            }
        }
    }

    fn atomic<Near: Ni>(&self, near: &Near, atomic: &Atomic) -> Result<Submit, NiError> {
        self.check("atomic", atomic.target, atomic.index)?;
        let far_eq = self.queues.far("atomic", atomic.eq)?;
        match self.near_rank(atomic.target) {
            Some(target) => near
                .atomic(&Atomic { target, ..*atomic })
                .map_err(|error| self.of_near(error)),
            None => {
                self.pace.note_traffic();
                self.far.atomic(&Atomic {
                    eq: far_eq,
                    ..*atomic
                })
            }
        }
    }
}
