//! Process memory other than attached segments. Its owner binds it to a number and publishes it to
//! a team. The ranks of the team can then put to it and get from it by address.
//!
//! On the same host, puts and gets use the system's cross-memory attach where the system permits
//! it. Elsewhere they use messages to a match entry over the memory.

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

/// A [`Bound`] on the wire. A length of [`u64::MAX`] marks an absent entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Told {
    address: u64,
    len: u64,
    index: u64,
}

/// Maximum number of bindings per rank.
const MOST_BOUND: u64 = 1 << 16;

impl Told {
    const NONE: Self = Self {
        address: 0,
        len: u64::MAX,
        index: 0,
    };
}

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Memory> {
    /// Binds memory of this process to a number. Peers to which the memory is
    /// [published](Self::publish_bound) access it under this number with puts and gets. May be
    /// called once for each number.
    ///
    /// Memory bound to 0 becomes this rank's segment, in a job that attaches no segments: every
    /// operation that can access segments can access it.
    ///
    /// # Errors
    /// If the network can access only its own memory. For number 0, also if the rank already has a
    /// segment or the range is not accessible memory.
    ///
    /// # Safety
    /// Until the engine has been dropped, this process must assume that peers may write to the
    /// memory at any time. Memory bound to 0 must remain mapped until then. Memory bound to other
    /// numbers may be unmapped earlier without harm.
    pub unsafe fn bind(self, bound: Bound) -> Result<()> {
        self.job().check_process()?;
        self.engine.memory.bind(self.kernel(), bound)
    }

    /// Announces this rank's bound memory to all ranks of a team, and receives their announcements.
    /// Waits for all of these ranks.
    ///
    /// Collective over the team. Each rank may pass any selection of its own bindings.
    pub fn publish_bound(self, team: TeamId, own: &[Bound]) -> Result<()> {
        let size = self.engine.collectives().team(team)?.size as usize;
        let counts = self.publish(team, &[own.len() as u64], size)?;
        if let Some(place) = counts.iter().position(|count| *count > MOST_BOUND) {
            let (rank, peer) = (
                self.engine.rank(),
                self.engine.collectives().team(team)?.to_job(place as u32),
            );
            let reason = format!("it announced {} bindings of memory", counts[place]);
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
            // `all` has `most` entries per rank.
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

    /// Gathers `own` from all `size` ranks of a team. All of them must pass the same number of
    /// elements.
    fn publish<T>(self, team: TeamId, own: &[T], size: usize) -> Result<Vec<T>>
    where
        T: Clone + FromBytes + IntoBytes + Immutable,
    {
        let mut all = vec![T::new_zeroed(); own.len() * size];
        let (to, source) = (all.as_mut_bytes().as_mut_ptr(), own.as_bytes());
        let (kind, sync) = (CollectiveKind::GatherAll, CollectiveSync::default());
        let (source, bytes, by_handle) = (source.as_ptr(), source.len(), Completion::Handle);
        // SAFETY: both buffers are borrowed until the wait has completed the operation, or has
        // failed and thereby ended all access to them.
        let gathered = unsafe {
            self.engine
                .collectives()
                .move_nb(team, kind, to, source, bytes, sync, by_handle)?
        };
        self.engine.rma().wait_in(PUBLISH, gathered)?;
        Ok(all)
    }

    /// Returns the memory that a rank has bound to a number and published to this rank.
    pub fn bound(self, rank: Rank, index: u16) -> Option<Bound> {
        self.engine.memory.bound(rank, index)
    }

    /// Returns the memory that a rank has published to this rank and that contains the whole range.
    pub fn bound_at(self, rank: Rank, address: u64, len: usize) -> Option<Bound> {
        self.engine.memory.bound_at(rank, address, len)
    }

    /// Starts a put to bound memory. If `reusable` is true, the source may be reused when this call
    /// returns. Returns `None` if the put was not started because it would have blocked.
    ///
    /// # Errors
    /// If the memory was not published to this rank, or the range does not lie in it.
    ///
    /// # Safety
    /// `[source, source + len)` must be valid for reads and must not be written until this call
    /// returns (if `reusable` is true) or until the operation has been synchronised (otherwise).
    #[expect(clippy::too_many_arguments, reason = "a put needs all of these")]
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
        // SAFETY: the caller guarantees that the source is valid and not written until this call
        // returns or the operation has been synchronised, depending on `reusable`.
        unsafe {
            self.engine
                .rma()
                .start_transfer(operation, remote, local, reusable, completion, blocking)
        }
    }

    /// Starts a get from bound memory. Returns `None` if the get was not started because it would
    /// have blocked.
    ///
    /// # Errors
    /// Same as [`Calls::bound_put_nb`].
    ///
    /// # Safety
    /// `[destination, destination + len)` must be valid for writes, and must be neither read nor
    /// written until the operation has been synchronised.
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
        // SAFETY: the caller guarantees that the destination is valid for writes and is not
        // accessed until the operation has been synchronised.
        unsafe {
            self.engine
                .rma()
                .start_transfer(operation, remote, local, false, completion, blocking)
        }
    }
}
