//! Attach: a rank's segment, and where the others' are.

use am::handlers::Registration;
use am::select;

use super::everything::Everything;
use super::shared::Shared;
use super::start::{IGNORE, SEGMENT};
use super::{Engine, Error, Handler, Result, index, tag};
use crate::bootstrap::Bootstrap;
use crate::fork::Wiped;
use crate::ni::{MatchEntry, MdId, MeEvents, MeMemory, MeOptions, Ni, NiError, Rank};
use crate::shared;
use crate::threads::Mode;

/// A rank's segment as seen from here.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Where it is mapped here; null where it is not.
    pub window: Shared,
    /// Its bytes.
    pub len: usize,
    /// Its address at its owner.
    pub address: u64,
}

impl Segment {
    /// Stores to the segment if it is mapped here. `false`: it is not, and nothing has happened.
    ///
    /// # Safety
    /// `[offset, offset + len)` lies in the segment (`Engine::remote` has checked it) and `source` is valid for reads of
    /// `len` bytes.
    #[inline(always)]
    pub(super) unsafe fn store(&self, offset: usize, source: *const u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SAFETY: the range lies in the window, which is valid for writes as long as the network lives. The source may lie
        // in the same segment, hence `copy`. Other ranks may access the range at the same time: GASNet leaves the result of
        // such races open; no reference to it exists here.
        unsafe { shared::copy(source, self.window.0.add(offset), len) };
        true
    }

    /// Loads from the segment if it is mapped here. `false`: it is not, and nothing has happened.
    ///
    /// # Safety
    /// As for [`Segment::store`], with `destination` valid for writes.
    #[inline(always)]
    pub(super) unsafe fn load(&self, offset: usize, destination: *mut u8, len: usize) -> bool {
        if self.window.0.is_null() {
            return false;
        }
        // SAFETY: as in `store`, with the window valid for reads.
        unsafe { shared::load(self.window.0.add(offset), destination, len) };
        true
    }
}

/// All segments, and the descriptor of one's own. 24 bytes a rank.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Empty ones in a child.
    pub(crate) of: Wiped<Segment>,
    /// This rank's segment in this process.
    pub(crate) own: Shared,
    /// RARSRC: the initiating side of this rank's segment. `None` for an empty segment.
    pub(crate) md: Option<MdId>,
    /// GASNet's segment of everything: each rank's segment is all of its process's memory, offsets are addresses.
    pub(super) everything: Option<Everything>,
}

/// What a rank tells the others when it attaches.
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

impl<N: Ni, M: Mode> Engine<N, M> {
    /// Registers handlers and attaches a segment of `bytes` (rounded up to whole pages). Collective, once.
    ///
    /// A rank that cannot attach makes all ranks fail, each with an error.
    pub fn attach(
        &self,
        bootstrap: &mut dyn Bootstrap,
        handlers: &mut [Registration<Handler<N, M>>],
        bytes: usize,
    ) -> Result<()>
    where
        N: 'static,
    {
        self.job.check_process()?;
        if self.segments.get().is_some() {
            return Err(Error::AlreadyAttached {
                rank: self.job.rank,
            });
        }
        let made = self
            .register(handlers)
            .and_then(|()| self.make_segment(bytes));
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
            of.push(self.locate(peer, &announced)?);
        }
        let segments = Segments {
            // SAFETY: zeros are a segment that is empty and not mapped.
            of: unsafe { Wiped::new(of) },
            own: made.base.unwrap_or(Shared(std::ptr::null_mut())),
            md: made.md,
            everything: None,
        };
        self.segments
            .set(segments)
            .map_err(|_| Error::AlreadyAttached {
                rank: self.job.rank,
            })?;
        bootstrap.barrier()?;
        Ok(())
    }

    /// Takes part in the others' attach without one of its own: all of them fail.
    pub fn decline_attach(&self, bootstrap: &mut dyn Bootstrap) -> Result<()> {
        self.job.check_process()?;
        let declined = Announcement {
            ok: false,
            len: 0,
            address: 0,
        };
        bootstrap.allgather(&declined.encode())?;
        Ok(())
    }

    fn make_segment(&self, bytes: usize) -> Result<Made> {
        if bytes == 0 {
            return Ok(Made {
                base: None,
                len: 0,
                md: None,
            });
        }
        let region = self.job.ni.region_create(bytes)?;
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
        self.job.ni.me_append(index::RAR, entry)?;
        let raram = MatchEntry {
            match_bits: select::RARAM.into(),
            options: MeOptions::PUT,
            events: MeEvents::OPERATION,
            tag: tag::RARAM,
            ..entry
        };
        self.job.ni.me_append(index::AM, raram)?;
        // SAFETY: the segment is network memory that lives as long as the network. That local code doesn't change bytes
        // under way is the contract of the calls that use this descriptor.
        let md = unsafe { self.job.ni.md_bind(region.base, region.len, self.safe_eq)? };
        Ok(Made {
            base: Some(Shared(region.base)),
            len: region.len,
            md: Some(md),
        })
    }

    /// Where a peer's segment is, from here.
    fn locate(&self, peer: Rank, announced: &Announcement) -> Result<Segment> {
        let len = announced.len as usize;
        let mut window = Shared(std::ptr::null_mut());
        if len > 0
            && let Some(found) = self.job.ni.window(peer, SEGMENT)
        {
            if found.len < len {
                let reason = format!(
                    "announced a segment of {len} bytes, mapped are {}",
                    found.len
                );
                return Err(NiError::BadPeer {
                    operation: "attach",
                    rank: peer,
                    reason,
                }
                .into());
            }
            window = Shared(found.base);
        }
        Ok(Segment {
            window,
            len,
            address: announced.address,
        })
    }

    /// All ranks' segments. They stay where they are as long as the engine lives.
    pub fn all_segments(&self) -> Result<&[Segment]> {
        self.job.check_process()?;
        Ok(&self.segments("all_segments")?.of)
    }

    pub(super) fn segments(&self, operation: &'static str) -> Result<&Segments> {
        match self.segments.get() {
            Some(segments) => Ok(segments),
            None => Err(Error::NotAttached {
                operation,
                rank: self.job.rank,
            }),
        }
    }
}

/// This rank's segment, before the others know of it.
struct Made {
    base: Option<Shared>,
    len: usize,
    md: Option<MdId>,
}
