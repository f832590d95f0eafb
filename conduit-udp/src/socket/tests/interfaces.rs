use std::net::IpAddr;

use crate::socket::{ChooseError, Interface, choose, default_source, interfaces};

fn interface(name: &str, address: &str, prefix: u8, up: bool) -> Interface {
    Interface {
        name: name.to_owned(),
        index: 1,
        address: address.parse().unwrap(),
        prefix,
        up,
        mtu: Some(1500),
        is_virtual: name.starts_with("docker"),
    }
}

/// Returns a host with IPv6 and two networks, one of which is down.
fn host() -> Vec<Interface> {
    vec![
        interface("lo", "127.0.0.1", 8, true),
        interface("lo", "::1", 128, true),
        interface("eth0", "fe80::1", 64, true),
        interface("eth0", "fd00::5", 64, true),
        interface("eth0", "10.0.0.5", 24, true),
        interface("eth1", "10.0.1.5", 24, true),
        interface("ib0", "10.0.2.5", 24, false),
    ]
}

#[track_caller]
fn chosen(words: &str, source: Option<&str>) -> String {
    let host = host();
    let source = source.map(|source| source.parse::<IpAddr>().unwrap());
    choose(&host, words, source).unwrap().address.to_string()
}

#[test]
fn without_words_it_is_the_one_towards_the_world_or_the_first_that_others_reach() {
    assert_eq!(chosen("", None), "10.0.0.5");
    assert_eq!(chosen(" , ", Some("10.0.1.5")), "10.0.1.5");
    assert_eq!(chosen("", Some("fd00::5")), "fd00::5");
    assert_eq!(chosen("", Some("10.0.2.5")), "10.0.0.5");
    let alone = &host()[..2];
    assert_eq!(choose(alone, "", None).unwrap().name, "lo");
    let v6 = &host()[1..4];
    assert_eq!(choose(v6, "", None).unwrap().address.to_string(), "fd00::5");
    assert_eq!(
        choose(&host()[1..3], "", None).unwrap().address.to_string(),
        "fe80::1"
    );
}

#[test]
fn virtual_interfaces_come_after_the_others() {
    let mut host = host();
    host.insert(2, interface("docker0", "172.17.0.1", 16, true));
    let chosen = |exist: &[Interface]| choose(exist, "", None).unwrap().name.clone();
    assert_eq!(chosen(&host), "eth0");
    assert_eq!(chosen(&host[..4]), "eth0");
    assert_eq!(chosen(&host[..3]), "docker0");
}

#[test]
fn words_are_names_addresses_and_subnets() {
    assert_eq!(chosen("eth1", None), "10.0.1.5");
    assert_eq!(chosen("eth0", None), "10.0.0.5");
    assert_eq!(chosen("10.0.1.5", None), "10.0.1.5");
    assert_eq!(chosen("10.0.1.0/24", None), "10.0.1.5");
    assert_eq!(chosen("10.0.1.77/24", None), "10.0.1.5");
    assert_eq!(chosen("10.0.1.4/31", None), "10.0.1.5");
    assert_eq!(chosen("fd00::/8", None), "fd00::5");
    assert_eq!(chosen("fe80::/10", None), "fe80::1");
    assert_eq!(chosen("::/0", None), "::1");
    assert_eq!(chosen("0.0.0.0/0", None), "127.0.0.1");
}

#[test]
fn the_first_word_that_fits_counts() {
    assert_eq!(chosen("eth1,eth0", None), "10.0.1.5");
    assert_eq!(chosen(" 172.16.0.0/12 , eth0 ", None), "10.0.0.5");
    assert_eq!(chosen("ib0,eth1", Some("10.0.0.5")), "10.0.1.5");
}

#[test]
fn errors_say_what_there_is() {
    let host = host();
    let all = "lo 127.0.0.1/8, lo ::1/128, eth0 fe80::1/64, eth0 fd00::5/64, eth0 10.0.0.5/24, eth1 10.0.1.5/24, \
               ib0 10.0.2.5/24 (down)";
    assert_eq!(
        choose(&host, "eth2", None).unwrap_err().to_string(),
        format!(
            "\"eth2\" is neither an interface of this host nor an address or a subnet such as 10.0.0.0/24; interfaces: {all}"
        )
    );
    assert_eq!(
        choose(&host, "ib0, 10.0.2.0/23", None)
            .unwrap_err()
            .to_string(),
        format!("no interface that is up matches \"ib0,10.0.2.0/23\"; interfaces: {all}")
    );
    assert_eq!(
        choose(&[], "", None).unwrap_err().to_string(),
        "no interface of this host is up; interfaces: none"
    );
    for word in [
        "10.0.0.0/33",
        "fd00::/129",
        "10.0.0/24",
        "10.0.0.0/",
        "/24",
        "10.0.0.0/-1",
        "eth0/24",
    ] {
        let error = choose(&host, word, None).unwrap_err();
        assert!(matches!(error, ChooseError::Word { .. }), "{word}: {error}");
    }
}

#[test]
fn a_subnet_of_one_family_has_no_address_of_the_other() {
    let host = [interface("lo", "::1", 128, true)];
    let error = choose(&host, "0.0.0.0/0", None).unwrap_err();
    assert!(matches!(error, ChooseError::None { .. }));
}

#[test]
fn this_host_has_interfaces_with_an_mtu() {
    let here = interfaces().unwrap();
    let local = here
        .iter()
        .find(|interface| interface.address.is_loopback());
    let Some(local) = local else {
        println!("skipped: this host has no loopback");
        return;
    };
    assert!(local.mtu.is_some_and(|mtu| mtu >= 1280), "{local:?}");
    assert!(choose(&here, &local.name, default_source()).is_ok());
}
