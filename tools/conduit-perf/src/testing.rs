//! Sides as threads, for the unit tests.

use crate::Error;
use crate::area::AREA_BYTES;
use crate::mapping::Mapping;
use crate::placement::Cores;
use crate::side::{PATIENCE, Side};

/// Joins `mapping` as a side that is not pinned and assumes a machine with one core.
pub(crate) fn side_of(mapping: &Mapping, rank: usize, sides: usize) -> Result<Side<'_>, Error> {
    Side::join(
        mapping.area()?,
        Cores::allowed()?.first(1),
        rank,
        sides,
        PATIENCE,
    )
}

/// Runs `body` on each of `sides` threads over one fresh area and returns the results.
pub(crate) fn in_threads<T: Send>(sides: usize, body: impl Fn(&Side<'_>) -> T + Sync) -> Vec<T> {
    let mapping = Mapping::anonymous(AREA_BYTES).expect("mapping");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..sides)
            .map(|rank| {
                let (mapping, body) = (&mapping, &body);
                scope.spawn(move || body(&side_of(mapping, rank, sides).expect("join")))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("thread"))
            .collect()
    })
}
