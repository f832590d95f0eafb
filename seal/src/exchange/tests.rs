use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

const CONTENT: &[u8] = b"a job's secret has 32 bytes, yes";

/// A file with a secret, in a folder of its own.
fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    (folder, path)
}

/// What a rank says.
fn words(end: &Exchange, said: &[u8]) -> Vec<u8> {
    let mut words = said.to_vec();
    end.introduce(&mut words);
    assert_eq!(words.len(), said.len() + Exchange::BYTES);
    words
}

/// Two ranks that have heard each other.
fn met(mut ends: [Exchange; 2]) -> [Exchange; 2] {
    let said = [words(&ends[0], b"zero"), words(&ends[1], b"")];
    for end in &mut ends {
        assert_eq!(end.recognise(0, &said[0]).unwrap(), b"zero");
        assert_eq!(end.recognise(1, &said[1]).unwrap(), b"");
    }
    ends
}

#[test]
fn both_ranks_of_a_pair_make_the_same_secret_and_no_other_does() {
    let ends = || [0, 1].map(|rank| Exchange::new(rank, 3, None).unwrap());
    let [mut first, mut second] = met(ends());
    let pair = *first.with(1).unwrap();
    assert_eq!(second.with(0), Some(&pair));
    assert_eq!(first.with(1), Some(&pair), "kept");
    let [mut other, _] = met(ends());
    assert_ne!(other.with(1), Some(&pair));
    // With itself, and with one that has said nothing.
    for other in [first.with(0).copied(), first.with(2).copied()] {
        assert!(other.is_some_and(|other| other != pair && other != [0; 32]));
    }
    assert_eq!(first.with(3), None, "no rank");
}

/// So that two builds of different age either agree or the wire's version has been changed on purpose. Computed by Python's `hmac` and
/// `cryptography`.
#[test]
fn pairs_secrets_are_the_known_ones() {
    let (_folder, path) = file(CONTENT);
    for (path, pair, tag) in [
        (
            None,
            "3e449d32de3a672f0718142050d8b6ac67b045491ce80501ddcb047f741f8feb",
            "3799ecabf122fa32ce1966e4dd01d62f0a0c01d976aa1f8e22db924ce55e74b6",
        ),
        (
            Some(path),
            "6f94f85f0275985797ff6b7d8fc459b60c7aceed4d9c79989fcb43d18ccfa603",
            "ef99c1972c22bfefab2e5a147ec4f8b5f8fe0c1cc2f34d9bcf589211fac5f1ec",
        ),
    ] {
        let ends = [(0, 0), (1, 100)].map(|(rank, first)| {
            let secret = path
                .clone()
                .map(|path| (Secret::from_file(&path).unwrap(), path));
            let mut own = Guarded::<[u8; 32]>::new(1);
            own[0] = std::array::from_fn(|at| first + at as u8);
            Exchange::of(rank, 2, secret, own)
        });
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert!(hex(&words(&ends[0], b"said")).ends_with(tag));
        let [mut first, mut second] = met(ends);
        assert_eq!(hex(first.with(1).unwrap()), pair);
        assert_eq!(hex(second.with(0).unwrap()), pair);
    }
}

/// Points of small order give everybody the same product, zeros.
#[test]
fn a_share_that_is_none_makes_no_common_secret() {
    let mut one = [0; 32];
    one[0] = 1;
    for share in [[0; 32], one] {
        let made: Vec<_> = (0..2)
            .map(|_| {
                let [mut end, mut peer] = [0, 1].map(|rank| Exchange::new(rank, 2, None).unwrap());
                peer.share = share;
                end.recognise(1, &words(&peer, b"")).unwrap();
                // Kept, so that it is tried once.
                let made = *end.with(1).unwrap();
                assert_eq!(end.with(1), Some(&made));
                let mut pair = HMAC::new([0; 32]);
                pair.update(b"pair");
                pair.update([0; 32]);
                pair.update([end.share, share].as_flattened());
                assert_ne!(made, pair.finalize());
                made
            })
            .collect();
        assert_ne!(made[0], made[1]);
    }
}

#[test]
fn what_others_say_or_change_is_not_recognised() {
    let (_folder, path) = file(CONTENT);
    let (_other_folder, other) = file(&CONTENT.repeat(2));
    let end = |rank, path: Option<&Path>| Exchange::new(rank, 2, path).unwrap();
    let mut own = end(0, Some(&path));
    let said = words(&end(1, Some(&path)), b"here");
    assert_eq!(own.recognise(1, &said).unwrap(), b"here");
    for bit in 0..said.len() * 8 {
        let mut changed = said.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(own.recognise(1, &changed).is_err(), "{bit}");
    }
    assert!(own.recognise(0, &said).is_err(), "another rank's words");
    for cut in 0..said.len() {
        assert!(own.recognise(1, &said[..cut]).is_err(), "{cut}");
    }
    for stranger in [end(1, Some(&other)), end(1, None)] {
        let error = own.recognise(1, &words(&stranger, b"here")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(SETTING) && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    }
    let error = end(0, None).recognise(1, &said).unwrap_err().to_string();
    assert!(error.contains(SETTING), "{error}");
}

#[test]
fn a_file_that_others_can_reach_or_that_is_none_is_refused() {
    let (folder, path) = file(CONTENT);
    let refused = |path: &Path, reason: &str| {
        let Err(error) = Exchange::new(0, 1, Some(path)) else {
            panic!("{}: {reason}", path.display());
        };
        let error = error.to_string();
        for word in [SETTING, path.to_str().unwrap(), reason] {
            assert!(error.contains(word), "no {word:?}: {error}");
        }
    };
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for mode in [0o600, 0o400] {
        set(&path, mode);
        Exchange::new(0, 1, Some(&path)).unwrap();
    }
    for (mode, reason) in [
        (0o640, "0640"),
        (0o604, "0604"),
        (0o620, "0620"),
        (0o601, "0601"),
    ] {
        set(&path, mode);
        refused(&path, reason);
    }
    set(&path, 0o600);
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    refused(&link, "symbolic link");
    refused(folder.path(), "not a regular file");
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    refused(&pipe, "not a regular file");
    refused(&folder.path().join("nothing"), "No such file");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        refused(&path, "user 1");
    }
    for (length, reason) in [
        (0, "0 bytes"),
        (Secret::LEAST_FILE - 1, "31 bytes"),
        (Secret::MOST_FILE + 1, "more than 4096"),
        (1 << 20, "more than 4096"),
    ] {
        let (_folder, path) = file(&vec![7; length]);
        refused(&path, reason);
    }
    let (_folder, path) = file(&vec![7; Secret::MOST_FILE]);
    Exchange::new(0, 1, Some(&path)).unwrap();
}
