//! Memory that peers can access: regions mapped here, and adopted regions of other networks.

use conduit_core::ni::{NiError, Rank, Region, RegionId};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::matching::over_limit;
use crate::transport::interface::Remote;

/// The maximum number of regions per rank.
pub(crate) const REGIONS: usize = 32;

#[derive(Debug)]
struct OwnRegion {
    region: Region,
    /// Whether the region was mapped here, as opposed to adopted.
    mapped: bool,
    /// The address of the region's first byte for direct access by peers.
    remote: Option<Remote>,
}

impl OwnRegion {
    /// Unmaps a region that is `mapped` here.
    fn unmap(&self) {
        // SAFETY: `create` has mapped the region. Nothing uses the region any more, because the
        // network is being dropped, or because the region has not become known.
        let unmapped = unsafe { munmap(self.region.base.cast(), self.region.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// All regions of a rank.
#[derive(Debug)]
pub(crate) struct Regions {
    rank: Rank,
    regions: Vec<OwnRegion>,
    room: usize,
}

impl Regions {
    pub(crate) fn new(rank: Rank, bytes: usize) -> Self {
        Self {
            rank,
            regions: Vec::new(),
            room: bytes,
        }
    }

    fn next(&self, operation: &'static str) -> Result<RegionId, NiError> {
        if self.regions.len() == REGIONS {
            return Err(NiError::Exhausted {
                operation,
                what: "regions",
                limit: REGIONS as u64,
                setting: "none: a constant of this network",
            });
        }
        // The cast is lossless: there are at most `REGIONS` regions.
        Ok(RegionId(self.regions.len() as u32))
    }

    pub(crate) fn create(&mut self, len: usize) -> Result<Region, NiError> {
        const OPERATION: &str = "region_create";
        let id = self.next(OPERATION)?;
        let rounded = len.max(1).checked_next_multiple_of(page_size());
        let Some(rounded) = rounded.filter(|&rounded| rounded <= self.room) else {
            return Err(over_limit(
                OPERATION,
                "bytes beside the regions that exist",
                len as u64,
                self.room as u64,
            ));
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // The system allocates pages on first use, as for any large allocation.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses overlaps no other mapping.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), rounded, protection, flags) };
        let base = mapped.map_err(|error| NiError::System {
            operation: OPERATION,
            rank: self.rank,
            reason: format!("mapping {rounded} bytes: {error}"),
        })?;
        self.room -= rounded;
        Ok(self.add(id, base.cast(), rounded, true))
    }

    pub(crate) fn adopt(&mut self, base: *mut u8, len: usize) -> Result<Region, NiError> {
        let id = self.next("region_adopt")?;
        Ok(self.add(id, base, len, false))
    }

    fn add(&mut self, id: RegionId, base: *mut u8, len: usize, mapped: bool) -> Region {
        // Match lists keep addresses as integers, which `pointer` converts back.
        let _ = base.expose_provenance();
        let region = Region { id, base, len };
        self.regions.push(OwnRegion {
            region,
            mapped,
            remote: None,
        });
        region
    }

    /// Records the address of an exposed region.
    pub(crate) fn exposed(&mut self, id: RegionId, remote: Remote) {
        if let Some(region) = self.regions.get_mut(id.0 as usize) {
            region.remote = Some(remote);
        }
    }

    /// Returns the address of a region for direct access.
    pub(crate) fn remote(&self, id: RegionId) -> Option<Remote> {
        self.regions.get(id.0 as usize)?.remote
    }

    /// Undoes the last creation or adoption, whose region is not yet known elsewhere.
    pub(crate) fn discard_last(&mut self) {
        if let Some(region) = self.regions.pop()
            && region.mapped
        {
            self.room += region.region.len;
            region.unmap();
        }
    }

    /// Returns whether a byte lies in a region.
    pub(crate) fn holds(&self, byte: *const u8) -> bool {
        let holds = |region: &OwnRegion| {
            byte.addr().wrapping_sub(region.region.base.addr()) < region.region.len
        };
        self.regions.iter().any(holds)
    }

    pub(crate) fn find(&self, id: RegionId) -> Option<Region> {
        self.regions.get(id.0 as usize).map(|region| region.region)
    }
}

/// Returns the pointer into a region for the address that a match list keeps.
#[inline]
pub(crate) fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

impl Drop for Regions {
    fn drop(&mut self) {
        for region in self.regions.iter().filter(|region| region.mapped) {
            region.unmap();
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
        // SAFETY: the mapping has this length.
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
