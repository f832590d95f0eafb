//! The picture and its layout.
//!
//! ```text
//! title, facts, scale of colours
//! loans at the end: lenders × borrowers      | one rank's loans: borrowers × time
//! loans on the way: a few small matrices
//! bank, requests, stalls, messages, credits given back, largest loan: curves over time
//! ```

mod colour;
mod curves;
mod matrix;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::{Error, Job};
use colour::Scale;
use curves::Curves;
use matrix::{Axis, Grid};

/// The width and the height of the picture, in pixels.
const SIZE: (u32, u32) = (1400, 1490);
/// The width of the picture's left and right margins, in pixels.
const SIDE: i32 = 60;
/// The maximum number of cells along a side of a large matrix, and of a small one.
const MOST_CELLS: (u32, u32) = (64, 32);
/// The number of time intervals in the matrix of one rank's loans.
const STEPS: usize = 64;
/// The times of the small matrices, as fractions of the whole time. Early times are denser, because
/// most changes happen at the beginning.
const SNAPSHOTS: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 0.75];

const INK: RGBColor = RGBColor(40, 40, 40);
const GREY: RGBColor = RGBColor(110, 110, 110);
const FRAME: RGBColor = RGBColor(190, 190, 190);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

/// Draws the picture of a job as SVG. The loans over time are those of `rank` or, if it is `None`,
/// of the rank whose loans have changed the most.
///
/// # Errors
/// Returns [`Error::NoSuchRank`] if there are no statistics of `rank`, or [`Error::Draw`] if the
/// drawing library reports an error.
pub fn svg(job: &Job, rank: Option<u32>) -> Result<String, Error> {
    let track = match rank {
        Some(rank) => job.tracks.iter().position(|track| track.rank == rank),
        None => job.busiest(),
    };
    let Some(track) = track else {
        let rank = rank.unwrap_or(0);
        return Err(Error::NoSuchRank { rank });
    };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area, job, track).map_err(|error| Error::Draw(error.to_string()))?;
        area.present()
            .map_err(|error| Error::Draw(error.to_string()))?;
    }
    Ok(svg)
}

fn draw(area: &Area<'_>, job: &Job, track: usize) -> DrawResult {
    area.fill(&WHITE)?;
    let scale = Scale::new(job.range(), job.header.loan);
    let unit = Unit::of(job);
    head(area, job, &unit, &scale)?;

    let ranks = job.header.ranks;
    let ends = Grid::lenders(job, MOST_CELLS.0, &[job.end]);
    let rank_axis = |title| Axis::ranks(ranks, title);
    let (large, top) = (420, 170);
    heading(area, (SIDE, top - 34), "Loans at the end")?;
    if ranks > MOST_CELLS.0 {
        let side = ranks.div_ceil(MOST_CELLS.0);
        let words =
            format!("cell: the loan furthest from the start, of up to {side} × {side} loans");
        let right = (SIDE + 50 + large, top - 14);
        text(area, right, &words, 13, GREY, (HPos::Right, VPos::Center))?;
    }
    matrix::draw(
        area,
        (SIDE + 50, top),
        (large, large),
        &ends[0],
        &scale,
        Some((rank_axis("borrowing rank"), rank_axis("lending rank"))),
    )?;

    let left = SIDE + 50 + large + 150;
    let one = &job.tracks[track];
    let title = format!("Loans of rank {} over time", one.rank);
    heading(area, (left - 50, top - 34), &title)?;
    matrix::draw(
        area,
        (left, top),
        (SIZE.0 as i32 - SIDE - left, large),
        &Grid::over_time(job, one, MOST_CELLS.0, STEPS),
        &scale,
        Some((
            Axis::time(job.end / unit.length, &unit.axis),
            rank_axis("borrowing rank"),
        )),
    )?;

    let (small, gap) = (210, 57);
    let top = top + large + 130;
    heading(
        area,
        (SIDE, top - 44),
        "Loans on the way: lending ranks from top to bottom, borrowing ranks from left to right",
    )?;
    let times = SNAPSHOTS.map(|part| part * job.end);
    for (number, grid) in Grid::lenders(job, MOST_CELLS.1, &times).iter().enumerate() {
        let x = SIDE + number as i32 * (small + gap);
        let at = unit.at(times[number]);
        text(
            area,
            (x + small / 2, top - 12),
            &at,
            13,
            GREY,
            (HPos::Center, VPos::Center),
        )?;
        matrix::draw(area, (x, top), (small, small), grid, &scale, None)?;
    }

    let top = top + small + 60;
    let curves = Curves::new(job, &unit);
    curves.legend(area, (SIDE, top - 28))?;
    curves.draw(&area.clone().shrink(
        (SIDE - 40, top),
        (SIZE.0 - 2 * SIDE as u32 + 60, SIZE.1 - top as u32 - 20),
    ))
}

/// Draws the title, the facts about the job and the scale of colours.
fn head(area: &Area<'_>, job: &Job, unit: &Unit, scale: &Scale) -> DrawResult {
    let header = &job.header;
    let title = format!("Credits of job {}", shortened(&header.job, 40));
    text(
        area,
        (SIDE, 40),
        &title,
        30,
        INK,
        (HPos::Left, VPos::Center),
    )?;
    let mut facts = vec![
        counted(header.ranks.into(), "rank"),
        format!(
            "{} lent to each and {} banked at the start",
            counted(header.loan.into(), "credit"),
            grouped(header.banked.into())
        ),
    ];
    if header.epoch > 0 {
        facts.push(format!(
            "epochs of {}",
            counted(header.epoch.into(), "request")
        ));
    }
    if job.clock {
        facts.push(unit.at(job.end).replacen("at ", "", 1));
    }
    if job.tracks.len() < header.ranks as usize {
        facts.push(format!(
            "files of {} only",
            counted(job.tracks.len() as u64, "rank")
        ));
    }
    text(
        area,
        (SIDE, 76),
        &facts.join(" · "),
        16,
        GREY,
        (HPos::Left, VPos::Center),
    )?;
    scale.draw(area, (SIZE.0 as i32 - SIDE - 330, 34), (300, 14))
}

fn heading(area: &Area<'_>, at: (i32, i32), words: &str) -> DrawResult {
    text(area, at, words, 18, INK, (HPos::Left, VPos::Center))
}

/// Draws text of `size` pixels. `anchor` says which part of the text lies at `at`.
fn text(
    area: &Area<'_>,
    at: (i32, i32),
    words: &str,
    size: u32,
    colour: RGBColor,
    (h, v): (HPos, VPos),
) -> DrawResult {
    let style = style(size, colour).pos(Pos::new(h, v));
    area.draw_text(words, &style, at)?;
    Ok(())
}

/// Returns a text style. `size` is multiplied by 1.24, because the library divides sizes by that
/// for SVG.
fn style(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", f64::from(size) * 1.24)
        .into_font()
        .color(&colour)
}

/// The unit in which times are shown.
#[derive(Clone, Debug)]
struct Unit {
    /// The unit's length, in the unit of the rows' times.
    length: f64,
    /// The unit's name, used after a number and after "per".
    name: &'static str,
    /// The title of a time axis.
    axis: String,
}

impl Unit {
    fn of(job: &Job) -> Self {
        let (length, name) = match job.end {
            _ if !job.clock => (1.0, "epoch"),
            end if end >= 2e6 => (1e6, "s"),
            end if end >= 2e3 => (1e3, "ms"),
            _ => (1.0, "µs"),
        };
        let axis = match job.clock {
            true => format!("{name} since the start"),
            false => "epoch of each rank".to_owned(),
        };
        Unit { length, name, axis }
    }

    /// Formats a time.
    fn at(&self, time: f64) -> String {
        let time = time / self.length;
        match self.name {
            "epoch" => format!("at epoch {}", time.round()),
            name => format!("at {} {name}", short(time)),
        }
    }
}

/// Formats a number in few characters: 0.25, 17, 1.2k, 40M.
fn short(number: f64) -> String {
    const LETTERS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (size, letter) in LETTERS {
        if number.abs() >= size {
            return format!("{}{letter}", trimmed(number / size));
        }
    }
    trimmed(number)
}

fn trimmed(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 100.0 || n == 0.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Formats a number with separators: 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number and its noun, which gets a plural "s" unless the number is 1.
fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", grouped(number)),
    }
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns about `count` round numbers from 0 to `end`. If `whole` is set, they are whole numbers.
fn ticks(end: f64, count: u32, whole: bool) -> Vec<f64> {
    let rough = (end / f64::from(count)).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let mut step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    if whole {
        step = step.max(1.0);
    }
    let count = (end / step + 1e-9).floor() as u32;
    (0..=count).map(|number| f64::from(number) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (17.0, "17"),
            (1234.0, "1.23k"),
            (2000.0, "2k"),
            (12_345.0, "12.3k"),
            (1e6, "1M"),
            (40e6, "40M"),
            (0.001, "0.001"),
        ] {
            assert_eq!(short(number), text);
        }
        assert_eq!(
            (grouped(12), grouped(1_234_567)),
            ("12".into(), "1,234,567".into())
        );
        assert_eq!(
            (counted(1, "rank"), counted(1000, "rank")),
            ("1 rank".into(), "1,000 ranks".into())
        );
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(10.0, 5, false), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(1.0, 4, true), [0.0, 1.0]);
        for end in [1e-3, 0.7, 3.0, 17.0, 999.0, 1000.0, 5e9] {
            let ticks = ticks(end, 8, false);
            assert!((2..=10).contains(&ticks.len()), "{end}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= end * 1.001));
        }
    }
}
