mod addresses;
mod interfaces;
mod sockets;
mod wires;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Options, Socket};

/// Returns the loopback addresses of this host. Prints a note if IPv6 is missing.
fn loopbacks() -> Vec<IpAddr> {
    let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if std::net::UdpSocket::bind((v6, 0)).is_ok() {
        vec![v4, v6]
    } else {
        println!("skipped for IPv6: this host has no ::1");
        vec![v4]
    }
}

fn options(address: IpAddr) -> Options {
    Options {
        address,
        scope: 0,
        ports: Options::ANY_PORT,
        mtu: Some(1 << 16),
        send_buffer: 1 << 20,
        receive_buffer: 8 << 20,
        offload: true,
    }
}

fn open(options: &Options) -> Socket {
    Socket::open(options).unwrap()
}
