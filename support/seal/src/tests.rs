use proptest::prelude::*;

use super::keys::{CACHED, Keys};
use super::*;

const SECRET: [u8; 32] = *b"a job's secret has 32 bytes, yes";
const HEADER: usize = 16;

fn sealer(protection: Protection, rank: Rank, incarnations: &[u64]) -> Sealer {
    Sealer::new(
        Secret::from_bytes(SECRET),
        protection,
        rank,
        incarnations.to_vec(),
    )
}

/// Returns a sealed packet from rank 0 to rank 1 and its plain content.
fn packet(protection: Protection, number: u64, body: usize) -> (Vec<u8>, Vec<u8>) {
    let plain: Vec<u8> = (0..HEADER + body).map(|i| (i * 7) as u8).collect();
    let mut sealed = plain.clone();
    sealed.resize(plain.len() + TAG, 0xee);
    sealer(protection, 0, &[11, 22, 33]).seal(1, number, &mut sealed, HEADER);
    (plain, sealed)
}

const BOTH: [Protection; 2] = [Protection::Authenticate, Protection::Encrypt];

#[test]
fn what_was_sealed_opens_and_is_encrypted_only_on_demand() {
    for protection in BOTH {
        for body in [
            0, 1, 15, 16, 17, 31, 32, 33, 64, 65, 223, 224, 1400, 8948, 65_000,
        ] {
            let (plain, mut sealed) = packet(protection, 5, body);
            assert_eq!(sealed[..HEADER], plain[..HEADER]);
            if body >= 15 {
                assert_eq!(
                    sealed[..plain.len()] == plain[..],
                    protection == Protection::Authenticate
                );
            }
            assert!(sealer(protection, 1, &[11, 22, 33]).open(0, 5, &mut sealed, HEADER));
            assert_eq!(sealed[..plain.len()], plain[..]);
        }
    }
}

#[test]
fn no_bit_can_be_changed() {
    for (protection, body) in BOTH
        .into_iter()
        .flat_map(|protection| [(protection, 45), (protection, 300)])
    {
        let (_, sealed) = packet(protection, 5, body);
        let mut receiver = sealer(protection, 1, &[11, 22, 33]);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!receiver.open(0, 5, &mut changed, HEADER), "bit {bit}");
        }
        assert!(receiver.open(0, 5, &mut sealed.clone(), HEADER));
    }
}

#[test]
fn nothing_can_be_cut_off_or_added() {
    // If a byte is cut off, the longer packet becomes a short one. If a byte is added, the shorter
    // packet becomes a long one.
    for (protection, body) in BOTH
        .into_iter()
        .flat_map(|protection| [(protection, 45), (protection, 223), (protection, 300)])
    {
        let (_, sealed) = packet(protection, 5, body);
        let mut receiver = sealer(protection, 1, &[11, 22, 33]);
        for length in 0..sealed.len() {
            assert!(!receiver.open(0, 5, &mut sealed[..length].to_vec(), HEADER));
        }
        let mut longer = sealed.clone();
        longer.push(0);
        assert!(!receiver.open(0, 5, &mut longer, HEADER));
    }
}

#[test]
fn only_the_pair_direction_incarnation_number_secret_and_use_it_was_sealed_for_open_it() {
    for protection in BOTH {
        let (_, sealed) = packet(protection, 5, 45);
        let opens = |receiver: &mut Sealer, from, number| {
            receiver.open(from, number, &mut sealed.clone(), HEADER)
        };
        let job = [11, 22, 33];
        assert!(opens(&mut sealer(protection, 1, &job), 0, 5));
        assert!(!opens(&mut sealer(protection, 1, &job), 2, 5), "sender");
        assert!(!opens(&mut sealer(protection, 1, &job), 1, 5), "oneself");
        assert!(!opens(&mut sealer(protection, 2, &job), 0, 5), "receiver");
        assert!(!opens(&mut sealer(protection, 0, &job), 1, 5), "direction");
        assert!(!opens(&mut sealer(protection, 1, &job), 0, 6), "number");
        assert!(!opens(&mut sealer(protection, 1, &job), 0, 5 | 1 << 63));
        assert!(!opens(&mut sealer(protection, 1, &[12, 22, 33]), 0, 5));
        assert!(!opens(&mut sealer(protection, 1, &[11, 23, 33]), 0, 5));
        assert!(opens(&mut sealer(protection, 1, &[11, 22, 34]), 0, 5));
        let mut secret = SECRET;
        secret[31] ^= 1;
        let mut outsider = Sealer::new(Secret::from_bytes(secret), protection, 1, job.to_vec());
        assert!(!opens(&mut outsider, 0, 5), "secret");
        let other = BOTH.into_iter().find(|other| *other != protection).unwrap();
        assert!(!opens(&mut sealer(other, 1, &job), 0, 5), "use");
        for nobody in [3, 4, 1 << 20, Rank::MAX - 1, Rank::MAX] {
            assert!(!opens(&mut sealer(protection, 1, &job), nobody, 5));
        }
    }
}

#[test]
fn a_packet_to_nobody_has_no_tag() {
    let mut packet = [7; HEADER + TAG];
    sealer(Protection::Authenticate, 0, &[1, 2]).seal(2, 1, &mut packet, HEADER);
    assert_eq!(packet[HEADER..], [0; TAG]);
}

#[test]
fn peers_that_share_a_place_have_their_own_keys() {
    let size = 2 * CACHED + 3;
    let incarnations: Vec<u64> = (0..size as u64).map(|rank| rank * 31 + 1).collect();
    let mut here = sealer(Protection::Authenticate, 0, &incarnations);
    for peer in [1, 1 + CACHED as Rank, 1 + 2 * CACHED as Rank, 1] {
        let mut packet = [7; HEADER + TAG];
        here.seal(peer, 9, &mut packet, HEADER);
        let mut there = sealer(Protection::Authenticate, peer, &incarnations);
        assert!(there.open(0, 9, &mut packet, HEADER), "{peer}");
    }
}

fn keys(protection: Protection) -> Keys {
    let secret = Secret::from_bytes(SECRET).into();
    Keys::new(secret, protection, 0, vec![11, 22, 33])
}

/// Ensures that builds of different ages agree. The values may change only together with the wire
/// version. The expected keys, salts and tags were computed by another implementation of the
/// ciphers, the crate's plain Rust code.
#[test]
fn keys_and_salts_are_the_known_ones() {
    let mut tag = keys(Protection::Authenticate);
    let mut all = keys(Protection::Encrypt);
    let known = [
        (
            tag.key(0, 1),
            "722390d09cda6441855ee269c4504d3d",
            "9c8130a5f5849575",
        ),
        (
            tag.key(1, 0),
            "c5ed2c8a8809e220cb0b515dcb3ff9be",
            "90bc6d89a26f4b29",
        ),
        (
            all.key(0, 1),
            "effc2740a1d256559e7af099b6011b2c",
            "93acaa54d70f80a4",
        ),
    ];
    for (made, key, salt) in known {
        let made = made.unwrap();
        assert_eq!(
            (hex::encode(made.key), hex::encode(made.salt)),
            (key.into(), salt.into())
        );
    }
}

/// Lengths of bodies, one for each kind of packet.
const BODIES: [usize; 3] = [45, 300, LONG];

#[test]
fn tags_are_the_known_ones() {
    let known = [
        "2f41315af20568d55a44f820e863e0a7",
        "cd87b082c9650993cad669d7bd598f73",
        "48a3ed43099dd698c2b710eaaf35deb4",
    ];
    for (body, known) in BODIES.into_iter().zip(known) {
        let (plain, sealed) = packet(Protection::Authenticate, 5, body);
        assert_eq!(hex::encode(&sealed[plain.len()..]), known, "{body}");
    }
}

#[test]
fn a_number_makes_another_nonce_on_each_link() {
    let mut keys = keys(Protection::Authenticate);
    let links = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2)];
    let mut nonces: Vec<_> = links
        .iter()
        .map(|(from, to)| keys.key(*from, *to).unwrap().nonce(5))
        .collect();
    for nonce in &nonces {
        assert_eq!(nonce[..8], 5u64.to_le_bytes());
        assert_ne!(nonce[8..], [0; 8]);
    }
    nonces.sort();
    nonces.dedup();
    assert_eq!(nonces.len(), links.len());
}

#[test]
fn what_was_sealed_with_another_salt_does_not_open() {
    for (protection, body) in BOTH
        .into_iter()
        .flat_map(|protection| BODIES.map(|body| (protection, body)))
    {
        let (_, sealed) = packet(protection, 5, body);
        let mut receiver = sealer(protection, 1, &[11, 22, 33]);
        assert!(receiver.open(0, 5, &mut sealed.clone(), HEADER));
        receiver.keys.change_salt(0);
        assert!(!receiver.open(0, 5, &mut sealed.clone(), HEADER), "{body}");
        receiver.keys.change_salt(0);
        assert!(receiver.open(0, 5, &mut sealed.clone(), HEADER));
    }
}

/// Returns the result of `look` in a forked child.
fn in_a_child(look: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child of this multi-threaded process runs only `look`, which takes no lock except
    // malloc's, and then `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let code = look().into();
        // SAFETY: `_exit` ends the child without running any of the parent's code.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: the call waits for the child that was just forked, and `status` is valid for writes.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFEXITED(status));
    libc::WEXITSTATUS(status) == 1
}

#[test]
fn a_child_has_no_keys() {
    for protection in BOTH {
        let (_, sealed) = packet(protection, 5, 45);
        let mut receiver = sealer(protection, 1, &[11, 22, 33]);
        assert!(receiver.open(0, 5, &mut sealed.clone(), HEADER));
        assert!(receiver.keys.are_cached(0));
        assert!(in_a_child(|| {
            !receiver.keys.are_cached(0) && !receiver.open(0, 5, &mut sealed.clone(), HEADER)
        }));
        assert!(receiver.open(0, 5, &mut sealed.clone(), HEADER));
    }
}

#[test]
fn a_child_has_no_sessions_and_begins_none() {
    let seed = Secret::from_bytes(SECRET);
    let mut here = SessionSealer::new(None, Protection::Authenticate, &seed);
    let keys = here.derive(&[9; 32], true, &[]).unwrap();
    here.set_size(1);
    here.install(0, &keys);
    assert!(here.session_tag(0, b"any     ", &[]).is_some());
    assert!(in_a_child(|| {
        here.session_tag(0, b"any     ", &[]).is_none()
            && here.nonce().is_none()
            && here.derive(&[9; 32], true, &[]).is_none()
    }));
    assert!(here.session_tag(0, b"any     ", &[]).is_some());
}

#[test]
fn a_secret_does_not_print_itself() {
    let secret = Secret::random().unwrap();
    assert_eq!(format!("{secret:?}"), "Secret(..)");
    assert_ne!(secret.bytes(), Secret::random().unwrap().bytes());
    let sealer = sealer(Protection::Encrypt, 0, &[11]);
    assert_eq!(
        format!("{sealer:?}"),
        "Sealer { protection: Encrypt, keys: Keys { rank: 0, size: 1, .. } }"
    );
}

proptest! {
    #[test]
    fn anything_else_does_not_open(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        peer in any::<Rank>(),
        number in any::<u64>(),
        header in 0usize..200,
        encrypt in any::<bool>(),
    ) {
        let protection = if encrypt { Protection::Encrypt } else { Protection::Authenticate };
        let mut packet = bytes;
        prop_assert!(!sealer(protection, 1, &[11, 22, 33]).open(peer % 5, number, &mut packet, header));
    }
}

#[test]
fn a_long_packets_tag_can_be_made_of_its_parts() {
    let job = [11, 22];
    let mut here = sealer(Protection::Authenticate, 0, &job);
    let mut there = sealer(Protection::Authenticate, 1, &job);
    for length in [LONG, LONG + 17, 65_507] {
        let mut packet: Vec<u8> = (0..length).map(|at| (at % 253) as u8).collect();
        here.seal(1, 4, &mut packet, HEADER);
        let (bytes, tag) = packet.split_at(length - TAG);
        for at in [0, 1, HEADER, 30, 64, 4096, bytes.len()] {
            let (front, back) = bytes.split_at(at);
            let made = here.tag_of(1, 4, [front, back]).expect("long enough");
            assert_eq!(made, tag, "{length} {at}");
        }
        assert!(there.open(0, 4, &mut packet.clone(), HEADER));
        assert!(!there.open(0, 5, &mut packet.clone(), HEADER));
        for at in [0, HEADER, length / 2, length - TAG - 1, length - 1] {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            assert!(!there.open(0, 4, &mut changed, HEADER), "{at}");
        }
        // The packet is truncated to a length for which another cipher computes the tag.
        assert!(!there.open(0, 4, &mut packet[..LONG - 1].to_vec(), HEADER));
    }
    let short = [0; LONG - TAG - 1];
    assert_eq!(here.tag_of(1, 4, [&short, &[]]), None);
    let mut encrypts = sealer(Protection::Encrypt, 0, &job);
    assert_eq!(encrypts.tag_of(1, 4, [&short, &short]), None);
    assert_eq!(here.tag_of(9, 4, [&short, &short]), None, "no rank");
}
