//! Start of a rank's engine: its memory, queues, match lists and descriptors.
//!
//! Regions are created in the same order on all ranks, so their numbers are known without exchange:
//! control, chunks, segment.

use std::sync::atomic::Ordering::Relaxed;

use am::select;
use std::time::SystemTime;

use credits::Plan;

use crate::barrier::state::Barriers;
use crate::bootstrap::Bootstrap;
use crate::collectives::calls as collective;
use crate::collectives::state::Collectives;
use crate::engine::{Engine, IDENTITY};
use crate::kernel::backoff::Backoff;
use crate::kernel::chunks::{Descriptors, SendBuffer};
use crate::kernel::control::{Control, SharedPtr};
use crate::kernel::error::{Error, Result};
use crate::kernel::job::Job;
use crate::kernel::operations::Operations;
use crate::kernel::portal_table::{CHUNKS, CONTROL, IGNORE, SELECT_RPL_RB, index, tag};
use crate::kernel::reports::Reports;
use crate::kernel::system::System;
use crate::memory::Memory;
use crate::messages::flow::{Accounts, Flow, Statistics, When};
use crate::messages::handlers::Handlers;
use crate::messages::inbox::AmSide;
use crate::messages::kind::Kind;
use crate::messages::replies::Replies;
use crate::messages::shuffle::Shuffle;
use crate::ni::{Capabilities, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, NiError, Ready};
use crate::rma::signal;
use crate::rma::vis::handlers as vis;
use crate::rma::vis::transfers::Transfers;
use crate::settings::Settings;
use crate::threads::{Lock, Mode};

/// Slots of the queue that requests arrive in, where a source has a queue of its own for each: so
/// many wait at least.
const AM_SLOTS: usize = 4096;
/// Ranks up to which a network may give each source a queue of its own ([`Ni::eq_create`] leaves
/// that to it).
const OWN_QUEUES: u32 = 32;
/// Reply buffers that injected replies fill in turn.
const REPLY_BUFFERS: u32 = 3;

/// Slots of the queue of replies and completions. Its room is this rank's own affair (the Ni
/// contract), as a target that finds it full takes nothing more from this rank: so there is room
/// for all that this rank can have under way. That is for each request a reply (at most four slots
/// in the queue, otherwise one), for each reply sent a completion, and for each send ticket one.
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
    /// Sets up this rank on a network that has started. Collective: returns when all ranks can be
    /// sent to.
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

        // From each peer at most two messages about credits, a revoke and a return, and two about
        // the end of the job.
        let sys_eq = ni.eq_create(4 * size as usize + 10)?;
        let safe_eq = ni.eq_create(safe_slots(size, &plan, settings))?;
        let am_eq = ni.eq_create(AM_SLOTS)?;
        ni.pt_open(index::RAR, None)?;
        ni.pt_open(index::AM, Some(am_eq))?;
        ni.pt_open(index::SAFE, Some(safe_eq))?;
        ni.pt_open(index::SYS, Some(sys_eq))?;

        // SAFETY: the chunk region is network memory that lives as long as `ni`; chunks are
        // accessed only by who holds them (`ChunkPool`).
        let send_buffer = |first: u32, count: u32| unsafe {
            let base = chunks.base.add(first as usize * chunk);
            let md = ni.md_bind(base, count as usize * chunk, safe_eq)?;
            Ok::<_, NiError>(SendBuffer::new(SharedPtr(base), chunk, count, md))
        };
        let req_sb = send_buffer(0, settings.sb_chunks)?;
        let rpl_sb = send_buffer(settings.sb_chunks, settings.rpl_chunks)?;

        let Some(operations) = Operations::new(settings.max_operations) else {
            let reason = "at least one operation is needed".to_owned();
            return Err(Error::Setting {
                name: "CONDUIT_MAX_OPERATIONS",
                reason,
            });
        };
        let capabilities = ni.reach(rank).capabilities;
        let budget = settings.sb_chunks;
        let shuffle = |seed| Box::new(Shuffle::new(seed, rank));
        let shuffle = settings.shuffle.map(shuffle);
        let most_longs = (plan.total() / 2).max(64) as usize;
        let mut engine = Self {
            job: Job::new(ni, settings),
            sys_eq,
            safe_eq,
            am_eq,
            sys_ready: Ready::queue(sys_eq),
            safe_ready: Ready::queue(safe_eq),
            am_ready: Ready::queue(am_eq),
            control: Control::new(SharedPtr(control.base), cells, rank),
            processor_atomics: !capabilities.contains(Capabilities::NATIVE_ATOMICS),
            system: System::new(size, cells, req_sb.md),
            req_sb,
            replies: Replies::new(rpl_sb),
            descriptors: Descriptors::new(settings.num_tmpmd),
            operations,
            transfers: Transfers::new(),
            credits: Accounts {
                flow: Flow::new(&plan, rank, budget),
                scale,
                statistics: None,
            },
            am: Lock::new(AmSide::new(
                size,
                most_longs,
                plan.buffer_bytes() as usize,
                settings.am_limit,
                shuffle,
            )),
            handlers: Handlers::new(),
            lids: Lock::new(am::lid::LidGenerator::new()),
            barriers,
            collectives: Collectives::new(
                rank,
                size,
                am::limits::max_medium(chunk, collective::MOST_ARGS),
            ),
            memory: Memory::default(),
            identity: IDENTITY.fetch_add(1, Relaxed),
            safe: Lock::new(Kind::none()),
            backoff: Backoff::new(settings.spin, settings.yields),
            reports: Reports::start(settings, rank, size)?,
            _mode: M::default(),
        };
        engine.register_own(&collective::handlers())?;
        engine.register_own(&[signal::handler()])?;
        engine.register_own(&vis::handlers())?;
        engine.link_lists(&plan)?;
        let job = engine.compare_settings(bootstrap)?;
        if settings.credit_stats {
            let statistics = Statistics::open(settings, &plan, rank, job)?;
            engine.credits.statistics = Some(Lock::new(statistics));
            engine.credits.write_statistics(&engine.job, When::Start);
        }
        engine.map_controls()
    }
}

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Ranks can work together only if they agree on some settings. Also the barrier after which
    /// all can be sent to. Gives a name for the job, which is rank 0's word.
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
                        self.job.rank
                    );
                    return Err(Error::Setting { name, reason });
                }
            }
        }
        Ok(job)
    }

    /// Settings that all ranks must have the same.
    fn agreement(&self) -> [(&'static str, u64); 13] {
        let settings = &self.job.settings;
        [
            ("CONDUIT_CHUNK", self.job.chunk as u64),
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
            // What a rank may send to a peer follows from its own settings: they have to be the
            // peer's.
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

    /// Fills the match lists. `facts`: system messages, request buffers with the catch basin behind
    /// them, reply chunks.
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
        self.job.ni.me_append(index::SYS, system)?;
        for _ in 0..plan.buffers().max(2) {
            self.job
                .ni
                .me_append(index::AM, self.request_buffer(plan.buffer_bytes() as usize))?;
        }
        let basin = MatchEntry {
            match_bits: select::CB.into(),
            options: MeOptions::PUT | MeOptions::TRUNCATE | MeOptions::OVERFLOW,
            tag: tag::CATCH_BASIN,
            ..entry
        };
        self.job.ni.me_append(index::AM, basin)?;
        // A reply that finds no buffer would be lost and its requester wait for ever, so that is to
        // be seen.
        let no_buffer = MatchEntry {
            match_bits: SELECT_RPL_RB.into(),
            ..basin
        };
        self.job.ni.me_append(index::SAFE, no_buffer)?;
        for _ in 0..REPLY_BUFFERS {
            self.job.ni.me_append(index::SAFE, self.reply_buffer())?;
        }
        let chunks = MatchEntry {
            memory: MeMemory::Region {
                region: CHUNKS,
                offset: 0,
                len: self.req_sb.bytes(),
            },
            match_bits: select::REQ_SB.into(),
            tag: tag::REQ_SB,
            ..entry
        };
        self.job.ni.me_append(index::SAFE, chunks)?;
        Ok(())
    }

    /// A ReqRB, as it is linked at start and again each time it has been drained.
    pub(crate) fn request_buffer(&self, bytes: usize) -> MatchEntry {
        self.managed(bytes, select::REQ_RB, tag::REQ_RB)
    }

    /// A buffer for injected replies.
    pub(crate) fn reply_buffer(&self) -> MatchEntry {
        // A rank has at most `sb_chunks` requests outstanding, each with one reply: mostly small
        // ones, of which a buffer holds about as many. But drained buffers are linked again after a
        // poll only, and a reply that finds none is lost: so one also holds the largest replies
        // that a poll may take, and the others are there meanwhile.
        let outstanding = self.job.settings.sb_chunks;
        let at_once = match self.job.settings.safe_limit {
            0 => outstanding,
            limit => outstanding.min(limit),
        };
        let bytes =
            (outstanding as usize * 128).max(at_once as usize * self.job.chunk) + self.job.chunk;
        self.managed(bytes, SELECT_RPL_RB, tag::RPL_RB)
    }

    fn managed(&self, bytes: usize, select: u8, tag: u64) -> MatchEntry {
        MatchEntry {
            memory: MeMemory::Managed {
                bytes,
                min_free: self.job.chunk,
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
        let find = |peer| {
            let capabilities = self.job.ni.reach(peer).capabilities;
            let is_mapped = capabilities.contains(Capabilities::WINDOW);
            is_mapped.then(|| self.job.ni.window(peer, CONTROL))
        };
        self.control.map(self.job.size, find)?;
        self.job.find_short_cuts();
        Ok(self)
    }
}
