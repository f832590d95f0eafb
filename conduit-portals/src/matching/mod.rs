//! Matching in software, for networks whose messages are matched by the target's processor. It
//! consists of match lists, memory descriptors, and the codes that messages use for operations and
//! outcomes. It does not depend on how messages travel.

mod codes;
mod descriptors;
mod list;

pub use codes::{atomic_code, atomic_of, outcome_code, outcome_of};
pub use descriptors::{Bound, DESCRIPTORS, Descriptors};
pub use list::{
    Entry, EntryId, FastHit, Hit, Incoming, Location, MAX_ENTRIES, MatchList, Memory, MessageKind,
    Run, rounded,
};

use conduit_core::ni::{MeMemory, NiError, PtIndex, Region, RegionId};

/// Number of portal table indices in networks that match in software. [`EntryId::me`] has only 4
/// bits for the index.
pub const PT_INDICES: usize = 16;

/// Checks the memory of an entry to be appended. Returns the memory's first byte if the memory is
/// in a region. `region` looks up a region of this rank.
///
/// # Errors
/// The region does not exist, the memory is not within the region, or `min_free` exceeds the
/// entry's size.
pub fn entry_start(
    memory: MeMemory,
    region: impl FnOnce(RegionId) -> Option<Region>,
) -> Result<Option<*mut u8>, NiError> {
    const OPERATION: &str = "me_append";
    match memory {
        MeMemory::Managed { bytes, min_free } if min_free > bytes => Err(over_limit(
            OPERATION,
            "min_free",
            min_free as u64,
            bytes as u64,
        )),
        MeMemory::Managed { .. } | MeMemory::Process { .. } | MeMemory::Nothing => Ok(None),
        MeMemory::Region {
            region: id,
            offset,
            len,
        } => {
            let region = region(id).ok_or(NiError::NoSuchObject {
                operation: OPERATION,
                what: "region",
                value: u64::from(id.0),
            })?;
            match offset.checked_add(len) {
                Some(end) if end <= region.len => Ok(Some(region.base.wrapping_add(offset))),
                end => Err(over_limit(
                    OPERATION,
                    "end within the region",
                    end.unwrap_or(usize::MAX) as u64,
                    region.len as u64,
                )),
            }
        }
    }
}

/// Returns the error for a value that exceeds its limit.
#[cold]
pub fn over_limit(operation: &'static str, what: &'static str, value: u64, limit: u64) -> NiError {
    NiError::OverLimit {
        operation,
        what,
        value,
        limit,
    }
}

/// Returns the error for an index that the table does not have.
#[cold]
pub fn no_such_index(operation: &'static str, index: PtIndex) -> NiError {
    debug_assert!(usize::from(index.0) >= PT_INDICES);
    NiError::NoSuchObject {
        operation,
        what: "portal table index",
        value: u64::from(index.0),
    }
}
