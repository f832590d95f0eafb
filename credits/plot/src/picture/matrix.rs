//! Matrices of loans.

use std::collections::HashMap;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::colour::{NOTHING, Scale};
use super::{Area, DrawResult, FRAME, GREY, INK, short, style, text, ticks};
use crate::Job;
use crate::job::Track;

/// A matrix of loans. A cell shared by several loans shows the one that differs most from the
/// initial loan.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    columns: usize,
    /// The loan in each cell, by row, or `None` if there are no data for the cell.
    cells: Vec<Option<u16>>,
}

impl Grid {
    /// Returns a grid for each of the ascending `times`, with the loans of all ranks (rows) to all
    /// ranks (columns). A grid has at most `most` by `most` cells.
    pub(super) fn lenders(job: &Job, most: u32, times: &[f64]) -> Vec<Self> {
        let side = job.header.ranks.min(most);
        let empty = Grid {
            columns: side as usize,
            cells: vec![None; (side * side) as usize],
        };
        let mut grids = vec![empty; times.len()];
        for track in &job.tracks {
            let row = cell(track.rank, job.header.ranks, side);
            track.loans_at(job.clock, times, |number, loans| {
                let grid = &mut grids[number];
                let row = &mut grid.cells[row * side as usize..][..side as usize];
                furthest(row, loans, job, side);
            });
        }
        grids
    }

    /// Returns the loans of one rank to all ranks (rows) at the ends of `steps` intervals of time
    /// (columns).
    pub(super) fn over_time(job: &Job, track: &Track, most: u32, steps: usize) -> Self {
        let side = job.header.ranks.min(most);
        let times: Vec<_> = (1..=steps)
            .map(|step| job.end * step as f64 / steps as f64)
            .collect();
        let mut grid = Grid {
            columns: steps,
            cells: vec![None; side as usize * steps],
        };
        let mut column = vec![None; side as usize];
        track.loans_at(job.clock, &times, |number, loans| {
            column.fill(None);
            furthest(&mut column, loans, job, side);
            for (row, loan) in column.iter().enumerate() {
                grid.cells[row * steps + number] = *loan;
            }
        });
        grid
    }

    fn rows(&self) -> usize {
        self.cells.len() / self.columns
    }
}

/// Returns the index of a rank's cell, given that `ranks` ranks share `cells` cells.
fn cell(rank: u32, ranks: u32, cells: u32) -> usize {
    (u64::from(rank) * u64::from(cells) / u64::from(ranks)) as usize
}

/// Puts loans into cells: each cell keeps the loan furthest from the initial one. Empty cells get
/// the initial loan first.
fn furthest(cells: &mut [Option<u16>], loans: &HashMap<u32, u16>, job: &Job, side: u32) {
    let start = job.header.loan;
    for place in cells.iter_mut() {
        place.get_or_insert(start);
    }
    for (peer, loan) in loans {
        let place = &mut cells[cell(*peer, job.header.ranks, side)];
        let far = |loan: u16| (loan.abs_diff(start), loan);
        if place.is_none_or(|there| far(*loan) > far(there)) {
            *place = Some(*loan);
        }
    }
}

/// The title of one side of a matrix, and its labels. A label has a position, as a fraction of the
/// side, and a text.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    title: String,
    labels: Vec<(f64, String)>,
}

impl Axis {
    /// Creates labels for ranks, at the centres of their cells.
    pub(super) fn ranks(ranks: u32, title: &str) -> Self {
        let labels = ticks((ranks - 1).into(), 8, true).into_iter().map(|rank| {
            let at = (rank + 0.5) / f64::from(ranks);
            (at, format!("{rank}"))
        });
        Axis {
            title: title.to_owned(),
            labels: labels.collect(),
        }
    }

    /// Creates labels for times from 0 to `end`.
    pub(super) fn time(end: f64, title: &str) -> Self {
        let labels = ticks(end, 8, false).into_iter();
        Axis {
            title: title.to_owned(),
            labels: labels.map(|time| (time / end, short(time))).collect(),
        }
    }
}

/// Draws a matrix whose upper left corner is at a position. If axes are given, the horizontal one
/// is drawn below the matrix and the vertical one to its left.
pub(super) fn draw(
    area: &Area<'_>,
    (x, y): (i32, i32),
    (width, height): (i32, i32),
    grid: &Grid,
    scale: &Scale,
    axes: Option<(Axis, Axis)>,
) -> DrawResult {
    let (columns, rows) = (grid.columns, grid.rows());
    let place = |number: usize, of: usize, length: i32| {
        (number as f64 * f64::from(length) / of as f64).round() as i32
    };
    let frame = [(x, y), (x + width, y + height)];
    area.draw(&Rectangle::new(frame, WHITE.filled()))?;
    for (row, cells) in grid.cells.chunks(columns).enumerate() {
        let (top, bottom) = (place(row, rows, height), place(row + 1, rows, height));
        // Neighbours in a row that have the same loan form one rectangle.
        let mut first = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            let (left, right) = (
                place(first, columns, width),
                place(first + run.len(), columns, width),
            );
            first += run.len();
            let colour = run[0].map_or(NOTHING, |loan| scale.colour(loan));
            if colour != WHITE {
                let corners = [(x + left, y + top), (x + right, y + bottom)];
                area.draw(&Rectangle::new(corners, colour.filled()))?;
            }
        }
    }
    area.draw(&Rectangle::new(frame, FRAME))?;
    let Some((horizontal, vertical)) = axes else {
        return Ok(());
    };
    for (part, label) in &horizontal.labels {
        let at = x + (part * f64::from(width)).round() as i32;
        area.draw(&PathElement::new(
            [(at, y + height), (at, y + height + 4)],
            GREY,
        ))?;
        text(
            area,
            (at, y + height + 14),
            label,
            13,
            GREY,
            (HPos::Center, VPos::Center),
        )?;
    }
    let middle = (x + width / 2, y + height + 36);
    text(
        area,
        middle,
        &horizontal.title,
        14,
        INK,
        (HPos::Center, VPos::Center),
    )?;
    for (part, label) in &vertical.labels {
        let at = y + (part * f64::from(height)).round() as i32;
        area.draw(&PathElement::new([(x - 4, at), (x, at)], GREY))?;
        text(
            area,
            (x - 8, at),
            label,
            13,
            GREY,
            (HPos::Right, VPos::Center),
        )?;
    }
    let turned = style(14, INK).transform(FontTransform::Rotate270).pos(
        plotters::style::text_anchor::Pos::new(HPos::Center, VPos::Center),
    );
    area.draw_text(&vertical.title, &turned, (x - 48, y + height / 2))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use credits::statistics::{Epoch, Header, Log, PeerRow, RankRow};

    /// Creates the log of a rank whose loans change as given by (epoch, peer, loan).
    fn log(rank: u32, ranks: u32, changes: &[(u32, u32, u16)]) -> Log {
        let header = Header {
            rank,
            ranks,
            loan: 8,
            ..Header::default()
        };
        let epochs = changes.iter().map(|&(epoch, peer, loan)| Epoch {
            rank: RankRow {
                epoch,
                ..RankRow::default()
            },
            peers: vec![PeerRow {
                loan,
                ..PeerRow::initial(peer, 8)
            }],
        });
        Log {
            header,
            epochs: epochs.collect(),
            cut_off: None,
        }
    }

    #[test]
    fn a_matrix_has_every_loan_at_its_time() {
        let logs = [
            log(0, 3, &[(1, 1, 12), (2, 2, 4), (4, 1, 8)]),
            log(2, 3, &[(3, 0, 20)]),
        ];
        let job = Job::from_logs(&logs).unwrap();
        let grids = Grid::lenders(&job, 64, &[0.5, 2.0, 9.0]);
        let (o, x) = (Some(8), None);
        assert_eq!(grids[0].cells, [o, o, o, x, x, x, o, o, o]);
        assert_eq!(grids[1].cells, [o, Some(12), Some(4), x, x, x, o, o, o]);
        assert_eq!(grids[2].cells, [o, o, Some(4), x, x, x, Some(20), o, o]);
        let grid = Grid::over_time(&job, &job.tracks[0], 64, 4);
        assert_eq!((grid.rows(), grid.columns), (3, 4));
        let twelve = Some(12);
        let four = Some(4);
        assert_eq!(
            grid.cells,
            [o, o, o, o, twelve, twelve, twelve, o, o, four, four, four]
        );
    }

    #[test]
    fn a_cell_of_several_shows_the_furthest_from_the_start() {
        let logs = [
            log(0, 100, &[(1, 0, 12), (2, 1, 4), (3, 98, 9)]),
            log(1, 100, &[(1, 1, 2), (2, 99, 7)]),
        ];
        let job = Job::from_logs(&logs).unwrap();
        let grid = &Grid::lenders(&job, 50, &[9.0])[0];
        assert_eq!(grid.cells.len(), 2500);
        // 2 differs more from 8 than 12 or 4 do. 9 and 7 differ equally, so the larger one counts.
        assert_eq!(
            (grid.cells[0], grid.cells[1], grid.cells[49]),
            (Some(2), Some(8), Some(9))
        );
        assert!(grid.cells[50..].iter().all(Option::is_none));
    }

    #[test]
    fn every_rank_has_a_cell_and_cells_are_even() {
        for (ranks, cells) in [(2, 2), (64, 64), (65, 64), (1000, 64), (u32::MAX, 64)] {
            assert_eq!(cell(0, ranks, cells), 0);
            assert_eq!(cell(ranks - 1, ranks, cells), cells as usize - 1);
        }
    }
}
