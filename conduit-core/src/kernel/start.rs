//! The start of a rank: its memory, queues and descriptors, and the comparison of the settings that
//! all ranks must agree on.
//!
//! All ranks create the regions in the same order (control, chunks, segment), so the numbers of the
//! regions are known without an exchange.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use am::select;
use credits::Plan;

use super::Kernel;
use super::backoff::Backoff;
use super::chunks::{Descriptors, SendBuffer};
use super::control::{Control, SharedPtr};
use super::error::{Error, Result};
use super::job::Job;
use super::operations::Operations;
use super::portal_table::{CONTROL, IGNORE, index, tag};
use super::queues::Queues;
use super::reports::Reports;
use super::system::System;
use crate::ni::{Capabilities, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, NiError};
use crate::settings::Settings;
use crate::threads::Mode;
use pmi::bootstrap::Bootstrap;

/// The number of slots of the request queue, if each source has a queue of its own. At least this
/// many requests can wait.
const AM_SLOTS: usize = 4096;
/// The maximum number of ranks with which a network may give each source a queue of its own
/// ([`Ni::eq_create`] leaves that choice to the network).
const OWN_QUEUES: u32 = 32;
/// Returns the number of slots of the queue for replies and completions. The Ni contract makes this
/// rank responsible for sufficient room, because a target that finds the queue full accepts nothing
/// more from this rank. The queue therefore has room for everything that this rank can have in
/// flight: a reply for each request (which takes at most four slots), a completion for each reply
/// sent, and a completion for each send ticket.
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

static IDENTITY: AtomicU64 = AtomicU64::new(0);

/// Returns a number that probably no other job on this host has or had.
fn name() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    seconds << 24 | u64::from(std::process::id() & 0x00FF_FFFF)
}

impl<N: Ni, M: Mode> Kernel<N, M> {
    /// Sets up the queues and the memory of a rank with `cells` barrier cells. Returns the kernel
    /// and the send buffer for replies.
    pub(crate) fn start(
        ni: N,
        settings: &Settings,
        plan: &Plan,
        cells: usize,
    ) -> Result<(Self, SendBuffer<M>)> {
        let (rank, size) = (ni.rank(), ni.size());
        let chunk = settings.chunk_bytes();
        for peer in [0, size - 1] {
            let most = ni.reach(peer).max_managed;
            if chunk > most {
                let reason =
                    format!("chunks have {chunk} bytes; the network carries at most {most}");
                return Err(Error::Setting {
                    name: "CONDUIT_CHUNK",
                    reason,
                });
            }
        }
        let control = ni.region_create((cells + size as usize) * size_of::<u64>())?;
        let chunks =
            ni.region_create((settings.sb_chunks + settings.rpl_chunks) as usize * chunk)?;

        // Each peer sends at most four system messages: a revoke and a return of credits, and two
        // messages about the end of the job.
        let sys = ni.eq_create(4 * size as usize + 10)?;
        let safe = ni.eq_create(safe_slots(size, plan, settings))?;
        let am = ni.eq_create(AM_SLOTS)?;
        ni.pt_open(index::RAR, None)?;
        ni.pt_open(index::AM, Some(am))?;
        ni.pt_open(index::SAFE, Some(safe))?;
        ni.pt_open(index::SYS, Some(sys))?;

        // SAFETY: the chunk region is network memory that lives as long as `ni`. Only the holder of
        // a chunk accesses the chunk, which `ChunkPool` ensures.
        let send_buffer = |first: u32, count: u32| unsafe {
            let base = chunks.base.add(first as usize * chunk);
            let md = ni.md_bind(base, count as usize * chunk, safe)?;
            Ok::<_, NiError>(SendBuffer::new(SharedPtr(base), chunk, count, md))
        };
        let chunks = send_buffer(0, settings.sb_chunks)?;
        let replies = send_buffer(settings.sb_chunks, settings.rpl_chunks)?;

        let Some(operations) = Operations::new(settings.max_operations) else {
            let reason = "must be at least 1".to_owned();
            return Err(Error::Setting {
                name: "CONDUIT_MAX_OPERATIONS",
                reason,
            });
        };
        let kernel = Self {
            job: Job::new(ni, settings),
            queues: Queues::new(sys, safe, am),
            control: Control::new(SharedPtr(control.base), cells, rank),
            system: System::new(size, cells, chunks.md),
            chunks,
            descriptors: Descriptors::new(settings.num_tmpmd),
            operations,
            backoff: Backoff::new(settings.spin, settings.yields),
            reports: Reports::start(settings, rank, size)?,
            identity: IDENTITY.fetch_add(1, Relaxed),
        };
        let system = kernel.unmanaged(select::SYS, tag::SYS);
        kernel.job.ni.me_append(index::SYS, system)?;
        Ok((kernel, replies))
    }

    /// Checks that all ranks have the same values for the settings that must be the same. Also acts
    /// as the barrier after which all ranks accept messages. Returns a name for the job, which rank
    /// 0 has chosen.
    pub(crate) fn compare_settings(&self, bootstrap: &mut dyn Bootstrap) -> Result<u64> {
        let own = agreement(&self.job.settings);
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
                        "{value} on rank {}, but a different value on rank {peer}",
                        self.job.rank
                    );
                    return Err(Error::Setting { name, reason });
                }
            }
        }
        Ok(job)
    }

    /// Returns a match entry for messages without a body.
    pub(crate) fn unmanaged(&self, select: u8, tag: u64) -> MatchEntry {
        MatchEntry {
            memory: MeMemory::Nothing,
            match_bits: select.into(),
            ignore_bits: IGNORE,
            source: None,
            options: MeOptions::PUT,
            events: MeEvents::OPERATION,
            tag,
        }
    }

    /// Returns a match entry over a buffer that messages fill one after the other.
    pub(crate) fn managed(&self, bytes: usize, select: u8, tag: u64) -> MatchEntry {
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

    /// Finds the control regions of the mapped peers. All ranks must have created their regions.
    pub(crate) fn map_controls(&mut self) -> Result<()> {
        let job = &self.job;
        let find = |peer| {
            let capabilities = job.ni.reach(peer).capabilities;
            let is_mapped = capabilities.contains(Capabilities::WINDOW);
            is_mapped.then(|| job.ni.window(peer, CONTROL))
        };
        self.control.map(job.size, find)?;
        self.job.find_short_cuts();
        Ok(())
    }
}

/// Returns the names and values of the settings that must be the same on all ranks.
fn agreement(settings: &Settings) -> [(&'static str, u64); 13] {
    [
        ("CONDUIT_CHUNK", settings.chunk_bytes() as u64),
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
        // This setting determines the meaning of the credit byte.
        ("CONDUIT_CREDIT_DOUBLING", settings.credit_doubling.into()),
        // A rank derives from its own settings how much it may send to a peer, so its settings must
        // equal the peer's.
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

#[cfg(test)]
mod tests {
    use settings::Group as _;

    use super::*;

    #[test]
    fn the_settings_that_are_compared_are_those_that_say_so() {
        let settings = Settings::default();
        let said = settings.agreement();
        let mut said: Vec<_> = said
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect();
        let mut compared = agreement(&settings).map(|(name, _)| name);
        said.sort_unstable();
        compared.sort_unstable();
        assert_eq!(said, compared);
    }
}
