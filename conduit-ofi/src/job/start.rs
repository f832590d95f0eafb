//! Starts a job over libfabric: every rank chooses a provider, opens an endpoint, and exchanges
//! addresses with the other ranks.

use std::collections::HashMap;

use conduit_core::ni::Rank;
use conduit_core::process_memory::{self, Pid};
use conduit_core::threads::Mode;
use conduit_portals::transport::{SoftPortals, Transport};
use libfabric_sys::{Library, fi_major, fi_minor};
use pmi::bootstrap::Bootstrap;
use seal::{Exchange, PeerError, Sealer, meet, random_incarnation};

use super::{OfiConfig, OfiError};
use crate::provider::choose;
use crate::wire::connected::{Connected, Listening};
use crate::wire::neighbours::Neighbours;
use crate::wire::objects::{Objects, Refusal};
use crate::wire::scope::FixedJob;
use crate::wire::watch::Watched;
use crate::wire::{Addresses, Hosts, OfiEndpoint, Parts};

/// One rank's end of the network over libfabric.
pub type Ofi<M, T = OfiEndpoint> = SoftPortals<M, T>;

/// A rank's bootstrap information, which is encoded in this order, little-endian: the job's number
/// in 8 bytes (only that of rank 0 is used), the rank's incarnation in 8 bytes, and its process id
/// in 4 bytes. Then follow the identity, the address of the endpoint, the address of the passive
/// endpoint (empty without connections), and the host, each preceded by its length in 4 bytes.
struct BootstrapInfo {
    job: u64,
    incarnation: u64,
    process: Pid,
    identity: String,
    address: Vec<u8>,
    passive: Vec<u8>,
    host: String,
}

impl BootstrapInfo {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.job, self.incarnation].map(u64::to_le_bytes).concat();
        bytes.extend(self.process.to_le_bytes());
        for part in [
            self.identity.as_bytes(),
            &self.address,
            &self.passive,
            self.host.as_bytes(),
        ] {
            // The cast is lossless, because names and addresses are short.
            bytes.extend((part.len() as u32).to_le_bytes());
            bytes.extend(part);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = bytes.split_first_chunk()?;
        let (incarnation, rest) = rest.split_first_chunk()?;
        let (process, mut rest) = rest.split_first_chunk()?;
        let mut part = || {
            let (length, after) = rest.split_first_chunk()?;
            let (part, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = after;
            Some(part)
        };
        let (identity, address, passive, host) = (part()?, part()?, part()?, part()?);
        rest.is_empty().then_some(Self {
            job: u64::from_le_bytes(*job),
            incarnation: u64::from_le_bytes(*incarnation),
            process: Pid::from_le_bytes(*process),
            identity: String::from_utf8(identity.to_vec()).ok()?,
            address: address.to_vec(),
            passive: passive.to_vec(),
            host: String::from_utf8(host.to_vec()).ok()?,
        })
    }
}

/// A rank's own objects before the exchange.
struct Prepared {
    objects: Objects,
    listening: Option<Listening>,
    exchange: Exchange,
}

fn refused(rank: Rank, provider: &str, library: &Library, refusal: Refusal) -> OfiError {
    OfiError::Refused {
        rank,
        provider: provider.to_owned(),
        operation: refusal.operation,
        reason: refusal.reason(library),
    }
}

/// Prepares a rank. Returns the rank's objects and its contribution.
fn prepare(rank: Rank, size: u32, config: &OfiConfig) -> Result<(Prepared, Vec<u8>), OfiError> {
    let exchange = Exchange::new(b"ofi", rank, size, config.secret_file.as_deref())
        .map_err(|error| OfiError::Exchange { rank, error })?;
    let library = config
        .library
        .load()
        .map_err(|reason| OfiError::Library { rank, reason })?;
    let mut hints = config.hints.clone();
    // The provider performs direct access, which therefore bypasses the tags.
    hints.messages_only |= config.protection.is_some();
    let offer = choose(&library, &hints).map_err(|(reason, offered)| OfiError::Provider {
        rank,
        reason,
        offered,
        settings: "CONDUIT_OFI_PROVIDER, CONDUIT_OFI_DOMAIN",
    })?;
    let provider = offer.provider();
    let version = library.version();
    let identity = format!(
        "{} of libfabric {}.{}",
        offer.identity(),
        fi_major(version),
        fi_minor(version)
    );
    let failed = |refusal| refused(rank, &provider, &library, refusal);
    let frame = config.wire.clone().bounded().frame;
    let objects = Objects::open(offer, frame).map_err(failed)?;
    let address = objects.address().map_err(failed)?;
    let listening = match config.connections {
        0 => None,
        some => Some(Listening::open(&objects.offer, some).map_err(failed)?),
    };
    let passive = listening.as_ref().map(Listening::address);
    let passive = passive.transpose().map_err(failed)?.unwrap_or_default();
    let random = |error: std::io::Error| OfiError::Refused {
        rank,
        provider: provider.clone(),
        operation: "random numbers",
        reason: error.to_string(),
    };
    let is_first = rank == 0;
    let info = BootstrapInfo {
        // A random number of 64 bits, which an attacker cannot guess.
        job: if is_first {
            random_incarnation().map_err(random)?
        } else {
            0
        },
        incarnation: random_incarnation().map_err(random)?,
        process: process_memory::this(),
        identity,
        address,
        passive,
        host: config.host.clone(),
    };
    let text = exchange.contribution(&info.encode());
    let prepared = Prepared {
        objects,
        listening,
        exchange,
    };
    Ok((prepared, text))
}

/// The parsed contributions of all ranks.
#[derive(Debug)]
struct Job {
    addresses: Addresses,
    passive: Addresses,
    hosts: Hosts,
    job: u64,
    incarnations: Vec<u64>,
    neighbours: Neighbours,
    exchange: Exchange,
}

/// Parses the contributions of all ranks. `are_texts` says whether addresses are strings.
fn parse_all(
    rank: Rank,
    mut exchange: Exchange,
    are_texts: bool,
    texts: &[Vec<u8>],
) -> Result<Job, OfiError> {
    let (mut bytes, mut passive) = (Vec::new(), Vec::new());
    let mut numbers = HashMap::new();
    let mut hosts = Vec::with_capacity(texts.len());
    let mut job = 0;
    let mut incarnations = Vec::with_capacity(texts.len());
    let mut processes = Vec::with_capacity(texts.len());
    let mut infos = Vec::with_capacity(texts.len());
    exchange.read_all(texts, |peer, words| {
        let length = texts[peer as usize].len();
        let malformed = || format!("contribution of {length} bytes is malformed");
        infos.push(BootstrapInfo::decode(words).ok_or_else(malformed)?);
        Ok(())
    })?;
    let own = infos.get(rank as usize);
    let own_length = own.map_or(0, |info| info.address.len());
    let own_passive = own.map_or(0, |info| info.passive.len());
    let own = own.map(|info| info.identity.clone()).unwrap_or_default();
    let lengths = infos.iter().map(|info| info.address.len());
    let each = match are_texts {
        // Text addresses differ in length and are padded with zeros.
        true => lengths.max().unwrap_or(0) + 1,
        false => own_length,
    };
    for (peer, info) in (0..).zip(infos) {
        if info.identity != own {
            return Err(OfiError::Differs {
                rank,
                ours: own,
                peer,
                host: info.host,
                theirs: info.identity,
            });
        }
        let length = info.address.len();
        if !are_texts && length != own_length {
            let reason = format!(
                "endpoint address has {length} bytes, but this rank's has {own_length}; all must be IPv4 or all IPv6 \
                 (setting CONDUIT_OFI_DOMAIN)"
            );
            return Err(PeerError::Contribution { rank, peer, reason }.into());
        }
        let length = info.passive.len();
        if length != own_passive {
            let reason = format!(
                "passive endpoint's address has {length} bytes, but this rank's has {own_passive} (settings CONDUIT_OFI_CONNECTIONS, \
                 CONDUIT_OFI_DOMAIN)"
            );
            return Err(PeerError::Contribution { rank, peer, reason }.into());
        }
        passive.extend(info.passive);
        if peer == 0 {
            job = info.job;
        }
        incarnations.push(info.incarnation);
        processes.push(info.process);
        bytes.extend(info.address);
        bytes.resize((peer as usize + 1) * each, 0);
        // The cast is lossless, because there are at most as many hosts as ranks.
        let next = numbers.len() as u32;
        hosts.push(*numbers.entry(info.host).or_insert(next));
    }
    let own = hosts.get(rank as usize);
    let all = (0..).zip(processes).zip(&hosts);
    let neighbours = all
        .filter(|((peer, _), host)| *peer != rank && Some(*host) == own)
        .map(|(neighbour, _)| neighbour)
        .collect();
    let mut names = vec![String::new(); numbers.len()];
    for (name, number) in numbers {
        names[number as usize] = name;
    }
    Ok(Job {
        addresses: Addresses {
            bytes: bytes.into(),
            each,
        },
        passive: Addresses {
            bytes: passive.into(),
            each: own_passive,
        },
        hosts: Hosts {
            of: hosts.into(),
            names,
        },
        job,
        incarnations,
        neighbours,
        exchange,
    })
}

/// Starts the network among all ranks of a job. This is a collective call: all ranks must make it,
/// with the same settings.
///
/// # Errors
/// Returns an [`OfiError`] that names the rank and the reason. If one rank fails, all fail, unless
/// `bootstrap` itself failed. An unreachable peer is detected only when it is first used.
pub fn start<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    config: &OfiConfig,
) -> Result<Ofi<M>, OfiError> {
    start_in(bootstrap, config, |wire, _| Ok(wire))
}

/// Does the same as [`start`], but wraps the wire in another transport by calling `inside`. If
/// connections are configured, `inside` also receives the resources for
/// [connections](Beside::connect).
///
/// # Errors
/// Same as [`start`].
pub fn start_in<M: Mode, T: Transport + 'static>(
    bootstrap: &mut dyn Bootstrap,
    config: &OfiConfig,
    inside: impl FnOnce(OfiEndpoint, Option<Beside>) -> Result<T, OfiError>,
) -> Result<Ofi<M, T>, OfiError> {
    let rank = bootstrap.rank();
    let prepared = prepare(rank, bootstrap.size(), config);
    meet(bootstrap, prepared, |prepared, texts| {
        let are_texts = prepared.objects.offer.has_text_addresses();
        let job_info = parse_all(rank, prepared.exchange, are_texts, texts)?;
        let transcript = job_info.exchange.transcript();
        let parts = (prepared.objects, prepared.listening);
        let ofi = assemble(rank, config, parts, job_info, inside)?;
        Ok((ofi, transcript))
    })
}

/// The resources for connections, which a rank has besides the wire.
#[derive(Debug)]
pub struct Beside {
    rank: Rank,
    provider: String,
    library: Library,
    listening: Listening,
    addresses: Addresses,
}

impl Beside {
    fn of(
        rank: Rank,
        objects: &Objects,
        listening: Option<Listening>,
        job_info: &mut Job,
    ) -> Option<Self> {
        Some(Self {
            rank,
            provider: objects.offer.provider(),
            library: objects.offer.library().clone(),
            listening: listening?,
            addresses: std::mem::take(&mut job_info.passive),
        })
    }

    /// Adds connections to the wire.
    ///
    /// # Errors
    /// Returns an error if memory for the buffers cannot be allocated or registered.
    pub fn connect(self, wire: OfiEndpoint) -> Result<Connected, OfiError> {
        let Self {
            rank,
            provider,
            library,
            listening,
            addresses,
        } = self;
        Connected::new(wire, listening, addresses)
            .map_err(|refusal| refused(rank, &provider, &library, refusal))
    }
}

fn wire(
    rank: Rank,
    config: &OfiConfig,
    objects: Objects,
    job_info: Job,
) -> Result<OfiEndpoint, OfiError> {
    let library = objects.offer.library().clone();
    let provider = objects.offer.provider();
    let seal = config
        .protection
        .map(|protection| Sealer::new(job_info.exchange, protection, rank, job_info.incarnations));
    let parts = Parts {
        objects,
        scope: FixedJob {
            rank,
            job: job_info.job,
            addresses: job_info.addresses,
            hosts: job_info.hosts,
            neighbours: job_info.neighbours.clone(),
        },
        seal,
        arrival_bytes: config.portals.arrival_bytes,
    };
    let mut wire = OfiEndpoint::new(parts, &config.wire)
        .map_err(|refusal| refused(rank, &provider, &library, refusal))?;
    if config.attend.is_some() {
        let watched = Watched {
            rank,
            provider: provider.clone(),
            neighbours: job_info.neighbours,
            dead_time: config.wire.dead_time,
        };
        wire.start_watch(watched)
            .map_err(|error| no_thread(rank, provider, &error))?;
    }
    Ok(wire)
}

fn no_thread(rank: Rank, provider: String, error: &std::io::Error) -> OfiError {
    OfiError::Refused {
        rank,
        provider,
        operation: "start a thread",
        reason: error.to_string(),
    }
}

fn assemble<M: Mode, T: Transport + 'static>(
    rank: Rank,
    config: &OfiConfig,
    (objects, listening): (Objects, Option<Listening>),
    mut job_info: Job,
    inside: impl FnOnce(OfiEndpoint, Option<Beside>) -> Result<T, OfiError>,
) -> Result<Ofi<M, T>, OfiError> {
    let provider = objects.offer.provider();
    let max_message = objects.offer.limits().max_message;
    // The cast is lossless, because the number of ranks fits 32 bits.
    let size = job_info.hosts.of.len() as u32;
    let beside = Beside::of(rank, &objects, listening, &mut job_info);
    let wire = wire(rank, config, objects, job_info)?;
    let mut portals = config.portals.clone();
    portals.max_message = portals.max_message.min(max_message);
    let mut ofi = SoftPortals::new(inside(wire, beside)?, rank, size, &portals);
    if let Some(period) = config.attend {
        ofi.start_progress_thread(period)
            .map_err(|error| no_thread(rank, provider, &error))?;
    }
    Ok(ofi)
}

/// Creates a whole job within this process, for tests. Each rank may run in a separate thread (if
/// the mode permits), or one thread may drive all ranks in turn.
///
/// # Errors
/// Same as [`start`].
pub fn in_process<M: Mode>(ranks: u32, config: &OfiConfig) -> Result<Vec<Ofi<M>>, OfiError> {
    all_in_process(ranks, config, |rank, (objects, _), job_info| {
        assemble(rank, config, (objects, None), job_info, |wire, _| Ok(wire))
    })
}

/// Does the same as [`in_process`], but for ranks that have connections.
///
/// # Errors
/// Same as [`start`].
pub fn connected_in_process(ranks: u32, config: &OfiConfig) -> Result<Vec<Connected>, OfiError> {
    all_in_process(ranks, config, |rank, (objects, listening), mut job_info| {
        let beside = Beside::of(rank, &objects, listening, &mut job_info);
        let wire = wire(rank, config, objects, job_info)?;
        beside.map(|beside| beside.connect(wire)).transpose()
    })
    .map(|all| all.into_iter().flatten().collect())
}

/// Creates the wires of a whole job within this process, without portals.
#[cfg(test)]
pub(crate) fn wires(ranks: u32, config: &OfiConfig) -> Result<Vec<OfiEndpoint>, OfiError> {
    all_in_process(ranks, config, |rank, (objects, _), job_info| {
        wire(rank, config, objects, job_info)
    })
}

fn all_in_process<E>(
    ranks: u32,
    config: &OfiConfig,
    end: impl Fn(Rank, (Objects, Option<Listening>), Job) -> Result<E, OfiError>,
) -> Result<Vec<E>, OfiError> {
    let (prepared, texts) = (0..ranks)
        .map(|rank| prepare(rank, ranks, config))
        .collect::<Result<(Vec<_>, Vec<_>), _>>()?;
    (0..)
        .zip(prepared)
        .map(|(rank, prepared)| {
            let are_texts = prepared.objects.offer.has_text_addresses();
            let job_info = parse_all(rank, prepared.exchange, are_texts, &texts)?;
            end(rank, (prepared.objects, prepared.listening), job_info)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use seal::Protection;

    use super::*;

    fn exchange(rank: Rank) -> Exchange {
        Exchange::new(b"ofi", rank, 3, None).unwrap()
    }

    fn info(identity: &str, address: &[u8], host: &str) -> BootstrapInfo {
        BootstrapInfo {
            job: 7,
            incarnation: 9,
            process: 11,
            identity: identity.to_owned(),
            address: address.to_owned(),
            passive: Vec::new(),
            host: host.to_owned(),
        }
    }

    fn text(rank: Rank, identity: &str, address: &[u8], host: &str) -> Vec<u8> {
        exchange(rank).contribution(&info(identity, address, host).encode())
    }

    #[test]
    fn what_is_said_is_read() {
        let texts = [
            text(0, "tcp", b"long", "a"),
            text(1, "tcp", b"xy", "a"),
            text(2, "tcp", b"z", "b"),
        ];
        let job_info = parse_all(1, exchange(1), true, &texts).unwrap();
        assert_eq!((job_info.job, job_info.addresses.each), (7, 5));
        assert_eq!(job_info.incarnations, [9; 3]);
        assert_eq!(&*job_info.addresses.bytes, b"long\0xy\0\0\0z\0\0\0\0");
        assert_eq!(
            (&*job_info.hosts.of, &job_info.hosts.names[..]),
            (&[0, 0, 1][..], &["a".to_owned(), "b".to_owned()][..])
        );
    }

    #[test]
    fn different_libraries_are_an_error_that_names_both() {
        let texts = [
            text(0, "tcp of libfabric 1.17", b"", "a"),
            text(1, "tcp of libfabric 2.1", b"", "b"),
        ];
        let error = parse_all(0, exchange(0), false, &texts)
            .unwrap_err()
            .to_string();
        for word in ["1.17", "2.1", "rank 1", "host b", "CONDUIT_OFI_LIBRARY"] {
            assert!(error.contains(word), "{error}");
        }
    }

    /// The library reads the address of each peer in the length of the rank's own address, so all
    /// addresses must have the same length.
    #[test]
    fn addresses_of_different_lengths_are_an_error_that_names_the_peer() {
        for address in [&b""[..], b"short", b"very long"] {
            let texts = [
                text(0, "tcp", b"address", "host"),
                text(1, "tcp", address, "host"),
            ];
            let error = parse_all(0, exchange(0), false, &texts)
                .unwrap_err()
                .to_string();
            for word in [
                "rank 1",
                "7",
                &address.len().to_string(),
                "CONDUIT_OFI_DOMAIN",
            ] {
                assert!(error.contains(word), "{error}");
            }
        }
    }

    /// The contribution is truncated either in the bootstrap information or in the part for the key
    /// exchange.
    #[test]
    fn malformed_info_is_an_error_that_names_the_peer() {
        let info = info("tcp", b"address", "host");
        let first = exchange(0).contribution(&info.encode());
        let error = |second: Vec<u8>| {
            let error = parse_all(0, exchange(0), false, &[first.clone(), second]).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("rank 1"), "{error}");
            error
        };
        let info = info.encode();
        for cut in 0..info.len() {
            let error = error(exchange(1).contribution(&info[..cut]));
            assert!(error.contains("malformed"), "{error}");
        }
        let whole = text(1, "tcp", b"address", "host");
        for cut in info.len()..whole.len() {
            error(whole[..cut].to_vec());
        }
    }

    /// An eavesdropper on the whole exchange cannot compute the keys that authenticate the ranks'
    /// frames.
    #[test]
    fn what_is_said_tells_no_keys() {
        use seal::{Seal, TAG};
        let info = |rank: Rank| BootstrapInfo {
            job: 7,
            incarnation: rank.into(),
            process: 11,
            identity: String::new(),
            address: Vec::new(),
            passive: Vec::new(),
            host: String::new(),
        };
        let (first, second) = (exchange(0), exchange(1));
        let texts = [
            first.contribution(&info(0).encode()),
            second.contribution(&info(1).encode()),
        ];
        let sealer = |rank, exchange| {
            let job_info = parse_all(rank, exchange, false, &texts).unwrap();
            Sealer::new(
                job_info.exchange,
                Protection::Authenticate,
                rank,
                job_info.incarnations,
            )
        };
        let (mut first, mut second) = (sealer(0, first), sealer(1, second));
        let mut reader = sealer(0, exchange(0));
        let mut frame = [7; 40 + TAG];
        reader.seal(1, 5, &mut frame, 16);
        assert!(!second.open(0, 5, &mut frame, 16));
        first.seal(1, 5, &mut frame, 16);
        assert!(second.open(0, 5, &mut frame, 16));
    }
}
