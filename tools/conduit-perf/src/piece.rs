//! The [`Piece`], which is what is measured: it performs the same number of operations on all sides
//! at once and reports the time that they took.

use std::time::Duration;

use crate::Error;
use crate::side::Side;

/// Operations that the sides of a measurement perform together, which are those of a bare limit or
/// a figure.
///
/// A closure `FnMut(&Side, u64) -> Result<Duration, Error>` is a piece. A closure that calls
/// Conduit captures its rank's endpoint and maps Conduit's errors to [`Error::Figure`].
pub trait Piece {
    /// Performs `count` operations. Returns the time that they took by this side's clock. Only side
    /// 0's time is used.
    ///
    /// All sides call this with the same count. They have [met](Side::meet) since the previous
    /// piece, so no side is still running that one. A piece that needs a common start must meet
    /// again after its preparation. A piece may use the whole work area, but must not rely on the
    /// contents that its previous run left there.
    ///
    /// # Errors
    /// Returns any error that ends the measurement. The caller reports it to the other sides.
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error>;
}

impl<F> Piece for F
where
    F: FnMut(&Side<'_>, u64) -> Result<Duration, Error>,
{
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        self(side, count)
    }
}

/// Several ways to perform the same operations. Each run tries all of them and reports the time of
/// the fastest.
pub struct Fastest(Vec<Box<dyn Piece>>);

impl Fastest {
    /// Creates a piece from the ways. If there are none, a run takes no time.
    pub fn of<P: Piece + 'static>(ways: impl IntoIterator<Item = P>) -> Self {
        Self(
            ways.into_iter()
                .map(|way| Box::new(way) as Box<dyn Piece>)
                .collect(),
        )
    }
}

impl Piece for Fastest {
    fn run(&mut self, side: &Side<'_>, count: u64) -> Result<Duration, Error> {
        let mut fastest = None::<Duration>;
        for way in &mut self.0 {
            side.meet()?;
            let time = way.run(side, count)?;
            fastest = Some(fastest.map_or(time, |fastest| fastest.min(time)));
        }
        Ok(fastest.unwrap_or_default())
    }
}
