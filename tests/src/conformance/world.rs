//! A job within one thread. A world holds the ends of all ranks, which it polls in turn, a log of
//! all delivered events, and memory for the cases.

use std::time::Duration;

use conduit_core::ni::{
    Atomic, EqId, Get, Inject, MatchEntry, MdId, MeId, Ni, NiError, Outcome, PtIndex, Put, Rank,
    Region, Submit, Unlink,
};

use super::entry::PT;
use super::memory::Buffer;
use super::network::Patience;
use super::seen::Record;

/// The maximum number of events taken from a queue per poll. It is small, so that a round polls
/// every queue.
const POLL_LIMIT: u32 = 16;
/// The number of slots of queues for which the case specifies no number.
const SLOTS: usize = 256;

/// A memory descriptor over a region or over memory that the world owns.
#[derive(Debug, Clone, Copy)]
pub struct Md {
    /// The rank that bound the descriptor.
    pub rank: Rank,
    /// The descriptor's id at that rank.
    pub id: MdId,
    /// The queue for the descriptor's completions.
    pub eq: EqId,
    /// The descriptor's length in bytes.
    pub len: usize,
    pub(super) base: *mut u8,
}

/// The end of an operation, as its initiator saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The outcome. It is [`Outcome::Done`] for an [`Event::Send`](conduit_core::ni::Event::Send),
    /// which has no outcome.
    pub outcome: Outcome,
    /// The number of bytes moved. It is 0 for an [`Event::Send`](conduit_core::ni::Event::Send),
    /// which has no length.
    pub length: usize,
    /// The old value that a fetching atomic returned.
    pub value: u64,
}

struct Seat<N> {
    net: N,
    queues: Vec<EqId>,
    completions: Option<EqId>,
    frozen: bool,
}

/// All ranks of a job. Every wait is bounded by the network's [`Patience`].
pub struct World<N: Ni> {
    // This field precedes the buffers, because a network may touch bound memory until it is
    // dropped.
    seats: Vec<Seat<N>>,
    /// The rank of the first seat.
    first: Rank,
    buffers: Vec<Buffer>,
    pub(super) log: Vec<Record>,
    patience: Patience,
}

impl<N: Ni> World<N> {
    /// Creates a world of these ends, which must be in rank order. They are either all ranks of a
    /// job or only the rank of this process.
    pub fn new(ranks: Vec<N>, patience: Patience) -> Self {
        let first = ranks.first().map_or(0, Ni::rank);
        let seats = ranks
            .into_iter()
            .map(|net| Seat {
                net,
                queues: Vec::new(),
                completions: None,
                frozen: false,
            })
            .collect();
        Self {
            seats,
            first,
            buffers: Vec::new(),
            log: Vec::new(),
            patience,
        }
    }

    /// Returns a rank's end of the network.
    pub fn net(&self, rank: Rank) -> &N {
        &self.seats[self.seat(rank)].net
    }

    fn seat(&self, rank: Rank) -> usize {
        (rank - self.first) as usize
    }

    /// Returns the rank of the first seat. If there is only one seat, that is this process's rank.
    pub fn own_rank(&self) -> Rank {
        self.first
    }

    /// Returns the number of ranks in the job.
    pub fn size(&self) -> u32 {
        self.seats.first().map_or(0, |seat| seat.net.size())
    }

    // ---- setup
    // -----------------------------------------------------------------------------------

    /// Creates an event queue. From now on, every turn of the rank polls it.
    pub fn queue(&mut self, rank: Rank, slots: usize) -> EqId {
        let eq = self.net(rank).eq_create(slots).expect("eq_create");
        let seat = self.seat(rank);
        self.seats[seat].queues.push(eq);
        eq
    }

    /// Returns the queue that a rank's descriptors share. The first call creates it, because
    /// networks may have few queues.
    pub fn completions(&mut self, rank: Rank) -> EqId {
        let seat = self.seat(rank);
        if let Some(eq) = self.seats[seat].completions {
            return eq;
        }
        let eq = self.queue(rank, SLOTS);
        self.seats[seat].completions = Some(eq);
        eq
    }

    /// Opens index [`PT`] with a queue of its own.
    pub fn listen(&mut self, rank: Rank) -> EqId {
        let eq = self.queue(rank, SLOTS);
        self.open(rank, PT, Some(eq));
        eq
    }

    /// Opens an index whose events go to `eq`.
    pub fn open(&self, rank: Rank, index: PtIndex, eq: Option<EqId>) {
        self.net(rank).pt_open(index, eq).expect("pt_open");
    }

    /// Creates a region.
    pub fn region(&self, rank: Rank, len: usize) -> Region {
        self.net(rank).region_create(len).expect("region_create")
    }

    /// Appends an entry to an index's list.
    pub fn append_at(&self, rank: Rank, index: PtIndex, entry: MatchEntry) -> MeId {
        self.net(rank).me_append(index, entry).expect("me_append")
    }

    /// Appends an entry to the list of [`PT`].
    pub fn append(&self, rank: Rank, entry: MatchEntry) -> MeId {
        self.append_at(rank, PT, entry)
    }

    /// Binds a descriptor over new private memory with these bytes. Its completions go to
    /// [`World::completions`].
    pub fn source(&mut self, rank: Rank, bytes: &[u8]) -> Md {
        let eq = self.completions(rank);
        self.source_on(rank, bytes, eq)
    }

    /// Same as [`World::source`], but the completions go to `eq`.
    pub fn source_on(&mut self, rank: Rank, bytes: &[u8], eq: EqId) -> Md {
        let buffer = Buffer::new(bytes);
        let md = self.bind(rank, buffer.base(), bytes.len(), eq);
        self.buffers.push(buffer);
        md
    }

    /// Binds a descriptor over `len` zeroed private bytes. They may be many, so this call doesn't
    /// access them.
    pub fn space(&mut self, rank: Rank, len: usize) -> Md {
        let eq = self.completions(rank);
        let buffer = Buffer::zeroed(len);
        let md = self.bind(rank, buffer.base(), len, eq);
        self.buffers.push(buffer);
        md
    }

    /// Binds a descriptor over a piece of one of the rank's own regions.
    pub fn source_in(&mut self, rank: Rank, region: &Region, offset: usize, len: usize) -> Md {
        assert!(offset + len <= region.len, "the piece lies in the region");
        let eq = self.completions(rank);
        self.bind(rank, region.base.wrapping_add(offset), len, eq)
    }

    fn bind(&self, rank: Rank, base: *mut u8, len: usize, eq: EqId) -> Md {
        // SAFETY: the memory is either a buffer of this world or a region of the network. Both
        // outlive the network's last access, because `seats` is dropped before `buffers` and a
        // region lives as long as its network.
        let id = unsafe { self.net(rank).md_bind(base, len, eq) }.expect("md_bind");
        Md {
            rank,
            id,
            eq,
            len,
            base,
        }
    }

    // ---- progress
    // --------------------------------------------------------------------------------

    /// Stops polling a rank and stops giving it progress, until [`World::thaw`].
    pub fn freeze(&mut self, rank: Rank) {
        let seat = self.seat(rank);
        self.seats[seat].frozen = true;
    }

    /// Ends [`World::freeze`].
    pub fn thaw(&mut self, rank: Rank) {
        let seat = self.seat(rank);
        self.seats[seat].frozen = false;
    }

    /// Gives one rank progress and polls each of its queues. Returns the number of events
    /// delivered.
    pub fn turn_of(&mut self, rank: Rank) -> u32 {
        let at = self.seat(rank);
        let Self { seats, log, .. } = self;
        let seat = &seats[at];
        if seat.frozen {
            return 0;
        }
        seat.net.progress();
        let mut count = 0;
        for &eq in &seat.queues {
            count += seat.net.poll(eq, POLL_LIMIT, |event| {
                log.push(Record {
                    rank,
                    eq,
                    event: event.into(),
                });
            });
        }
        count
    }

    /// Gives each rank a turn. If no events are delivered, pauses for as long as the patience says.
    pub fn turn(&mut self) {
        let mut count = 0;
        for rank in (self.first..).take(self.seats.len()) {
            count += self.turn_of(rank);
        }
        if count == 0
            && let Some(pause) = self.patience.pause
        {
            self.pause(pause);
        }
    }

    fn pause(&self, pause: Duration) {
        // The sleep of any rank lets time pass for all ranks.
        if let Some(seat) = self.seats.iter().find(|seat| !seat.frozen) {
            seat.net.wait(pause);
        }
    }

    /// Takes turns until `condition` is true. `what` describes the condition for the message of a
    /// failure.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        for _ in 0..self.patience.rounds {
            if condition(self) {
                return;
            }
            self.turn();
        }
        panic!("not within {} rounds: {what}", self.patience.rounds);
    }

    /// Takes turns until nothing more is expected to happen on its own.
    pub fn settle(&mut self) {
        for _ in 0..self.patience.settle {
            self.turn();
        }
    }

    /// Submits an operation until it is accepted or fails. Takes turns between the attempts.
    #[track_caller]
    pub fn submit(
        &mut self,
        rank: Rank,
        mut call: impl FnMut(&N) -> Result<Submit, NiError>,
    ) -> Result<(), NiError> {
        for _ in 0..self.patience.rounds {
            match call(self.net(rank))? {
                Submit::Posted => return Ok(()),
                Submit::Again => self.turn(),
            }
        }
        panic!(
            "submission refused with Again for {} rounds",
            self.patience.rounds
        );
    }

    /// Submits a put once and returns whether it was accepted.
    #[track_caller]
    pub fn try_put(&mut self, rank: Rank, put: &Put) -> bool {
        // SAFETY: the world keeps the source valid, and cases write it only after its operation has
        // ended.
        let answer = unsafe { self.net(rank).put(put) };
        answer.expect("put") == Submit::Posted
    }

    /// Submits a put by `rank` without waiting for it.
    #[track_caller]
    pub fn put(&mut self, rank: Rank, put: &Put) {
        // SAFETY: the world keeps the source valid, and cases write it only after its operation has
        // ended.
        self.submit(rank, |net| unsafe { net.put(put) })
            .expect("put");
    }

    /// Submits a put by the descriptor's rank and waits until it ends.
    #[track_caller]
    pub fn put_and_wait(&mut self, md: &Md, put: &Put) -> End {
        self.put(md.rank, put);
        self.end_of(md.rank, put.token)
    }

    /// Submits a get by `rank` without waiting for it.
    #[track_caller]
    pub fn get(&mut self, rank: Rank, get: &Get) {
        // SAFETY: the world keeps the destination valid, and cases access it only after its
        // operation has ended.
        self.submit(rank, |net| unsafe { net.get(get) })
            .expect("get");
    }

    /// Submits a get by the descriptor's rank and waits until it ends.
    #[track_caller]
    pub fn get_and_wait(&mut self, md: &Md, get: &Get) -> End {
        self.get(md.rank, get);
        self.end_of(md.rank, get.token)
    }

    /// Submits an atomic by `rank` without waiting for it.
    #[track_caller]
    pub fn atomic(&mut self, rank: Rank, atomic: &Atomic) {
        self.submit(rank, |net| net.atomic(atomic)).expect("atomic");
    }

    /// Submits an atomic by `rank` and waits until it ends.
    #[track_caller]
    pub fn atomic_and_wait(&mut self, rank: Rank, atomic: &Atomic) -> End {
        self.atomic(rank, atomic);
        self.end_of(rank, atomic.token)
    }

    /// Submits an inject by `rank`.
    #[track_caller]
    pub fn inject(&mut self, rank: Rank, inject: &Inject<'_>) {
        self.submit(rank, |net| net.inject(inject)).expect("inject");
    }

    /// Unlinks an entry. Repeats the call while the entry is in use.
    #[track_caller]
    pub fn unlink(&mut self, rank: Rank, me: MeId) {
        self.until("the entry can be unlinked", |w| {
            w.net(rank).me_unlink(me).expect("me_unlink") == Unlink::Done
        });
    }

    /// Releases a descriptor. Repeats the call while the descriptor is in use.
    #[track_caller]
    pub fn release(&mut self, md: &Md) {
        let md = *md;
        self.until("the descriptor can be released", |w| {
            w.net(md.rank).md_release(md.id).expect("md_release") == Unlink::Done
        });
    }
}
