//! Bytes as the short texts that PMI-1 and PMI-2 can store.
//!
//! Bytes are encoded as hex digits (values are text without blanks), preceded by their number in 8
//! hex digits, and split into values. The key of a value is `<key>.<rank>.<part>`, with numbers in
//! hex.

use std::fmt::Display;

use crate::bootstrap::{BootstrapError, MAX_VALUE, check_put};

/// The number of hex digits of the length that precedes the bytes.
const LENGTH_DIGITS: usize = 8;

/// Stores bytes under a key of `rank` by storing values of at most `longest` characters.
pub(crate) fn put<E: Display>(
    rank: u32,
    key: &str,
    bytes: &[u8],
    longest: usize,
    mut store: impl FnMut(&str, &str) -> Result<(), E>,
) -> Result<(), BootstrapError> {
    check_put(rank, key, bytes)?;
    let error = |reason| BootstrapError {
        rank,
        operation: "put",
        reason,
    };
    if longest < LENGTH_DIGITS {
        return Err(error(
            "the launcher does not accept values of 8 bytes".to_owned(),
        ));
    }
    let digits = encode(bytes);
    for (part, value) in digits.as_bytes().chunks(longest).enumerate() {
        let value = str::from_utf8(value).unwrap_or_default();
        store(&name(key, rank, part), value).map_err(|failure| error(failure.to_string()))?;
    }
    Ok(())
}

/// Returns the bytes that `peer` has stored under a key, by loading values.
pub(crate) fn get<E: Display>(
    rank: u32,
    peer: u32,
    key: &str,
    mut load: impl FnMut(&str) -> Result<String, E>,
) -> Result<Vec<u8>, BootstrapError> {
    let error = |reason| BootstrapError {
        rank,
        operation: "get",
        reason,
    };
    let malformed = || {
        error(format!(
            "the data of rank {peer} under the key {key:?} is malformed"
        ))
    };
    let mut load = |part| {
        let value = load(&name(key, peer, part));
        value.map_err(|failure| error(failure.to_string()))
    };
    let mut digits = load(0)?;
    let length = announced(&digits).ok_or_else(malformed)?;
    let mut part = 1;
    while digits.len() < LENGTH_DIGITS + 2 * length {
        let more = load(part)?;
        if more.is_empty() {
            return Err(malformed());
        }
        digits.push_str(&more);
        part += 1;
    }
    decode(&digits, length).ok_or_else(malformed)
}

fn name(key: &str, rank: u32, part: usize) -> String {
    format!("{key}.{rank:x}.{part:x}")
}

fn encode(bytes: &[u8]) -> String {
    format!("{:0LENGTH_DIGITS$x}{}", bytes.len(), hex::encode(bytes))
}

/// Returns the length that the first part announces, if it is valid.
fn announced(digits: &str) -> Option<usize> {
    let length = usize::from_str_radix(digits.get(..LENGTH_DIGITS)?, 16).ok()?;
    (length <= MAX_VALUE).then_some(length)
}

fn decode(digits: &str, length: usize) -> Option<Vec<u8>> {
    let bytes = hex::decode(digits.as_bytes().get(LENGTH_DIGITS..)?).ok()?;
    (bytes.len() == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::MAX_KEY;
    use proptest::prelude::*;

    #[test]
    fn the_longest_key_fits() {
        let key = name(&"k".repeat(MAX_KEY), 0xff_ffff, 2 * MAX_VALUE / 8);
        assert!(key.len() < crate::wire::MAX_KEY, "{key}");
    }

    #[test]
    fn malformed_data_is_refused() {
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
        fn encoded_bytes_are_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
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
