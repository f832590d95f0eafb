//! Sides that run as threads, for the unit tests.

use crate::Error;
use crate::area::AREA_BYTES;
use crate::mapping::Mapping;
use crate::placement::Cores;
use crate::side::{PATIENCE, Side};

/// Joins the measurement in `mapping` as a side that assumes a machine with one core.
pub(crate) fn side_of(mapping: &Mapping, rank: usize, sides: usize) -> Result<Side<'_>, Error> {
    Side::join(
        mapping.area()?,
        Cores::allowed()?.first(1),
        rank,
        sides,
        PATIENCE,
    )
}

/// Runs `body` on `sides` threads, each of which is a side in the same fresh area. Returns the
/// results.
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
