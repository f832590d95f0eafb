//! The rows, each of which compares an operation of the engine with a bare loop.

use std::cell::RefCell;
use std::rc::Rc;

use crate::Error;
use crate::alternate::Plan;
use crate::compare::{Comparison, measure_all};
use crate::figure::{Figure, Target, Unit};
use crate::limits::Limit;
use crate::limits::alone::Private;
use crate::placement::Placement;
use crate::side::Side;

use super::bare::{self, Locks};
use super::engine::End;
use super::loops::{Shared, ping_pong, writes};
use super::{Order, SEGMENT};

/// The number of bytes of a message in the bare ping-pong, which is the size of a short request
/// with two arguments, including its frame.
pub(super) const MESSAGE: usize = 56;

pub(super) const ROUND_TRIP: Target = Target::AtMost(1.25);
const PUTS: Target = Target::AtLeast(0.95);

/// The operation of a row.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shorts(Locks),
    /// The number of bytes.
    Mediums(usize),
    /// The number of bytes.
    Puts(usize, bare::End),
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    kind: Kind,
    target: Option<Target>,
}

const fn row(name: &'static str, kind: Kind, target: Option<Target>) -> Row {
    Row { name, kind, target }
}

/// All rows.
pub(super) const ROWS: [Row; 8] = [
    row(
        "am-round-trip",
        Kind::Shorts(Locks::Usual),
        Some(ROUND_TRIP),
    ),
    row("am-round-trip", Kind::Shorts(Locks::None), None),
    row("am-medium", Kind::Mediums(512), None),
    row("am-medium", Kind::Mediums(4096), None),
    row("put", Kind::Puts(SEGMENT, bare::End::Sent), Some(PUTS)),
    row("put", Kind::Puts(SEGMENT, bare::End::Seen), Some(PUTS)),
    row("put", Kind::Puts(64 << 10, bare::End::Seen), None),
    row("put", Kind::Puts(8, bare::End::Seen), None),
];

impl Row {
    /// Returns whether the row requires a library that can leave out its locks.
    pub(super) fn wants_no_locks(&self) -> bool {
        matches!(self.kind, Kind::Shorts(Locks::None))
    }

    /// Returns the row's comparison, whose name begins with the provider's.
    fn comparison<'p>(
        &self,
        provider: &str,
        end: &'p End,
        source: &'p Private,
        bare: Shared,
    ) -> Comparison<'p> {
        // Only a few names are leaked, because there is one for each row.
        let name: &'static str = format!("{provider}-{}", self.name).leak();
        let ping_pong = |name, size| {
            let piece = ping_pong(Rc::clone(&bare), size);
            Limit::new(name, size, Unit::Nanoseconds, Placement::Apart, piece)
        };
        match self.kind {
            Kind::Shorts(locks) => {
                let beside = match locks {
                    Locks::Usual => "ping-pong",
                    Locks::None => "ping-pong-unlocked",
                };
                let piece = move |side: &Side<'_>, count| end.shorts(side, count);
                Comparison::new(name, 0, ping_pong(beside, MESSAGE), self.target, piece)
            }
            Kind::Mediums(size) => {
                let payload = vec![7; size];
                let piece = move |side: &Side<'_>, count| end.mediums(side, &payload, count);
                Comparison::new(name, size, ping_pong("ping-pong", size), self.target, piece)
            }
            Kind::Puts(size, ends) => {
                let beside = match ends {
                    bare::End::Sent => "fi_write",
                    bare::End::Seen => "fi_write-seen",
                };
                let unit = match size {
                    0..1024 => Unit::Millions,
                    _ => Unit::Gigabytes,
                };
                let writes = writes(Rc::clone(&bare), size, ends);
                let limit = Limit::new(beside, size, unit, Placement::Apart, writes);
                let piece = move |side: &Side<'_>, count| end.puts(side, source, size, count);
                Comparison::new(name, size, limit, self.target, piece)
            }
        }
    }
}

/// The bare endpoints, one of each kind that the rows need.
pub(super) struct Endpoints {
    pub(super) usual: Shared,
    pub(super) unlocked: Option<Shared>,
}

impl Endpoints {
    fn of(&self, row: &Row) -> Shared {
        let unlocked = self.unlocked.as_ref().filter(|_| row.wants_no_locks());
        Rc::clone(unlocked.unwrap_or(&self.usual))
    }

    /// Shares an endpoint.
    pub(super) fn share(bare: bare::Bare) -> Shared {
        Rc::new(RefCell::new(bare))
    }
}

/// Returns a plan in which all rounds count, even if the limit changes. Rounds with an unchanged
/// limit are rare here, because a processor of a virtual machine is occasionally away for
/// milliseconds, and because the speed of TCP on loopback varies from one moment to the next. The
/// plan therefore takes many rounds of neighbouring readings, each of which is the fastest of a few
/// runs.
fn of_neighbours(plan: Plan) -> Plan {
    Plan {
        good: 3 * plan.good,
        most: 3 * plan.good,
        tolerance: f64::MAX,
        ..plan.longer(5)
    }
}

/// Measures the ordered rows on both sides. Collective. Returns the figures on side 0.
pub(super) fn measure(
    side: &Side<'_>,
    order: &Order,
    end: &End,
    source: &Private,
    endpoints: &Endpoints,
) -> Result<Vec<Figure>, Error> {
    let rows = order.rows().map(|row| {
        let bare = endpoints.of(&row);
        row.comparison(&order.provider, end, source, bare)
    });
    let plan = |unit| match unit {
        Unit::Gigabytes => of_neighbours(order.plan),
        _ => order.plan,
    };
    measure_all(side, plan, rows)
}
