use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

const NET: &[u8; 3] = b"net";
const CONTENT: &[u8] = b"a job's secret has 32 bytes, yes";

/// Creates a file with a secret, in a folder of its own.
fn file(content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    (folder, path)
}

/// Returns a rank's contribution.
fn words(end: &Exchange, said: &[u8]) -> Vec<u8> {
    let mut words = said.to_vec();
    end.append_share(&mut words);
    assert_eq!(words.len(), said.len() + 64);
    words
}

/// Exchanges the contributions of two ranks.
fn met(mut ends: [Exchange; 2]) -> [Exchange; 2] {
    let said = [words(&ends[0], b"zero"), words(&ends[1], b"")];
    for end in &mut ends {
        assert_eq!(end.verify(0, &said[0]).unwrap(), b"zero");
        assert_eq!(end.verify(1, &said[1]).unwrap(), b"");
    }
    ends
}

#[test]
fn both_ranks_of_a_pair_make_the_same_secret_and_no_other_does() {
    let ends = || [0, 1].map(|rank| Exchange::new(NET, rank, 3, None).unwrap());
    let [mut first, mut second] = met(ends());
    let pair = *first.pair_secret(1).unwrap();
    assert_eq!(second.pair_secret(0), Some(&pair));
    assert_eq!(first.pair_secret(1), Some(&pair), "kept");
    let [mut other, _] = met(ends());
    assert_ne!(other.pair_secret(1), Some(&pair));
    // Compute the secrets of a rank with itself, and with a rank that has contributed nothing.
    for other in [first.pair_secret(0).copied(), first.pair_secret(2).copied()] {
        assert!(other.is_some_and(|other| other != pair && other != [0; 32]));
    }
    assert_eq!(first.pair_secret(3), None, "no rank");
}

/// Ensures that builds of different ages agree. The values may change only together with the wire
/// version. They were computed by Python's `hmac` and `cryptography`.
#[test]
fn pairs_secrets_are_the_known_ones() {
    let (_folder, path) = file(CONTENT);
    for (path, pair, tag) in [
        (
            None,
            "3e449d32de3a672f0718142050d8b6ac67b045491ce80501ddcb047f741f8feb",
            "d85f41a2eb5dfaa6ff68e4604e75a54b08b26202c33abc12a682a25c94d8220a",
        ),
        (
            Some(path),
            "6f94f85f0275985797ff6b7d8fc459b60c7aceed4d9c79989fcb43d18ccfa603",
            "80c1cb6692ea100c108ae657c1ec1644ef1824c275bc2be6ee09dfb0321b43c1",
        ),
    ] {
        let ends = [(0, 0), (1, 100)].map(|(rank, first)| {
            let secret = path
                .clone()
                .map(|path| (Secret::from_file(&path).unwrap(), path));
            let mut own = Guarded::<[u8; 32]>::new(1);
            own[0] = std::array::from_fn(|at| first + at as u8);
            Exchange::of(NET, rank, 2, secret, own)
        });
        assert!(hex::encode(words(&ends[0], b"said")).ends_with(tag));
        let [mut first, mut second] = met(ends);
        assert_eq!(hex::encode(first.pair_secret(1).unwrap()), pair);
        assert_eq!(hex::encode(second.pair_secret(0).unwrap()), pair);
    }
}

/// With a share of small order, every product consists of zeros.
#[test]
fn a_share_that_is_none_makes_no_common_secret() {
    let mut one = [0; 32];
    one[0] = 1;
    for share in [[0; 32], one] {
        let made: Vec<_> = (0..2)
            .map(|_| {
                let [mut end, mut peer] =
                    [0, 1].map(|rank| Exchange::new(NET, rank, 2, None).unwrap());
                peer.share = share;
                end.verify(1, &words(&peer, b"")).unwrap();
                // The random secret is kept, so the product is computed only once.
                let made = *end.pair_secret(1).unwrap();
                assert_eq!(end.pair_secret(1), Some(&made));
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
fn what_others_make_or_change_is_not_verified() {
    let (_folder, path) = file(CONTENT);
    let (_other_folder, other) = file(&CONTENT.repeat(2));
    let end = |rank, path: Option<&Path>| Exchange::new(NET, rank, 2, path).unwrap();
    let mut own = end(0, Some(&path));
    let said = words(&end(1, Some(&path)), b"here");
    assert_eq!(own.verify(1, &said).unwrap(), b"here");
    for bit in 0..said.len() * 8 {
        let mut changed = said.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(own.verify(1, &changed).is_err(), "{bit}");
    }
    assert!(own.verify(0, &said).is_err(), "another rank's words");
    let larger = Exchange::new(NET, 1, 3, Some(&path)).unwrap();
    let other_net = Exchange::new(b"ten", 1, 2, Some(&path)).unwrap();
    for (what, outsider) in [("another size", larger), ("another network", other_net)] {
        let said = words(&outsider, b"here");
        assert!(own.verify(1, &said).is_err(), "{what}");
    }
    for cut in 0..said.len() {
        assert!(own.verify(1, &said[..cut]).is_err(), "{cut}");
    }
    for outsider in [end(1, Some(&other)), end(1, None)] {
        let error = own.verify(1, &words(&outsider, b"here")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(SETTING) && error.contains(path.to_str().unwrap()),
            "{error}"
        );
    }
    let error = end(0, None).verify(1, &said).unwrap_err().to_string();
    assert!(error.contains(SETTING), "{error}");
}

/// An attacker who can alter the launcher's messages can send one rank the contribution of an
/// earlier job with the same secret.
#[test]
fn ranks_with_different_transcripts_find_out() {
    let (_folder, path) = file(CONTENT);
    let end = |rank| Exchange::new(NET, rank, 3, Some(&path)).unwrap();
    let mut ends = [0, 1, 2].map(end);
    let said = [0, 1, 2].map(|rank| words(&ends[rank], b"here"));
    let old = words(&end(2), b"here");
    let transcript = |end: &mut Exchange, last| {
        for (peer, words) in (0..).zip([&said[0], &said[1], last]) {
            assert_eq!(end.verify(peer, words).unwrap(), b"here");
        }
        end.transcript()
    };
    let [first, second, third] = &mut ends;
    let other = transcript(&mut end(1), &old);
    let [first, second, third] = [first, second, third].map(|end| transcript(end, &said[2]));
    for (peer, confirmed) in (0..).zip([&first, &second, &third]) {
        first.check(peer, &confirmed.confirm()).unwrap();
        third.check(peer, &confirmed.confirm()).unwrap();
    }
    let differs = |peer, said: &[u8]| {
        let error = first.check(peer, said).unwrap_err();
        assert!(
            error.contains("transcript differs from that of rank 0"),
            "{error}"
        );
    };
    differs(1, &other.confirm());
    differs(2, &second.confirm());
    differs(1, &second.confirm()[..32]);
    differs(1, &[]);
    let failed = first.check(1, b"no socket").unwrap_err();
    assert_eq!(failed, "no socket");
}

#[test]
fn a_file_that_others_can_reach_or_that_is_none_is_refused() {
    let (folder, path) = file(CONTENT);
    let refused = |path: &Path, reason: &str| {
        let Err(error) = Exchange::new(NET, 0, 1, Some(path)) else {
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
        Exchange::new(NET, 0, 1, Some(&path)).unwrap();
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
    Exchange::new(NET, 0, 1, Some(&path)).unwrap();
}
