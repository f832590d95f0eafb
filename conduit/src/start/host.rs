//! Determines which ranks share a host, and which ranks share a machine.
//!
//! A host is a set of ranks that can share memory. They run on the same boot of the same machine,
//! under the same host name, and in the same network namespace, in which they find each other.
//! `CONDUIT_HOST` overrides this.
//!
//! A machine, identified by its boot id, may run several hosts, such as containers. Ranks that spin
//! on the same machine compete for its processors, whether or not they share memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use conduit_core::ni::Rank;
use conduit_shm::memory::Memory;
use networks::{Hosts, Room};
use pmi::bootstrap::Bootstrap;

use crate::settings::{Groups as _, Settings};
use crate::{Error, Result};

/// A summary of the ranks' reports about their hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) hosts: Hosts,
    /// The number of processors on this rank's machine that any of its ranks may run on.
    processors: u32,
    /// The number of ranks on this rank's machine.
    machine_ranks: u32,
    /// The smallest share that any rank has of the memory of its machine or control group, in
    /// bytes. The same on every rank.
    share: usize,
    /// How many bytes of shared memory each rank can have so that all ranks of its host can map
    /// them; the same on every rank.
    mappable: usize,
}

/// Idle polls before a rank yields if processors are oversubscribed: a spinning rank may take the
/// processor of the rank that it waits for.
const OVERSUBSCRIBED_SPIN: u32 = 1;
/// Yields before a rank sleeps in that case, enough for a few rounds through all ranks that share a
/// processor.
const OVERSUBSCRIBED_YIELDS: u32 = 200;
/// The share of available memory that all segments together may take. GASNet's largest segment has
/// the same default.
const SEGMENT_SHARE: f64 = 0.85;
/// The share of a process's mappable addresses that shared memory may take.
const SHARED_ADDRESSES: f64 = 0.75;
/// The memory, in bytes, that a rank needs besides its segment: for queues, buffers and the
/// program.
const NO_SEGMENT: usize = 64 << 20;
/// The size of the processor mask in bytes; higher processor numbers are ignored.
const MASK_BYTES: usize = 128;

/// A rank's message about its host. Its encoding is the mask of processors, five 8-byte numbers,
/// the names of machine and host, each preceded by its 4-byte length, and finally the settings that
/// must agree. Numbers are little-endian.
struct HostInfo {
    mask: [u8; MASK_BYTES],
    memory: u64,
    group: u64,
    group_memory: u64,
    addresses: u64,
    file: u64,
    machine: String,
    host: String,
    settings: String,
}

impl HostInfo {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.mask.to_vec();
        let numbers = [self.memory, self.group, self.group_memory];
        for number in numbers.into_iter().chain([self.addresses, self.file]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for name in [&self.machine, &self.host] {
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(self.settings.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (mask, rest) = bytes.split_first_chunk::<MASK_BYTES>()?;
        let (memory, rest) = rest.split_first_chunk::<8>()?;
        let (group, rest) = rest.split_first_chunk::<8>()?;
        let (group_memory, rest) = rest.split_first_chunk::<8>()?;
        let (addresses, rest) = rest.split_first_chunk::<8>()?;
        let (file, rest) = rest.split_first_chunk::<8>()?;
        let (machine, rest) = name(rest)?;
        let (host, settings) = name(rest)?;
        Some(Self {
            mask: *mask,
            memory: u64::from_le_bytes(*memory),
            group: u64::from_le_bytes(*group),
            group_memory: u64::from_le_bytes(*group_memory),
            addresses: u64::from_le_bytes(*addresses),
            file: u64::from_le_bytes(*file),
            machine,
            host,
            settings: String::from_utf8(settings.to_vec()).ok()?,
        })
    }
}

/// Reads a name, and returns it with the remaining bytes.
fn name(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((String::from_utf8(name.to_vec()).ok()?, rest))
}

impl Survey {
    /// Exchanges information about hosts with all ranks and summarises it. Collective.
    ///
    /// # Errors
    /// Fails if the launcher fails, if a host's name cannot be determined, or if settings that must
    /// agree differ between ranks.
    pub(super) fn take(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Self> {
        let name = match &settings.job.host {
            Some(name) => Ok(name.clone()),
            None => identity().map_err(|error| {
                Error::start(format_args!(
                    "cannot determine the name of this rank's host ({error}); set CONDUIT_HOST"
                ))
            }),
        };
        let memory = Memory::read();
        let own = HostInfo {
            mask: affinity(),
            memory: memory.machine.available,
            group: memory.group_id,
            group_memory: memory.group.available,
            addresses: memory.addresses,
            file: memory.file,
            // Without a boot id, assume that only ranks of the same host share a machine.
            machine: boot()
                .or_else(|_| name.clone().map_err(drop))
                .unwrap_or_default(),
            // An empty name tells the other ranks that this one has none, so that all of them fail
            // below.
            host: name.clone().unwrap_or_default(),
            settings: settings.of_network().agreement(),
        };
        let rank = bootstrap.rank();
        let all = bootstrap.allgather(&own.encode()).map_err(Error::start)?;
        name?;
        let mut infos = Vec::with_capacity(all.len());
        for (peer, bytes) in (0..).zip(&all) {
            let info = HostInfo::decode(bytes).ok_or_else(|| {
                Error::start(format_args!(
                    "rank {peer} sent malformed information about its host"
                ))
            })?;
            if info.host.is_empty() {
                return Err(Error::start(format_args!(
                    "rank {peer} cannot determine the name of its host; set CONDUIT_HOST"
                )));
            }
            for (ours, theirs) in own.settings.lines().zip(info.settings.lines()) {
                if ours != theirs {
                    return Err(Error::settings(format_args!(
                        "settings differ between ranks: {ours} on rank {rank} and {theirs} on rank {peer}"
                    )));
                }
            }
            infos.push(info);
        }
        Ok(Self::of(rank, &infos))
    }

    fn of(rank: Rank, infos: &[HostInfo]) -> Self {
        // For each machine: the number of ranks, the mask of processors, the memory.
        let mut machines: HashMap<&str, (u32, [u8; MASK_BYTES], u64)> = HashMap::new();
        // For each control group of a machine: the number of ranks, the memory.
        let mut groups: HashMap<(&str, u64), (u32, u64)> = HashMap::new();
        for info in infos {
            let (count, union, memory) =
                (machines.entry(&info.machine)).or_insert((0, [0; MASK_BYTES], u64::MAX));
            *count += 1;
            *memory = (*memory).min(info.memory);
            let (count, memory) =
                (groups.entry((&info.machine, info.group))).or_insert((0, u64::MAX));
            *count += 1;
            *memory = (*memory).min(info.group_memory);
            for (all, one) in union.iter_mut().zip(info.mask) {
                *all |= one;
            }
        }
        let (machine_ranks, mask, _) = machines[&*infos[rank as usize].machine];
        let processors = mask.iter().map(|byte| byte.count_ones());
        let processors = processors.sum::<u32>().max(1);
        let machines = machines.values().map(|(count, _, memory)| (count, memory));
        let groups = groups.values().map(|(count, memory)| (count, memory));
        let shares = machines.chain(groups);
        let share = shares.map(|(count, memory)| memory / u64::from(*count));
        let share = share.min().unwrap_or(0);
        let mut neighbours: HashMap<&str, u64> = HashMap::new();
        for info in infos {
            *neighbours.entry(&info.host).or_default() += 1;
        }
        // A rank maps the memory of all ranks on its host.
        let mappable = infos.iter().map(|info| {
            let shared = (info.addresses as f64 * SHARED_ADDRESSES) as u64;
            info.file.min(shared / neighbours[&*info.host])
        });
        let mappable = mappable.min().unwrap_or(0);
        Self {
            hosts: Hosts::new(rank, infos.iter().map(|info| &*info.host)),
            processors,
            machine_ranks,
            share: usize::try_from(share).unwrap_or(usize::MAX),
            mappable: usize::try_from(mappable).unwrap_or(usize::MAX),
        }
    }

    /// Fills in the unset settings whose defaults depend on the machine.
    pub(super) fn adapt(&self, settings: &mut Settings) {
        if self.machine_ranks * self.polling_threads(settings) > self.processors {
            settings.engine.spin.get_or_insert(OVERSUBSCRIBED_SPIN);
            if !settings.is_set("CONDUIT_YIELD") {
                settings.engine.yields = OVERSUBSCRIBED_YIELDS;
            }
        }
    }

    /// Returns the number of threads that poll while a rank waits: its own and, if it uses Portals
    /// 4, one of libportals, without which nothing arrives.
    fn polling_threads(&self, settings: &Settings) -> u32 {
        let networks = &settings.networks;
        let named = networks.networks.is_some() && networks.allows_network("portals4");
        let needed = self.hosts.count() > 1 || !networks.allows_network("shm");
        1 + u32::from(named && needed)
    }

    /// Returns the memory available for segments and queues.
    pub(super) fn room(&self, settings: &Settings, size: u32) -> Room {
        let share = self.share - NO_SEGMENT.min(self.share / 2);
        let share = (share as f64 * SEGMENT_SHARE) as usize;
        let segment = settings.job.max_segment.unwrap_or(share);
        let mut room = Room::new(settings.of_network(), size, segment, self.mappable);
        room.segment &= !(page() - 1);
        room
    }
}

fn page() -> usize {
    rustix::param::page_size()
}

/// Returns a name for the current boot of this machine, which is the same in all its containers.
fn boot() -> io::Result<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// Returns a name for this process's host.
fn identity() -> io::Result<String> {
    let boot = boot()?;
    // The number of the namespace is that of the file itself, so the link to it is followed.
    let namespace = fs::metadata("/proc/self/ns/net")?;
    let name = rustix::system::uname();
    Ok(format!(
        "{}/{}/{:x}.{:x}",
        name.nodename().to_string_lossy(),
        boot,
        namespace.dev(),
        namespace.ino()
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn info(host: &str, processors: u8, memory: u64) -> HostInfo {
        let mut mask = [0; MASK_BYTES];
        mask[0] = processors;
        HostInfo {
            mask,
            memory,
            group: 0,
            group_memory: u64::MAX,
            addresses: u64::MAX,
            file: u64::MAX,
            machine: host.to_owned(),
            host: host.to_owned(),
            settings: String::new(),
        }
    }

    fn one_host(ranks: usize, processors: u8) -> Survey {
        let infos: Vec<_> = (0..ranks).map(|_| info("a", processors, 1 << 30)).collect();
        Survey::of(0, &infos)
    }

    #[test]
    fn oversubscribed_ranks_yield_unless_told_otherwise() {
        let mut settings = Settings::default();
        one_host(2, 0b11).adapt(&mut settings);
        assert_eq!(settings.engine.spin, None);
        one_host(3, 0b11).adapt(&mut settings);
        assert_eq!(
            (settings.engine.spin, settings.engine.yields),
            (Some(OVERSUBSCRIBED_SPIN), OVERSUBSCRIBED_YIELDS)
        );
        settings.engine.spin = Some(5);
        one_host(3, 0b11).adapt(&mut settings);
        assert_eq!(settings.engine.spin, Some(5));
    }

    /// If all ranks share memory, libportals is not used and has no thread.
    #[test]
    fn threads_of_libportals_take_processors() {
        let crowded = |networks: &[&str], processors| {
            let mut settings = Settings::default();
            let networks = networks.iter().map(|name| (*name).to_owned());
            settings.networks.networks = Some(networks.collect());
            one_host(2, processors).adapt(&mut settings);
            settings.engine.spin == Some(OVERSUBSCRIBED_SPIN)
        };
        assert!(crowded(&["portals4"], 0b0111));
        assert!(!crowded(&["portals4"], 0b1111));
        assert!(!crowded(&["shm", "portals4"], 0b0111));
        assert!(!crowded(&["udp"], 0b0111));
    }

    #[test]
    fn segments_share_the_memory() {
        let settings = Settings::default();
        assert!(one_host(4, 0b1111).room(&settings, 4).segment <= (1 << 30) / 4);
        let mut settings = Settings::default();
        settings.job.max_segment = Some(10_000);
        assert_eq!(one_host(4, 0b1111).room(&settings, 4).segment, 8192);
    }

    #[test]
    fn limits_of_a_process_bound_its_shared_memory() {
        let settings = Settings::default();
        let room = |addresses: u64, file: u64| {
            let mut infos: Vec<_> = (0..2).map(|_| info("a", 1, 64 << 30)).collect();
            (infos[1].addresses, infos[1].file) = (addresses, file);
            Survey::of(0, &infos).room(&settings, 2)
        };
        let free = room(u64::MAX, u64::MAX);
        assert!(free.segment > 20 << 30);
        for (addresses, file) in [(4 << 30, u64::MAX), (u64::MAX, 3 << 29)] {
            let Room { segment, queues } = room(addresses, file);
            assert!(segment > 512 << 20, "{segment}");
            assert!(
                segment + queues < 3 << 29 && queues < free.queues,
                "{queues}"
            );
        }
        assert_eq!(room(1 << 20, u64::MAX).segment, 0);
    }

    /// Processors count separately on each host; the host with the least memory per rank limits the
    /// segment.
    #[test]
    fn each_host_has_its_own_processors_and_memory() {
        let infos = [
            info("b", 0b0001, 8 << 30),
            info("a", 0b0110, 1 << 30),
            info("b", 0b1000, 6 << 30),
            info("b", 0b0001, 9 << 30),
        ];
        for rank in 0..4 {
            let survey = Survey::of(rank, &infos);
            assert_eq!(survey.hosts, Hosts::new(rank, ["b", "a", "b", "b"]));
            assert_eq!(survey.processors, 2, "rank {rank}");
            assert_eq!(survey.share, 1 << 30);
        }
    }

    /// A control group's limit applies to its ranks together. Each rank may have a control group of
    /// its own.
    #[test]
    fn the_narrowest_memory_decides() {
        let mut infos: Vec<_> = (0..4).map(|_| info("a", 1, 8 << 30)).collect();
        assert_eq!(Survey::of(0, &infos).share, 2 << 30);
        for (group, info) in (1..).zip(&mut infos) {
            (info.group, info.group_memory) = (group, 1 << 30);
        }
        assert_eq!(Survey::of(0, &infos).share, 1 << 30);
        infos[3].group = 1;
        assert_eq!(Survey::of(0, &infos).share, 1 << 29);
    }

    /// Containers on one machine compete for its processors and memory.
    #[test]
    fn hosts_on_one_machine_share_it() {
        let mut infos = [
            info("a", 0b11, 8 << 30),
            info("b", 0b11, 8 << 30),
            info("c", 0b11, 8 << 30),
            info("elsewhere", 0b11, 8 << 30),
        ];
        for info in &mut infos[..3] {
            info.machine = "one".to_owned();
        }
        let crowded = |rank| {
            let survey = Survey::of(rank, &infos);
            let hosts = &survey.hosts;
            assert_eq!((hosts.count(), hosts.members().count()), (4, 1));
            assert_eq!(survey.share, (8 << 30) / 3);
            let mut settings = Settings::default();
            survey.adapt(&mut settings);
            settings.engine.spin == Some(OVERSUBSCRIBED_SPIN)
        };
        assert_eq!([0, 1, 2, 3].map(crowded), [true, true, true, false]);
    }

    #[test]
    fn a_card_survives_the_exchange() {
        let mut info = info("a host", 0b101, 12_345);
        info.machine = "a machine".to_owned();
        info.settings = "A=1\nB=2".to_owned();
        (info.group, info.group_memory) = (17, 1 << 20);
        (info.addresses, info.file) = (1 << 40, 1 << 41);
        let read = HostInfo::decode(&info.encode()).unwrap();
        assert_eq!(read.mask, info.mask);
        assert_eq!(
            (read.memory, read.group, read.group_memory),
            (info.memory, info.group, info.group_memory)
        );
        assert_eq!((read.addresses, read.file), (info.addresses, info.file));
        assert_eq!(
            (read.machine, read.host, read.settings),
            (info.machine, info.host, info.settings)
        );
        for bytes in [&[][..], &[0; 172], &[0xff; 200]] {
            assert!(HostInfo::decode(bytes).is_none() || bytes.len() == 172);
        }
    }

    #[test]
    fn this_host_has_a_name() {
        assert_eq!(identity().unwrap(), identity().unwrap());
    }
}
