//! Two plates are heated at one edge. Half of the ranks compute each plate, as a team that stops
//! when its plate no longer changes. `conduit-run -n 4 plates`.

use conduit::{AtomicOp, Handlers, ReduceOp, start};

const COLUMNS: usize = 32;
/// Rows of each rank, without the halo rows above and below them.
const ROWS: usize = 8;
/// Bytes of a row.
const ROW: usize = COLUMNS * size_of::<f64>();

// Halo rows arrive in the segment, even and odd steps in turn, each with a counter of arrivals.
const ABOVE: usize = 0;
const BELOW: usize = 1;

fn counter(step: u64, side: usize) -> usize {
    8 * (step as usize % 2 * 2 + side)
}

fn halo(step: u64, side: usize) -> usize {
    64 + ROW * (step as usize % 2 * 2 + side)
}

fn main() -> conduit::Result<()> {
    let conduit = start()?.attach(Handlers::new(), 64 + 4 * ROW)?;
    let segment = conduit.segment();
    let all = conduit.team();
    let plate = conduit.rank() * 2 / conduit.size();
    let team = all.split(Some(plate), 0)?.expect("each rank has a color");
    let above = team
        .rank()
        .checked_sub(1)
        .and_then(|rank| team.to_job(rank));
    let below = team.to_job(team.rank() + 1);

    let mut cells = vec![0.0; (ROWS + 2) * COLUMNS];
    if above.is_none() {
        cells[..COLUMNS].fill(f64::from(100 + 100 * plate));
    }
    let mut step = 0;
    loop {
        // The first row is the halo of the rank above, the last one that of the rank below.
        for (rank, row, side) in [(above, 1, BELOW), (below, ROWS, ABOVE)] {
            let Some(rank) = rank else { continue };
            let row = &cells[row * COLUMNS..][..COLUMNS];
            let (halo, counter) = (halo(step, side), counter(step, side));
            conduit.put_signal(rank, halo, row, counter, AtomicOp::Add, 1u64)?;
        }
        for (rank, row, side) in [(above, 0, ABOVE), (below, ROWS + 1, BELOW)] {
            let Some(_) = rank else { continue };
            let counter = counter(step, side);
            conduit.wait_until(|| Ok(segment.atomic_get::<u64>(counter)? > step / 2))?;
            segment.get(&mut cells[row * COLUMNS..][..COLUMNS], halo(step, side))?;
        }
        let mut change = [relax(&mut cells)];
        step += 1;
        if step % 50 == 0 {
            team.reduce_all(ReduceOp::Max, &mut change)?;
            if change[0] < 0.01 {
                break;
            }
        }
    }
    let mut heat = [cells[COLUMNS..(ROWS + 1) * COLUMNS].iter().sum::<f64>()];
    team.reduce(0, ReduceOp::Add, &mut heat)?;
    if team.rank() == 0 {
        let mean = heat[0] / (ROWS * COLUMNS) as f64 / f64::from(team.size());
        println!("plate {plate}: {step} steps, {mean:.1} degrees on average");
    }
    conduit.finish()
}

/// Sets each cell to the mean of its neighbours, and returns the largest change.
fn relax(cells: &mut [f64]) -> f64 {
    let old = cells.to_vec();
    let mut largest = 0f64;
    for row in 1..=ROWS {
        for at in row * COLUMNS + 1..(row + 1) * COLUMNS - 1 {
            cells[at] = (old[at - COLUMNS] + old[at + COLUMNS] + old[at - 1] + old[at + 1]) / 4.0;
            largest = largest.max((cells[at] - old[at]).abs());
        }
    }
    largest
}
