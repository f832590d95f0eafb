//! Starts a job over UDP: every rank opens its socket and exchanges addresses with the others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use conduit_core::ni::Rank;
use conduit_core::threads::Mode;
use conduit_portals::host::host;
use conduit_portals::transport::Transport;
use pmi::bootstrap::Bootstrap;
use seal::{Exchange, Sealer, meet, random_incarnation};

use super::{Carrier, Udp, UdpConfig, UdpError};
use crate::protocol::{Config, Endpoint};
use crate::socket::{Driver, Peers, Socket, UdpAddress, interfaces, list};

fn system(rank: Rank, operation: &'static str) -> impl FnOnce(std::io::Error) -> UdpError {
    move |error| UdpError::System {
        rank,
        operation,
        reason: error.to_string(),
    }
}

/// A rank's own state before the exchange.
struct Prepared {
    socket: Socket,
    exchange: Exchange,
}

/// Prepares a rank. Returns the rank's state and its contribution.
fn prepare(rank: Rank, size: u32, config: &UdpConfig) -> Result<(Prepared, Vec<u8>), UdpError> {
    let exchange = Exchange::new(b"udp", rank, size, config.secret_file.as_deref())
        .map_err(|error| UdpError::Exchange { rank, error })?;
    let socket = Socket::open(&config.options).map_err(|error| UdpError::Socket { rank, error })?;
    let incarnation = random_incarnation().map_err(system(rank, "random numbers"))?;
    let address = UdpAddress {
        ip: socket.address().ip(),
        port: socket.address().port(),
        // The cast is lossless, because the size is that of a UDP payload.
        packet: socket.packet() as u32,
        incarnation,
    };
    let words = words(&address, host().unwrap_or(0), &config.host);
    let text = exchange.contribution(&words);
    Ok((Prepared { socket, exchange }, text))
}

/// Encodes a rank's bootstrap information, which consists of its [`UdpAddress`], the identifier of
/// the [`host`] that has this address, and the host's name.
fn words(address: &UdpAddress, network: u64, host: &str) -> Vec<u8> {
    [
        &address.encode()[..],
        &network.to_le_bytes(),
        host.as_bytes(),
    ]
    .concat()
}

/// The contributions of all ranks.
struct Job {
    addresses: Vec<UdpAddress>,
    /// For each rank, the identifier of the [`host`] that has its address, or 0 if the system does
    /// not report it.
    networks: Vec<u64>,
    hosts: Box<[Arc<str>]>,
    exchange: Exchange,
}

fn parse_all(mut exchange: Exchange, texts: &[Vec<u8>]) -> Result<Job, UdpError> {
    let mut addresses = Vec::with_capacity(texts.len());
    let mut networks = Vec::with_capacity(texts.len());
    let mut hosts: Vec<Arc<str>> = Vec::with_capacity(texts.len());
    exchange.read_all(texts, |peer, words| {
        let parts = words.split_first_chunk::<{ UdpAddress::BYTES }>();
        let parts = parts.and_then(|(address, rest)| {
            let (network, host) = rest.split_first_chunk::<8>()?;
            Some((address, network, host))
        });
        let length = texts[peer as usize].len();
        let (address, network, host) = parts.ok_or_else(|| format!("it is {length} bytes long"))?;
        networks.push(u64::from_le_bytes(*network));
        addresses.push(UdpAddress::decode(address).map_err(|error| error.to_string())?);
        let host = String::from_utf8_lossy(host);
        match hosts.last() {
            // Ranks on the same host usually have consecutive numbers.
            Some(last) if **last == *host => hosts.push(Arc::clone(last)),
            _ => hosts.push(host.into()),
        }
        Ok(())
    })?;
    Ok(Job {
        addresses,
        networks,
        hosts: hosts.into(),
        exchange,
    })
}

/// Starts the network among all ranks of a job. This is a collective call: all ranks must make it,
/// with the same settings.
///
/// # Errors
/// Returns a [`UdpError`] that names the rank and the reason. If one rank fails, all fail, unless
/// `bootstrap` itself failed. An unreachable peer is detected only when it is first used.
pub fn start<M: Mode>(
    bootstrap: &mut dyn Bootstrap,
    config: &UdpConfig,
) -> Result<Udp<M>, UdpError> {
    start_in(bootstrap, config, |carrier| carrier)
}

/// Does the same as [`start`], but wraps the carrier in another transport by calling `inside`.
///
/// # Errors
/// Same as [`start`].
pub fn start_in<M: Mode, T: Transport + 'static>(
    bootstrap: &mut dyn Bootstrap,
    config: &UdpConfig,
    inside: impl FnOnce(Carrier) -> T,
) -> Result<Udp<M, T>, UdpError> {
    let rank = bootstrap.rank();
    let prepared = prepare(rank, bootstrap.size(), config);
    meet(bootstrap, prepared, |prepared, texts| {
        let job = parse_all(prepared.exchange, texts)?;
        let transcript = job.exchange.transcript();
        let udp = assemble(rank, config, prepared.socket, job, inside)?;
        Ok((udp, transcript))
    })
}

/// Refuses addresses that several hosts have, because packets to such an address would not leave
/// the sender's host.
fn check_addresses(rank: Rank, job: &Job) -> Result<(), UdpError> {
    let mut known: HashMap<IpAddr, usize> = HashMap::new();
    for (at, address) in job.addresses.iter().enumerate() {
        let first = *known.entry(address.ip).or_insert(at);
        let networks = [job.networks[first], job.networks[at]];
        if networks[0] != networks[1] && !networks.contains(&0) {
            let ranks = [first, at].map(|rank| format!("rank {rank} on host {}", job.hosts[rank]));
            return Err(UdpError::SameAddress {
                rank,
                ranks: ranks.join(" and "),
                address: address.ip,
                offered: list(&interfaces().unwrap_or_default()),
            });
        }
    }
    Ok(())
}

fn assemble<M: Mode, T: Transport + 'static>(
    rank: Rank,
    config: &UdpConfig,
    socket: Socket,
    job: Job,
    inside: impl FnOnce(Carrier) -> T,
) -> Result<Udp<M, T>, UdpError> {
    check_addresses(rank, &job)?;
    let Job {
        addresses,
        hosts,
        exchange,
        ..
    } = job;
    // The cast is lossless, because the value is the number of ranks.
    let size = addresses.len() as u32;
    let peers = Peers::new(&addresses, config.options.scope);
    if let Some(peer) = peers.other_family(rank) {
        return Err(UdpError::Family {
            rank,
            ours: peers.address(rank).to_string(),
            peer,
            host: hosts[peer as usize].to_string(),
            theirs: peers.address(peer).to_string(),
        });
    }
    let protocol = Config {
        rank,
        size,
        packet: peers.packet(),
        socket_buffer: socket.buffers().receive,
        ..config.protocol.clone()
    };
    let incarnations = addresses
        .iter()
        .map(|address| address.incarnation)
        .collect();
    let sealer = Sealer::new(exchange, config.protection, rank, incarnations);
    let endpoint = Endpoint::new(protocol);
    let packet = endpoint.config().packet;
    let mut wire = Driver::new(endpoint, sealer, socket, peers, packet)
        .map_err(system(rank, "wait for packets"))?;
    wire.inject_faults(rank, &config.faults);
    let carrier = Carrier::new(wire, hosts).map_err(system(rank, "wait for packets"))?;
    let mut udp = Udp::new(inside(carrier), rank, size, &config.portals);
    if let Some(period) = config.attend {
        udp.start_progress_thread(period)
            .map_err(system(rank, "start a thread"))?;
    }
    Ok(udp)
}

/// Starts a whole job within this process, over real sockets of this host, for tests. Each rank may
/// run in a separate thread (if the mode allows), or one thread may drive all ranks in turn.
///
/// # Errors
/// Same as [`start`].
pub fn in_process<M: Mode>(ranks: u32, config: &UdpConfig) -> Result<Vec<Udp<M>>, UdpError> {
    let (prepared, texts) = (0..ranks)
        .map(|rank| prepare(rank, ranks, config))
        .collect::<Result<(Vec<_>, Vec<_>), _>>()?;
    (0..)
        .zip(prepared)
        .map(|(rank, prepared)| {
            let job = parse_all(prepared.exchange, &texts)?;
            assemble(rank, config, prepared.socket, job, |carrier| carrier)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use conduit_core::threads::{Par, ParSync};
    use pmi::bootstrap::BootstrapError;
    use seal::{Protection, Seal, TAG};

    use crate::socket::Options;

    use super::*;

    fn udp_address(rank: Rank) -> UdpAddress {
        UdpAddress {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1000 + rank as u16,
            packet: 1472,
            incarnation: u64::from(rank),
        }
    }

    fn exchange(rank: Rank, size: u32) -> Exchange {
        Exchange::new(b"udp", rank, size, None).unwrap()
    }

    fn text(rank: Rank, size: u32, host: &str) -> Vec<u8> {
        exchange(rank, size).contribution(&words(&udp_address(rank), 1, host))
    }

    #[test]
    fn threads_may_share_it_as_the_mode_says() {
        fn is_send<T: Send>() {}
        fn is_sync<T: Sync>() {}
        is_send::<Udp<ParSync, Carrier>>();
        is_send::<Udp<Par, Carrier>>();
        is_sync::<Udp<Par, Carrier>>();
    }

    #[test]
    fn what_is_said_is_read() {
        let texts = [text(0, 3, "a"), text(1, 3, "a"), text(2, 3, "b")];
        let job = parse_all(exchange(1, 3), &texts).unwrap();
        let ports: Vec<_> = job.addresses.iter().map(|address| address.port).collect();
        assert_eq!(ports, [1000, 1001, 1002]);
        assert_eq!(
            job.hosts.iter().map(|h| &**h).collect::<Vec<_>>(),
            ["a", "a", "b"]
        );
    }

    #[test]
    fn an_address_of_two_hosts_is_refused() {
        let both = |networks: [u64; 2]| {
            let texts = [0, 1].map(|rank: Rank| {
                let network = networks[rank as usize];
                let words = words(&udp_address(0), network, &format!("host{rank}"));
                exchange(rank, 2).contribution(&words)
            });
            let job = parse_all(exchange(1, 2), &texts).unwrap();
            check_addresses(1, &job)
        };
        assert!(both([5, 5]).is_ok());
        assert!(both([0, 5]).is_ok(), "one of them is unknown");
        let error = both([5, 6]).unwrap_err().to_string();
        let address = udp_address(0).ip.to_string();
        for part in ["host0", "host1", &address, "CONDUIT_UDP_INTERFACE"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn malformed_info_is_an_error_that_names_the_peer() {
        let refused = |nonsense: Vec<u8>, reason: &str| {
            let Err(error) = parse_all(exchange(1, 2), &[nonsense, text(1, 2, "")]) else {
                panic!("{reason}");
            };
            let error = error.to_string();
            assert!(error.contains("rank 0"), "{error}");
            assert!(error.contains(reason), "no {reason:?}: {error}");
        };
        // Alter contributions of a rank that has the secret, and then those of an outsider.
        let said = |words: &[u8]| exchange(0, 2).contribution(words);
        let address = udp_address(0).encode();
        for cut in 0..address.len() {
            refused(said(&address[..cut]), "bytes long");
        }
        let address = [&address[..], &[0; 8]].concat();
        for (byte, value, reason) in [
            (0, 9, "version 9"),
            (1, 5, "address family is invalid"),
            (6, 1, "packet size is invalid"),
            (31, 1, "address family is invalid"),
        ] {
            let mut address = address.clone();
            address[byte] = value;
            refused(said(&address), reason);
        }
        for cut in [1, 10, 33, 50, 65, 96] {
            refused(said(&address)[..cut].to_vec(), "");
        }
    }

    /// A rank in a thread, with a launcher that replays an old contribution.
    struct Launcher {
        rank: pmi::threads::Thread,
        /// Replaces rank 1's first contribution for rank 0.
        instead: Option<Vec<u8>>,
    }

    impl Bootstrap for Launcher {
        fn rank(&self) -> u32 {
            self.rank.rank()
        }
        fn size(&self) -> u32 {
            self.rank.size()
        }
        fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), BootstrapError> {
            self.rank.put(key, bytes)
        }
        fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>, BootstrapError> {
            match self.instead.take() {
                Some(instead) if self.rank() == 0 => Ok(instead),
                _ => self.rank.get(rank, key),
            }
        }
        fn fence(&mut self) -> Result<(), BootstrapError> {
            self.rank.fence()
        }
        fn fences(&self) -> u64 {
            self.rank.fences()
        }
    }

    #[test]
    fn a_launcher_that_repeats_what_it_was_told_is_found_out() {
        let options = Options {
            address: udp_address(0).ip,
            scope: 0,
            ports: Options::ANY_PORT,
            mtu: Some(1500),
            send_buffer: Options::BUFFER,
            receive_buffer: Options::BUFFER,
            offload: true,
        };
        let config = UdpConfig {
            attend: None,
            ..UdpConfig::new(options, "here".to_owned())
        };
        // Make the contribution of rank 1 of another job with the same secret.
        let old = prepare(1, 2, &config).unwrap().1;
        for (instead, reason) in [(None, None), (Some(old), Some("transcript differs"))] {
            std::thread::scope(|threads| {
                for rank in pmi::threads::job(2) {
                    let mut launcher = Launcher {
                        rank,
                        instead: instead.clone(),
                    };
                    let config = &config;
                    threads.spawn(move || {
                        let started = start::<Par>(&mut launcher, config);
                        let error = started.err().map(|error| error.to_string());
                        match reason {
                            Some(reason) => assert!(error.unwrap().contains(reason)),
                            None => assert_eq!(error, None),
                        }
                    });
                }
            });
        }
    }

    /// An eavesdropper on the whole exchange can neither make nor read packets of the ranks.
    #[test]
    fn what_is_said_tells_no_keys() {
        const HEADER: usize = 16;
        let ends = [exchange(0, 2), exchange(1, 2)];
        let texts = [
            ends[0].contribution(&words(&udp_address(0), 1, "a")),
            ends[1].contribution(&words(&udp_address(1), 1, "a")),
        ];
        let sealer = |rank, end| {
            let job = parse_all(end, &texts).unwrap();
            let incarnations = job
                .addresses
                .iter()
                .map(|address| address.incarnation)
                .collect();
            Sealer::new(job.exchange, Protection::Encrypt, rank, incarnations)
        };
        let [first, second] = ends;
        let (mut first, mut second) = (sealer(0, first), sealer(1, second));
        let mut reader = sealer(1, exchange(1, 2));
        let mut sealed = [7; HEADER + 30 + TAG];
        first.seal(1, 5, &mut sealed, HEADER);
        assert!(!reader.open(0, 5, &mut sealed.clone(), HEADER));
        assert!(second.open(0, 5, &mut sealed, HEADER));
        assert_eq!(sealed[..HEADER + 30], [7; HEADER + 30]);
        reader.seal(0, 6, &mut sealed, HEADER);
        assert!(!first.open(1, 6, &mut sealed, HEADER));
    }
}
