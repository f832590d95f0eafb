//! The network to ranks of other hosts. It either performs matching itself (Portals 4) or is the
//! portals implementation over a transport.

use std::time::Duration;

use conduit_core::ni::{
    Atomic, Claim, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError, PtIndex,
    Put, Rank, Reach, Ready, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::Mode;
use conduit_portals::portals4::Portals4;
use conduit_portals::transport::SoftPortals;

use crate::InterHost;

/// One rank's end of the network to other hosts.
#[derive(Debug)]
pub enum Far<M: Mode> {
    /// The portals over a transport.
    Soft(SoftPortals<M, InterHost>),
    /// Portals 4.
    Portals4(Box<Portals4<M>>),
}

/// Dispatches a call to the chosen network.
macro_rules! each {
    ($far:expr, $network:ident => $call:expr) => {
        match $far {
            Far::Soft($network) => $call,
            Far::Portals4($network) => $call,
        }
    };
}

impl<M: Mode> Ni for Far<M> {
    #[inline]
    fn rank(&self) -> Rank {
        each!(self, network => network.rank())
    }
    #[inline]
    fn size(&self) -> u32 {
        each!(self, network => network.size())
    }
    fn limits(&self) -> &Limits {
        each!(self, network => network.limits())
    }
    #[inline]
    fn reach(&self, peer: Rank) -> &Reach {
        each!(self, network => network.reach(peer))
    }
    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        each!(self, network => network.region_create(len))
    }
    fn region_create_prepared(
        &self,
        len: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Region, NiError> {
        each!(self, network => network.region_create_prepared(len, prepare))
    }
    unsafe fn region_adopt(&self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        // SAFETY: the caller guarantees what `Ni::region_adopt` requires.
        each!(self, network => unsafe { network.region_adopt(base, len) })
    }
    fn window(&self, peer: Rank, region: RegionId) -> Option<Window> {
        each!(self, network => network.window(peer, region))
    }
    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        each!(self, network => network.eq_create(slots))
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        each!(self, network => network.pt_open(index, eq))
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        each!(self, network => network.me_append(index, entry))
    }
    fn me_append_claimed(
        &self,
        index: PtIndex,
        entry: MatchEntry,
        claim: Claim,
    ) -> Result<MeId, NiError> {
        each!(self, network => network.me_append_claimed(index, entry, claim))
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        each!(self, network => network.me_unlink(me))
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        // SAFETY: the caller guarantees what `Ni::md_bind` requires.
        each!(self, network => unsafe { network.md_bind(base, len, eq) })
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        each!(self, network => network.md_release(md))
    }
    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        // SAFETY: the caller guarantees what `Ni::put` requires.
        each!(self, network => unsafe { network.put(put) })
    }
    #[inline]
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        each!(self, network => network.inject(inject))
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        // SAFETY: the caller guarantees what `Ni::get` requires.
        each!(self, network => unsafe { network.get(get) })
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        each!(self, network => network.atomic(atomic))
    }
    fn abandon(&self) {
        each!(self, network => network.abandon());
    }
    #[inline]
    fn ready(&self) -> Ready {
        each!(self, network => network.ready())
    }
    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        each!(self, network => network.poll(eq, limit, sink))
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        each!(self, network => network.poll_into(eq, limit, sink))
    }
    #[inline]
    fn progress(&self) {
        each!(self, network => network.progress());
    }
    fn wait(&self, limit: Duration) {
        each!(self, network => network.wait(limit));
    }
    fn arm(&self) -> bool {
        each!(self, network => network.arm())
    }
    fn disarm(&self) {
        each!(self, network => network.disarm());
    }
    fn notify(&self, peer: Rank) {
        each!(self, network => network.notify(peer));
    }
    fn failed_peer(&self) -> Option<Rank> {
        each!(self, network => network.failed_peer())
    }
    fn failure(&self, peer: Rank) -> String {
        each!(self, network => network.failure(peer))
    }
    fn bad_peer(&self) -> Option<Rank> {
        each!(self, network => network.bad_peer())
    }
}
