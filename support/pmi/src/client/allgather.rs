//! Allgather of blobs, implemented with puts, one barrier and gets.
//!
//! A blob is encoded as hex digits (PMI values are text without blanks), preceded by its length in
//! 8 hex digits, and split into values. The key of a value is `<tag>.<allgather>.<rank>.<part>`,
//! with numbers in hex. The number of the allgather keeps keys unique when a tag is reused. Because
//! keys contain the tag, ranks that disagree about which allgather this is get an error.

use std::time::Instant;

use super::{Connection, Error, Request};

/// The maximum number of bytes that one rank may contribute to an allgather.
pub const MAX_BLOB: usize = 1 << 20;
/// The maximum length of a tag in bytes.
pub const MAX_TAG: usize = 24;

/// The number of hex digits of the length that precedes the blob.
const LENGTH_DIGITS: usize = 8;

impl Connection {
    /// Sends `bytes` to all ranks and returns the bytes of all ranks, by rank. This is a collective
    /// call: all ranks must call it with the same tag, and all must call allgathers and barriers in
    /// the same order. Sizes may differ between ranks. A tag names the purpose of the allgather and
    /// may be reused. It consists of 1 to [`MAX_TAG`] ASCII letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// Returns an error if the tag is bad, if there are more than [`MAX_BLOB`] bytes, if ranks
    /// disagree on the tag, if the launcher's key-value space is full, or if the connection fails.
    /// The time limit covers the whole call.
    pub fn allgather(&mut self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let bad = |what| Error::Allgather {
            rank: self.rank(),
            tag: tag.to_owned(),
            what,
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if tag.is_empty() || tag.len() > MAX_TAG || !tag.chars().all(word) {
            return Err(bad("a tag is 1 to 24 letters, digits, '-' and '_'"));
        }
        if bytes.len() > MAX_BLOB {
            return Err(bad("more than 1 MiB from one rank"));
        }
        let part = self.longest_value();
        if part < LENGTH_DIGITS {
            return Err(bad("the launcher does not accept values of 8 bytes"));
        }

        let deadline = self.deadline();
        let number = self.allgathers;
        self.allgathers += 1;
        let digits = encode(bytes);
        let parts = digits.as_bytes().chunks(part);
        for (index, value) in parts
            .map(|part| std::str::from_utf8(part).unwrap_or_default())
            .enumerate()
        {
            let key = key(tag, number, self.rank(), index);
            self.call(Request::Put { key: &key, value }, deadline)?;
        }
        self.call(Request::Barrier, deadline)?;

        let mut blobs = Vec::with_capacity(self.size());
        for peer in 0..self.size() {
            let blob = if peer == self.rank() {
                bytes.to_vec()
            } else {
                self.fetch(tag, number, peer, deadline)?
            };
            blobs.push(blob);
        }
        Ok(blobs)
    }

    fn fetch(
        &mut self,
        tag: &str,
        number: u64,
        peer: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<u8>, Error> {
        let broken = |rank| Error::Peer {
            rank,
            tag: tag.to_owned(),
            peer,
        };
        let mut digits = self.get_by(&key(tag, number, peer, 0), deadline)?;
        let length = announced(&digits).ok_or_else(|| broken(self.rank()))?;
        let mut index = 1;
        while digits.len() < LENGTH_DIGITS + 2 * length {
            let more = self.get_by(&key(tag, number, peer, index), deadline)?;
            if more.is_empty() {
                return Err(broken(self.rank()));
            }
            digits.push_str(&more);
            index += 1;
        }
        decode(&digits, length).ok_or_else(|| broken(self.rank()))
    }
}

fn key(tag: &str, number: u64, rank: usize, part: usize) -> String {
    format!("{tag}.{number:x}.{rank:x}.{part:x}")
}

fn encode(bytes: &[u8]) -> String {
    format!("{:0LENGTH_DIGITS$x}{}", bytes.len(), hex::encode(bytes))
}

/// Returns the length that the first part of a peer's blob announces, if it is valid.
fn announced(digits: &str) -> Option<usize> {
    let length = usize::from_str_radix(digits.get(..LENGTH_DIGITS)?, 16).ok()?;
    (length <= MAX_BLOB).then_some(length)
}

fn decode(digits: &str, length: usize) -> Option<Vec<u8>> {
    let bytes = hex::decode(digits.as_bytes().get(LENGTH_DIGITS..)?).ok()?;
    (bytes.len() == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_key_fits() {
        let key = key(
            &"t".repeat(MAX_TAG),
            u64::from(u32::MAX),
            0xff_ffff,
            2 * MAX_BLOB / 8,
        );
        assert!(key.len() < crate::wire::MAX_KEY, "{key}");
    }

    #[test]
    fn what_is_no_blob_is_refused() {
        assert_eq!(announced("0000"), None);
        assert_eq!(announced("0000000g"), None);
        assert_eq!(announced("ffffffff"), None);
        assert_eq!(announced("00000é00"), None);
        assert_eq!(decode("0000000100", 1), Some(vec![0]));
        assert_eq!(decode("000000010", 1), None);
        assert_eq!(decode("00000001zz", 1), None);
    }

    proptest! {
        #[test]
        fn blobs_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let digits = encode(&bytes);
            prop_assert_eq!(announced(&digits), Some(bytes.len()));
            prop_assert_eq!(decode(&digits, bytes.len()), Some(bytes));
        }

        #[test]
        fn garbage_never_panics(digits in ".{0,40}", length in 0usize..20) {
            let _ = (announced(&digits), decode(&digits, length));
        }
    }
}
