//! The store's protocol as a state machine without I/O.

use std::collections::HashMap;

use super::super::protocol::{MAGIC, STOP_WAITING, operation};
use crate::bootstrap::MAX_VALUE;

/// The maximum number of bytes that all keys and values may have.
const MAX_BYTES: usize = 1 << 30;
/// The maximum length of a key.
const MAX_KEY: usize = 1024;
/// The maximum number of keys that a client may wait for in one request.
const MAX_KEYS: u64 = 1024;

/// The stored pairs.
#[derive(Debug, Default)]
pub(super) struct Store {
    pairs: HashMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Store {
    /// Stores a pair. Returns `false` if the store is full.
    fn set(&mut self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.bytes += key.len() + value.len();
        if let Some(old) = self.pairs.get(&key) {
            self.bytes -= key.len() + old.len();
        }
        self.pairs.insert(key, value);
        self.bytes <= MAX_BYTES
    }
}

/// A client's requests that have arrived but are not answered.
#[derive(Debug, Default)]
pub(super) struct Client {
    bytes: Vec<u8>,
}

impl Client {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Answers the requests that are complete, up to a wait for keys that do not exist yet. Returns
    /// `false` if the client violates the protocol, gets a key that does not exist, or the store is
    /// full.
    pub(super) fn answer(&mut self, store: &mut Store, replies: &mut Vec<u8>) -> bool {
        loop {
            let mut reader = Reader(&self.bytes);
            let rest = match reader.request(store, replies) {
                Outcome::Answered => reader.0.len(),
                Outcome::Pending => return true,
                Outcome::Refused => return false,
            };
            self.bytes.drain(..self.bytes.len() - rest);
        }
    }
}

enum Outcome {
    Answered,
    /// More bytes are needed, or a key does not exist yet.
    Pending,
    Refused,
}

/// Reads the arguments of a request.
struct Reader<'a>(&'a [u8]);

/// The reason why an argument cannot be read.
enum Short {
    Incomplete,
    TooLong,
}

impl<'a> Reader<'a> {
    fn request(&mut self, store: &mut Store, replies: &mut Vec<u8>) -> Outcome {
        match self.read_request(store, replies) {
            Ok(outcome) => outcome,
            Err(Short::Incomplete) => Outcome::Pending,
            Err(Short::TooLong) => Outcome::Refused,
        }
    }

    fn read_request(&mut self, store: &mut Store, replies: &mut Vec<u8>) -> Result<Outcome, Short> {
        let [kind] = self.array()?;
        match kind {
            operation::VALIDATE => {
                if u32::from_ne_bytes(self.array()?) != MAGIC {
                    return Ok(Outcome::Refused);
                }
            }
            operation::SET => {
                let (key, value) = (self.text(MAX_KEY)?, self.text(MAX_VALUE)?);
                if !store.set(key.to_vec(), value.to_vec()) {
                    return Ok(Outcome::Refused);
                }
            }
            operation::GET => {
                let Some(value) = store.pairs.get(self.text(MAX_KEY)?) else {
                    return Ok(Outcome::Refused);
                };
                replies.extend((value.len() as u64).to_ne_bytes());
                replies.extend(value);
            }
            operation::ADD => {
                let key = self.text(MAX_KEY)?.to_vec();
                let number = i64::from_ne_bytes(self.array()?);
                let old = store
                    .pairs
                    .get(&key)
                    .and_then(|old| str::from_utf8(old).ok());
                let old: i64 = old.and_then(|old| old.parse().ok()).unwrap_or(0);
                let sum = old.wrapping_add(number);
                // PyTorch stores numbers as text.
                if !store.set(key, sum.to_string().into_bytes()) {
                    return Ok(Outcome::Refused);
                }
                replies.extend(sum.to_ne_bytes());
            }
            operation::WAIT => {
                let keys = u64::from_ne_bytes(self.array()?);
                if keys > MAX_KEYS {
                    return Ok(Outcome::Refused);
                }
                let mut all_exist = true;
                for _ in 0..keys {
                    all_exist &= store.pairs.contains_key(self.text(MAX_KEY)?);
                }
                if !all_exist {
                    return Ok(Outcome::Pending);
                }
                replies.push(STOP_WAITING);
            }
            _ => return Ok(Outcome::Refused),
        }
        Ok(Outcome::Answered)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Short::Incomplete)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Reads bytes that are preceded by their length.
    fn text(&mut self, longest: usize) -> Result<&'a [u8], Short> {
        let length = u64::from_ne_bytes(self.array()?);
        let length = usize::try_from(length).map_err(|_| Short::TooLong)?;
        if length > longest {
            return Err(Short::TooLong);
        }
        let (text, rest) = self.0.split_at_checked(length).ok_or(Short::Incomplete)?;
        self.0 = rest;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u64).to_ne_bytes()[..], bytes].concat()
    }

    fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
        [vec![operation::SET], text(key), text(value)].concat()
    }

    fn get(key: &[u8]) -> Vec<u8> {
        [vec![operation::GET], text(key)].concat()
    }

    fn wait(key: &[u8]) -> Vec<u8> {
        [
            vec![operation::WAIT],
            1u64.to_ne_bytes().to_vec(),
            text(key),
        ]
        .concat()
    }

    fn add(key: &[u8], number: i64) -> Vec<u8> {
        [
            vec![operation::ADD],
            text(key),
            number.to_ne_bytes().to_vec(),
        ]
        .concat()
    }

    #[test]
    fn a_wait_ends_when_another_client_sets_the_key() {
        let mut store = Store::default();
        let (mut first, mut second) = (Client::default(), Client::default());
        let (mut to_first, mut to_second) = (Vec::new(), Vec::new());
        first.push(&[wait(b"k"), get(b"k")].concat());
        assert!(first.answer(&mut store, &mut to_first));
        assert!(to_first.is_empty());
        second.push(&set(b"k", b"value"));
        assert!(second.answer(&mut store, &mut to_second));
        assert!(first.answer(&mut store, &mut to_first));
        assert_eq!(to_first, [vec![STOP_WAITING], text(b"value")].concat());
        assert!(to_second.is_empty());
    }

    #[test]
    fn violations_are_refused() {
        let too_long = [vec![operation::GET], u64::MAX.to_ne_bytes().to_vec()].concat();
        for request in [vec![99], get(b"absent"), vec![0, 1, 2, 3, 4], too_long] {
            let mut client = Client::default();
            client.push(&request);
            assert!(
                !client.answer(&mut Store::default(), &mut Vec::new()),
                "{request:?}"
            );
        }
    }

    proptest! {
        /// However the bytes of a client's requests are cut, the replies are the same.
        #[test]
        fn requests_may_arrive_in_pieces(
            numbers in prop::collection::vec(-9i64..9, 1..20),
            cuts in prop::collection::vec(1usize..9, 1..99),
        ) {
            let mut bytes = vec![operation::VALIDATE];
            bytes.extend(MAGIC.to_ne_bytes());
            let (mut expected, mut sum) = (Vec::new(), 0);
            for number in numbers {
                sum += number;
                bytes.extend(add(b"n", number));
                bytes.extend(get(b"n"));
                expected.extend(sum.to_ne_bytes());
                expected.extend(text(sum.to_string().as_bytes()));
            }
            let (mut store, mut client, mut replies) = Default::default();
            let mut rest = &bytes[..];
            for cut in cuts.into_iter().cycle() {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                Client::push(&mut client, piece);
                prop_assert!(client.answer(&mut store, &mut replies));
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(replies, expected);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut client = Client::default();
            client.push(&bytes);
            client.answer(&mut Store::default(), &mut Vec::new());
        }
    }
}
