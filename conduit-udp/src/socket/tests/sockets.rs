use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use super::{loopbacks, open, options};
use crate::socket::{Batch, Options, Sent, Socket, SocketError, largest_payload};

/// Receives until `count` datagrams have arrived, and returns all of them. Loopback loses no
/// datagrams that fit in the buffers.
fn receive(socket: &mut Socket, batch: &mut Batch, count: usize) -> Vec<Vec<u8>> {
    let waiter = socket.waiter().unwrap();
    let mut all = Vec::new();
    while all.len() < count {
        if !socket.receive(batch) {
            assert!(
                waiter.wait(Some(Duration::from_secs(100))),
                "only {} of {count} datagrams arrived",
                all.len()
            );
            continue;
        }
        while let Some(datagram) = batch.next_datagram() {
            all.push(datagram.to_vec());
        }
        assert!(batch.is_empty());
    }
    assert!(!socket.receive(batch));
    all
}

/// Returns `count` consecutive packets of `segment` bytes, except for the last, which has `last`
/// bytes.
fn packets(count: usize, segment: usize, last: usize) -> Vec<u8> {
    (0..(count - 1) * segment + last)
        .map(|at| (at * 31 + at / 251) as u8)
        .collect()
}

#[test]
fn a_burst_arrives_as_the_datagrams_it_was_made_of() {
    for address in loopbacks() {
        for (offload_here, offload_there) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let mut from = open(&Options {
                offload: offload_here,
                ..options(address)
            });
            let mut to = open(&Options {
                offload: offload_there,
                ..options(address)
            });
            let mut batch = Batch::new();
            for (count, segment, last) in [
                (1, 64, 64),
                (2, 64, 1),
                (44, 1472, 1472),
                (44, 1448, 7),
                (64, 100, 100),
                (130, 100, 99),
                (7, 8972, 8972),
                (3, 65_488, 65_488),
                (1, 65_488, 65_488),
            ] {
                let sent = packets(count, segment, last);
                assert_eq!(from.send(&to.address(), &sent, segment), Sent::All);
                let received = receive(&mut to, &mut batch, count);
                let expected: Vec<Vec<u8>> = sent.chunks(segment).map(<[u8]>::to_vec).collect();
                assert_eq!(received, expected, "{address} {count} {segment} {last}");
            }
            assert_eq!(from.counters().sent, to.counters().received);
            assert_eq!(from.counters().sent_bytes, to.counters().received_bytes);
            assert_eq!(from.counters().offload_lost, 0);
            if !from.offload() {
                assert_eq!(from.counters().send_calls, from.counters().sent);
            } else {
                assert!(from.counters().send_calls < from.counters().sent / 4);
            }
        }
    }
}

#[test]
fn many_small_datagrams_are_received_by_few_calls() {
    let address = loopbacks()[0];
    let mut from = open(&Options {
        offload: false,
        ..options(address)
    });
    let mut to = open(&Options {
        offload: false,
        ..options(address)
    });
    let mut batch = Batch::new();
    for round in 0..4u8 {
        for i in 0..100 {
            from.send(&to.address(), &[round, i], 2);
        }
        let received = receive(&mut to, &mut batch, 100);
        for (i, datagram) in received.iter().enumerate() {
            assert_eq!(*datagram, [round, i as u8]);
        }
    }
    let calls = to.counters().receive_calls;
    assert!(calls <= 4 * (1 + 2 + 4 + 8 + 6), "{calls}");
}

#[test]
fn empty_datagrams_are_datagrams() {
    let address = loopbacks()[0];
    let mut to = open(&options(address));
    let from = UdpSocket::bind((address, 0)).unwrap();
    for bytes in [&[][..], &[1], &[], &[]] {
        from.send_to(bytes, to.address()).unwrap();
    }
    let received = receive(&mut to, &mut Batch::new(), 4);
    assert_eq!(received, [&[][..], &[1], &[], &[]]);
}

#[test]
fn what_is_too_large_is_lost_and_counted() {
    for address in loopbacks() {
        let mut from = open(&options(address));
        let mut to = open(&options(address));
        let large = vec![1; 70_000];
        assert_eq!(from.send(&to.address(), &large, 70_000), Sent::All);
        assert_eq!(from.counters().too_large, 1);
        // A joined send has the same result as single sends, and the packets that fit are sent.
        assert_eq!(from.send(&to.address(), &large, 66_000), Sent::All);
        assert_eq!(from.counters().too_large, 2);
        let received = receive(&mut to, &mut Batch::new(), 1);
        assert_eq!(received[0].len(), 4000);
        let (whom, errno, _) = from.next_report().unwrap();
        assert_eq!((whom, errno), (to.address(), libc::EMSGSIZE));
        assert!(from.offload(), "offload is not to blame");
    }
}

#[test]
fn a_port_without_a_socket_is_reported_and_nothing_else_suffers() {
    for address in loopbacks() {
        let mut here = open(&options(address));
        let mut there = open(&options(address));
        let gone = open(&options(address)).address();
        let mut batch = Batch::new();
        for _ in 0..3 {
            here.send(&gone, &[1], 1);
            // The report on the previous packet must not cause the loss of this one.
            here.send(&there.address(), &[2], 1);
            there.send(&here.address(), &[3], 1);
            assert_eq!(receive(&mut there, &mut batch, 1), [[2]]);
            assert_eq!(receive(&mut here, &mut batch, 1), [[3]]);
        }
        here.take_reports();
        let mut count = 0;
        while let Some((to, errno, from)) = here.next_report() {
            assert_eq!((to, errno), (gone, libc::ECONNREFUSED));
            assert_eq!(from, Some(address));
            count += 1;
        }
        assert_eq!(count, 3);
        assert_eq!(here.counters().reports, 3);
        assert_eq!(here.counters().refused, 0);
        assert_eq!(here.counters().receive_errors, 0);
    }
}

#[test]
fn a_report_ends_one_wait_only() {
    let address = loopbacks()[0];
    let mut here = open(&options(address));
    let gone = open(&options(address)).address();
    let waiter = here.waiter().unwrap();
    here.send(&gone, &[1], 1);
    assert!(waiter.wait(Some(Duration::from_secs(100))));
    assert!(!here.receive(&mut Batch::new()));
    assert!(!waiter.wait(Some(Duration::ZERO)));
    assert_eq!(here.counters().reports, 1);
    // This report comes from this host itself and makes no call fail.
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendto(&here, &[0; 65_520], flags, &gone).unwrap_err();
    assert!(waiter.wait(Some(Duration::from_secs(100))));
    assert!(!here.receive(&mut Batch::new()));
    assert!(!waiter.wait(Some(Duration::ZERO)));
    assert_eq!(here.counters().reports, 2);
}

#[test]
fn buffers_are_what_was_asked_for_or_there_is_a_warning() {
    let address = loopbacks()[0];
    let small = open(&Options {
        send_buffer: 64 << 10,
        receive_buffer: 64 << 10,
        ..options(address)
    });
    assert!(small.buffers().receive >= 64 << 10);
    assert_eq!(small.buffers().warning(), None);
    let mut buffers = *small.buffers();
    buffers.receive_wanted = 1 << 30;
    let warning = buffers.warning().unwrap();
    assert!(warning.contains("receive buffer") && warning.contains("net.core.rmem_max"));
    assert!(!warning.contains("send"), "{warning}");
}

#[test]
fn payloads_are_what_the_headers_leave() {
    let v4: IpAddr = "10.0.0.1".parse().unwrap();
    let v6: IpAddr = "fd00::1".parse().unwrap();
    assert_eq!(largest_payload(v4, 1500), 1472);
    assert_eq!(largest_payload(v6, 1500), 1452);
    assert_eq!(largest_payload(v4, 9000), 8972);
    assert_eq!(largest_payload(v4, 65_536), 65_507);
    assert_eq!(largest_payload(v6, 65_536), 65_488);
    assert_eq!(largest_payload(v4, usize::MAX), 65_507);
    assert_eq!(largest_payload(v4, 20), 0);
}

#[test]
fn sockets_take_ports_of_the_range() {
    let address = loopbacks()[0];
    // The port that the system chooses is free, and usually so are its neighbours.
    let (ports, first) = loop {
        let port = open(&options(address)).address().port();
        let Some(last) = port.checked_add(2) else {
            continue;
        };
        let options = Options {
            ports: port..=last,
            ..options(address)
        };
        let sockets: Vec<_> = (0..3).map_while(|_| Socket::open(&options).ok()).collect();
        if sockets.len() == 3 {
            break (options, sockets);
        }
    };
    let mut taken: Vec<_> = first.iter().map(|socket| socket.address().port()).collect();
    taken.sort_unstable();
    assert_eq!(taken, ports.ports.clone().collect::<Vec<_>>());
    let error = Socket::open(&ports).unwrap_err().to_string();
    assert!(error.contains("are in use (CONDUIT_UDP_PORTS)"), "{error}");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let address = loopbacks()[0];
    let taken = open(&options(address)).address();
    let first = open(&Options {
        ports: taken.port()..=taken.port(),
        ..options(address)
    });
    let error = Socket::open(&Options {
        ports: first.address().port()..=first.address().port(),
        ..options(address)
    })
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot bind a socket for UDP at 127.0.0.1:"),
        "{error}"
    );
    let error = Socket::open(&Options {
        mtu: Some(576),
        ..options(address)
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MTU of 576 bytes at 127.0.0.1:0 leaves 548 bytes for a packet; at least 1024 are required"
    );
    let error = Socket::open(&Options {
        mtu: None,
        ..options(address)
    })
    .unwrap_err();
    assert!(
        matches!(error, SocketError::Mtu(SocketAddr::V4(_))),
        "{error}"
    );
    // The address is not assigned, because it is reserved for documentation.
    let error = Socket::open(&options("192.0.2.1".parse().unwrap())).unwrap_err();
    assert!(matches!(error, SocketError::System { .. }), "{error}");
}
