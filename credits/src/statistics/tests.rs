//! Tests that written files can be read again, and that errors are found and located.

use proptest::prelude::*;

use super::*;

fn header() -> Header {
    Header {
        job: "71f3".to_owned(),
        rank: 1,
        ranks: 200,
        loan: 8,
        banked: 100,
        epoch: 1024,
    }
}

/// Returns the text of a file with one epoch and one peer.
fn small() -> String {
    let mut text = String::new();
    header().write_csv(&mut text).unwrap();
    let rank = RankRow {
        epoch: 1,
        time_us: Some(5230),
        received: 1024,
        banked: 93,
        lent: 1607,
        stalls: 2,
        ..RankRow::default()
    };
    rank.write_csv(&mut text).unwrap();
    let peer = PeerRow {
        peer: 2,
        loan: 15,
        send: 8,
        asked: true,
        zero_reply: true,
        ..PeerRow::default()
    };
    peer.write_csv(&rank, &mut text).unwrap();
    text
}

fn error(text: &str) -> String {
    Log::parse("x.csv", text).unwrap_err().to_string()
}

#[test]
fn a_file_looks_as_documented() {
    let lines = small();
    let lines: Vec<_> = lines.lines().collect();
    assert_eq!(
        lines[0],
        "# conduit-credits 1 job=71f3 rank=1 ranks=200 loan=8 banked=100 epoch=1024"
    );
    assert_eq!(lines[1].split(',').count(), 18);
    assert_eq!(lines[2], "1,5230,,1024,93,1607,0,0,0,2,0,,,,,,,");
    assert_eq!(lines[3], "1,5230,2,,,,,,,0,0,15,8,0,0,0,0,asked+zero_reply");
}

#[test]
fn a_peer_has_rows_while_it_is_not_as_at_the_start_and_one_when_it_is_again() {
    let mut text = String::new();
    let mut recorder = Recorder::begin(&header(), &mut text).unwrap();
    let still = PeerRow::initial(130, 8);
    let moved = PeerRow { loan: 9, ..still };
    let others = [PeerRow::initial(0, 8), PeerRow::initial(199, 8)];
    for (epoch, row) in [still, moved, moved, still, still].into_iter().enumerate() {
        let rank = RankRow {
            epoch: epoch as u32,
            ..RankRow::default()
        };
        // A rank that does not exist in the job is omitted.
        let stranger = PeerRow::initial(256, 3);
        let rows = others.into_iter().chain([row, stranger]);
        recorder.epoch(&rank, rows, &mut text).unwrap();
    }
    let log = Log::parse("x.csv", &text).unwrap();
    let rows: Vec<_> = log.epochs.iter().map(|epoch| &epoch.peers[..]).collect();
    let expected: [&[PeerRow]; 5] = [&[], &[moved], &[moved], &[still], &[]];
    assert_eq!(rows, expected);
}

#[test]
fn a_last_line_that_is_cut_off_is_left_out() {
    let text = small();
    let whole = Log::parse("x.csv", &text).unwrap();
    assert_eq!((whole.cut_off, whole.epochs[0].peers.len()), (None, 1));
    let third: usize = text.lines().take(3).map(|line| line.len() + 1).sum();
    for end in third + 1..text.len() {
        let log = Log::parse("x.csv", &text[..end]).unwrap();
        assert_eq!((log.cut_off, log.epochs[0].peers.len()), (Some(4), 0));
    }
    let log = Log::parse("x.csv", &text[..third]).unwrap();
    assert_eq!((log.cut_off, log.epochs.len()), (None, 1));
    let second: usize = text.lines().take(2).map(|line| line.len() + 1).sum();
    for end in 0..second {
        let error = Log::parse("x.csv", &text[..end]).unwrap_err();
        assert_eq!(error.problem, Problem::CutOff, "{end}");
    }
    assert_eq!(Log::parse("x.csv", &text[..second]).unwrap().epochs, []);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let good = small();
    let with = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        error(&good.replacen(from, to, 1))
    };
    for (from, to, expected) in [
        (
            "# conduit",
            "# Conduit",
            "x.csv:1:1: the file does not contain credit statistics, which begin with \"# conduit-credits 1\"",
        ),
        ("loan=8 ", "", "x.csv:1:68: loan= is missing"),
        (
            "rank=1",
            "rank=-1",
            "x.csv:1:35: rank is \"-1\", must be a number from 0 to 4294967295",
        ),
        (
            "rank=1",
            "rank=200",
            "x.csv:1:35: rank 200 does not exist in a job of 200",
        ),
        (
            "loan=8",
            "loan=65536",
            "x.csv:1:52: loan is \"65536\", must be a number from 0 to 65535",
        ),
        (
            "epoch,time",
            "epoch;time",
            "x.csv:2:1: the columns are not those of this format",
        ),
        (
            ",1024,",
            ",ä1024,",
            "x.csv:3:9: received is \"ä1024\", must be a number from 0 to 18446744073709551615",
        ),
        (
            ",1024,",
            ",,",
            "x.csv:3:9: received is \"\", must be a number from 0 to 18446744073709551615",
        ),
        (
            ",1024,",
            ",1024,,",
            "x.csv:3:1: the line has 19 cells, expected 18",
        ),
        (
            "2,0,,,,,,,\n",
            "2,0\n",
            "x.csv:3:1: the line has 11 cells, expected 18",
        ),
        (
            "2,0,,,,,,,\n",
            "2,0,,,,,,7,\n",
            "x.csv:3:37: given must be empty here",
        ),
        (
            ",2,,,,,,,",
            ",2,,5,,,,,",
            "x.csv:4:11: banked must be empty here",
        ),
        (
            ",2,,,",
            ",200,,,",
            "x.csv:4:8: rank 200 does not exist in a job of 200",
        ),
        (
            "1,5230,2,",
            "2,5230,2,",
            "x.csv:4:1: a row of a peer has no row of the rank for the same epoch",
        ),
        (
            "asked+",
            "asked+?",
            "x.csv:4:33: \"?zero_reply\" is not a flag",
        ),
    ] {
        assert_eq!(with(from, to), expected, "{to}");
    }
    let again = format!("{good}{}\n", good.lines().nth(2).unwrap());
    assert_eq!(error(&again), "x.csv:5:1: epoch 1 after epoch 1");
    assert!(error("hello").starts_with("x.csv:1:1: the file does not contain"));
    let first = good.lines().next().unwrap();
    assert!(error(&format!("{first}\nepocx")).starts_with("x.csv:2:1: the columns"));
    let long = "9".repeat(10_000);
    assert!(with(",1024,", &format!(",{long},")).len() < 200);
}

#[test]
fn lines_may_end_as_on_windows() {
    let text = small().replace('\n', "\r\n");
    assert_eq!(Log::parse("x", &text), Log::parse("x", &small()));
}

#[test]
fn names_of_jobs_are_safe_in_names_of_files() {
    assert_eq!(file_name("71f3-a_b.c", 12), "credits-71f3-a_b.c-12.csv");
    assert_eq!(file_name("../x y\n", 0), "credits-.._x_y_-0.csv");
    assert_eq!(file_name("", 0), "credits-_-0.csv");
    let header = Header {
        job: "a b=c".to_owned(),
        ..header()
    };
    let mut text = String::new();
    header.write_csv(&mut text).unwrap();
    assert_eq!(Log::parse("x", &text).unwrap().header.job, "a_b_c");
}

fn rank_rows() -> impl Strategy<Value = RankRow> {
    let counts = any::<[u64; 7]>();
    (any::<Option<u64>>(), any::<u32>(), counts).prop_map(|(time_us, banked, counts)| RankRow {
        epoch: 0,
        time_us,
        received: counts[0],
        banked,
        lent: counts[1],
        system_sent: counts[2],
        system_received: counts[3],
        returned: counts[4],
        stalls: counts[5],
        revoked: counts[6],
    })
}

fn peer_rows() -> impl Strategy<Value = PeerRow> {
    let small = any::<[u16; 6]>();
    (0u32..200, small, any::<[u64; 2]>(), any::<[bool; 2]>()).prop_map(
        |(peer, small, large, flags)| PeerRow {
            peer,
            loan: small[0],
            send: small[1],
            in_use: small[2],
            max_in_use: small[3],
            stalls: large[0],
            revoked: large[1],
            requested: small[4],
            given: small[5],
            asked: flags[0],
            zero_reply: flags[1],
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(epochs in prop::collection::vec((rank_rows(), prop::collection::vec(peer_rows(), 0..4)), 0..5)) {
        let mut text = String::new();
        let mut expected = Log { header: header(), ..Log::default() };
        header().write_csv(&mut text).unwrap();
        for (number, (rank, peers)) in epochs.into_iter().enumerate() {
            let rank = RankRow { epoch: number as u32, ..rank };
            rank.write_csv(&mut text).unwrap();
            for peer in &peers {
                peer.write_csv(&rank, &mut text).unwrap();
            }
            expected.epochs.push(Epoch { rank, peers });
        }
        prop_assert_eq!(Log::parse("x", &text).unwrap(), expected);
    }

    #[test]
    fn no_text_panics(text in "(\\PC{0,30}\n){0,4}", at in 0usize..300, change in "\\PC{0,3}") {
        let _ = Log::parse("x", &text);
        let mut text = small();
        let at = at.min(text.len());
        text.replace_range(at..(at + 1).min(text.len()), &change);
        let _ = Log::parse("x", &text);
    }
}
