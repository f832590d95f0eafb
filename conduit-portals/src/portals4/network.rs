//! The implementation of [`Ni`]: its calls, which check their arguments.

use std::time::{Duration, Instant};

use conduit_core::ni::{
    Atomic, Closure, EqId, Event, Get, Inject, Limits, MatchEntry, MdId, MeId, Ni, NiError,
    PtIndex, Put, Rank, Reach, Region, RegionId, Sink, Submit, Unlink, Window,
};
use conduit_core::threads::{Lock, Mode};

use super::interface::{EntryKind, Transfer};
use super::operations::{Operation, Tells};
use super::queues::{Data, INDICES, INJECTS, QUEUES, no_index, no_queue};
use super::{NetworkState, PATIENCE, Portals4};
use crate::matching::over_limit;

/// The longest wait inside the library.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// The longest sleep when less than a millisecond remains to wait. The library's own waits have a
/// resolution of a millisecond.
const SHORT_WAIT: Duration = Duration::from_micros(20);

/// The arguments that put and get have in common.
struct Submission {
    name: &'static str,
    md: MdId,
    local_offset: usize,
    tells: Tells,
    token: u64,
    /// The transfer, with descriptor and address still to be set.
    transfer: Transfer,
}

impl<M: Mode> Portals4<M> {
    fn check(&self, name: &'static str, target: Rank, index: PtIndex) -> Result<(), NiError> {
        if target >= self.job.size {
            return Err(NiError::NoSuchRank {
                operation: name,
                rank: target,
                size: self.job.size,
            });
        }
        check_index(name, index)
    }

    /// # Safety
    /// Same as for [`Ni::put`] and [`Ni::get`].
    unsafe fn submit(&self, mut submission: Submission) -> Result<Submit, NiError> {
        let Submission {
            name,
            md,
            local_offset,
            tells,
            token,
            ref mut transfer,
        } = submission;
        self.check(name, transfer.target, PtIndex(transfer.index))?;
        let most = match transfer.kind {
            EntryKind::Put => self.reach.max_message.max(self.reach.max_managed),
            _ => self.reach.max_message,
        };
        let mut state = self.state.lock();
        let state = &mut *state;
        let bound = (state.descriptors).piece(name, md, local_offset, transfer.length, most)?;
        if !self.standing.stands() || (state.abandoned && transfer.length > 0) {
            return Ok(Submit::Again);
        }
        self.check_usable(state, name)?;
        let queue = usize::from(bound.eq.0);
        let Some(queue) = state.queues.get(queue).and_then(Option::as_ref) else {
            return Err(no_queue(name, bound.eq));
        };
        transfer.md = queue.md;
        transfer.address = bound.base.wrapping_add(local_offset).expose_provenance();
        let operation = Operation::new(*transfer, tells, token, Some(md));
        // SAFETY: the caller keeps the contract of `Ni::put` or `Ni::get`.
        let answer = unsafe { (state.operations).start(&self.interface, operation, [&[]; 2]) }?;
        if answer == Submit::Posted {
            state.descriptors.start(md);
        }
        Ok(answer)
    }

    pub(super) fn poll_queue<S: Sink>(&self, number: usize, limit: u32, sink: &mut S) -> u32 {
        let Some(Some(_guard)) = self.polling.get(number).map(M::Lock::try_lock) else {
            return 0;
        };
        let mut count = 0;
        while count < limit && self.standing.stands() && sink.is_ready() {
            let (delivery, mut scratch) = {
                let mut state = self.state.lock();
                if self.interface.is_broken().is_some() {
                    break;
                }
                let Some(delivery) = state.next(&self.interface, number) else {
                    break;
                };
                let queue = state.queues[number].as_mut();
                (
                    delivery,
                    queue.map(|queue| std::mem::take(&mut queue.scratch)),
                )
            };
            count += 1;
            match (delivery.event, delivery.data) {
                (Event::Put(mut put), Some(data)) => {
                    put.data = bytes(&data, scratch.get_or_insert_default());
                    sink.put(put);
                }
                (Event::Put(put), None) => sink.put(put),
                (event, _) => sink.event(event),
            }
            let mut state = self.state.lock();
            if let Some(queue) = &mut state.queues[number] {
                queue.scratch = scratch.unwrap_or_default();
            }
            if let Some(data) = &delivery.data {
                state.delivered(number, data);
            }
        }
        count
    }

    /// Gives up this rank's operations, and waits until none of them can access a caller's memory.
    fn give_up(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut state = self.state.lock();
            state.abandoned = true;
            for operation in state.operations.give_up_refused() {
                if let Some(md) = operation.md {
                    state.descriptors.finish(md.0);
                }
            }
            if self.interface.is_broken().is_some() || !state.operations.any_with_memory() {
                return;
            }
            if Instant::now() >= end {
                // A peer must be dead, and only closing the interface revokes the operations sent
                // to it.
                return self.interface.close();
            }
            for number in 0..usize::from(QUEUES) {
                state.reap(&self.interface, number);
            }
            drop(state);
            std::thread::yield_now();
        }
    }
}

fn check_index(name: &'static str, index: PtIndex) -> Result<(), NiError> {
    match index.0 < INDICES {
        true => Ok(()),
        false => Err(no_index(name, index)),
    }
}

/// Returns the bytes of a message, aligned to 16 bytes. Unaligned bytes are copied to `scratch`.
fn bytes<'a>(data: &Data, scratch: &'a mut Vec<u128>) -> &'a [u8] {
    let first = match data.first.addr().is_multiple_of(16) {
        true => data.first,
        false => {
            scratch.resize(data.length.div_ceil(16).max(scratch.len()), 0);
            let copy = scratch.as_mut_ptr().cast::<u8>();
            // SAFETY: the bytes lie within a block, which `Entry::offset` has checked, and `copy`
            // has room for as many bytes.
            unsafe { copy.copy_from_nonoverlapping(data.first, data.length) };
            copy.cast_const()
        }
    };
    // SAFETY: `first` is valid for `data.length` bytes: it points into the block or to the copy.
    // The library writes no byte of a message after its event, and its block is not reused before
    // the message is delivered.
    unsafe { std::slice::from_raw_parts(first, data.length) }
}

impl<M: Mode> Ni for Portals4<M> {
    #[inline]
    fn rank(&self) -> Rank {
        self.job.rank
    }
    #[inline]
    fn size(&self) -> u32 {
        self.job.size
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    #[inline]
    fn reach(&self, peer: Rank) -> &Reach {
        match peer < self.job.size {
            true => &self.reach,
            false => &self.unreachable,
        }
    }

    fn region_create(&self, len: usize) -> Result<Region, NiError> {
        self.state.lock().regions.create(len)
    }
    unsafe fn region_adopt(&self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        self.state.lock().regions.adopt(base, len)
    }
    /// Returns `None`, because no memory of a peer is mapped here.
    fn window(&self, _peer: Rank, _region: RegionId) -> Option<Window> {
        None
    }

    fn eq_create(&self, slots: usize) -> Result<EqId, NiError> {
        let mut state = self.state.lock();
        state.create_queue(&self.interface, None, slots)
    }
    fn pt_open(&self, index: PtIndex, eq: Option<EqId>) -> Result<(), NiError> {
        check_index("pt_open", index)?;
        let mut state = self.state.lock();
        state.open_index(&self.interface, index.0, eq)
    }
    fn me_append(&self, index: PtIndex, entry: MatchEntry) -> Result<MeId, NiError> {
        check_index("me_append", index)?;
        self.state.lock().append(&self.interface, index.0, &entry)
    }
    fn me_unlink(&self, me: MeId) -> Result<Unlink, NiError> {
        let mut state = self.state.lock();
        match state.entries.unlink(&self.interface, me)? {
            Ok(place) => {
                state.leave_list(place);
                Ok(Unlink::Done)
            }
            Err(answer) => Ok(answer),
        }
    }
    unsafe fn md_bind(&self, base: *mut u8, len: usize, eq: EqId) -> Result<MdId, NiError> {
        let state = self.state.lock();
        match state.queues.get(usize::from(eq.0)) {
            Some(Some(_)) if eq.0 < QUEUES => state.descriptors.bind(base, len, eq),
            _ => Err(no_queue("md_bind", eq)),
        }
    }
    fn md_release(&self, md: MdId) -> Result<Unlink, NiError> {
        self.state.lock().descriptors.release(md)
    }

    #[inline]
    unsafe fn put(&self, put: &Put) -> Result<Submit, NiError> {
        let submission = Submission {
            name: "put",
            md: put.md,
            local_offset: put.local_offset,
            tells: Tells::Put(put.ack),
            token: put.token,
            transfer: Transfer {
                kind: EntryKind::Put,
                md: 0,
                address: 0,
                length: put.length,
                target: put.target,
                index: put.index.0,
                match_bits: put.match_bits,
                remote_offset: put.remote_offset,
                hdr_data: put.hdr_data,
                user: 0,
            },
        };
        // SAFETY: the caller keeps the contract of `Ni::put`.
        unsafe { self.submit(submission) }
    }
    fn inject(&self, inject: &Inject<'_>) -> Result<Submit, NiError> {
        const NAME: &str = "inject";
        self.check(NAME, inject.target, inject.index)?;
        let (length, most) = (
            inject.head.len() + inject.body.len(),
            self.reach.inject_size,
        );
        if length > most {
            return Err(over_limit(NAME, "length", length as u64, most as u64));
        }
        if !self.standing.stands() {
            return Ok(Submit::Again);
        }
        let mut state = self.state.lock();
        self.check_usable(&state, NAME)?;
        state.inject(&self.interface, inject)
    }
    #[inline]
    unsafe fn get(&self, get: &Get) -> Result<Submit, NiError> {
        let submission = Submission {
            name: "get",
            md: get.md,
            local_offset: get.local_offset,
            tells: Tells::Get,
            token: get.token,
            transfer: Transfer {
                kind: EntryKind::Get,
                md: 0,
                address: 0,
                length: get.length,
                target: get.target,
                index: get.index.0,
                match_bits: get.match_bits,
                remote_offset: get.remote_offset,
                hdr_data: 0,
                user: 0,
            },
        };
        // SAFETY: the caller keeps the contract of `Ni::get`.
        unsafe { self.submit(submission) }
    }
    fn atomic(&self, atomic: &Atomic) -> Result<Submit, NiError> {
        const NAME: &str = "atomic";
        self.check(NAME, atomic.target, atomic.index)?;
        {
            let state = self.state.lock();
            match state.queues.get(usize::from(atomic.eq.0)) {
                Some(Some(_)) if atomic.eq.0 < QUEUES => {}
                _ => return Err(no_queue(NAME, atomic.eq)),
            }
            self.check_usable(&state, NAME)?;
        }
        match (self.standing.stands(), self.native_atomics) {
            (true, true) => self.native_atomic(atomic),
            (true, false) => self.request_atomic(atomic),
            (false, _) => Ok(Submit::Again),
        }
    }

    fn abandon(&self) {
        if self.standing.stands() {
            self.give_up();
        }
    }

    #[inline]
    fn poll<S: FnMut(Event<'_>)>(&self, eq: EqId, limit: u32, sink: S) -> u32 {
        self.poll_into(eq, limit, &mut Closure(sink))
    }
    #[inline]
    fn poll_into<S: Sink>(&self, eq: EqId, limit: u32, sink: &mut S) -> u32 {
        match eq.0 < QUEUES {
            true => self.poll_queue(eq.0.into(), limit, sink),
            false => 0,
        }
    }
    fn progress(&self) {
        if !self.standing.stands() {
            return;
        }
        {
            let mut state = self.state.lock();
            if self.check_usable(&state, "progress").is_err() {
                return;
            }
            state.reap(&self.interface, INJECTS.into());
            if state.operations.any_refused() {
                let NetworkState { operations, .. } = &mut *state;
                if let Err(error) = operations.repeat(&self.interface) {
                    state.fail(error);
                }
            }
        }
        self.serve_atomics();
    }
    fn wait(&self, limit: Duration) {
        let (sources, owners) = {
            let state = self.state.lock();
            let pending =
                |queue: &super::Queue| !queue.pending.is_empty() || !queue.held.is_empty();
            if state.queues.iter().flatten().any(pending) || !self.standing.stands() {
                return;
            }
            state.sources()
        };
        let limit = limit.min(LONGEST_WAIT);
        match self.interface.eq_poll(&sources, limit.as_millis() as u32) {
            Some((which, event)) => {
                let mut state = self.state.lock();
                if let Some(&owner) = owners.get(which)
                    && let Some(queue) = &mut state.queues[usize::from(owner)]
                {
                    queue.held.push_back(event);
                }
            }
            None if limit < Duration::from_millis(1) => std::thread::sleep(limit.min(SHORT_WAIT)),
            None => {}
        }
    }
    /// Does nothing, because no peer waits for stores into a window.
    fn notify(&self, _peer: Rank) {}
    fn failed_peer(&self) -> Option<Rank> {
        self.state.lock().failed
    }
    fn failure(&self, _peer: Rank) -> String {
        "libportals can't reach it".to_owned()
    }
    fn bad_peer(&self) -> Option<Rank> {
        self.state.lock().bad
    }
}
