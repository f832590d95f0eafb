//! The one job of this process.

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

/// The engine below.
pub(crate) type TheEngine = Engine<Network<Mode>, Mode>;

/// This process in its job, from init to the end.
pub(crate) struct Job {
    pub(crate) member: Member<Mode>,
    pub(crate) objects: Objects,
    /// The ranks of this host.
    pub(crate) of_host: Box<[abi::RankInfo]>,
    /// The ranks whose memory is mapped here, as far as the client knows: its neighbourhood.
    pub(crate) neighbours: Box<[abi::RankInfo]>,
    /// By rank: its neighbourhood. 4 bytes a rank.
    neighbourhoods: Box<[u32]>,
    /// `GASNET_SEGMENT_EVERYTHING`: segments are all memory of a process.
    pub(crate) everything: bool,
    /// Every rank's segment is mapped here, and all are one neighbourhood.
    all_mapped: bool,
}

struct Place(OnceLock<Job>);

// SAFETY: in PAR the job can be shared. In SEQ and PARSYNC the client promises that one thread at a time calls the
// library (GASNet's specification of these modes), which is what `Job` needs.
unsafe impl Sync for Place {}
// SAFETY: as above; a job is never moved out of its place.
unsafe impl Send for Place {}

static JOB: Place = Place(OnceLock::new());

/// What the headers' inline functions look at: `conduit_gex_job`.
#[repr(C)]
pub(crate) struct Shared {
    /// Not 0: all memory that can be reached is mapped here, so no put, get or atomic is ever under way.
    all_mapped: AtomicU32,
    /// The handle of the job's team.
    team: AtomicPtr<c_void>,
}

/// A rank's segment where it is mapped here, as the headers' inline functions read it; else, and before attach, all is 0: no
/// range lies within it, so they call the library.
#[repr(C, align(32))]
#[derive(Debug)]
struct Mapped {
    /// At how many places a word of [`WORD`] bytes can begin in it.
    words: AtomicU64,
    /// Its address at its owner.
    address: AtomicU64,
    /// Added to an address there it is the address here.
    delta: AtomicU64,
    /// Its bytes.
    length: AtomicU64,
}

/// Bytes of the largest word, for which the inline functions compare once only.
const WORD: u64 = 8;

/// Ranks whose segments the headers know, `CONDUIT_GEX_NEAR_RANKS`. Untouched pages of the table take no memory.
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
        // SYNC: Release, so that a thread which finds a range inside finds the rest too.
        self.length.store(length, Release);
        self.words.store(length - (WORD - 1), Release);
    }
}

/// The segments of the first ranks.
#[unsafe(no_mangle)]
static conduit_gex_segments: [Mapped; NEAR_RANKS] = [const { Mapped::nowhere() }; NEAR_RANKS];

#[unsafe(no_mangle)]
static conduit_gex_job: Shared = Shared {
    all_mapped: AtomicU32::new(0),
    team: AtomicPtr::new(std::ptr::null_mut()),
};

/// Numbers neighbourhoods in the order of their first ranks. `shared` tells which ranks map each other's memory; of those at most
/// `most` are neighbours, in order.
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

/// In a child: the inline functions see no segment, so they call the library, which refuses. A function of the client's that has put
/// or got before the child was made may go by what it has seen, since the table is constant to compilers; so other ranks' segments
/// can't be reached there any more, and who tries is ended. That of its own rank is left: a child may need what lies in it, to `exec`.
extern "C" fn hide_segments() {
    let Some(job) = Job::get() else { return };
    for (rank, place) in (0..job.size()).zip(&conduit_gex_segments) {
        let length = place.length.load(Relaxed);
        // Pages that nobody has written stay as they are.
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
        // SAFETY: another rank's segment as it is mapped here, from a page's begin on. Nothing in this library looks at it in a child;
        // a client that does is ended by it.
        let _ = unsafe { libc::mprotect(window, length as usize, libc::PROT_NONE) };
    }
}

impl Job {
    #[inline]
    pub(crate) fn get() -> Option<&'static Self> {
        JOB.0.get()
    }

    /// The job; a call that comes before init ends the process.
    #[inline]
    pub(crate) fn of(call: &str) -> &'static Self {
        match Self::get() {
            Some(job) => job,
            None => not_joined(call),
        }
    }

    /// The job, for calls that can say that there is none.
    pub(crate) fn or_refusal() -> Result<&'static Self, Refusal> {
        Self::get().ok_or_else(|| Refusal::of(abi::NOT_INIT, "before the job is joined (init)"))
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

    /// Ends the job if it has no such rank.
    pub(crate) fn check_rank(&self, call: &str, rank: Rank) {
        if rank >= self.size() {
            fatal(
                call,
                &format_args!("rank {rank} is not in a job of {} ranks", self.size()),
            );
        }
    }

    /// Which neighbourhood a rank is in.
    pub(crate) fn neighbourhood(&self, rank: Rank) -> u32 {
        // A rank that there isn't is nobody's neighbour.
        let known = self.neighbourhoods.get(rank as usize);
        known.copied().unwrap_or(u32::MAX)
    }

    /// How many neighbourhoods there are.
    pub(crate) fn neighbourhoods(&self) -> u32 {
        self.neighbourhoods.iter().max().map_or(0, |last| last + 1)
    }

    /// From here on puts and gets may be under way, as memory may be known that is not mapped.
    pub(crate) fn knows_unmapped(&self) {
        conduit_gex_job.all_mapped.store(0, Relaxed);
    }

    /// The handle of the segment that is bound to the first endpoint, by attach or by itself; null (`GEX_SEGMENT_INVALID`) before, and
    /// where all memory takes part.
    pub(crate) fn bound_segment(&self) -> *const c_void {
        if let Some(created) = self.objects.endpoints.of_first() {
            created.handle()
        } else if self.everything || self.engine().memory().segment().is_err() {
            std::ptr::null()
        } else {
            self.objects.segment.handle()
        }
    }

    /// Where a rank's segment is mapped here: null if it isn't, or the rank is no neighbour.
    pub(crate) fn window(&self, rank: Rank, segment: &Segment) -> *mut u8 {
        if self.neighbourhood(rank) == self.neighbourhood(self.rank()) {
            segment.window.0
        } else {
            std::ptr::null_mut()
        }
    }

    /// A neighbour's segment: its address there, where it is mapped here, its bytes.
    pub(crate) fn mapped_segment(&self, rank: Rank) -> Option<(usize, *mut u8, usize)> {
        let segment = self.engine().memory().segment_of(rank).ok()?;
        let window = self.window(rank, &segment);
        (!window.is_null()).then_some((segment.address as usize, window, segment.len))
    }

    /// Makes this the job of the process, with neighbourhoods of at most so many ranks. Refused if there is one.
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
                "the job has been joined already",
            ));
        }
        conduit_gex_job
            .all_mapped
            .store(placed.all_mapped.into(), Relaxed);
        let team = placed.objects.team.object.handle().cast_mut();
        conduit_gex_job.team.store(team, Relaxed);
        Ok(placed)
    }

    /// Whether this is a child (`fork`) of the process that has joined a job.
    pub(crate) fn is_in_child() -> bool {
        Self::get().is_some_and(|job| job.engine().job().is_child())
    }

    /// Lets the inline functions see the segments.
    pub(crate) fn show_segments(&self) -> Result<(), Refusal> {
        for (rank, place) in (0..self.size()).zip(&conduit_gex_segments) {
            let segment = self.engine().memory().segment_of(rank)?;
            place.show(&segment, self.window(rank, &segment));
        }
        // SAFETY: the function lives as long as the process, and only stores to atomics and makes system calls. That there is no memory
        // for it leaves children the memory that is mapped here, and nothing else.
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
        &"before the job is joined (gex_Client_Init, gasnet_init)",
    )
}

/// Serves the network once.
#[unsafe(no_mangle)]
extern "C" fn gasnet_AMPoll() -> c_int {
    crate::fault::sure("gasnet_AMPoll", Job::of("gasnet_AMPoll").engine().poll());
    abi::OK
}

/// One round of `GASNET_BLOCKUNTIL`.
///
/// # Safety
/// `state` is that of the loop: 8 bytes, zero before the first round.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_wait_step(state: *mut c_void) {
    use conduit_core::kernel::Waiter;
    const { assert!(size_of::<Waiter>() == 8 && align_of::<Waiter>() <= 8) };
    // SAFETY: the macro's own variable of that size, whose zeros are a new `Waiter`.
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
