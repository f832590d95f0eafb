use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use crate::socket::{Card, CardError, Peers};

fn card(address: &str, port: u16) -> Card {
    Card {
        address: address.parse().unwrap(),
        port,
        packet: 1472,
        incarnation: 7,
    }
}

fn cards() -> impl Strategy<Value = Card> {
    let v4 = any::<[u8; 4]>().prop_map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
    let v6 = any::<[u8; 16]>().prop_map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
    let address = prop_oneof![v4, v6].prop_filter("somebody's address", |address| {
        !address.is_unspecified() && !address.is_multicast()
    });
    (address, 1u16.., 1u32..=0xffff, any::<u64>()).prop_map(
        |(address, port, packet, incarnation)| Card {
            address,
            port,
            packet,
            incarnation,
        },
    )
}

proptest! {
    #[test]
    fn a_card_comes_back(card in cards()) {
        prop_assert_eq!(Card::decode(&card.encode()), Ok(card));
    }

    #[test]
    fn anything_is_a_card_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..48)) {
        if let Ok(card) = Card::decode(&bytes) {
            prop_assert_eq!(card.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn a_changed_card_is_another_or_an_error(card in cards(), at in 0..Card::BYTES, byte in any::<u8>()) {
        let mut bytes = card.encode();
        bytes[at] = byte;
        if let Ok(other) = Card::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
        }
    }

    #[test]
    fn peers_are_where_their_cards_say_and_found_there(all in prop::collection::vec(cards(), 1..40)) {
        let peers = Peers::new(&all, 3);
        for (rank, card) in all.iter().enumerate() {
            let address = peers.address(rank as u32);
            prop_assert_eq!(address.port(), card.port);
            // An IPv4 address within IPv6 is the IPv4 address.
            prop_assert_eq!(address.ip(), card.address.to_canonical());
            let found = peers.find(address).unwrap();
            prop_assert_eq!(peers.address(found), address);
            prop_assert!(found <= rank as u32);
        }
        prop_assert_eq!(peers.packet(), all.iter().map(|card| card.packet).min().unwrap() as usize);
    }
}

#[test]
fn errors_say_what_is_wrong_with_a_card() {
    let good = card("10.0.0.1", 4000).encode();
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        Card::decode(&bytes)
    };
    assert!(Card::decode(&good).is_ok());
    assert_eq!(Card::decode(&good[..31]), Err(CardError::Length(31)));
    assert_eq!(Card::decode(&[]), Err(CardError::Length(0)));
    assert_eq!(with(0, 1), Err(CardError::Version(1)));
    assert_eq!(with(1, 5), Err(CardError::Field("address family")));
    assert_eq!(with(31, 1), Err(CardError::Field("address family")));
    assert_eq!(with(6, 1), Err(CardError::Field("packet size")));
    assert_eq!(with(16, 224), Err(CardError::Field("address")));
    let nowhere = Card {
        port: 0,
        ..card("10.0.0.1", 1)
    };
    assert_eq!(
        Card::decode(&nowhere.encode()),
        Err(CardError::Field("port"))
    );
    assert_eq!(
        CardError::Length(3).to_string(),
        "a card has 32 bytes, this one 3"
    );
}

#[test]
fn link_local_peers_are_reached_through_the_own_interface() {
    let peers = Peers::new(&[card("fe80::7", 9), card("fd00::7", 9)], 12);
    let SocketAddr::V6(local) = peers.address(0) else {
        panic!("an IPv6 address")
    };
    assert_eq!(local.scope_id(), 12);
    assert_eq!(peers.address(1), "[fd00::7]:9".parse().unwrap());
}

#[test]
fn ranks_of_the_other_family_are_found() {
    let mixed = [card("10.0.0.1", 1), card("10.0.0.2", 1), card("fd00::1", 1)];
    let peers = Peers::new(&mixed, 0);
    assert_eq!(peers.other_family(0), Some(2));
    assert_eq!(peers.other_family(2), Some(0));
    assert_eq!(Peers::new(&mixed[..2], 0).other_family(0), None);
}

#[test]
fn reports_on_a_peer_are_counted_and_told() {
    let mut peers = Peers::new(&[card("10.0.0.1", 1), card("10.0.0.2", 1)], 0);
    assert_eq!(peers.errors(1), None);
    peers.note(1, libc::EHOSTUNREACH, Some("10.0.0.9".parse().unwrap()));
    peers.note(1, libc::ECONNREFUSED, None);
    let errors = *peers.errors(1).unwrap();
    assert_eq!((errors.count, errors.errno), (2, libc::ECONNREFUSED));
    assert_eq!(
        errors.to_string(),
        "this host reported Connection refused (os error 111) (2 times in all)"
    );
    assert_eq!(peers.errors(0), None);
    assert_eq!(peers.find("10.0.0.2:2".parse().unwrap()), None);
    assert_eq!(peers.find("10.0.0.2:1".parse().unwrap()), Some(1));
}
