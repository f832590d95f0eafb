use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use crate::socket::{AddressError, Peers, UdpAddress};

fn udp_address(ip: &str, port: u16) -> UdpAddress {
    UdpAddress {
        ip: ip.parse().unwrap(),
        port,
        packet: 1472,
        incarnation: 7,
    }
}

fn udp_addresses() -> impl Strategy<Value = UdpAddress> {
    let v4 = any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    let address = prop_oneof![v4, v6].prop_filter("a unicast address", |address| {
        !address.is_unspecified() && !address.is_multicast()
    });
    (address, 1u16.., 1u32..=0xffff, any::<u64>()).prop_map(|(ip, port, packet, incarnation)| {
        UdpAddress {
            ip,
            port,
            packet,
            incarnation,
        }
    })
}

proptest! {
    #[test]
    fn an_address_comes_back(address in udp_addresses()) {
        prop_assert_eq!(UdpAddress::decode(&address.encode()), Ok(address));
    }

    #[test]
    fn anything_is_an_address_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..48)) {
        if let Ok(address) = UdpAddress::decode(&bytes) {
            prop_assert_eq!(address.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn a_changed_address_is_another_or_an_error(address in udp_addresses(), at in 0..UdpAddress::BYTES, byte in any::<u8>()) {
        let mut bytes = address.encode();
        bytes[at] = byte;
        if let Ok(other) = UdpAddress::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn peers_are_where_their_addresses_say_and_found_there(all in prop::collection::vec(udp_addresses(), 1..40)) {
        let peers = Peers::new(&all, 3);
        for (rank, udp) in all.iter().enumerate() {
            let address = peers.address(rank as u32);
            prop_assert_eq!(address.port(), udp.port);
            // An IPv4 address that is mapped to IPv6 becomes the IPv4 address.
            prop_assert_eq!(address.ip(), udp.ip.to_canonical());
            let found = peers.find(address).unwrap();
            prop_assert_eq!(peers.address(found), address);
            prop_assert!(found <= rank as u32);
        }
        prop_assert_eq!(peers.packet(), all.iter().map(|address| address.packet).min().unwrap() as usize);
    }
}

#[test]
fn errors_say_what_is_wrong_with_an_address() {
    let good = udp_address("10.0.0.1", 4000).encode();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        UdpAddress::decode(&bytes)
    };
    assert!(UdpAddress::decode(&good).is_ok());
    assert_eq!(
        UdpAddress::decode(&good[..31]),
        Err(AddressError::Length(31))
    );
    assert_eq!(UdpAddress::decode(&[]), Err(AddressError::Length(0)));
    assert_eq!(with(0, 1), Err(AddressError::Version(1)));
    assert_eq!(with(1, 5), Err(AddressError::Field("address family")));
    assert_eq!(with(31, 1), Err(AddressError::Field("address family")));
    assert_eq!(with(6, 1), Err(AddressError::Field("packet size")));
    assert_eq!(with(16, 224), Err(AddressError::Field("address")));
    let nowhere = UdpAddress {
        port: 0,
        ..udp_address("10.0.0.1", 1)
    };
    assert_eq!(
        UdpAddress::decode(&nowhere.encode()),
        Err(AddressError::Field("port"))
    );
    assert_eq!(
        AddressError::Length(3).to_string(),
        "its address has 3 bytes instead of 32"
    );
}

#[test]
fn link_local_peers_are_reached_through_the_own_interface() {
    let peers = Peers::new(&[udp_address("fe80::7", 9), udp_address("fd00::7", 9)], 12);
    let SocketAddr::V6(local) = peers.address(0) else {
        panic!("an IPv6 address")
    };
    assert_eq!(local.scope_id(), 12);
    assert_eq!(peers.address(1), "[fd00::7]:9".parse().unwrap());
}

#[test]
fn ranks_of_the_other_family_are_found() {
    let mixed = [
        udp_address("10.0.0.1", 1),
        udp_address("10.0.0.2", 1),
        udp_address("fd00::1", 1),
    ];
    let peers = Peers::new(&mixed, 0);
    assert_eq!(peers.other_family(0), Some(2));
    assert_eq!(peers.other_family(2), Some(0));
    assert_eq!(Peers::new(&mixed[..2], 0).other_family(0), None);
}

#[test]
fn reports_on_a_peer_are_counted_and_told() {
    let mut peers = Peers::new(&[udp_address("10.0.0.1", 1), udp_address("10.0.0.2", 1)], 0);
    assert_eq!(peers.errors(1), None);
    peers.note(1, libc::EHOSTUNREACH, Some("10.0.0.9".parse().unwrap()));
    peers.note(1, libc::ECONNREFUSED, None);
    let errors = *peers.errors(1).unwrap();
    assert_eq!((errors.count, errors.errno), (2, libc::ECONNREFUSED));
    assert_eq!(
        errors.to_string(),
        "this host reported Connection refused (os error 111) (2 times in all)"
    );
    peers.note(1, libc::EBADF, None);
    let text = peers.errors(1).unwrap().to_string();
    assert!(
        text.starts_with("the program of this rank closed its socket"),
        "{text}"
    );
    assert_eq!(peers.errors(0), None);
    assert_eq!(peers.find("10.0.0.2:2".parse().unwrap()), None);
    assert_eq!(peers.find("10.0.0.2:1".parse().unwrap()), Some(1));
}
