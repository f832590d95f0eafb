//! The single job of this process.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::Release};

use conduit::{Member, Network, Rank};
use conduit_core::engine::Engine;
use conduit_core::memory::Segment;

use crate::Mode;
use crate::abi;
use crate::fault::{Refusal, fatal};
use crate::objects::Objects;

/// The type of the underlying engine.
pub(crate) type TheEngine = Engine<Network<Mode>, Mode>;

/// This process's membership in its job, from init to the end.
pub(crate) struct Job {
    pub(crate) member: Member<Mode>,
    pub(crate) objects: Objects,
    /// The ranks on this host.
    pub(crate) of_host: Box<[abi::RankInfo]>,
    /// The ranks of this rank's neighbourhood, as shown to the client: those whose memory is mapped
    /// here.
    pub(crate) neighbours: Box<[abi::RankInfo]>,
    /// The number of each rank's neighbourhood, by rank.
    neighbourhoods: Box<[u32]>,
    /// Whether the client was compiled with `GASNET_SEGMENT_EVERYTHING`, which makes all memory of
    /// a process its segment.
    pub(crate) everything: bool,
    /// Whether every rank's segment is mapped here and all ranks form one neighbourhood.
    all_mapped: bool,
}

struct Place(OnceLock<Job>);

// SAFETY: in PAR, `Job` can be shared between threads. In SEQ and PARSYNC, only one thread at a
// time may use it; GASNet's specification of these modes obliges the client to ensure that.
unsafe impl Sync for Place {}
// SAFETY: threads use the job one at a time in SEQ and PARSYNC, for the same reason, and the job is
// never moved out of its place.
unsafe impl Send for Place {}

static JOB: Place = Place(OnceLock::new());

/// The state that the headers' inline functions read: `conduit_gex_job`.
#[repr(C)]
pub(crate) struct Shared {
    /// Nonzero if all reachable memory is mapped here, so that no put, get or atomic is ever under
    /// way.
    all_mapped: AtomicU32,
    /// The handle of the job's team.
    team: AtomicPtr<c_void>,
}

/// A mapped rank's segment, as the headers' inline functions read it. Before attach, and if the
/// segment is not mapped, all fields are 0. The inline functions then find that no range lies
/// within the segment, and call the library.
#[repr(C, align(32))]
#[derive(Debug)]
struct Mapped {
    /// The number of places in the segment where a word of [`WORD`] bytes can begin.
    words: AtomicU64,
    /// The segment's address in its owner's process.
    address: AtomicU64,
    /// The number to add to the owner's address of a byte to get the byte's address here.
    delta: AtomicU64,
    /// The segment's length in bytes.
    length: AtomicU64,
}

/// The size of the largest word in bytes. For accesses of up to this size, the inline functions
/// check the range with a single comparison.
const WORD: u64 = 8;

/// `CONDUIT_GEX_NEAR_RANKS`: the number of ranks whose segments the inline functions can look up.
/// Untouched pages of the table take no memory.
const NEAR_RANKS: usize = 4096;

impl Mapped {
    const fn nowhere() -> Self {
        Self {
            words: AtomicU64::new(0),
            address: AtomicU64::new(0),
            delta: AtomicU64::new(0),
            length: AtomicU64::new(0),
        }
    }

    fn show(&self, segment: &Segment, window: *mut u8) {
        let window = window.expose_provenance() as u64;
        let length = segment.len as u64;
        if window == 0 || length < WORD {
            return;
        }
        self.address.store(segment.address, Relaxed);
        self.delta
            .store(window.wrapping_sub(segment.address), Relaxed);
        // SYNC: Release, so that a thread that reads a nonzero `length` or `words` also sees the
        // fields stored before.
        self.length.store(length, Release);
        self.words.store(length - (WORD - 1), Release);
    }
}

/// The segments of the first [`NEAR_RANKS`] ranks, by rank.
#[unsafe(no_mangle)]
static conduit_gex_segments: [Mapped; NEAR_RANKS] = [const { Mapped::nowhere() }; NEAR_RANKS];

#[unsafe(no_mangle)]
static conduit_gex_job: Shared = Shared {
    all_mapped: AtomicU32::new(0),
    team: AtomicPtr::new(std::ptr::null_mut()),
};

/// Returns the number of each rank's neighbourhood. Neighbourhoods are numbered in the order of
/// their first ranks. `shared` yields the number of each rank's set. The ranks of a set map each
/// other's memory, and every `most` successive ranks of a set form a neighbourhood.
fn neighbourhoods(shared: impl Iterator<Item = Option<u32>>, most: u32) -> Box<[u32]> {
    let mut next = 0;
    let mut open: HashMap<Option<u32>, (u32, u32)> = HashMap::new();
    let number = |shared| {
        let (number, ranks) = open.entry(shared).or_insert((0, most));
        if *ranks == most {
            (*number, *ranks) = (next, 0);
            next += 1;
        }
        *ranks += 1;
        *number
    };
    shared.map(number).collect()
}

/// Hides the segments in a child, so that the inline functions find no segment and call the
/// library, which refuses. Compiled client code may still use table values that it read before the
/// fork, because the headers declare the table as constant. Other ranks' segments are therefore
/// made inaccessible, so that an access ends the child. This rank's own segment stays accessible,
/// because a child may need data in it to `exec`.
extern "C" fn hide_segments() {
    let Some(job) = Job::get() else { return };
    for (rank, place) in (0..job.size()).zip(&conduit_gex_segments) {
        let length = place.length.load(Relaxed);
        // Skip untouched pages so that they stay unallocated.
        if length == 0 {
            continue;
        }
        place.words.store(0, Relaxed);
        place.length.store(0, Relaxed);
        if rank == job.rank() {
            continue;
        }
        let window = place.address.load(Relaxed);
        let window = window.wrapping_add(place.delta.load(Relaxed));
        let window = std::ptr::with_exposed_provenance_mut(window as usize);
        // SAFETY: the range is another rank's segment as mapped here, and begins at a page. The
        // library does not access it in a child. If the client does, the access ends the child.
        let _ = unsafe { libc::mprotect(window, length as usize, libc::PROT_NONE) };
    }
}

impl Job {
    #[inline]
    pub(crate) fn get() -> Option<&'static Self> {
        JOB.0.get()
    }

    /// Returns the job, or ends the process if no job has been joined.
    #[inline]
    pub(crate) fn of(call: &str) -> &'static Self {
        match Self::get() {
            Some(job) => job,
            None => not_joined(call),
        }
    }

    /// Returns the job, or an error if none has been joined, for calls that can return errors.
    pub(crate) fn or_refusal() -> Result<&'static Self, Refusal> {
        Self::get()
            .ok_or_else(|| Refusal::of(abi::NOT_INIT, "called before the job is joined (init)"))
    }

    #[inline]
    pub(crate) fn engine(&self) -> &TheEngine {
        self.member.engine()
    }

    pub(crate) fn rank(&self) -> Rank {
        self.engine().rank()
    }

    pub(crate) fn size(&self) -> u32 {
        self.engine().size()
    }

    /// Ends the job if `rank` is not one of its ranks.
    pub(crate) fn check_rank(&self, call: &str, rank: Rank) {
        if rank >= self.size() {
            fatal(
                call,
                &format_args!("rank {rank} is not in a job of {} ranks", self.size()),
            );
        }
    }

    /// Returns the number of a rank's neighbourhood.
    pub(crate) fn neighbourhood(&self, rank: Rank) -> u32 {
        // A rank outside the job is in no neighbourhood.
        let known = self.neighbourhoods.get(rank as usize);
        known.copied().unwrap_or(u32::MAX)
    }

    /// Returns the number of neighbourhoods.
    pub(crate) fn neighbourhoods(&self) -> u32 {
        self.neighbourhoods.iter().max().map_or(0, |last| last + 1)
    }

    /// Records that puts and gets may be under way from now on, because ranks may have published
    /// memory that is not mapped here.
    pub(crate) fn knows_unmapped(&self) {
        conduit_gex_job.all_mapped.store(0, Relaxed);
    }

    /// Returns the handle of the segment attached or bound to the first endpoint. Returns null
    /// (`GEX_SEGMENT_INVALID`) if there is none yet, or with segment everything.
    pub(crate) fn bound_segment(&self) -> *const c_void {
        if let Some(created) = self.objects.endpoints.of_first() {
            created.handle()
        } else if self.everything || self.engine().memory().segment().is_err() {
            std::ptr::null()
        } else {
            self.objects.segment.handle()
        }
    }

    /// Returns the address at which a rank's segment is mapped here, or null if it is not mapped or
    /// the rank is not a neighbour.
    pub(crate) fn window(&self, rank: Rank, segment: &Segment) -> *mut u8 {
        if self.neighbourhood(rank) == self.neighbourhood(self.rank()) {
            segment.window.0
        } else {
            std::ptr::null_mut()
        }
    }

    /// Returns a neighbour's segment: its address at the owner, its address here, and its length.
    pub(crate) fn mapped_segment(&self, rank: Rank) -> Option<(usize, *mut u8, usize)> {
        let segment = self.engine().memory().segment_of(rank).ok()?;
        let window = self.window(rank, &segment);
        (!window.is_null()).then_some((segment.address as usize, window, segment.len))
    }

    /// Makes `member`'s job the job of this process, with neighbourhoods of at most
    /// `most_neighbours` ranks. Fails if the process already has a job.
    pub(crate) fn place(
        member: Member<Mode>,
        everything: bool,
        most_neighbours: u32,
    ) -> Result<&'static Self, Refusal> {
        let engine = member.engine();
        let (rank, size) = (engine.rank(), engine.size());
        let mapped = engine.job().settings().windows && !everything;
        let most = if mapped { most_neighbours.max(1) } else { 1 };
        let neighbourhoods =
            neighbourhoods((0..size).map(|rank| member.neighbourhood_of(rank)), most);
        let own = neighbourhoods.get(rank as usize).copied();
        let list = |of: &dyn Fn(Rank) -> bool| {
            let like_this = (0..size).filter(|&rank| of(rank));
            like_this.map(|rank| abi::RankInfo { rank }).collect()
        };
        let neighbours: Box<[_]> = list(&|peer| neighbourhoods.get(peer as usize).copied() == own);
        let all_mapped = mapped && neighbours.len() == size as usize;
        let job = Self {
            objects: Objects::new(rank, size),
            of_host: list(&|peer| member.host_of(peer) == member.host_of(rank)),
            neighbours,
            neighbourhoods,
            all_mapped,
            everything,
            member,
        };
        let mut job = Some(job);
        let placed = JOB
            .0
            .get_or_init(|| job.take().expect("called once at most"));
        if job.is_some() {
            return Err(Refusal::of(
                abi::NOT_INIT,
                "the job has already been joined",
            ));
        }
        conduit_gex_job
            .all_mapped
            .store(placed.all_mapped.into(), Relaxed);
        let team = placed.objects.team.object.handle().cast_mut();
        conduit_gex_job.team.store(team, Relaxed);
        Ok(placed)
    }

    /// Returns whether this process is a child (`fork`) of the process that joined the job.
    pub(crate) fn is_in_child() -> bool {
        Self::get().is_some_and(|job| job.engine().job().is_child())
    }

    /// Makes the segments visible to the inline functions.
    pub(crate) fn show_segments(&self) -> Result<(), Refusal> {
        for (rank, place) in (0..self.size()).zip(&conduit_gex_segments) {
            let segment = self.engine().memory().segment_of(rank)?;
            place.show(&segment, self.window(rank, &segment));
        }
        // SAFETY: the function lives as long as the process, and only stores to atomics and makes
        // system calls. If `pthread_atfork` fails for lack of memory, the only consequence is that
        // children can still access the mapped memory.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(hide_segments)) };
        Ok(())
    }
}

pub(crate) fn rank_if_known() -> Option<Rank> {
    Job::get().map(Job::rank)
}

#[cold]
fn not_joined(call: &str) -> ! {
    fatal(
        call,
        &"called before the job is joined (gex_Client_Init, gasnet_init)",
    )
}

/// Polls the network once.
#[unsafe(no_mangle)]
extern "C" fn gasnet_AMPoll() -> c_int {
    crate::fault::sure("gasnet_AMPoll", Job::of("gasnet_AMPoll").engine().poll());
    abi::OK
}

/// Performs one round of `GASNET_BLOCKUNTIL`.
///
/// # Safety
/// `state` must point to 8 bytes that only the loop uses, and that are zero before its first round.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_wait_step(state: *mut c_void) {
    use conduit_core::kernel::Waiter;
    const { assert!(size_of::<Waiter>() == 8 && align_of::<Waiter>() <= 8) };
    // SAFETY: the caller guarantees that `state` is the macro's own variable, which has this size.
    // Zeros are a valid new `Waiter`.
    let waiter = unsafe { &mut *state.cast::<Waiter>() };
    let job = Job::of("GASNET_BLOCKUNTIL");
    crate::fault::sure("GASNET_BLOCKUNTIL", job.engine().wait_step(waiter));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbourhoods_follow_the_hosts_and_their_limit() {
        let hosts = [0, 0, 1, 0, 1, 0, 2].map(Some);
        let by = |most| neighbourhoods(hosts.into_iter(), most);
        assert_eq!(*by(10), [0, 0, 1, 0, 1, 0, 2]);
        assert_eq!(*by(2), [0, 0, 1, 2, 1, 2, 3]);
        assert_eq!(*by(1), [0, 1, 2, 3, 4, 5, 6]);
    }
}
