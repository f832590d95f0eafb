use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use conduit_core::ni::Rank;
use settings::Percent;

use super::{loopbacks, open, options};
use crate::protocol::{
    Config, Endpoint, Failure, Fragment, FragmentHandler, Nanos, Payload, Refused, Seal, TAG,
    Transmit,
};
use crate::socket::{DrivenMachine, Driver, FaultConfig, Options, Peers, Socket, UdpAddress};
use seal::{Protection, Sealer, Secret};

const HEADER: usize = 16;

/// The smallest protocol that a wire can drive. Each packet has a number and one fragment, and
/// there are no retransmissions.
struct Plain {
    rank: Rank,
    queue: VecDeque<(Rank, Vec<u8>)>,
    number: u64,
    dropped: u64,
    timeout: Option<Nanos>,
    timeouts: usize,
}

impl DrivenMachine for Plain {
    fn send(&mut self, _: Nanos, peer: Rank, fragment: &Fragment<'_>) -> Result<(), Refused> {
        let Payload::Copied(parts) = fragment.payload else {
            panic!("only copied fragments")
        };
        if self.queue.len() == 1000 {
            return Err(Refused::Full);
        }
        self.queue.push_back((peer, parts.concat()));
        Ok(())
    }

    fn sender_of(packet: &[u8]) -> Option<Rank> {
        Some(Rank::from_le_bytes(*packet.first_chunk()?))
    }

    fn receive(
        &mut self,
        _: Nanos,
        packet: &mut [u8],
        seal: &mut impl Seal,
        handler: &mut impl FragmentHandler,
    ) -> bool {
        let header = packet.first_chunk::<HEADER>().copied();
        let Some(header) = header else {
            self.dropped += 1;
            return false;
        };
        let from = Rank::from_le_bytes(*header.first_chunk().unwrap());
        let number = u64::from_le_bytes(*header.last_chunk().unwrap());
        let opens = seal.open(from, number, packet, HEADER);
        if opens {
            let body = &packet[HEADER..packet.len() - TAG];
            assert!(handler.fragment(from, &[], body));
        } else {
            self.dropped += 1;
        }
        opens
    }

    fn timeout(&self) -> Option<Nanos> {
        self.timeout
    }

    fn on_timeout(&mut self, _: Nanos, _: &mut impl FragmentHandler) {
        self.timeout = None;
        self.timeouts += 1;
    }

    fn transmit<'u>(
        &mut self,
        _: Nanos,
        buffer: &mut [u8],
        seal: &mut impl Seal,
        _: &'u mut impl FragmentHandler,
    ) -> Option<Transmit<'u>> {
        let (peer, first) = self.queue.front()?;
        let peer = *peer;
        let segment = HEADER + first.len() + TAG;
        let mut length = 0;
        while let Some((to, body)) = self.queue.front() {
            let size = HEADER + body.len() + TAG;
            if *to != peer || size > segment || length + size > buffer.len() {
                break;
            }
            self.number += 1;
            let packet = &mut buffer[length..length + size];
            packet.fill(0);
            packet[..4].copy_from_slice(&self.rank.to_le_bytes());
            packet[8..HEADER].copy_from_slice(&self.number.to_le_bytes());
            packet[HEADER..HEADER + body.len()].copy_from_slice(body);
            seal.seal(peer, self.number, packet, HEADER);
            self.queue.pop_front();
            length += size;
            if size < segment {
                break;
            }
        }
        Some(Transmit {
            peer,
            length,
            segment,
            zero_copy: None,
        })
    }
}

#[derive(Default)]
struct Mailbox(Vec<(Rank, Vec<u8>)>);

impl FragmentHandler for Mailbox {
    fn read(&mut self, _: Rank, _: u64, _: usize, _: &mut [u8]) {}
    fn sent(&mut self, _: Rank, _: u64) {}
    fn fragment(&mut self, peer: Rank, _: &[u8], payload: &[u8]) -> bool {
        self.0.push((peer, payload.to_vec()));
        true
    }
    fn begin(&mut self, _: Rank, _: &[u8], _: usize) -> Option<u64> {
        None
    }
    fn place(&mut self, _: u64, _: usize, _: &[u8]) {}
    fn end(&mut self, _: u64) {}
    fn failed(&mut self, _: Rank, _: Failure) {}
    fn room(&self) -> usize {
        1 << 20
    }
}

const PACKET: usize = 1472;

/// Returns the wires of a job on this host.
fn job(
    address: IpAddr,
    size: u32,
    change: impl Fn(Options) -> Options,
) -> Vec<Driver<Plain, Sealer>> {
    wires(address, size, change, |rank| Plain {
        rank,
        queue: VecDeque::new(),
        number: 0,
        dropped: 0,
        timeout: None,
        timeouts: 0,
    })
}

/// Returns the wires of a job of two ranks with the real protocol.
fn endpoints(address: IpAddr) -> [Driver<Endpoint, Sealer>; 2] {
    let endpoint = |rank| {
        Endpoint::new(Config {
            rank,
            size: 2,
            packet: PACKET,
            ..Config::default()
        })
    };
    let wires = wires(address, 2, |options| options, endpoint);
    wires.try_into().expect("two of them")
}

fn wires<M: DrivenMachine>(
    address: IpAddr,
    size: u32,
    change: impl Fn(Options) -> Options,
    machine: impl Fn(Rank) -> M,
) -> Vec<Driver<M, Sealer>> {
    let sockets: Vec<Socket> = (0..size).map(|_| open(&change(options(address)))).collect();
    let addresses: Vec<UdpAddress> = sockets
        .iter()
        .enumerate()
        .map(|(rank, socket)| UdpAddress {
            ip: address,
            port: socket.address().port(),
            packet: socket.packet() as u32,
            incarnation: 100 + rank as u64,
        })
        .collect();
    let incarnations: Vec<u64> = addresses
        .iter()
        .map(|address| address.incarnation)
        .collect();
    (0..)
        .zip(sockets)
        .map(|(rank, socket)| {
            let secret = Secret::from_bytes([9; 32]);
            let seal = Sealer::new(secret, Protection::Authenticate, rank, incarnations.clone());
            let peers = Peers::new(&addresses, 0);
            Driver::new(machine(rank), seal, socket, peers, PACKET).unwrap()
        })
        .collect()
}

fn copied<'a>(parts: &'a [&'a [u8]]) -> Fragment<'a> {
    Fragment {
        header: &[],
        payload: Payload::Copied(parts),
    }
}

fn send(wire: &mut Driver<Plain, Sealer>, peer: Rank, body: &[u8]) {
    wire.send(peer, &copied(&[body])).unwrap();
}

/// Makes progress until `count` fragments have arrived.
fn receive(wire: &mut Driver<Plain, Sealer>, count: usize) -> Vec<(Rank, Vec<u8>)> {
    let mut mailbox = Mailbox::default();
    while mailbox.0.len() < count {
        let before = mailbox.0.len();
        if !wire.progress(&mut mailbox) {
            assert!(
                wire.waiter().unwrap().wait(Some(Duration::from_secs(100))),
                "only {before} of {count} came"
            );
        }
    }
    mailbox.0
}

#[test]
fn fragments_of_many_ranks_arrive_sealed() {
    for address in loopbacks() {
        let mut job = job(address, 3, |options| options);
        for body in 0..100u8 {
            send(&mut job[1], 0, &[1, body]);
            send(&mut job[2], 0, &[2, body]);
            send(&mut job[1], 2, &[3, body]);
        }
        for rank in [1, 2] {
            // Nothing is sent until the fragment handler permits it.
            assert_eq!(job[rank].socket().counters().sent, 0);
            while !job[rank].machine().queue.is_empty() {
                job[rank].flush(&mut Mailbox::default());
            }
        }
        let mut received = receive(&mut job[0], 200);
        received.sort();
        let expected: Vec<(Rank, Vec<u8>)> = (1..3u8)
            .flat_map(|rank| (0..100).map(move |body| (Rank::from(rank), vec![rank, body])))
            .collect();
        assert_eq!(received, expected);
        assert_eq!(receive(&mut job[2], 100).len(), 100);
        assert_eq!(job[0].machine().dropped, 0);
    }
}

#[test]
fn a_fragment_from_outside_of_the_job_is_dropped() {
    let address = loopbacks()[0];
    let mut job = job(address, 2, |options| options);
    let outsider = std::net::UdpSocket::bind((address, 0)).unwrap();
    let to = job[0].socket().address();
    for length in [0, 1, 15, 16, 31, 32, 100] {
        outsider.send_to(&vec![1; length], to).unwrap();
    }
    send(&mut job[1], 0, b"from inside");
    job[1].flush(&mut Mailbox::default());
    assert_eq!(receive(&mut job[0], 1), [(1, b"from inside".to_vec())]);
    assert_eq!(job[0].foreign().datagrams, 7);
    // The sender named in the other datagrams is not a rank, which is detected before the protocol
    // gets them.
    assert_eq!(job[0].machine().dropped, 2);
}

/// Returns a packet that an outsider can make, which has a header, no body, and an invalid tag.
fn forged(sender: Rank, number: u64) -> [u8; HEADER + TAG] {
    let mut packet = [0; HEADER + TAG];
    packet[0] = 1 << 4;
    packet[4..8].copy_from_slice(&sender.to_le_bytes());
    packet[8..HEADER].copy_from_slice(&number.to_le_bytes());
    packet
}

/// Makes progress until this number of datagrams of outsiders has arrived.
fn drop_foreign(wire: &mut Driver<Endpoint, Sealer>, datagrams: u64) {
    let waiter = wire.waiter().unwrap();
    while wire.foreign().datagrams < datagrams {
        if !wire.progress(&mut Mailbox::default()) {
            assert!(waiter.wait(Some(Duration::from_secs(100))));
        }
    }
    assert_eq!(wire.foreign().datagrams, datagrams);
}

/// Sends a fragment from each of two ranks to the other, and receives both.
fn exchange([here, there]: &mut [Driver<Endpoint, Sealer>; 2]) {
    let mut mailboxes = [Mailbox::default(), Mailbox::default()];
    here.send(1, &copied(&[b"there"])).unwrap();
    there.send(0, &copied(&[b"back"])).unwrap();
    while mailboxes.iter().any(|mailbox| mailbox.0.is_empty()) {
        here.progress(&mut mailboxes[0]);
        there.progress(&mut mailboxes[1]);
    }
    assert_eq!(mailboxes[0].0, [(1, b"back".to_vec())]);
    assert_eq!(mailboxes[1].0, [(0, b"there".to_vec())]);
}

#[test]
fn a_datagram_that_seems_to_be_many_costs_one_tag() {
    for address in loopbacks() {
        let mut job = endpoints(address);
        let outsider = std::net::UdpSocket::bind((address, 0)).unwrap();
        let to = job[0].socket().address();
        let many: Vec<u8> = (0..2047).flat_map(|number| forged(1, number)).collect();
        outsider.send_to(&many, to).unwrap();
        drop_foreign(&mut job[0], 1);
        println!("tags: {}", job[0].machine().counters().bad_tag);
        assert_eq!(job[0].machine().counters().bad_tag, 1);
        // From here on, the length of the datagrams is known.
        outsider.send_to(&many, to).unwrap();
        drop_foreign(&mut job[0], 2);
        let counters = job[0].machine().counters();
        assert_eq!((counters.bad_tag, counters.malformed), (1, 1));
        assert_eq!(job[0].foreign().most(), Some((address, 1)));
        // The outsider has a peer's address, but the peer's packets are still accepted.
        exchange(&mut job);
        assert_eq!(job[0].foreign().by_source, 0);
    }
}

#[test]
fn who_is_not_where_the_rank_is_costs_no_tag() {
    let mut job = endpoints(loopbacks()[0]);
    let elsewhere = IpAddr::from([127, 0, 0, 2]);
    let outsider = std::net::UdpSocket::bind((elsewhere, 0)).unwrap();
    let to = job[0].socket().address();
    for round in 0..10 {
        for number in 0..100 {
            outsider.send_to(&forged(1, number), to).unwrap();
        }
        drop_foreign(&mut job[0], 100 * (round + 1));
        exchange(&mut job);
    }
    let foreign = *job[0].foreign();
    println!("tags: {}", job[0].machine().counters().bad_tag);
    // The first foreign datagram makes the wire check sources.
    assert_eq!(job[0].machine().counters().bad_tag, 1);
    assert_eq!(foreign.by_source, 999);
    assert_eq!(foreign.most(), Some((elsewhere, 999)));
    let text = foreign.to_string();
    assert!(text.ends_with("most of them from 127.0.0.2"), "{text}");
    assert_eq!(job[1].foreign().datagrams, 0);
}

#[test]
fn one_call_handles_a_bounded_number_and_says_that_more_is_there() {
    let address = loopbacks()[0];
    let mut job = job(address, 2, |options| Options {
        offload: false,
        ..options
    });
    let mut nobody = Mailbox::default();
    for _ in 0..150 {
        send(&mut job[1], 0, &[7; 1440]);
    }
    let mut flushes = 0;
    while !job[1].machine().queue.is_empty() {
        assert!(job[1].flush(&mut nobody));
        flushes += 1;
        assert!(job[1].socket().counters().send_calls <= 16 * flushes);
        if !job[1].machine().queue.is_empty() {
            assert_eq!(job[1].next_timeout(), Some(Duration::ZERO));
        }
    }
    let mut mailbox = Mailbox::default();
    let mut calls = 0;
    while mailbox.0.len() < 150 {
        let before = mailbox.0.len();
        job[0].progress(&mut mailbox);
        assert!(mailbox.0.len() - before <= 64);
        calls += 1;
        assert!(calls < 100_000, "{}", mailbox.0.len());
    }
}

#[test]
fn an_idle_wire_makes_one_system_call_and_has_nothing_due() {
    let address = loopbacks()[0];
    let mut job = job(address, 2, |options| options);
    let mut mailbox = Mailbox::default();
    for _ in 0..10 {
        assert!(!job[0].progress(&mut mailbox));
    }
    assert_eq!(job[0].socket().counters().send_calls, 0);
    assert_eq!(job[0].next_timeout(), None);
}

#[test]
fn what_is_due_is_done_when_it_is_due() {
    let address = loopbacks()[0];
    let mut job = job(address, 1, |options| options);
    let mut mailbox = Mailbox::default();
    job[0].machine_mut().timeout = Some(u64::MAX);
    job[0].progress(&mut mailbox);
    assert_eq!(job[0].machine().timeouts, 0);
    assert!(job[0].next_timeout().unwrap() > Duration::from_secs(1 << 30));
    job[0].machine_mut().timeout = Some(1);
    assert_eq!(job[0].next_timeout(), Some(Duration::ZERO));
    assert!(job[0].progress(&mut mailbox));
    assert_eq!(job[0].machine().timeouts, 1);
}

#[test]
fn packets_wait_where_the_system_has_no_room_for_them() {
    let address = loopbacks()[0];
    let mut job = job(address, 2, |options| options);
    let mut nobody = Mailbox::default();
    for body in 0..200u8 {
        send(&mut job[1], 0, &[body; 8]);
    }
    // The packets are made together and sent by several calls. The second call and the two after it
    // find no room.
    job[1].socket_mut().be_busy_for(3, 1);
    let mut calls = 0;
    while !job[1].machine().queue.is_empty() || job[1].next_timeout().is_some() {
        job[1].flush(&mut nobody);
        if let Some(due) = job[1].next_timeout() {
            assert!(due <= Duration::from_millis(1));
            job[1].wait(None);
        }
        calls += 1;
        assert!(calls < 1000);
    }
    assert_eq!(job[1].socket().counters().busy, 3);
    let received = receive(&mut job[0], 200);
    for (body, fragment) in (0..).zip(received) {
        assert_eq!(fragment, (1, vec![body; 8]));
    }
}

#[test]
fn reports_go_to_the_peer_they_are_about() {
    let address = loopbacks()[0];
    let mut job = job(address, 3, |options| options);
    let gone = job.pop().unwrap();
    drop(gone);
    let mut nobody = Mailbox::default();
    send(&mut job[0], 2, b"to a rank that left");
    send(&mut job[0], 1, b"to a rank that is present");
    job[0].flush(&mut nobody);
    job[0].progress(&mut nobody);
    let errors = job[0].peers().errors(2).unwrap();
    assert_eq!((errors.count, errors.errno), (1, libc::ECONNREFUSED));
    assert_eq!(job[0].peers().errors(1), None);
    assert_eq!(receive(&mut job[1], 1).len(), 1);
}

#[test]
fn faults_lose_double_change_and_delay_what_has_come() {
    let mut job = job(loopbacks()[0], 2, |options| options);
    let faults = FaultConfig {
        seed: 5,
        loss: Percent::of(10),
        duplicates: Percent::of(20),
        corruption: Percent::of(10),
        reorder: Percent::of(30),
        delay: 1_000_000,
    };
    assert!(job[0].faults().is_none());
    job[0].inject_faults(0, &faults);
    for body in 0..200u8 {
        send(&mut job[1], 0, &[body]);
    }
    while job[1].flush(&mut Mailbox::default()) {}
    let mut mailbox = Mailbox::default();
    while job[0].faults().unwrap().packets < 200 || job[0].next_timeout().is_some() {
        // The wire knows the time at which a held packet is due.
        job[0].wait(Some(Duration::from_secs(100)));
        job[0].receive(&mut mailbox);
    }
    let counts = *job[0].faults().unwrap();
    let arrived = counts.packets - counts.lost - counts.corrupted + counts.duplicated;
    assert_eq!(mailbox.0.len() as u64, arrived, "{counts:?}");
    assert_eq!(job[0].machine().dropped, counts.corrupted);
    assert!(counts.lost > 0 && counts.reordered > 0 && counts.overflowed == 0);
    assert!(!mailbox.0.is_sorted_by_key(|(_, body)| body[0]));
}
