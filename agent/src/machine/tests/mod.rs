//! Tests with fragments and entries of agents that violate the protocol.

pub(super) mod rules;

use proptest::prelude::*;

use super::timeout::Timeout;
use super::wire::{self, Answer, Body, Content, Entries, Fragment, Protocol, Sent, What};
use crate::code::Code;
use crate::host::ReturnMode;

const PROTOCOLS: [Protocol; 3] = [Protocol::SendMsg, Protocol::GetMsg, Protocol::Poll];

/// Appends an entry of the given kind, with random numbers and bytes.
fn append(buffer: &mut Vec<u8>, kind: u8, numbers: [u64; 2], bytes: &[u8]) {
    let [number, other] = numbers;
    let content = match number % 3 {
        0 => Content::Eager(bytes),
        choice => Content::Bulk {
            length: other,
            source: number as u32,
            name: (choice == 1).then_some(bytes),
        },
    };
    let message = Sent {
        hints: other % 2 * number,
        client: other,
        content,
    };
    let protocol = PROTOCOLS[usize::from(kind % 3)];
    let body = match (kind / 3, protocol) {
        (0 | 1, _) => Body::Request {
            channel: (kind / 3 == 1).then_some(bytes),
            number: Some(number as u32),
            what: match protocol {
                Protocol::SendMsg => What::Send {
                    destination: (other % 2 == 0).then_some(bytes),
                    message,
                },
                Protocol::GetMsg => What::Get,
                Protocol::Poll => What::Poll { mask: other as u16 },
            },
        },
        (2, _) => Body::Response {
            number: number as u32,
            code: Code(other as u32),
            answer: match protocol {
                Protocol::SendMsg => Answer::Nothing,
                Protocol::GetMsg => Answer::Message(message),
                Protocol::Poll => Answer::Value(other),
            },
        },
        (3, _) => Body::Cancel {
            number: number as u32,
        },
        (4, _) => Body::Close,
        _ => Body::Closed,
    };
    let header = (protocol, ReturnMode::Buffered, Timeout(kind), number);
    wire::append(buffer, header, &body);
}

/// Reads a buffer to its end and writes its valid entries to a copy. Returns the copy, and whether
/// all entries were valid.
fn copied(buffer: &[u8]) -> (Vec<u8>, bool) {
    let mut copy = Vec::new();
    for entry in Entries::of(buffer) {
        let Some((header, body)) = entry else {
            return (copy, false);
        };
        let fields = (header.protocol, header.mode, header.timeout, header.port);
        wire::append(&mut copy, fields, &body);
    }
    (copy, true)
}

fn entries() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let entry = (0u8..18, any::<[u64; 2]>(), bytes);
    prop::collection::vec(entry, 1..8).prop_map(|entries| {
        let mut buffer = Vec::new();
        for (kind, numbers, bytes) in entries {
            append(&mut buffer, kind, numbers, &bytes);
        }
        buffer
    })
}

proptest! {
    // `PROPTEST_CASES` can raise this number of cases.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(3000)))]

    #[test]
    fn entries_are_read_as_they_were_written(buffer in entries()) {
        prop_assert_eq!(copied(&buffer), (buffer, true));
    }

    /// Entries read from an altered buffer can be written again and read back unchanged.
    #[test]
    fn altered_entries_are_read_or_refused(
        mut buffer in entries(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        cut in any::<usize>(),
    ) {
        for (at, byte) in changes {
            let at = at % buffer.len();
            buffer[at] = byte;
        }
        buffer.truncate(cut % (2 * buffer.len()));
        let (copy, _) = copied(&buffer);
        prop_assert_eq!(copied(&copy), (copy.clone(), true));
    }

    #[test]
    fn any_bytes_are_a_fragment_or_refused(
        kind in prop_oneof![0u8..20, any::<u8>()],
        mut bytes in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        bytes.insert(0, kind);
        if let Some(fragment) = Fragment::decode(&bytes) {
            prop_assert_eq!(&fragment.encode(), &bytes);
        }
        let _ = copied(&bytes);
    }
}
