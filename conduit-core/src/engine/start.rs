//! Start of a rank's engine: its memory, queues, match lists and descriptors.
//!
//! Regions are created in the same order on all ranks, so their numbers are known without exchange: control, chunks,
//! segment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use am::select;
use std::time::SystemTime;

use credits::Plan;

use super::barriers::Barriers;
use super::collective::{self, Collectives};
use super::credit_statistics::{CreditStatistics, When};
use super::flow::Flow;
use super::operations::Operations;
use super::plain::Recent;
use super::request_plain::{AtomicWay, Way};
use super::requests::AmSide;
use super::resources::{ChunkPool, Tickets};
use super::{Engine, Error, IDENTITY, Result, SELECT_RPL_RB, deliver, in_use, index, system, tag};
use crate::bootstrap::Bootstrap;
use crate::fork::{Standing, Wiped};
use crate::ni::{
    Capabilities, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, NiError, Rank, Ready, RegionId,
};
use crate::settings::Settings;
use crate::threads::{Lock, Mode};

const CONTROL: RegionId = RegionId(0);
const CHUNKS: RegionId = RegionId(1);
pub(super) const SEGMENT: RegionId = RegionId(2);

/// Match entries are selected by the low four bits; the others carry the operation.
pub(super) const IGNORE: u64 = !select::MASK;

/// Slots of the queue that requests arrive in, where a source has a queue of its own for each: so many wait at least.
const AM_SLOTS: usize = 4096;
/// Ranks up to which a network may give each source a queue of its own ([`Ni::eq_create`] leaves that to it).
const OWN_QUEUES: u32 = 16;
/// Reply buffers that injected replies fill in turn.
const REPLY_BUFFERS: u32 = 3;

/// Memory shared with other processes, as an address that may cross threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared(pub *mut u8);
// SAFETY: only an address; whoever dereferences it argues for the access.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A rank's control region, and those of the peers that are mapped here: the barriers' cells, then for each rank the
/// counter of what it has given back ([`super::flow::Returned`]).
///
/// 8 bytes a rank, and the cells.
#[derive(Debug)]
pub(crate) struct Control {
    own: Shared,
    peers: Box<[Option<Shared>]>,
    cells: usize,
    rank: Rank,
}

impl Control {
    fn word(&self, base: Shared, index: usize) -> &AtomicU64 {
        // SAFETY: `base` is a control region, which lives as long as the network, and so as the engine that owns both it and
        // `self`; it is only ever accessed as atomic words, `index` is one of those that `start` has made (cells + ranks), which
        // the callers see to, and the region is page-aligned.
        unsafe { AtomicU64::from_ptr(base.0.cast::<u64>().add(index)) }
    }

    /// This rank's barrier cell.
    pub(crate) fn cell(&self, cell: usize) -> &AtomicU64 {
        assert!(
            cell < self.cells,
            "the barriers ask for their own cells only"
        );
        self.word(self.own, cell)
    }

    /// A peer's barrier cell, if the peer is mapped.
    pub(crate) fn peer_cell(&self, peer: Rank, cell: usize) -> Option<&AtomicU64> {
        assert!(
            cell < self.cells,
            "the barriers ask for their own cells only"
        );
        Some(self.word(self.peers[peer as usize]?, cell))
    }

    /// What `peer` has given back to this rank.
    pub(crate) fn returned_by(&self, peer: Rank) -> Option<&AtomicU64> {
        self.peers[peer as usize]?;
        Some(self.word(self.own, self.cells + peer as usize))
    }

    /// What this rank has given back to `peer`.
    pub(crate) fn returned_to(&self, peer: Rank) -> Option<&AtomicU64> {
        let base = self.peers[peer as usize]?;
        Some(self.word(base, self.cells + self.rank as usize))
    }

    /// Number of barrier cells.
    pub(crate) fn cells(&self) -> usize {
        self.cells
    }
}

/// Slots of the queue of replies and completions. Its room is this rank's own affair (the Ni contract), as a target that
/// finds it full takes nothing more from this rank: so there is room for all that this rank can have under way. That is
/// for each request a reply (at most four slots in the queue, otherwise one), for each reply sent a completion, and for
/// each send ticket one.
fn safe_slots(size: u32, plan: &Plan, settings: &Settings) -> usize {
    let requests = if plan.flow_control() && size <= OWN_QUEUES {
        let most = if plan.dynamic() {
            plan.max_per_peer()
        } else {
            plan.credits_per_peer()
        };
        u32::from(most).min(settings.sb_chunks)
    } else {
        settings.sb_chunks
    };
    let tickets = if settings.msg_limit == 0 {
        1024
    } else {
        settings.msg_limit
    };
    4 * requests as usize + settings.rpl_chunks as usize + tickets as usize
}

/// A number that no other job on this host, now or earlier, is likely to have.
fn name() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    seconds << 24 | u64::from(std::process::id() & 0x00FF_FFFF)
}

impl<N: Ni + 'static, M: Mode> Engine<N, M> {
    /// Sets up this rank on a network that has started. Collective: returns when all ranks can be sent to.
    pub fn start(ni: N, bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Self> {
        let (rank, size) = (ni.rank(), ni.size());
        let chunk = settings.chunk_bytes();
        let plan = settings.credit_plan(size)?;
        let scale = plan.scale();
        for peer in [0, size - 1] {
            let most = ni.reach(peer).max_managed;
            if chunk > most {
                let reason = format!("chunks of {chunk} bytes, the network carries {most}");
                return Err(Error::Setting {
                    name: "CONDUIT_CHUNK",
                    reason,
                });
            }
        }

        let barriers = Barriers::new(rank, size, settings.barrier_radix);
        let cells = barriers.cells();
        let control = ni.region_create((cells + size as usize) * size_of::<u64>())?;
        let chunks =
            ni.region_create((settings.sb_chunks + settings.rpl_chunks) as usize * chunk)?;

        // From each peer at most two messages about credits, a revoke and a return, and two about the end of the job.
        let sys_eq = ni.eq_create(4 * size as usize + 10)?;
        let safe_eq = ni.eq_create(safe_slots(size, &plan, settings))?;
        let am_eq = ni.eq_create(AM_SLOTS)?;
        ni.pt_open(index::RAR, None)?;
        ni.pt_open(index::AM, Some(am_eq))?;
        ni.pt_open(index::SAFE, Some(safe_eq))?;
        ni.pt_open(index::SYS, Some(sys_eq))?;

        // SAFETY: the chunk region is network memory that lives as long as `ni`; chunks are accessed only by who holds
        // them (`ChunkPool`).
        let (req_md, rpl_md) = unsafe {
            let req_len = settings.sb_chunks as usize * chunk;
            (
                ni.md_bind(chunks.base, req_len, safe_eq)?,
                ni.md_bind(
                    chunks.base.add(req_len),
                    settings.rpl_chunks as usize * chunk,
                    safe_eq,
                )?,
            )
        };

        let mut operations = Operations::new(settings.max_operations);
        let Some(detached) = operations.begin_group(true) else {
            let reason = "at least one operation is needed".to_owned();
            return Err(Error::Setting {
                name: "CONDUIT_MAX_OPERATIONS",
                reason,
            });
        };
        let capabilities = ni.reach(rank).capabilities;
        let budget = settings.sb_chunks;
        let most_longs = (plan.total() / 2).max(64) as usize;
        let mut engine = Self {
            rank,
            size,
            settings: settings.clone(),
            chunk,
            sys_eq,
            safe_eq,
            am_eq,
            sys_ready: Ready::queue(sys_eq),
            safe_ready: Ready::queue(safe_eq),
            am_ready: Ready::queue(am_eq),
            req_md,
            rpl_md,
            control: Control {
                own: Shared(control.base),
                peers: Box::default(),
                cells,
                rank,
            },
            ways: Wiped::EMPTY,
            inject_size: 0,
            checks: settings.checks,
            processor_atomics: !capabilities.contains(Capabilities::NATIVE_ATOMICS),
            chunks,
            req_sb: Lock::new(ChunkPool::new(settings.sb_chunks)),
            rpl_sb: Lock::new(ChunkPool::new(settings.rpl_chunks)),
            tickets: Tickets::new(in_use::most_send_tickets(settings)),
            tmpmd: Tickets::new(settings.num_tmpmd),
            operations: Lock::new(operations),
            detached,
            flow: Flow::new(&plan, rank, budget),
            credit_statistics: None,
            am: Lock::new(AmSide::new(
                size,
                most_longs,
                plan.buffer_bytes() as usize,
                settings.am_limit,
            )),
            reply_waiting: AtomicBool::new(false),
            handlers: deliver::Handlers::new(),
            lids: Lock::new(am::lid::LidGenerator::new()),
            barriers,
            collectives: Collectives::new(rank, size, am::limits::max_medium(chunk, 4)),
            system: Lock::new(system::Outbox::new(4 * size as usize + 2 * cells + 16)),
            system_waiting: AtomicBool::new(false),
            segments: OnceLock::new(),
            standing: Standing::new(),
            polling: super::polling::Polling::default(),
            fault: OnceLock::new(),
            exit_answers: AtomicU64::new(0),
            identity: IDENTITY.fetch_add(1, Relaxed),
            idle_polls: AtomicU32::new(0),
            recent_replies: Lock::new(Recent::new()),
            yield_count: AtomicU32::new(0),
            sleeps: AtomicU32::new(0),
            spin: settings.spin.unwrap_or(super::waiting::DEFAULT_SPIN),
            yields: settings.yields,
            scale,
            ni,
            _mode: M::default(),
        };
        engine.register_own(&collective::handlers())?;
        engine.link_lists(&plan)?;
        let job = engine.compare_settings(bootstrap)?;
        if settings.credit_stats {
            let statistics = CreditStatistics::open(settings, &plan, rank, job)?;
            engine.credit_statistics = Some(Lock::new(statistics));
            engine.write_credit_statistics(When::Start);
        }
        engine.map_controls()
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Ranks can work together only if they agree on some settings. Also the barrier after which all can be sent to. Gives
    /// a name for the job, which is rank 0's word.
    fn compare_settings(&self, bootstrap: &mut dyn Bootstrap) -> Result<u64> {
        let own = self.agreement();
        let mut bytes: Vec<u8> = own
            .iter()
            .flat_map(|(_, value)| value.to_le_bytes())
            .collect();
        let name_at = bytes.len();
        bytes.extend(name().to_le_bytes());
        let mut job = 0;
        for (peer, theirs) in (0..).zip(bootstrap.allgather(&bytes)?) {
            let theirs: &[u8] = &theirs;
            if let (0, Some(name)) = (peer, theirs.get(name_at..).and_then(<[u8]>::first_chunk)) {
                job = u64::from_le_bytes(*name);
            }
            for (at, (name, value)) in own.iter().enumerate() {
                if theirs.get(at * 8..at * 8 + 8) != Some(&value.to_le_bytes()) {
                    let reason = format!(
                        "{value} on rank {}, something else on rank {peer}",
                        self.rank
                    );
                    return Err(Error::Setting { name, reason });
                }
            }
        }
        Ok(job)
    }

    /// Settings that all ranks must have the same.
    fn agreement(&self) -> [(&'static str, u64); 13] {
        let settings = &self.settings;
        [
            ("CONDUIT_CHUNK", self.chunk as u64),
            ("CONDUIT_REQUEST_BUFFER", settings.request_buffer as u64),
            ("CONDUIT_BARRIER_RADIX", settings.barrier_radix.into()),
            ("CONDUIT_WINDOWS", settings.windows.into()),
            ("CONDUIT_INJECT", settings.inject.into()),
            ("GASNET_PORTAL_SB_CHUNKS", settings.sb_chunks.into()),
            ("GASNET_PORTAL_FLOW_CONTROL", settings.flow_control.into()),
            (
                "GASNET_PORTAL_DYNAMIC_CREDITS",
                settings.dynamic_credits.into(),
            ),
            (
                "GASNET_PORTAL_CRED_PER_NODE",
                settings.cred_per_node.unwrap_or(0).into(),
            ),
            (
                "GASNET_PORTAL_BANKED_CREDITS",
                settings.banked_credits.unwrap_or(u32::MAX).into(),
            ),
            // What the credit byte says.
            ("CONDUIT_CREDIT_DOUBLING", settings.credit_doubling.into()),
            // What a rank may send to a peer follows from its own settings: they have to be the peer's.
            (
                "GASNET_PORTAL_AMRECV_SPACE",
                settings.amrecv_space.unwrap_or(0) as u64,
            ),
            (
                "GASNET_PORTAL_MAX_CRED_PER_NODE",
                settings.max_cred_per_node.unwrap_or(0).into(),
            ),
        ]
    }

    /// Fills the match lists. `facts`: system messages, request buffers with the catch basin behind them, reply chunks.
    fn link_lists(&self, plan: &Plan) -> Result<()> {
        let entry = MatchEntry {
            memory: MeMemory::Nothing,
            match_bits: 0,
            ignore_bits: IGNORE,
            source: None,
            options: MeOptions::PUT,
            events: MeEvents::OPERATION,
            tag: tag::SYS,
        };
        let system = MatchEntry {
            match_bits: select::SYS.into(),
            ..entry
        };
        self.ni.me_append(index::SYS, system)?;
        for _ in 0..plan.buffers().max(2) {
            self.ni
                .me_append(index::AM, self.request_buffer(plan.buffer_bytes() as usize))?;
        }
        let basin = MatchEntry {
            match_bits: select::CB.into(),
            options: MeOptions::PUT | MeOptions::TRUNCATE | MeOptions::OVERFLOW,
            tag: tag::CATCH_BASIN,
            ..entry
        };
        self.ni.me_append(index::AM, basin)?;
        // A reply that finds no buffer would be lost and its requester wait for ever, so that is to be seen.
        let no_buffer = MatchEntry {
            match_bits: SELECT_RPL_RB.into(),
            ..basin
        };
        self.ni.me_append(index::SAFE, no_buffer)?;
        for _ in 0..REPLY_BUFFERS {
            self.ni.me_append(index::SAFE, self.reply_buffer())?;
        }
        let chunks = MatchEntry {
            memory: MeMemory::Region {
                region: CHUNKS,
                offset: 0,
                len: self.settings.sb_chunks as usize * self.chunk,
            },
            match_bits: select::REQ_SB.into(),
            tag: tag::REQ_SB,
            ..entry
        };
        self.ni.me_append(index::SAFE, chunks)?;
        Ok(())
    }

    /// A ReqRB, as it is linked at start and again each time it has been drained.
    pub(super) fn request_buffer(&self, bytes: usize) -> MatchEntry {
        self.managed(bytes, select::REQ_RB, tag::REQ_RB)
    }

    /// A buffer for injected replies.
    pub(super) fn reply_buffer(&self) -> MatchEntry {
        // A rank has at most `sb_chunks` requests outstanding, each with one reply: mostly small ones, of which a buffer
        // holds about as many. But drained buffers are linked again after a poll only, and a reply that finds none is
        // lost: so one also holds the largest replies that a poll may take, and the others are there meanwhile.
        let outstanding = self.settings.sb_chunks;
        let at_once = match self.settings.safe_limit {
            0 => outstanding,
            limit => outstanding.min(limit),
        };
        let bytes = (outstanding as usize * 128).max(at_once as usize * self.chunk) + self.chunk;
        self.managed(bytes, SELECT_RPL_RB, tag::RPL_RB)
    }

    fn managed(&self, bytes: usize, select: u8, tag: u64) -> MatchEntry {
        MatchEntry {
            memory: MeMemory::Managed {
                bytes,
                min_free: self.chunk,
            },
            match_bits: select.into(),
            ignore_bits: IGNORE,
            source: None,
            options: MeOptions::PUT,
            events: MeEvents::OPERATION | MeEvents::LINK,
            tag,
        }
    }

    /// Finds the control regions of the peers that are mapped here. All ranks have created theirs.
    fn map_controls(mut self) -> Result<Self> {
        let bytes = (self.control.cells + self.size as usize) * size_of::<u64>();
        let find = |peer| {
            let capabilities = self.ni.reach(peer).capabilities;
            if !capabilities.contains(Capabilities::WINDOW) {
                return Ok(None);
            }
            match self.ni.window(peer, CONTROL) {
                Some(window) if window.len >= bytes => Ok(Some(Shared(window.base))),
                found => Err(NiError::BadPeer {
                    operation: "start",
                    rank: peer,
                    reason: format!(
                        "shows {} bytes of control region, there must be {bytes}",
                        found.map_or(0, |window| window.len)
                    ),
                }),
            }
        };
        self.control.peers = (0..self.size).map(find).collect::<Result<_, _>>()?;
        let ways: Vec<_> = (0..self.size).map(|peer| self.way_to(peer)).collect();
        let injected = (0..self.size).zip(&ways);
        let injected = injected.filter(|(_, way)| **way == Way::Injected);
        let sizes = injected.map(|(peer, _)| self.ni.reach(peer).inject_size);
        self.inject_size = sizes.min().unwrap_or(0);
        let ways = ways.into_iter().map(AtomicWay::new).collect();
        // SAFETY: zero is the general way.
        self.ways = unsafe { Wiped::new(ways) };
        Ok(self)
    }

    fn way_to(&self, peer: Rank) -> Way {
        let reach = self.ni.reach(peer);
        if self.has_checks() {
            Way::General
        } else if self.is_mapped(reach) {
            Way::Mapped
        } else if reach.inject_size > 0 {
            Way::Injected
        } else {
            Way::General
        }
    }
}
