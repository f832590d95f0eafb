//! What the ranks of a host share: its cores and its memory.

use conduit_core::bootstrap::{Bootstrap, BootstrapError};
use conduit_core::settings::Settings;

/// What a job may assume of its host; the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Host {
    ranks: u32,
    /// Processors that any of the ranks may run on.
    processors: u32,
    /// Bytes of memory, the least that any rank found available.
    memory: usize,
}

/// Idle polls before a rank yields where ranks share processors: the one that it waits for can't run while it spins.
const CROWDED_SPIN: u32 = 1;
/// Yields before it sleeps there: a few rounds through all ranks of a crowded processor.
const CROWDED_YIELDS: u32 = 200;
/// Of the available memory, what segments may take together (GASNet's default for its largest segment).
const SEGMENT_SHARE: f64 = 0.85;
/// The processors told to each other are those below this number.
const MASK_BYTES: usize = 128;

impl Host {
    /// Collective.
    pub(super) fn survey(bootstrap: &mut dyn Bootstrap) -> Result<Self, BootstrapError> {
        let mut own = affinity().to_vec();
        own.extend_from_slice(&(available_memory() as u64).to_le_bytes());
        let all = bootstrap.allgather(&own)?;
        let mut union = [0u8; MASK_BYTES];
        let mut memory = u64::MAX;
        for theirs in &all {
            let (mask, rest) = theirs.split_at(theirs.len().min(MASK_BYTES));
            for (all, one) in union.iter_mut().zip(mask) {
                *all |= one;
            }
            if let Some(bytes) = rest.first_chunk::<8>() {
                memory = memory.min(u64::from_le_bytes(*bytes));
            }
        }
        let processors = union
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>()
            .max(1);
        Ok(Self {
            ranks: bootstrap.size(),
            processors,
            memory: usize::try_from(memory).unwrap_or(usize::MAX),
        })
    }

    /// Fills in the settings that were left to the host.
    pub(super) fn adapt(&self, settings: &mut Settings) {
        if self.ranks > self.processors {
            settings.spin.get_or_insert(CROWDED_SPIN);
            if !settings.is_set("CONDUIT_YIELD") {
                settings.yields = CROWDED_YIELDS;
            }
        }
    }

    /// Bytes of the largest segment.
    pub(super) fn segment_limit(&self, settings: &Settings) -> usize {
        let share = (self.memory as f64 * SEGMENT_SHARE) as usize / self.ranks as usize;
        settings.max_segment.unwrap_or(share) & !(page() - 1)
    }
}

pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

fn affinity() -> [u8; MASK_BYTES] {
    let mut mask = [0; MASK_BYTES];
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        for cpu in (0..MASK_BYTES * 8)
            .filter(|&cpu| cpu < rustix::thread::CpuSet::MAX_CPU && set.is_set(cpu))
        {
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
    }
    mask
}

/// `MemAvailable`, or a quarter of an address space where there is none.
fn available_memory() -> usize {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
        })
        .map_or(usize::MAX >> 20, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(ranks: u32, processors: u32) -> Host {
        Host {
            ranks,
            processors,
            memory: 1 << 30,
        }
    }

    #[test]
    fn crowded_ranks_yield_unless_told_otherwise() {
        let mut settings = Settings::default();
        host(2, 2).adapt(&mut settings);
        assert_eq!(settings.spin, None);
        host(3, 2).adapt(&mut settings);
        assert_eq!(
            (settings.spin, settings.yields),
            (Some(CROWDED_SPIN), CROWDED_YIELDS)
        );
        settings.spin = Some(5);
        host(3, 2).adapt(&mut settings);
        assert_eq!(settings.spin, Some(5));
    }

    #[test]
    fn segments_share_the_memory() {
        let settings = Settings::default();
        assert!(host(4, 4).segment_limit(&settings) <= (1 << 30) / 4);
        let settings = Settings {
            max_segment: Some(10_000),
            ..Settings::default()
        };
        assert_eq!(host(4, 4).segment_limit(&settings), 8192);
    }
}
