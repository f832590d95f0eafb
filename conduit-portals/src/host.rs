//! Determines which processes share a host, and which addresses belong to a subnet.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

/// Returns a number that identifies the host. The number depends on the boot id and on the network
/// namespace; the namespace counts because socket names are valid only within one.
///
/// # Errors
/// Returns the system's error if the boot id or the namespace can't be read.
pub fn host() -> io::Result<u64> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    // Metadata follows the link, so the inode is that of the namespace itself.
    let namespace = fs::metadata("/proc/self/ns/net")?;
    let numbers = [namespace.dev(), namespace.ino()].map(u64::to_le_bytes);
    let bytes = boot.trim().bytes().chain(numbers.into_iter().flatten());
    // The FNV-1a hash.
    Ok(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// A subnet: all addresses whose first bits equal those of a given address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    bits: u8,
}

impl Subnet {
    /// Creates the subnet of an address. `bits` is the part after the slash in `ADDRESS/BITS`; with
    /// `None`, the subnet contains only the address itself.
    pub fn parse(address: &str, bits: Option<&str>) -> Option<Self> {
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        (bits <= most).then_some(Self { address, bits })
    }

    /// Returns whether an address belongs to this subnet.
    pub fn contains(self, address: IpAddr) -> bool {
        // Converts an address to a 128-bit number whose highest bit is the address's first bit.
        let number = |address| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let differ = number(self.address) ^ number(address);
        let is_in = u32::from(self.bits) <= differ.leading_zeros();
        is_in && self.address.is_ipv4() == address.is_ipv4()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_the_first_bits_of_an_address() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (network, bits, inside, outside) in [
            ("10.1.0.0", "16", "10.1.2.3", "10.2.2.3"),
            ("0.0.0.0", "0", "1.2.3.4", "::1"),
            ("1.2.3.4", "32", "1.2.3.4", "1.2.3.5"),
            ("fe80::", "10", "fe80::1", "fe00::1"),
            ("::", "0", "fe80::1", "0.0.0.0"),
        ] {
            let subnet = Subnet::parse(network, Some(bits)).unwrap();
            assert!(subnet.contains(address(inside)), "{subnet:?}");
            assert!(!subnet.contains(address(outside)), "{subnet:?}");
        }
        let alone = Subnet::parse("1.2.3.4", None).unwrap();
        assert!(alone.contains(address("1.2.3.4")) && !alone.contains(address("1.2.3.5")));
        for (network, bits) in [("", "8"), ("10.0.0.0", "33"), ("x", "8"), ("1.2.3.4", "-1")] {
            assert_eq!(Subnet::parse(network, Some(bits)), None);
        }
    }
}
