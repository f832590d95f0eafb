//! Measures what a flood of datagrams from outsiders costs a rank. The rank's wire, with sockets
//! and seal, receives datagrams on loopback that no rank has sent.
//!
//! `flood elsewhere|forged|joined COUNT` sends `COUNT` datagrams: with `elsewhere`, packets of 1472
//! bytes from an address other than that of the rank they name; with `forged`, packets from the
//! address of that rank; with `joined`, datagrams of 64 KiB from that address that look like 2047
//! packets. The difference between two runs is the number of instructions per datagram. It includes
//! the outsider's few instructions for sending the datagram and excludes those of the system:
//!
//! ```sh
//! cargo build --release -p pgas-conduit-udp --example flood
//! for n in 1000 2000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/flood elsewhere $n
//! done
//! ```

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use conduit_core::ni::Rank;
use conduit_udp::protocol::{Config, Endpoint, Failure, FragmentHandler, TAG};
use conduit_udp::socket::{Driver, Options, Peers, Socket, UdpAddress};
use seal::{Protection, Sealer, Secret};

const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const HEADER: usize = 16;

/// A fragment handler that expects no fragments.
struct Nobody;

impl FragmentHandler for Nobody {
    fn read(&mut self, _peer: Rank, _token: u64, _offset: usize, _into: &mut [u8]) {}
    fn sent(&mut self, _peer: Rank, _token: u64) {}
    fn fragment(&mut self, _peer: Rank, _header: &[u8], _payload: &[u8]) -> bool {
        true
    }
    fn begin(&mut self, _peer: Rank, _header: &[u8], _length: usize) -> Option<u64> {
        None
    }
    fn place(&mut self, _place: u64, _offset: usize, _bytes: &[u8]) {}
    fn end(&mut self, _place: u64) {}
    fn failed(&mut self, _peer: Rank, _failure: Failure) {}
    fn room(&self) -> usize {
        1 << 20
    }
}

/// Returns a packet of rank 1 with an invalid tag.
fn forged(body: usize, number: u64) -> Vec<u8> {
    let mut packet = vec![0; HEADER + body + TAG];
    packet[0] = 1 << 4;
    packet[2..4].copy_from_slice(&(body as u16).to_le_bytes());
    packet[4..8].copy_from_slice(&1u32.to_le_bytes());
    packet[8..HEADER].copy_from_slice(&number.to_le_bytes());
    packet
}

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_default();
    let count = args.next().and_then(|count| count.parse::<u64>().ok());
    let (Some(count), "elsewhere" | "forged" | "joined") = (count, &*kind) else {
        eprintln!("usage: flood elsewhere|forged|joined COUNT");
        std::process::exit(2);
    };
    let options = Options {
        address: HOME,
        scope: 0,
        ports: Options::ANY_PORT,
        mtu: Some(1 << 16),
        send_buffer: 1 << 20,
        receive_buffer: 8 << 20,
        offload: true,
    };
    let socket = Socket::open(&options).expect("a socket on loopback");
    let to = socket.address();
    let udp_address = |port| UdpAddress {
        ip: HOME,
        port,
        packet: 1472,
        incarnation: 7,
    };
    // The port of rank 1 is unused.
    let peers = Peers::new(&[udp_address(to.port()), udp_address(1)], 0);
    let secret = Secret::from_bytes([7; 32]);
    let seal = Sealer::new(secret, Protection::Authenticate, 0, vec![7, 7]);
    let endpoint = Endpoint::new(Config {
        rank: 0,
        size: 2,
        packet: 1472,
        ..Config::default()
    });
    let mut wire = Driver::new(endpoint, seal, socket, peers, 1472).expect("a descriptor");
    let from = match &*kind {
        "elsewhere" => ELSEWHERE,
        _ => HOME,
    };
    let outsider = UdpSocket::bind((from, 0)).expect("a socket on loopback");
    let datagram = match &*kind {
        "joined" => (0..2047).flat_map(|number| forged(0, number)).collect(),
        _ => forged(1440, 0),
    };
    for _ in 0..count {
        outsider.send_to(&datagram, to).expect("room on loopback");
        while wire.receive(&mut Nobody) {}
    }
    println!("{:?}", wire.machine().counters());
}
