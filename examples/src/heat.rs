//! Heat spreading over a plate: a two-dimensional stencil with its rows distributed over the ranks.
//!
//! Each step replaces every inner cell by a mix of the cell and its four neighbours. A rank owns a
//! block of rows, so from other ranks it needs only the row above its block and the row below: the
//! *halo*. Each rank puts its outermost rows into its neighbours' segments. While these rows
//! travel, it computes the rows that need no halo, and then the two rows that do.
//!
//! Rank 0 also computes the same plate alone and compares the two plates: every cell must have the
//! same bits.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use conduit::{Conduit, Handlers};

/// The size of the plate and the number of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plate {
    /// The number of rows, at least one per rank.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The number of time steps.
    pub steps: usize,
}

/// The result of a run, on rank 0.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// The plate that was computed.
    pub plate: Plate,
    /// The number of ranks.
    pub ranks: u32,
    /// The time that the distributed steps took.
    pub distributed: Duration,
    /// The time that the same steps took on one rank alone.
    pub serial: Duration,
    /// The number of cells whose bits differ from those of the serial plate.
    pub different: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plate {
            rows,
            columns,
            steps,
        } = self.plate;
        write!(f, "heat: {rows} x {columns} cells, {steps} steps, ")?;
        write!(
            f,
            "{:.0} ms on {} ranks, ",
            self.distributed.as_secs_f64() * 1e3,
            self.ranks
        )?;
        write!(f, "{:.0} ms on one; ", self.serial.as_secs_f64() * 1e3)?;
        match self.different {
            0 => write!(f, "all {} cells equal, bit by bit", rows * columns),
            different => write!(f, "{different} CELLS DIFFER"),
        }
    }
}

/// A row of cells.
type Row = Vec<f64>;

/// The share of the difference to its neighbours that a cell takes over in a step.
const CONDUCTIVITY: f64 = 0.1;

/// The size of a cell in bytes.
const CELL: usize = size_of::<f64>();

/// Computes the plate on all ranks of the job. Collective. Returns the report on rank 0, and `None`
/// on the others.
pub fn run(plate: Plate) -> Result<Option<Report>> {
    let job = conduit::start()?;
    let ranks = job.size() as usize;
    ensure!(
        ranks <= plate.rows,
        "{ranks} ranks are too many for {} rows",
        plate.rows
    );
    let halos = 4 * plate.columns * CELL;
    // Every rank's segment has room for halo rows. Rank 0's also has room for the whole plate
    // behind them. Segments may differ in size.
    let collected = match job.rank() {
        0 => plate.rows * plate.columns * CELL,
        _ => 0,
    };
    // The program sends no active messages, so it has no handlers.
    let conduit = job.attach(Handlers::new(), halos + collected)?;

    let first = first_row(plate, conduit.rank(), conduit.size());
    let end = first_row(plate, conduit.rank() + 1, conduit.size());
    let mut block: Vec<Row> = (first..end).map(|row| initial_row(plate, row)).collect();
    conduit.barrier()?;
    let start = Instant::now();
    for step in 0..plate.steps {
        block = distributed_step(&conduit, plate, first, &block, step)?;
    }
    conduit.barrier()?;
    let distributed = start.elapsed();

    // Each rank puts its rows in their place in rank 0's segment. After the barrier, all rows are
    // there.
    for (index, row) in block.iter().enumerate() {
        let offset = halos + (first + index) * plate.columns * CELL;
        conduit.put(0, offset, &row[..])?;
    }
    conduit.barrier()?;
    let report = match conduit.rank() {
        0 => Some(compare(&conduit, plate, halos, distributed)?),
        _ => None,
    };
    conduit.finish()?;
    Ok(report)
}

/// Returns the first row that `rank` owns. The ranks' blocks differ in size by at most one row.
fn first_row(plate: Plate, rank: u32, ranks: u32) -> usize {
    plate.rows * rank as usize / ranks as usize
}

/// Returns the offset of a halo row in its receiver's segment. Each side has two places, used
/// alternately: a neighbour that is one step ahead must not overwrite the row still being read. The
/// barrier in each step keeps the neighbour from being two steps ahead.
fn halo(plate: Plate, step: usize, below: bool) -> usize {
    (step % 2 * 2 + usize::from(below)) * plate.columns * CELL
}

/// Computes one step of this rank's block, which begins at row `first` of the plate.
fn distributed_step(
    conduit: &Conduit,
    plate: Plate,
    first: usize,
    block: &[Row],
    step: usize,
) -> Result<Vec<Row>> {
    let (rank, last) = (conduit.rank(), block.len() - 1);
    let (has_upper, has_lower) = (rank > 0, rank + 1 < conduit.size());
    // This rank's first row is the lower halo of its upper neighbour. Its last row is the upper
    // halo of its lower neighbour.
    if has_upper {
        conduit.put(rank - 1, halo(plate, step, true), &block[0][..])?;
    }
    if has_lower {
        conduit.put(rank + 1, halo(plate, step, false), &block[last][..])?;
    }
    // The first half of a barrier announces that this rank's rows are on their way. Before the
    // second half, compute the rows that need no halo.
    conduit.barrier_notify(None)?;
    let mut next = block.to_vec();
    for row in 1..last {
        next[row] = next_row(
            plate,
            first + row,
            &block[row - 1],
            &block[row],
            &block[row + 1],
        );
    }
    conduit.barrier_wait(None)?;
    // The neighbours' rows have arrived in this rank's own segment. Rows at the plate's edge have
    // no halo and need none.
    let mut above = vec![0.0; plate.columns];
    let mut below = vec![0.0; plate.columns];
    if has_upper {
        conduit.get(&mut above[..], rank, halo(plate, step, false))?;
    }
    if has_lower {
        conduit.get(&mut below[..], rank, halo(plate, step, true))?;
    }
    let second = block.get(1).unwrap_or(&below);
    next[0] = next_row(plate, first, &above, &block[0], second);
    if last > 0 {
        next[last] = next_row(plate, first + last, &block[last - 1], &block[last], &below);
    }
    Ok(next)
}

/// Computes a row of the next step. The distributed and the serial version both use this function,
/// so they do the same arithmetic in the same order and get equal bits.
fn next_row(plate: Plate, row: usize, above: &[f64], here: &[f64], below: &[f64]) -> Row {
    let mut next = here.to_vec();
    // The plate's outermost cells keep their temperature.
    if row > 0 && row + 1 < plate.rows {
        for column in 1..plate.columns.saturating_sub(1) {
            let around = above[column] + below[column] + here[column - 1] + here[column + 1];
            next[column] = here[column] + CONDUCTIVITY * (around - 4.0 * here[column]);
        }
    }
    next
}

/// Returns a row of the initial plate: cold, with a hot upper edge and a warm spot.
fn initial_row(plate: Plate, row: usize) -> Row {
    let warm = |column: usize| row * 3 / plate.rows == 1 && column * 5 / plate.columns == 2;
    (0..plate.columns)
        .map(|column| match row {
            0 => 100.0,
            _ if warm(column) => 40.0 + column as f64 / 7.0,
            _ => 0.0,
        })
        .collect()
}

/// Computes the whole plate on one rank, without communication.
fn serial(plate: Plate) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..plate.rows).map(|row| initial_row(plate, row)).collect();
    let edge = vec![0.0; plate.columns];
    for _ in 0..plate.steps {
        // Above the first row (the index wraps) and below the last, the values do not matter.
        let row_at = |row: usize| rows.get(row).unwrap_or(&edge);
        rows = (0..plate.rows)
            .map(|row| {
                next_row(
                    plate,
                    row,
                    row_at(row.wrapping_sub(1)),
                    row_at(row),
                    row_at(row + 1),
                )
            })
            .collect();
    }
    rows
}

/// Compares the plate that rank 0 has collected with the serial plate, bit by bit.
fn compare(conduit: &Conduit, plate: Plate, halos: usize, distributed: Duration) -> Result<Report> {
    let start = Instant::now();
    let expected = serial(plate);
    let serial = start.elapsed();
    let mut different = 0;
    let mut row = vec![0.0f64; plate.columns];
    for (index, expected) in expected.iter().enumerate() {
        conduit.get(&mut row[..], 0, halos + index * plate.columns * CELL)?;
        let pairs = row.iter().zip(expected);
        different += pairs.filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    }
    Ok(Report {
        plate,
        ranks: conduit.size(),
        distributed,
        serial,
        different,
    })
}
