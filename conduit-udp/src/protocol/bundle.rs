//! Bundles, each of which consists of tiny fragments in one segment of the command channel.
//!
//! An entry is `header's length 1 | payload's length 2 | header | payload` (lengths in bytes,
//! little-endian). A byte [`END`] in place of a header's length ends the bundle. Padding follows,
//! so that packets sent together have the same length.

use super::contract::{MAX_HEADER, MAX_TINY};
use super::packet::Reader;

/// The number of bytes of a tiny fragment on the wire before its header.
pub(super) const ENTRY: usize = 3;
/// The byte that ends a bundle. Padding follows it.
pub(super) const END: u8 = 0xff;

/// Iterates over the header and payload of each fragment of a received bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bundle<'a>(Reader<'a>);

impl<'a> Bundle<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(Reader(bytes))
    }
}

impl<'a> Iterator for Bundle<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.0.0.first(), None | Some(&END)) {
            return None;
        }
        let entry = (|| {
            let (header, payload) = (usize::from(self.0.u8()?), usize::from(self.0.u16()?));
            if header > MAX_HEADER || header + payload > MAX_TINY {
                return None;
            }
            Some((self.0.bytes(header)?, self.0.bytes(payload)?))
        })();
        Some(entry.ok_or_else(|| {
            self.0.0 = &[];
            "a bundle entry with wrong lengths"
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(header: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![header.len() as u8];
        bytes.extend((payload.len() as u16).to_le_bytes());
        bytes.extend(header);
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn fragments_up_to_the_end_come_back() {
        let mut bytes = entry(b"head", b"payload");
        bytes.extend(entry(b"", b""));
        bytes.extend([END, 1, 2, 3]);
        let all: Vec<_> = Bundle::new(&bytes).collect();
        assert_eq!(
            all,
            [
                Ok((&b"head"[..], &b"payload"[..])),
                Ok((&b""[..], &b""[..]))
            ]
        );
    }

    #[test]
    fn a_fragment_cut_short_ends_the_bundle_with_an_error() {
        let bytes = entry(b"head", b"payload");
        for length in 1..bytes.len() {
            let all: Vec<_> = Bundle::new(&bytes[..length]).collect();
            assert_eq!(all, [Err("a bundle entry with wrong lengths")], "{length}");
        }
        assert!(
            Bundle::new(&entry(&[0; 65], b""))
                .next()
                .is_some_and(|entry| entry.is_err())
        );
        assert!(
            Bundle::new(&entry(b"", &[0; 769]))
                .next()
                .is_some_and(|entry| entry.is_err())
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut read = 0;
            for entry in Bundle::new(&bytes).flatten() {
                read += ENTRY + entry.0.len() + entry.1.len();
            }
            prop_assert!(read <= bytes.len());
        }
    }
}
