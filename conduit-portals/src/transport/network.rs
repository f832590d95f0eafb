//! The implementation of the [`Ni`] contract; most calls are forwarded to other files.

use std::time::Duration;

use conduit_core::ni::{
    Atomic, Claim, Closure, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::Mode;

use super::interface::Transport;
use super::{Inner, SoftPortals, state};

/// A rank does not sleep if its next timer is due within this time.
const SOON: Duration = Duration::from_micros(50);

impl<M: Mode, T: Transport> Ni for SoftPortals<M, T> {
    #[inline]
    fn rank(&self) -> Rank {
        self.rank
    }
    #[inline]
    fn size(&self) -> u32 {
        self.size
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    #[inline]
    fn reach(&self, peer: Rank) -> &Reach {
        match peer < self.size {
            true => &self.reach,
            false => &self.unreachable,
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
        let region = self.inner().portals.regions.create(len)?;
        prepare(region.base, region.len);
        // SAFETY: the region is mapped until the portals are dropped, which happens after the
        // transport is dropped.
        unsafe { self.inner().expose("region_create", region) }
    }
    unsafe fn region_adopt(&self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        // SAFETY: the caller keeps the contract of `Ni::region_adopt`.
        unsafe { self.inner().adopt_region(base, len) }
    }
    /// Returns a window only for this rank, because peers' regions are not mapped.
    #[inline]
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        if peer != self.rank {
            return None;
        }
        let region = self.inner().portals.regions.find(region)?;
        Some(Window {
            base: region.base,
            len: region.len,
        })
    }
    fn eq_create(&self, _slots: usize) -> Result<EqId, NiError> {
        // `slots` is ignored, because queues grow as needed. Windows bound the number of events for
        // peers' operations, and `operations` bounds the number for this rank's operations.
        self.inner().portals.create_queue()
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.inner().portals.open_index(index, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        let mut inner = self.inner();
        inner.portals.append_entry(index, &entry, None)
    }
    fn me_append_claimed(
        &self,
        index: PtIndex,
        entry: MatchEntry,
        claim: Claim,
    ) -> Result<MeId, NiError> {
        let mut inner = self.inner();
        inner.portals.append_entry(index, &entry, Some(claim))
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        self.inner().portals.unlink_entry(me)
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        let inner = self.inner();
        inner.portals.check_queue("md_bind", eq)?;
        inner.portals.descriptors.bind(base, len, eq)
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.inner().portals.descriptors.release(md)
    }

    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: the caller keeps the contract of `Ni::put`.
        unsafe { self.inner().put(put) }
    }
    #[inline]
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        let mut inner = self.inner();
        match inner.inject_short(inject) {
            true => Ok(Submit::Posted),
            false => inner.inject(inject),
        }
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: the caller keeps the contract of `Ni::get`.
        unsafe { self.inner().get(get) }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.inner().atomic(atomic)
    }

    fn abandon(&self) {
        // Allowed within a sink, because events are delivered outside of the lock.
        let Inner {
            transport, portals, ..
        } = &mut *self.inner();
        let targets = portals.abandon_operations();
        if !targets.is_empty() {
            transport.abandon(&targets, portals);
        }
    }

    #[inline]
    fn ready(&self) -> Ready {
        self.poll_ready()
    }
    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        self.poll_into(eq, limit, &mut Closure(sink))
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        self.poll_queue(usize::from(eq.0), limit, sink)
    }
    fn progress(&self) {
        // If another thread holds the lock, that thread makes progress or is about to make it.
        if let Some(mut inner) = self.try_inner() {
            self.advance(&mut inner);
        }
    }
    fn wait(&self, limit: Duration) {
        // In a child process the lock may be held by a thread that doesn't exist there.
        if self.standing.is_child() {
            return;
        }
        let shared = &*self.shared;
        let timeout = {
            let mut inner = self.inner();
            if !shared.flags.ready().is_empty() || self.advance(&mut inner) {
                return;
            }
            inner.transport.timeout()
        };
        if shared.flags.ready().is_empty() && self.failed_peer().is_none() {
            let limit = timeout.map_or(limit, |timeout| timeout.min(limit));
            match &self.progress_thread {
                Some(progress_thread) => progress_thread.wait(&*self.waiter, Some(limit)),
                None => self.waiter.wait(None, Some(limit)),
            };
        }
    }
    fn arm(&self) -> bool {
        match &self.progress_thread {
            Some(progress_thread) if self.shared.waker.get().is_some() => {
                // Querying the time-out also prevents packets that were already received from
                // ending the sleep.
                let due = self.inner().transport.timeout();
                if due.is_some_and(|due| due <= SOON) {
                    return false;
                }
                progress_thread.arm();
                true
            }
            _ => false,
        }
    }
    fn disarm(&self) {
        if let Some(progress_thread) = &self.progress_thread {
            progress_thread.disarm();
        }
    }
    /// Does nothing, because no region of a peer is mapped here, so no peer waits for stores into
    /// one.
    fn notify(&self, _peer: Rank) {}
    fn failed_peer(&self) -> Option<Rank> {
        state::first(&self.shared.flags.failed)
    }
    fn failure(&self, peer: Rank) -> String {
        let mut inner = self.inner();
        let address = inner.transport.describe(peer);
        match inner.portals.links.get(peer).and_then(|link| link.failure) {
            Some(failure) => format!("{address} {failure}"),
            None => format!("{address} has died"),
        }
    }
    fn bad_peer(&self) -> Option<Rank> {
        state::first(&self.shared.flags.protocol_error)
    }
}

impl<T: Transport> Inner<T> {
    /// # Safety
    /// Same as for [`Ni::region_adopt`].
    unsafe fn adopt_region(&mut self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        let region = self.portals.regions.adopt(base, len)?;
        // SAFETY: the caller keeps the contract of `Ni::region_adopt`, so the region stays valid.
        unsafe { self.expose("region_adopt", region) }
    }

    /// Exposes a new region to peers if the transport has direct access.
    ///
    /// # Safety
    /// The region must stay valid for the transport's lifetime.
    unsafe fn expose(
        &mut self,
        operation: &'static str,
        region: Region,
    ) -> Result<Region, NiError> {
        // SAFETY: the caller guarantees that the region stays valid for the transport's lifetime.
        match unsafe { self.transport.expose(region.base, region.len) } {
            Ok(remote) => {
                if let Some(remote) = remote {
                    self.portals.regions.exposed(region.id, remote);
                }
                Ok(region)
            }
            Err(reason) => {
                self.portals.regions.discard_last();
                Err(NiError::System {
                    operation,
                    rank: self.portals.rank,
                    reason: format!("exposing {} bytes to peers: {reason}", region.len),
                })
            }
        }
    }
}
