//! Memory that peers can reach: mappings of this network's own, and what others keep.

use conduit_core::ni::{NiError, Rank, Region, RegionId};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::matching::over_limit;
use crate::transport::interface::Remote;

/// Regions of a rank.
pub(crate) const REGIONS: usize = 32;

#[derive(Debug)]
struct Kept {
    region: Region,
    /// Mapped here, not adopted.
    own: bool,
    /// Its first byte, where peers can reach it directly.
    remote: Option<Remote>,
}

impl Kept {
    /// Of a region of this network's own, when its rank or the network ends with it.
    fn unmap(&self) {
        // SAFETY: mapped by `create`, and whoever could reach it is gone with the network, or was never told of it.
        let unmapped = unsafe { munmap(self.region.base.cast(), self.region.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// All regions of a rank.
#[derive(Debug)]
pub(crate) struct Regions {
    rank: Rank,
    kept: Vec<Kept>,
    room: usize,
}

impl Regions {
    pub(crate) fn new(rank: Rank, bytes: usize) -> Self {
        Self {
            rank,
            kept: Vec::new(),
            room: bytes,
        }
    }

    fn next(&self, operation: &'static str) -> Result<RegionId, NiError> {
        if self.kept.len() == REGIONS {
            return Err(NiError::Exhausted {
                operation,
                what: "regions",
                limit: REGIONS as u64,
                setting: "none: a constant of this network",
            });
        }
        // Fits: there are few.
        Ok(RegionId(self.kept.len() as u32))
    }

    pub(crate) fn create(&mut self, len: usize) -> Result<Region, NiError> {
        const OPERATION: &str = "region_create";
        let id = self.next(OPERATION)?;
        let rounded = len.max(1).checked_next_multiple_of(page_size());
        let Some(rounded) = rounded.filter(|&rounded| rounded <= self.room) else {
            return Err(over_limit(
                OPERATION,
                "bytes beside the regions that exist (setting region_bytes)",
                len as u64,
                self.room as u64,
            ));
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // Pages come when they are first used, as those of any large allocation.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at a place of the system's choice touches no other.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), rounded, protection, flags) };
        let base = mapped.map_err(|error| NiError::System {
            operation: OPERATION,
            rank: self.rank,
            reason: format!("mapping {rounded} bytes: {error}"),
        })?;
        self.room -= rounded;
        Ok(self.keep(id, base.cast(), rounded, true))
    }

    pub(crate) fn adopt(&mut self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        let id = self.next("region_adopt")?;
        Ok(self.keep(id, base, len, false))
    }

    fn keep(&mut self, id: RegionId, base: *mut u8, len: usize, own: bool) -> Region {
        // Match lists keep places as numbers.
        let _ = base.expose_provenance();
        let region = Region { id, base, len };
        self.kept.push(Kept {
            region,
            own,
            remote: None,
        });
        region
    }

    /// Peers can reach a region directly.
    pub(crate) fn exposed(&mut self, id: RegionId, remote: Remote) {
        if let Some(kept) = self.kept.get_mut(id.0 as usize) {
            kept.remote = Some(remote);
        }
    }

    /// Where they do.
    pub(crate) fn remote(&self, id: RegionId) -> Option<Remote> {
        self.kept.get(id.0 as usize)?.remote
    }

    /// Takes back the region that came last, which nobody was told of.
    pub(crate) fn discard_last(&mut self) {
        if let Some(kept) = self.kept.pop()
            && kept.own
        {
            self.room += kept.region.len;
            kept.unmap();
        }
    }

    /// Whether a byte lies in one of them.
    pub(crate) fn holds(&self, byte: *const u8) -> bool {
        let holds =
            |kept: &Kept| byte.addr().wrapping_sub(kept.region.base.addr()) < kept.region.len;
        self.kept.iter().any(holds)
    }

    pub(crate) fn find(&self, id: RegionId) -> Option<Region> {
        self.kept.get(id.0 as usize).map(|kept| kept.region)
    }
}

/// A place within a region, from the number that a match list keeps.
#[inline]
pub(crate) fn place(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

impl Drop for Regions {
    fn drop(&mut self) {
        for kept in self.kept.iter().filter(|kept| kept.own) {
            kept.unmap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_pages_within_limits() {
        let page = page_size();
        let mut regions = Regions::new(0, 4 * page);
        let first = regions.create(1).unwrap();
        assert_eq!((first.id, first.len), (RegionId(0), page));
        assert!(first.base.addr().is_multiple_of(page));
        // SAFETY: a mapping of this length.
        let zero = unsafe { std::slice::from_raw_parts(first.base, page) };
        assert!(zero.iter().all(|byte| *byte == 0));
        assert!(matches!(
            regions.create(4 * page),
            Err(NiError::OverLimit { .. })
        ));
        let adopted = regions.adopt(first.base, page).unwrap();
        assert_eq!(regions.find(adopted.id), Some(adopted));
        assert_eq!(adopted.id, RegionId(1));
        assert_eq!(regions.create(3 * page).unwrap().id, RegionId(2));
        for _ in 3..REGIONS {
            regions.adopt(first.base, page).unwrap();
        }
        let refused = regions.adopt(first.base, page);
        assert!(matches!(refused, Err(NiError::Exhausted { .. })));
        assert_eq!(regions.find(RegionId(99)), None);
    }
}
