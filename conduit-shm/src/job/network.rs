//! The implementation of `Ni`, in which each call delegates to the module that does the work.

use std::sync::atomic::Ordering;
use std::time::Duration;

use conduit_core::ni::{
    Atomic, Claim, Closure, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::{Lock, Mode};

use super::Shm;
use super::layout::{INTERNAL_QUEUE, STATE_CLOSED, USER_QUEUES};

/// The maximum number of messages that one call of [`Ni::progress`] handles. Further messages wait
/// for the next call.
const INTERNAL_LIMIT: u32 = 64;

impl<M: Mode> Ni for Shm<M> {
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
        self.create_region(len)
    }
    #[inline]
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        self.find_window(peer, region)
    }
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        self.create_queue(slots)
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        self.open_index(index, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        self.append_entry(index, entry, None)
    }
    fn me_append_claimed(
        &self,
        index: PtIndex,
        entry: MatchEntry,
        claim: Claim,
    ) -> Result<MeId, NiError> {
        self.append_entry(index, entry, Some(claim))
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        self.unlink_entry(me)
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        self.queue("md_bind", eq)?;
        self.descriptors.bind(base, len, eq)
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.descriptors.release(md)
    }

    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: the caller guarantees what `Ni::put` requires.
        unsafe { self.submit_put(put) }
    }
    #[inline(always)]
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        self.submit_inject(inject)
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: the caller guarantees what `Ni::get` requires.
        unsafe { self.submit_get(get) }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        self.submit_atomic(atomic)
    }
    /// Sources outside of regions are copied when a put is submitted, so only gets have to be
    /// abandoned.
    fn abandon(&self) {
        *self.abandoned.lock() = true;
    }

    unsafe fn memory_write(
        &self,
        target: Rank,
        address: u64,
        source: *const u8,
        len: usize,
    ) -> Result<(), NiError> {
        // SAFETY: the caller guarantees what `Ni::memory_write` requires.
        unsafe { self.write_memory(target, address, source, len) }
    }
    unsafe fn memory_read(
        &self,
        destination: *mut u8,
        target: Rank,
        address: u64,
        len: usize,
    ) -> Result<(), NiError> {
        // SAFETY: the caller guarantees what `Ni::memory_read` requires.
        unsafe { self.read_memory(destination, target, address, len) }
    }

    #[inline]
    fn ready(&self) -> Ready {
        let ready = self.ready_table.ready();
        ready.union(self.reply_ready(ready.is_empty()))
    }
    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        self.poll_into(eq, limit, &mut Closure(sink))
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        match usize::from(eq.0) < USER_QUEUES {
            true => self.poll_queue(usize::from(eq.0), limit, sink),
            false => 0,
        }
    }
    #[inline]
    fn progress(&self) {
        self.poll_queue(
            INTERNAL_QUEUE,
            INTERNAL_LIMIT,
            &mut Closure(|_: Event<'_>| ()),
        );
    }
    fn wait(&self, limit: Duration) {
        self.sleep(limit);
    }
    fn notify(&self, peer: Rank) {
        self.notify_peer(peer);
    }
    fn bad_peer(&self) -> Option<Rank> {
        self.statistics.bad_peer()
    }
    fn failed_peer(&self) -> Option<Rank> {
        let dead = self.failures.first(&self.processes, |peer| {
            let control = self.peers[peer as usize].mapping.control();
            control.state.load(Ordering::Acquire) == STATE_CLOSED
        })?;
        self.end_lanes(dead);
        Some(dead)
    }
}

impl<M: Mode> Shm<M> {
    /// Announces that this rank's process is about to end normally, so that peers don't take the
    /// rank for dead. Messages that they send after this call may never be read. In a forked child,
    /// this call does nothing.
    pub fn leave(&self) {
        if self.standing.is_child() {
            return;
        }
        self.own()
            .control()
            .state
            .store(STATE_CLOSED, Ordering::Release);
    }
}

impl<M: Mode> Drop for Shm<M> {
    fn drop(&mut self) {
        // A process that ends after dropping its network has not failed, but one that panics has.
        if !std::thread::panicking() {
            self.leave();
        }
    }
}
