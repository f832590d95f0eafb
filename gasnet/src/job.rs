//! The one job of this process.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed, Ordering::Release};

use conduit::{Member, Network, Rank};
use conduit_core::engine::{Engine, Segment};

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
    /// Where ranks are mapped.
    table: AtomicPtr<Table>,
    /// Not 0: all segments are mapped here, so no put or get is ever under way.
    all_mapped: AtomicU32,
    /// The handle of the job's team.
    team: AtomicPtr<c_void>,
}

/// The table that is shown before attach. Clients' compilers may read the pointer to the table early and keep it: then
/// they find no rank mapped, and call the library.
static NO_TABLE: Table = Table {
    count: 0,
    entries: [],
};

/// Where ranks are mapped, as the headers' inline functions read it: a count, and as many entries behind it.
#[repr(C, align(32))]
struct Table {
    count: u64,
    entries: [TableEntry; 0],
}

/// A rank's segment where it is mapped here. 32 bytes a rank of this host.
#[repr(C, align(32))]
#[derive(Clone, Copy)]
struct TableEntry {
    /// Its address at its owner; [`NOWHERE`] where it is not mapped here.
    address: u64,
    /// Its bytes, at least [`LEAST`].
    length: u64,
    /// Added to an address there it is the address here.
    delta: u64,
    unused: u64,
}

/// Bytes of the smallest entry, `CONDUIT_GEX_LEAST_SEGMENT`: for fewer, the inline functions compare once only.
const LEAST: u64 = 4096;

/// An address that no process has, so far from all others that a range which begins at one of them does not lie within
/// [`LEAST`] bytes of it.
const NOWHERE: u64 = 1 << 63;

impl TableEntry {
    const UNMAPPED: Self = Self {
        address: NOWHERE,
        length: LEAST,
        delta: 0,
        unused: 0,
    };

    fn new(segment: &Segment, window: *mut u8) -> Self {
        let window = window.expose_provenance() as u64;
        if window == 0 || (segment.len as u64) < LEAST {
            return Self::UNMAPPED;
        }
        Self {
            address: segment.address,
            length: segment.len as u64,
            delta: window.wrapping_sub(segment.address),
            unused: 0,
        }
    }
}

#[unsafe(no_mangle)]
static conduit_gex_job: Shared = Shared {
    table: AtomicPtr::new((&raw const NO_TABLE).cast_mut()),
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
        let segments = self.engine().all_segments().ok()?;
        let segment = segments.get(rank as usize)?;
        let window = self.window(rank, segment);
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
        let mapped = engine.settings().windows && !everything;
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
            objects: Objects::new(),
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
        let team = placed.objects.team.handle().cast_mut();
        conduit_gex_job.team.store(team, Relaxed);
        Ok(placed)
    }

    /// Lets the inline functions see the segments.
    pub(crate) fn show_segments(&self) -> Result<(), Refusal> {
        let segments = self.engine().all_segments()?;
        // The first place holds the count.
        let mut table = Vec::with_capacity(1 + segments.len());
        table.push(TableEntry {
            address: segments.len() as u64,
            length: 0,
            delta: 0,
            unused: 0,
        });
        let entry = |(rank, segment)| TableEntry::new(segment, self.window(rank, segment));
        table.extend((0..).zip(segments).map(entry));
        const { assert!(size_of::<Table>() == size_of::<TableEntry>()) };
        // It stays as long as the process: clients may use it at any time.
        let table = Box::leak(table.into_boxed_slice());
        // SYNC: Release, so that a thread which reads the pointer finds the table filled.
        conduit_gex_job
            .table
            .store(table.as_mut_ptr().cast(), Release);
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
    use conduit_core::engine::Waiter;
    const { assert!(size_of::<Waiter>() == 8 && align_of::<Waiter>() <= 8) };
    // SAFETY: the macro's own variable of that size, whose zeros are a new `Waiter`.
    let waiter = unsafe { &mut *state.cast::<Waiter>() };
    let job = Job::of("GASNET_BLOCKUNTIL");
    crate::fault::sure("GASNET_BLOCKUNTIL", job.engine().wait_step(waiter));
}

#[cfg(test)]
mod tests {
    use super::neighbourhoods;

    #[test]
    fn neighbourhoods_follow_the_hosts_and_their_limit() {
        let hosts = [0, 0, 1, 0, 1, 0, 2].map(Some);
        let by = |most| neighbourhoods(hosts.into_iter(), most);
        assert_eq!(*by(10), [0, 0, 1, 0, 1, 0, 2]);
        assert_eq!(*by(2), [0, 0, 1, 2, 1, 2, 3]);
        assert_eq!(*by(1), [0, 1, 2, 3, 4, 5, 6]);
    }
}
