//! Addresses of processes. An address consists of the host and the name of a socket on that host.
//!
//! ```text
//! host: u64, little-endian | user id, '.', name
//! ```
//!
//! The text form is `<host in hexadecimal>/<user>.<name>`. The socket's name is
//! `conduit-na.<user>.<name>` in the abstract namespace, in which a socket leaves nothing behind.

use conduit_portals::transport::open::{ConnectError, MAX_ADDRESS};

/// The prefix of a socket's name in the abstract namespace.
const PREFIX: &[u8] = b"conduit-na.";
/// The number of bytes that identify the host.
const HOST: usize = 8;
/// The maximum number of bytes behind the first [`HOST`] bytes, limited by the length of a socket's
/// name.
const MAX_SOCKET: usize = 107 - PREFIX.len();

const _: () = assert!(HOST + MAX_SOCKET <= MAX_ADDRESS);

/// Returns the address of a process.
pub(super) fn encode(host: u64, user: u32, name: &str) -> Box<[u8]> {
    let socket = format!("{user}.{name}");
    [&host.to_le_bytes()[..], socket.as_bytes()].concat().into()
}

/// Checks an address. Returns the host, and the name that identifies the socket on that host.
pub(super) fn decode(address: &[u8]) -> Result<(u64, &str), ConnectError> {
    let wrong = ConnectError::Malformed;
    let (host, socket) = address
        .split_first_chunk::<HOST>()
        .ok_or(wrong("it has fewer than eight bytes"))?;
    if socket.is_empty() || socket.len() > MAX_SOCKET {
        return Err(wrong("its name is not 1 to 96 bytes long"));
    }
    let is_named = |byte: &u8| byte.is_ascii_graphic() && !b"+/".contains(byte);
    match std::str::from_utf8(socket) {
        Ok(socket) if socket.as_bytes().iter().all(is_named) => {
            Ok((u64::from_le_bytes(*host), socket))
        }
        _ => Err(wrong("its name contains invalid characters")),
    }
}

/// Returns the socket name of an address, which must have been checked.
pub(super) fn socket_name(address: &[u8]) -> Vec<u8> {
    [PREFIX, address.get(HOST..).unwrap_or_default()].concat()
}

pub(super) fn to_text(address: &[u8]) -> Option<String> {
    let (host, socket) = decode(address).ok()?;
    Some(format!("{host:016x}/{socket}"))
}

pub(super) fn of_text(text: &str) -> Result<Vec<u8>, ConnectError> {
    let wrong = ConnectError::Malformed;
    let (host, socket) = text
        .split_once('/')
        .ok_or(wrong("it has no '/' behind the host"))?;
    let is_host = host.len() == 2 * HOST && host.bytes().all(|byte| byte.is_ascii_hexdigit());
    let host = (is_host.then(|| u64::from_str_radix(host, 16).ok()))
        .flatten()
        .ok_or(wrong("its host is not 16 hexadecimal digits"))?;
    let address = [&host.to_le_bytes()[..], socket.as_bytes()].concat();
    decode(&address)?;
    Ok(address)
}

#[cfg(test)]
mod tests {
    use conduit_portals::host::host;

    use super::*;

    #[test]
    fn an_address_survives_as_text() {
        let address = encode(host().unwrap(), 1000, "a-name_1.x");
        let text = to_text(&address).unwrap();
        assert!(text.ends_with("/1000.a-name_1.x"), "{text}");
        assert_eq!(of_text(&text).unwrap(), &*address);
        assert_eq!(socket_name(&address), b"conduit-na.1000.a-name_1.x");
        assert_eq!(host().unwrap(), host().unwrap());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "/",
            "abc",
            "12/a",
            "0123456789abcdeg/a",
            "+123456789abcdef/a",
        ] {
            assert!(of_text(text).is_err(), "{text}");
        }
        for socket in ["", "a b", "a+b", "a/b", "ä", "a\0", &"a".repeat(97)] {
            assert!(
                of_text(&format!("0123456789abcdef/{socket}")).is_err(),
                "{socket}"
            );
            assert!(decode(&[&[0; 8], socket.as_bytes()].concat()).is_err());
        }
        assert!(of_text(&format!("0123456789abcdef/{}", "a".repeat(96))).is_ok());
        for bytes in [&[][..], &[0; 8], &[0xff; 300]] {
            assert!(decode(bytes).is_err() && to_text(bytes).is_none());
        }
    }
}
