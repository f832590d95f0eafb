//! Tests of a picture's contents and readability.

use crate::demo::Demo;
use credit_plot::{Job, svg};
use credits::statistics::{Epoch, Header, Log, PeerRow, RankRow};

const DEMO: Demo = Demo {
    ranks: 6,
    partners: 2,
    rounds: 12,
    loan: 8,
    banked: 40,
    epoch: 32,
    clock: true,
};

fn logs(demo: Demo) -> Vec<Log> {
    let files = demo.files("demo");
    let parse = |(name, text): &(String, String)| Log::parse(name, text).unwrap();
    files.iter().map(parse).collect()
}

fn picture(demo: Demo) -> String {
    svg(&Job::from_logs(&logs(demo)).unwrap(), None).unwrap()
}

/// A piece of text in a picture.
#[derive(Debug)]
struct Text {
    words: String,
    /// The left, top, right and bottom edges. The right edge follows from an estimated width.
    place: [f64; 4],
}

/// Returns all text that is not rotated.
fn texts(svg: &str) -> Vec<Text> {
    let attribute = |tag: &str, name: &str| {
        let from = tag.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        tag[from..].split('"').next().unwrap().to_owned()
    };
    let pieces = svg.split("<text").skip(1);
    let pieces = pieces.filter(|piece| !piece.split('>').next().unwrap().contains("transform="));
    pieces
        .map(|piece| {
            let (tag, rest) = piece.split_once('>').unwrap();
            let words = rest.split("</text>").next().unwrap().trim().to_owned();
            let number = |name| attribute(tag, name).parse::<f64>().unwrap();
            let (x, y, size) = (number("x"), number("y"), number("font-size"));
            let width = 0.55 * size * words.chars().count() as f64;
            let left = match attribute(tag, "text-anchor").as_str() {
                "start" => x,
                "middle" => x - width / 2.0,
                "end" => x - width,
                other => panic!("{other}"),
            };
            // The top and the bottom are estimated as if the text were centred at `y`. With any
            // vertical anchor, the text lies within its font size of `y`.
            let place = [left, y - size / 2.0, left + width, y + size / 2.0];
            Text { words, place }
        })
        .collect()
}

/// Asserts that no text overlaps another, and that all text lies within the picture.
#[track_caller]
fn readable(svg: &str) {
    let texts = texts(svg);
    assert!(texts.len() > 30);
    for (number, one) in texts.iter().enumerate() {
        let [left, top, right, bottom] = one.place;
        assert!(
            left >= 0.0 && top >= 0.0 && right <= 1400.0 && bottom <= 1490.0,
            "{one:?}"
        );
        for other in &texts[..number] {
            let [l, t, r, b] = other.place;
            let apart = right <= l || r <= left || bottom <= t || b <= top;
            assert!(apart, "{one:?} lies on {other:?}");
        }
    }
}

fn has(svg: &str, words: &str) -> bool {
    texts(svg).iter().any(|text| text.words.contains(words))
}

#[test]
fn everything_is_there() {
    let svg = picture(DEMO);
    for words in [
        "Credits of job demo",
        "6 ranks · 8 credits lent to each and 40 banked at the start · epochs of 32 requests",
        "Loans at the end",
        "borrowing rank",
        "Loans of rank ",
        "Loans on the way",
        "Credits in the bank",
        "Requests received (",
        "Requests that stalled (",
        "Largest loan to one rank",
        "Credits given back (",
        "System messages sent (",
        "s since the start",
        "8 at the start",
        "rank 5",
    ] {
        assert!(has(&svg, words), "{words}");
    }
    assert!(svg.contains("lending rank") && svg.contains("per µs") && svg.contains("credits"));
    assert!(svg.matches("<rect").count() > 50, "cells");
    assert!(
        svg.matches("<polyline").count() >= 6 * 6,
        "a curve for each rank in each chart"
    );
    readable(&svg);
}

#[test]
fn pictures_are_readable_from_one_rank_to_many() {
    for ranks in [1, 2, 8, 9, 64, 65, 150] {
        let rounds = if ranks > 60 { 4 } else { 12 };
        let svg = picture(Demo {
            ranks,
            rounds,
            ..DEMO
        });
        readable(&svg);
        assert_eq!(has(&svg, "median of the ranks"), ranks > 8);
        assert_eq!(
            has(&svg, "cell: the loan furthest from the start"),
            ranks > 64
        );
    }
}

#[test]
fn a_picture_of_thousands_of_ranks_is_not_larger() {
    let ranks = 4000;
    let logs: Vec<_> = (0..ranks)
        .map(|rank| Log {
            header: Header {
                job: "large".to_owned(),
                rank,
                ranks,
                loan: 8,
                banked: 51_200,
                epoch: 1024,
            },
            epochs: (0..20)
                .map(|epoch| Epoch {
                    rank: RankRow {
                        epoch,
                        time_us: Some(u64::from(epoch) * 123_456_789),
                        received: u64::from(epoch) * 1_000_000_007,
                        banked: 51_200 - epoch * rank % 999,
                        ..RankRow::default()
                    },
                    peers: (1..20)
                        .map(|near| {
                            let peer = (rank + near * near) % ranks;
                            PeerRow {
                                loan: 4 + (epoch * near * 1_234_567 % 396) as u16,
                                ..PeerRow::initial(peer, 8)
                            }
                        })
                        .collect(),
                })
                .collect(),
            cut_off: None,
        })
        .collect();
    let svg = svg(&Job::from_logs(&logs).unwrap(), None).unwrap();
    readable(&svg);
    assert!(svg.len() < 2 << 20, "{} bytes", svg.len());
    assert!(
        has(&svg, "4,000 ranks") && has(&svg, "s since the start") && has(&svg, "of up to 63 × 63")
    );
}

#[test]
fn without_times_epochs_count() {
    let svg = picture(Demo {
        clock: false,
        ..DEMO
    });
    readable(&svg);
    assert!(has(&svg, "epoch of each rank") && has(&svg, "at epoch ") && svg.contains("per epoch"));
}

#[test]
fn a_job_that_did_nothing_has_a_picture() {
    let svg = picture(Demo { rounds: 0, ..DEMO });
    readable(&svg);
}

#[test]
fn ranks_without_a_file_are_grey() {
    let mut logs = logs(DEMO);
    logs.remove(3);
    let svg = svg(&Job::from_logs(&logs).unwrap(), Some(5)).unwrap();
    readable(&svg);
    assert!(has(&svg, "files of 5 ranks only") && has(&svg, "Loans of rank 5 over time"));
    let grey = svg.matches("#DEDEDE").count();
    assert!(grey >= 6, "one row in each matrix of ranks: {grey}");
    assert_eq!(picture(DEMO).matches("#DEDEDE").count(), 0);
}

#[test]
fn the_rank_to_be_drawn_must_be_there() {
    let job = Job::from_logs(&logs(DEMO)).unwrap();
    let error = svg(&job, Some(6)).unwrap_err().to_string();
    assert_eq!(error, "rank 6 has no file");
}

#[test]
fn names_are_not_markup() {
    let mut logs = logs(DEMO);
    logs.iter_mut()
        .for_each(|log| log.header.job = "<b>&\"x".to_owned());
    let svg = svg(&Job::from_logs(&logs).unwrap(), None).unwrap();
    assert!(!svg.contains("<b>") && has(&svg, "&lt;b&gt;&amp;"));
}

/// The demonstration must be a correct job, so that its picture shows what would happen in a real
/// one.
#[test]
fn the_demonstration_moves_credits_and_loses_none() {
    let logs = logs(DEMO);
    let total = |log: &Log| {
        let last = &log.epochs.last().unwrap().rank;
        u64::from(last.banked) + last.lent
    };
    for log in &logs {
        assert_eq!(total(log), 6 * 8 + 40, "rank {}", log.header.rank);
    }
    let sum = |count: fn(&RankRow) -> u64| -> u64 {
        logs.iter()
            .map(|log| count(&log.epochs.last().unwrap().rank))
            .sum()
    };
    assert!(sum(|row| row.stalls) > 0 && sum(|row| row.returned) > 0);
    assert_eq!(sum(|row| row.returned), sum(|row| row.revoked));
    assert_eq!(sum(|row| row.system_sent), sum(|row| row.system_received));
}
