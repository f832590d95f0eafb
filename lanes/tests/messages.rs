//! Tests of the messages' encoding.

use lanes::{DecodeError, MAX_LENGTH, Message};
use proptest::prelude::*;

pub(crate) fn any_message() -> impl Strategy<Value = Message> {
    (0..6, 0u32..6, any::<u16>(), any::<u32>()).prop_map(|(kind, generation, small, large)| {
        match kind {
            0 => Message::Ask {
                generation,
                weight: large,
            },
            1 => Message::Offer {
                generation,
                slot: small,
                size: large,
            },
            2 => Message::Taken { generation },
            3 => Message::Denied {
                generation,
                price: large,
                rest: small,
            },
            4 => Message::Recall { generation },
            _ => Message::Returned { generation },
        }
    })
}

#[test]
fn a_message_looks_as_documented() {
    let offer = Message::Offer {
        generation: 0x0403_0201,
        slot: 0x0605,
        size: 0x0a09_0807,
    };
    let bytes = [2, 0, 5, 6, 1, 2, 3, 4, 7, 8, 9, 10];
    assert_eq!(offer.encode().as_ref(), bytes);
    assert_eq!(
        Message::Recall { generation: 7 }.encode().as_ref(),
        [5, 0, 0, 0, 7, 0, 0, 0]
    );
}

#[test]
fn nonsense_is_refused_and_named() {
    assert_eq!(Message::decode(&[]), Err(DecodeError::LaneKind(0)));
    assert_eq!(Message::decode(&[7; 12]), Err(DecodeError::LaneKind(7)));
    let error = Message::decode(&[3; 9]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "lane message has 9 bytes, its kind has 8"
    );
    for reserved in [1, 2] {
        let mut bytes = [0; 8];
        (bytes[0], bytes[reserved]) = (3, 1);
        assert_eq!(Message::decode(&bytes), Err(DecodeError::Reserved));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(message in any_message()) {
        let bytes = message.encode();
        prop_assert!(bytes.as_ref().len() <= MAX_LENGTH);
        prop_assert_eq!(Message::decode(bytes.as_ref()), Ok(message));
    }

    #[test]
    fn what_is_read_is_written(bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..20)) {
        if let Ok(message) = Message::decode(&bytes) {
            let written = message.encode();
            prop_assert_eq!(written.as_ref(), bytes);
        }
    }
}
