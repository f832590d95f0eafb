//! Attach: the creation of this rank's segment, and the location of the other ranks' segments.

use am::select;

use crate::fork::Wiped;
use crate::kernel::Kernel;
use crate::kernel::control::SharedPtr;
use crate::kernel::error::{Error, Result};
use crate::kernel::portal_table::{IGNORE, SEGMENT, index, tag};
use crate::memory::{Memory, Segment, Segments};
use crate::ni::{EqId, MatchEntry, MdId, MeEvents, MeMemory, MeOptions, Ni, NiError, Rank};
use crate::threads::Mode;
use pmi::bootstrap::Bootstrap;

/// The information that ranks exchange when they attach.
struct Announcement {
    ok: bool,
    len: u64,
    address: u64,
}

impl Announcement {
    fn encode(&self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[0] = self.ok.into();
        bytes[1..9].copy_from_slice(&self.len.to_le_bytes());
        bytes[9..17].copy_from_slice(&self.address.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (ok, rest) = bytes.split_first()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (address, _) = rest.split_first_chunk::<8>()?;
        Some(Self {
            ok: *ok == 1,
            len: u64::from_le_bytes(*len),
            address: u64::from_le_bytes(*address),
        })
    }
}

impl Memory {
    /// Takes part, without a segment, in the other ranks' attach. Attach then fails on all ranks.
    pub(crate) fn decline(bootstrap: &mut dyn Bootstrap) -> Result<()> {
        let declined = Announcement {
            ok: false,
            len: 0,
            address: 0,
        };
        bootstrap.allgather(&declined.encode())?;
        Ok(())
    }

    /// Creates a segment of `bytes` bytes, unless `prepared` is an error, and locates the other
    /// ranks' segments. Completions of operations whose source is the segment go to `eq`. `prepare`
    /// receives the new segment before the other ranks learn of it. Collective; may be called once.
    pub(crate) fn attach<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        eq: EqId,
        bootstrap: &mut dyn Bootstrap,
        prepared: Result<()>,
        bytes: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<()> {
        let made = prepared.and_then(|()| Self::make(kernel, eq, bytes, prepare));
        let announcement = match &made {
            Ok(segment) => Announcement {
                ok: true,
                len: segment.len as u64,
                address: segment
                    .base
                    .map_or(0, |base| base.0.expose_provenance() as u64),
            },
            Err(_) => Announcement {
                ok: false,
                len: 0,
                address: 0,
            },
        };
        let all = bootstrap.allgather(&announcement.encode())?;
        let made = made?;
        let mut of = Vec::with_capacity(all.len());
        for (peer, bytes) in (0..).zip(&all) {
            let announced = Announcement::decode(bytes)
                .filter(|announced| announced.ok)
                .ok_or_else(|| {
                    Error::Bootstrap(format!("attach: rank {peer} could not attach its segment"))
                })?;
            of.push(Self::locate(kernel, peer, &announced)?);
        }
        let segments = Segments {
            // SAFETY: all-zero bytes are a valid `Segment`: an empty segment that is not mapped.
            of: unsafe { Wiped::new(of) },
            own: made.base.unwrap_or(SharedPtr(std::ptr::null_mut())),
            md: made.md,
            process: None,
        };
        self.set(kernel, segments)?;
        bootstrap.fence()?;
        Ok(())
    }

    pub(super) fn set<N: Ni, M: Mode>(
        &self,
        kernel: &Kernel<N, M>,
        segments: Segments,
    ) -> Result<()> {
        self.segments
            .set(segments)
            .map_err(|_| Error::AlreadyAttached {
                rank: kernel.job.rank,
            })
    }

    fn make<N: Ni, M: Mode>(
        kernel: &Kernel<N, M>,
        eq: EqId,
        bytes: usize,
        prepare: &mut dyn FnMut(*mut u8, usize),
    ) -> Result<Made> {
        if bytes == 0 {
            return Ok(Made {
                base: None,
                len: 0,
                md: None,
            });
        }
        let region = kernel.job.ni.region_create_prepared(bytes, prepare)?;
        debug_assert_eq!(
            region.id, SEGMENT,
            "regions are created in the same order on all ranks"
        );
        let entry = MatchEntry {
            memory: MeMemory::Region {
                region: region.id,
                offset: 0,
                len: region.len,
            },
            match_bits: select::RAR.into(),
            ignore_bits: IGNORE,
            source: None,
            options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC,
            events: MeEvents::empty(),
            tag: tag::RAR,
        };
        kernel.job.ni.me_append(index::RAR, entry)?;
        let raram = MatchEntry {
            match_bits: select::RARAM.into(),
            options: MeOptions::PUT,
            events: MeEvents::OPERATION,
            tag: tag::RARAM,
            ..entry
        };
        kernel.job.ni.me_append(index::AM, raram)?;
        // SAFETY: the segment is network memory that lives as long as the network. Calls that use
        // this descriptor require that local code does not change bytes that are in flight.
        let md = unsafe { kernel.job.ni.md_bind(region.base, region.len, eq)? };
        Ok(Made {
            base: Some(SharedPtr(region.base)),
            len: region.len,
            md: Some(md),
        })
    }

    /// Determines the location of a peer's segment in this process.
    fn locate<N: Ni, M: Mode>(
        kernel: &Kernel<N, M>,
        peer: Rank,
        announced: &Announcement,
    ) -> Result<Segment> {
        let len = announced.len as usize;
        let mut window = SharedPtr(std::ptr::null_mut());
        if len > 0
            && let Some(found) = kernel.job.ni.window(peer, SEGMENT)
        {
            if found.len < len {
                let reason = format!(
                    "announced a segment of {len} bytes, but only {} are mapped",
                    found.len
                );
                return Err(NiError::BadPeer {
                    operation: "attach",
                    rank: peer,
                    reason,
                }
                .into());
            }
            window = SharedPtr(found.base);
        }
        Ok(Segment {
            window,
            len,
            address: announced.address,
        })
    }
}

/// This rank's segment before it is announced.
struct Made {
    base: Option<SharedPtr>,
    len: usize,
    md: Option<MdId>,
}
