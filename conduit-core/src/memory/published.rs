//! Memory of processes besides segments that were attached: bound to a number by its owner,
//! published to a team, put to and got from by address.
//!
//! On a host it is reached by the system's cross-memory attach, where that is allowed; else by
//! messages to a match entry over it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::collectives::CollectiveSync;
use crate::collectives::{CollectiveKind, TeamId};
use crate::engine::{Calls, subject};
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::Handle;
use crate::kernel::options::{Blocking, Completion};
use crate::memory::{Bound, Local, Source};
use crate::ni::{Ni, Rank};
use crate::threads::Mode;

const PUBLISH: &str = "publish_bound";

/// [`Bound`] as ranks tell it; a length of [`u64::MAX`] is none.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Told {
    address: u64,
    len: u64,
    index: u64,
}

/// Numbers that a rank can bind memory to.
const MOST_BOUND: u64 = 1 << 16;

impl Told {
    const NONE: Self = Self {
        address: 0,
        len: u64::MAX,
        index: 0,
    };
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Memory> {
    /// Binds memory of this process to a number, by which peers to whom it is
    /// [published](Self::publish_bound) put to it and get from it. Once for each number.
    ///
    /// What is bound to 0 is this rank's segment, in a job that attaches none: all that reaches
    /// segments reaches it.
    ///
    /// # Errors
    /// The network does not reach memory that is not its own. As the segment: there is one, or it
    /// is no memory.
    ///
    /// # Safety
    /// Until the engine has been dropped, nothing of this process relies on what the memory holds
    /// but as on memory that peers write. What is bound to 0 is memory as long. Of the rest, that
    /// it may be no memory does no harm.
    pub unsafe fn bind(self, bound: Bound) -> Result<()> {
        self.job().check_process()?;
        self.engine.memory.bind(self.kernel(), bound)
    }

    /// Tells all ranks of a team what this rank has bound, and learns what they have. Waits for all
    /// of them.
    ///
    /// Collective over the team; each rank gives what it likes of what is its own.
    pub fn publish_bound(self, team: TeamId, own: &[Bound]) -> Result<()> {
        let size = self.engine.collectives().team(team)?.size as usize;
        let counts = self.publish(team, &[own.len() as u64], size)?;
        if let Some(place) = counts.iter().position(|count| *count > MOST_BOUND) {
            let (rank, peer) = (
                self.engine.rank(),
                self.engine.collectives().team(team)?.to_job(place as u32),
            );
            let reason = format!("it has bound memory to {} numbers", counts[place]);
            let peer = peer.unwrap_or(rank);
            self.job().fail(Error::Protocol { rank, peer, reason });
            return self.engine.check_fault();
        }
        let most = counts.into_iter().max().unwrap_or(0) as usize;
        let told = |bound: &Bound| Told {
            address: bound.address,
            len: bound.len as u64,
            index: bound.index.into(),
        };
        let mut ours: Vec<Told> = own.iter().map(told).collect();
        ours.resize(most, Told::NONE);
        let all = self.publish(team, &ours, size)?;
        let team = self.engine.collectives().team(team)?;
        for (place, told) in all
            .iter()
            .enumerate()
            .filter(|(_, told)| told.len != u64::MAX)
        {
            // There are `most` of each rank.
            let rank = team.to_job((place / most) as u32);
            if let (Some(rank), Ok(index)) = (rank, u16::try_from(told.index)) {
                let (address, len) = (told.address, told.len as usize);
                let bound = Bound {
                    index,
                    address,
                    len,
                };
                self.engine.memory.know(self.kernel(), rank, bound);
            }
        }
        Ok(())
    }

    /// Tells all `size` ranks of a team something, and returns what they tell, as much of each.
    fn publish<T>(self, team: TeamId, own: &[T], size: usize) -> Result<Vec<T>>
    where
        T: Clone + FromBytes + IntoBytes + Immutable,
    {
        let mut all = vec![T::new_zeroed(); own.len() * size];
        let (to, source) = (all.as_mut_bytes().as_mut_ptr(), own.as_bytes());
        let (kind, sync) = (CollectiveKind::GatherAll, CollectiveSync::default());
        let (source, bytes, by_handle) = (source.as_ptr(), source.len(), Completion::Handle);
        // SAFETY: borrowed until the wait has ended it, or has given the memory up.
        let gathered = unsafe {
            self.engine
                .collectives()
                .move_nb(team, kind, to, source, bytes, sync, by_handle)?
        };
        self.engine.rma().wait_in(PUBLISH, gathered)?;
        Ok(all)
    }

    /// What a rank has bound to a number and published to this one.
    pub fn bound(self, rank: Rank, index: u16) -> Option<Bound> {
        self.engine.memory.bound(rank, index)
    }

    /// What a rank has published to this one that holds all of a range of its addresses.
    pub fn bound_at(self, rank: Rank, address: u64, len: usize) -> Option<Bound> {
        self.engine.memory.bound_at(rank, address, len)
    }

    /// Starts a put to bound memory. `reusable`: the source may be reused on return. `None`: not
    /// started, it would have blocked.
    ///
    /// # Errors
    /// There is no such memory that was published here, or the range does not lie in it.
    ///
    /// # Safety
    /// `[source, source + len)` is valid for reads, and not written until return, or the operation
    /// has been synchronised.
    #[expect(clippy::too_many_arguments, reason = "a put is all of these")]
    pub unsafe fn bound_put_nb(
        self,
        to: (Rank, u16),
        address: u64,
        source: *const u8,
        len: usize,
        reusable: bool,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("bound_put_nb", "bound_put_nbi");
        let remote = self
            .engine
            .memory
            .remote_bound(self.kernel(), operation, to, address, len)?;
        let local = Local::Source(Source { base: source, len });
        // SAFETY: the caller's promise.
        unsafe {
            self.engine
                .rma()
                .start_transfer(operation, remote, local, reusable, completion, blocking)
        }
    }

    /// Starts a get from bound memory. `None`: not started, it would have blocked.
    ///
    /// # Errors
    /// As [`Calls::bound_put_nb`].
    ///
    /// # Safety
    /// `[destination, destination + len)` is valid for writes, and neither read nor written until
    /// the operation has been synchronised.
    pub unsafe fn bound_get_nb(
        self,
        destination: *mut u8,
        from: (Rank, u16),
        address: u64,
        len: usize,
        completion: Completion,
        blocking: Blocking,
    ) -> Result<Option<Handle>> {
        let operation = completion.name("bound_get_nb", "bound_get_nbi");
        let remote =
            self.engine
                .memory
                .remote_bound(self.kernel(), operation, from, address, len)?;
        let local = Local::Destination {
            base: destination,
            len,
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.engine
                .rma()
                .start_transfer(operation, remote, local, false, completion, blocking)
        }
    }
}
