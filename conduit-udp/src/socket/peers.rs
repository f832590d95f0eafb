//! The addresses of all ranks, and the network's reports on them (ICMP errors).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use conduit_core::ni::Rank;

use super::UdpAddress;

/// A row of the table. IPv4 addresses are mapped to IPv6.
#[derive(Clone, Copy)]
struct Row {
    address: [u8; 16],
    packet: u16,
    port: u16,
}

const _: () = assert!(size_of::<Row>() == 20);

/// The addresses of all ranks, 20 bytes each.
pub struct Peers {
    rows: Vec<Row>,
    /// The scope of link-local addresses, which is the index of this rank's interface.
    scope: u32,
    /// The ranks sorted by address and port. The order is computed for the first report.
    order: OnceCell<Box<[Rank]>>,
    errors: BTreeMap<Rank, PeerErrors>,
}

/// The network's reports on a peer. They serve only error texts, because reports can be forged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerErrors {
    /// The number of reports.
    pub count: u64,
    /// The error number of the last report.
    pub errno: i32,
    /// The sender of the last report, if it was not this host.
    pub from: Option<IpAddr>,
}

impl fmt::Display for PeerErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reporter: &dyn fmt::Display = match &self.from {
            Some(from) => from,
            None => &"this host",
        };
        let error = io::Error::from_raw_os_error(self.errno);
        if self.from.is_none() && [libc::EBADF, libc::ENOTSOCK].contains(&self.errno) {
            return write!(f, "the program of this rank closed its socket: {error}");
        }
        let times = if self.count == 1 { "time" } else { "times" };
        write!(
            f,
            "{reporter} reported {error} ({} {times} in all)",
            self.count
        )
    }
}

impl Peers {
    /// Creates the table of a job. `addresses` holds each rank's address, and `scope` is the index
    /// of this rank's interface.
    pub fn new(addresses: &[UdpAddress], scope: u32) -> Self {
        let rows = addresses
            .iter()
            .map(|address| Row {
                address: match address.ip {
                    IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                    IpAddr::V6(address) => address.octets(),
                },
                packet: address.packet.min(0xffff) as u16,
                port: address.port,
            })
            .collect();
        Self {
            rows,
            scope,
            order: OnceCell::new(),
            errors: BTreeMap::new(),
        }
    }

    /// Returns the number of ranks in the job.
    pub fn size(&self) -> u32 {
        self.rows.len() as u32
    }

    /// Returns the socket address of `peer`.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    #[inline]
    pub fn address(&self, peer: Rank) -> SocketAddr {
        let row = &self.rows[peer as usize];
        let address = Ipv6Addr::from(row.address);
        match address.to_ipv4_mapped() {
            Some(address) => SocketAddr::V4(SocketAddrV4::new(address, row.port)),
            None => {
                let scope = if address.is_unicast_link_local() {
                    self.scope
                } else {
                    0
                };
                SocketAddr::V6(SocketAddrV6::new(address, row.port, 0, scope))
            }
        }
    }

    /// Returns whether `source` is the address of a rank. Ports are not compared, because a rank
    /// has several sockets on one address.
    pub(super) fn is_at(&self, peer: Rank, source: Ipv6Addr) -> bool {
        let row = self.rows.get(peer as usize);
        row.is_some_and(|row| row.address == source.octets())
    }

    /// Returns the number of bytes of the largest packet (UDP payload) that all interfaces of the
    /// job take.
    pub fn packet(&self) -> usize {
        let least = self.rows.iter().map(|row| row.packet).min();
        least.map_or(0, usize::from)
    }

    /// Returns a rank whose address family differs from that of `rank`, so that the two cannot
    /// reach each other.
    pub fn other_family(&self, rank: Rank) -> Option<Rank> {
        let v4 = self.address(rank).is_ipv4();
        (0..self.size()).find(|peer| self.address(*peer).is_ipv4() != v4)
    }

    /// Returns the rank with this address, or the lowest rank with this address if there are
    /// several.
    pub fn find(&self, address: SocketAddr) -> Option<Rank> {
        let key = |ip: IpAddr, port: u16| {
            let octets = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            (octets, port)
        };
        let of = |rank: Rank| {
            let row = &self.rows[rank as usize];
            (row.address, row.port)
        };
        let order = self.order.get_or_init(|| {
            let mut order: Box<[Rank]> = (0..self.size()).collect();
            order.sort_by_key(|rank| (of(*rank), *rank));
            order
        });
        let wanted = key(address.ip(), address.port());
        let at = order.partition_point(|rank| of(*rank) < wanted);
        order.get(at).copied().filter(|rank| of(*rank) == wanted)
    }

    /// Counts a report on `peer`.
    pub fn note(&mut self, peer: Rank, errno: i32, from: Option<IpAddr>) {
        let errors = self.errors.entry(peer).or_insert(PeerErrors {
            count: 0,
            errno,
            from,
        });
        *errors = PeerErrors {
            count: errors.count + 1,
            errno,
            from,
        };
    }

    /// Returns the reports on `peer` so far.
    pub fn errors(&self, peer: Rank) -> Option<&PeerErrors> {
        self.errors.get(&peer)
    }
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers")
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}
