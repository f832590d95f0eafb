//! Tests of headers and bodies: decoding returns what was encoded, and no bit pattern causes a
//! panic.

use am::{
    Body, Category, DataHeader, Flags, Header, HeaderError, LID_MASK, Long, MAX_ARGS, NO_LID, Role,
    op, select,
};
use proptest::prelude::*;

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Request), Just(Role::Reply)]
}

/// Generates every combination of flags that a sender may use.
fn flags() -> impl Strategy<Value = Flags> {
    let valid: Vec<_> = (0..=u8::MAX)
        .map(Flags::from_bits_retain)
        .filter(|flags| flags.is_valid())
        .collect();
    prop::sample::select(valid)
}

prop_compose! {
    fn header()(
        flags in flags(),
        handler: u8,
        nargs in 0..=MAX_ARGS as u8,
        credit: u8,
        chunk: u32,
        arg0: u32,
        lid in 1..=LID_MASK,
    ) -> Header {
        Header { flags, handler, nargs, credit, chunk, arg0, lid }
    }
}

/// A complete message, consisting of match bits, header data and body.
struct Message {
    match_bits: u64,
    hdr_data: u64,
    body: Vec<u8>,
}

fn send(mut header: Header, args: &[u32], long: Long, payload: &[u8]) -> Message {
    header.nargs = args.len() as u8;
    header.arg0 = args.first().copied().unwrap_or(0);
    let offset = Body::payload_offset(header.flags, args.len());
    let mut body = vec![0xAA; offset];
    let end = Body::write_args(args, &mut body);
    assert_eq!(end, Body::args_len(args.len()));
    if header.category() == Category::Long {
        assert_eq!(long.write(args.len(), &mut body), offset);
    }
    body.extend_from_slice(payload);
    let (match_bits, hdr_data) = header.encode(select::REQ_RB);
    Message {
        match_bits,
        hdr_data,
        body,
    }
}

proptest! {
    #[test]
    fn a_header_comes_back_as_it_was_sent(header in header(), select in 0u8..16) {
        let (match_bits, hdr_data) = header.encode(select);
        prop_assert_eq!(select::of(match_bits), select);
        prop_assert_eq!(op::of(match_bits), op::AM);
        prop_assert_eq!(Header::decode(match_bits, hdr_data), Ok(header));
    }

    #[test]
    fn a_message_comes_back_as_it_was_sent(
        header in header(),
        args in prop::collection::vec(any::<u32>(), 0..=MAX_ARGS),
        dest: u64,
        payload in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let payload = match header.category() {
            Category::Medium => &payload[..],
            Category::Long if header.flags.contains(Flags::PACKED) => &payload[..],
            _ => &[],
        };
        let long = Long { dest, length: payload.len() as u64 };
        let message = send(header, &args, long, payload);

        let header = Header::decode(message.match_bits, message.hdr_data).unwrap();
        let mut single = 7;
        let (read, rest) = Body::read_args(&header, &message.body, &mut single).unwrap();
        prop_assert_eq!(read, &args[..]);
        prop_assert_eq!(rest, payload);
        let offset = Body::payload_offset(header.flags, args.len());
        prop_assert_eq!(offset % 16, 0);
        if header.category() == Category::Long {
            prop_assert_eq!(Long::read(&header, &message.body), Ok(long));
        }

        // A body that is cut anywhere before the payload, or within the arguments of a short, must
        // be refused.
        let needed = match header.category() {
            Category::Short => Body::of_short(&args).len(),
            _ => offset,
        };
        for length in 0..needed {
            let error = HeaderError::BodyTooShort { length, needed };
            prop_assert_eq!(Body::read_args(&header, &message.body[..length], &mut single), Err(error));
            if header.category() == Category::Long {
                prop_assert_eq!(Long::read(&header, &message.body[..length]), Err(error));
            }
        }
        // A packed long that carries less data than it announces must be refused.
        if header.flags.contains(Flags::PACKED) && !payload.is_empty() {
            let cut = &message.body[..message.body.len() - 1];
            let error = HeaderError::PayloadTooShort { length: long.length, carried: payload.len() - 1 };
            prop_assert_eq!(Long::read(&header, cut), Err(error));
        }
    }

    #[test]
    fn no_words_panic_and_what_is_accepted_is_what_was_sent(
        match_bits: u64,
        hdr_data: u64,
        // If true, the words are changed to resemble an AM, because random words rarely form one.
        nearly: bool,
        body in prop::collection::vec(any::<u8>(), 0..160),
    ) {
        let match_bits = if nearly { match_bits & 0xFFFF_FFFF_1FFF_FF0F | 0x40 } else { match_bits };
        if let Ok(header) = Header::decode(match_bits, hdr_data) {
            prop_assert_eq!(header.encode(select::of(match_bits)), (match_bits, hdr_data));
            prop_assert!(header.flags.is_valid() && usize::from(header.nargs) <= MAX_ARGS);
            if let Ok((args, rest)) = Body::read_args(&header, &body, &mut 0) {
                prop_assert_eq!(args.len(), usize::from(header.nargs));
                prop_assert!(rest.len() <= body.len());
            }
            if let Ok(long) = Long::read(&header, &body) {
                prop_assert!(!header.flags.contains(Flags::PACKED) || long.length <= body.len() as u64);
            }
        }
        if let Ok(data) = DataHeader::decode(match_bits, hdr_data) {
            prop_assert_eq!(DataHeader::decode(data.encode(0).0, data.encode(0).1), Ok(data));
        }
    }

    #[test]
    fn headers_made_by_hand_do_not_panic_either(bits: u8, nargs: u8, body in prop::collection::vec(any::<u8>(), 0..160)) {
        let flags = Flags::from_bits_retain(bits);
        let header = Header { flags, handler: 0, nargs, credit: 0, chunk: 0, arg0: 0, lid: 0 };
        let mut single = 0;
        let read = Body::read_args(&header, &body, &mut single);
        prop_assert!(read.is_err() || usize::from(nargs) <= MAX_ARGS);
        let _ = Long::read(&header, &body);
    }

    #[test]
    fn the_data_of_a_long_names_role_and_lid(role in role(), lid in 1..=LID_MASK) {
        let data = DataHeader { role, lid };
        let (match_bits, hdr_data) = data.encode(select::RARAM);
        prop_assert_eq!((select::of(match_bits), op::of(match_bits)), (select::RARAM, op::AM_DATA));
        prop_assert_eq!(DataHeader::decode(match_bits, hdr_data), Ok(data));
        prop_assert!(Header::decode(match_bits, hdr_data).is_err());
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let flags = Flags::MEDIUM | Flags::REQUEST;
    let header = Header {
        flags,
        handler: 0xC8,
        nargs: 3,
        credit: 0x54,
        chunk: 0x1234_5678,
        arg0: 0x9ABC_DEF0,
        lid: 0x00AB_CDEF,
    };
    assert_eq!(
        header.encode(select::REQ_RB),
        (0x1234_5678_03C8_0A43, 0xABCD_EF54_9ABC_DEF0)
    );
    let data = DataHeader {
        role: Role::Reply,
        lid: 0x00AB_CDEF,
    };
    assert_eq!(data.encode(select::RARSRC), (0x0482, 0xABCD_EF00_0000_0000));

    let mut body = [0; 48];
    assert_eq!(Body::write_args(&[1, 2, 0x0403_0201, 4], &mut body), 16);
    let words = [1_u32, 2, 0x0403_0201, 4].map(u32::to_ne_bytes);
    assert_eq!(body[..16], *words.as_flattened());
    assert_eq!(
        Long {
            dest: 0x11,
            length: 0x22
        }
        .write(4, &mut body),
        32
    );
    assert_eq!((body[16], body[24]), (0x11, 0x22));
}

#[test]
fn arguments_take_as_much_room_as_documented() {
    let lens: Vec<_> = (0..=MAX_ARGS).map(Body::args_len).collect();
    assert_eq!(
        lens,
        [
            0, 0, 16, 16, 16, 32, 32, 32, 32, 48, 48, 48, 48, 64, 64, 64, 64
        ]
    );
}

#[test]
fn contradictory_flags_are_refused() {
    let valid = |flags: Flags| {
        let match_bits = u64::from(flags.bits()) << 8 | u64::from(op::AM) << 4;
        match Header::decode(match_bits, 1 << 40) {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error, HeaderError::Flags { bits: flags.bits() });
                false
            }
        }
    };
    for category in [Category::Short, Category::Medium, Category::Long] {
        for role in [Role::Request, Role::Reply] {
            let flags = Flags::of(category, role);
            assert_eq!((flags.category(), flags.role()), (category, role));
            let long = category == Category::Long;
            assert!(valid(flags) && valid(flags | Flags::NO_CHUNK));
            assert_eq!(valid(flags | Flags::PACKED), long);
            assert_eq!(valid(flags | Flags::DEST_IN_PLACE), long);
            assert!(!valid(flags | Flags::PACKED | Flags::DEST_IN_PLACE));
            assert_eq!(
                valid(flags | Flags::IMPLIED),
                category == Category::Short && role == Role::Reply
            );
            assert_eq!(flags.has_separate_data(), long);
            assert!(!(flags | Flags::PACKED).has_separate_data());
        }
    }
    for none_or_many in [0, 3, 5, 6, 7] {
        assert!(!valid(Flags::from_bits_retain(none_or_many)));
    }
}

#[test]
fn each_rule_has_its_error() {
    let short = u64::from(Flags::SHORT.bits()) << 8;
    let decode = |op: u8, bits: u64, hdr_data| {
        Header::decode(u64::from(op) << 4 | bits, hdr_data).unwrap_err()
    };
    assert_eq!(
        decode(op::PUT, short, 0),
        HeaderError::Operation {
            found: op::PUT,
            expected: op::AM
        }
    );
    assert_eq!(
        decode(op::AM, short | 17 << 24, 0),
        HeaderError::TooManyArgs { nargs: 17 }
    );
    let long = u64::from(Flags::LONG.bits()) << 8;
    assert_eq!(decode(op::AM, long, 0), HeaderError::NoLid);
    let no_lid = DataHeader::decode(u64::from(op::AM_DATA) << 4 | long, u64::from(NO_LID) << 40);
    assert_eq!(no_lid, Err(HeaderError::NoLid));
    let in_place = u64::from((Flags::LONG | Flags::DEST_IN_PLACE).bits()) << 8;
    assert!(Header::decode(u64::from(op::AM) << 4 | in_place, 0).is_ok());
}
