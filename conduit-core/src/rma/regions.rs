//! Calls on implicit operations and access regions.

use super::implicit::{CLASSES, Class, Region, with};
use crate::engine::report::Awaits;
use crate::engine::{Calls, subject};
use crate::kernel::context::Entered;
use crate::kernel::error::{Error, Result};
use crate::kernel::handle::{Handle, OpId};
use crate::ni::Ni;
use crate::threads::Mode;

impl<'e, N: Ni, M: Mode> Calls<'e, N, M, subject::Rma> {
    /// Returns the group that an implicit operation of this thread must join.
    pub(crate) fn implicit_group(self, operation: &'static str, class: Class) -> Result<OpId> {
        self.job()
            .check_context(operation, am::Operation::Request)?;
        let existing = with(self.kernel().identity, |implicit| match implicit.region {
            Region::Open { group, .. } => group,
            Region::Closed => implicit.groups[class.place()],
        });
        if let Some(group) = existing {
            return Ok(group);
        }
        let open = with(self.kernel().identity, |implicit| {
            matches!(implicit.region, Region::Open { .. })
        });
        let group = self.kernel().begin_group(operation, open)?;
        with(self.kernel().identity, |implicit| {
            match &mut implicit.region {
                Region::Open { group: region, .. } => *region = Some(group),
                Region::Closed => implicit.groups[class.place()] = Some(group),
            }
        });
        Ok(group)
    }

    /// Begins an access region. From here on, this thread's implicit operations belong to the
    /// region rather than to the thread's implicit groups.
    ///
    /// Regions do not nest.
    pub fn begin_region(self) -> Result<()> {
        self.open_region("begin_region", false)
    }

    /// Begins a region as [`Calls::begin_region`] does, but only [`Calls::end_scope`] can end it.
    /// Code that relies on waiting for the region's operations can thus be sure that nobody else
    /// ends the region.
    pub fn begin_scope(self) -> Result<()> {
        self.open_region("begin_scope", true)
    }

    fn open_region(self, operation: &'static str, scoped: bool) -> Result<()> {
        with(self.kernel().identity, |implicit| match implicit.region {
            Region::Open { .. } => Err(self.region_error(
                operation,
                "access regions do not nest, and one is open on this thread",
            )),
            Region::Closed => {
                implicit.region = Region::Open {
                    group: None,
                    scoped,
                };
                Ok(())
            }
        })
    }

    /// Ends this thread's region and returns one handle for all operations of the region.
    pub fn end_region(self) -> Result<Handle> {
        let group = with(self.kernel().identity, |implicit| match implicit.region {
            Region::Open {
                group,
                scoped: false,
            } => {
                implicit.region = Region::Closed;
                Ok(group)
            }
            Region::Open { scoped: true, .. } => Err(self.region_error(
                "end_region",
                "the access region open on this thread belongs to a scope",
            )),
            Region::Closed => {
                Err(self.region_error("end_region", "no access region is open on this thread"))
            }
        })?;
        let Some(group) = group else {
            return Ok(Handle::DONE);
        };
        Ok(self.kernel().operations.close(group))
    }

    /// Ends this thread's region, even if it belongs to a scope, and waits for all its operations.
    /// If this returns an error, the job has failed, so no operation of the region accesses its
    /// local memory any more.
    pub fn end_scope(self) -> Result<()> {
        let region = with(self.kernel().identity, |implicit| {
            std::mem::take(&mut implicit.region)
        });
        let Region::Open {
            group: Some(group), ..
        } = region
        else {
            return Ok(());
        };
        let handle = self.kernel().operations.close(group);
        // An open prepared payload would make the wait fail. This wait must not fail, because the
        // caller's buffers belong to the network until it is over.
        let _outside = Entered::new(am::Context::Outside);
        self.wait_in("scope", handle)
    }

    fn region_error(self, operation: &'static str, rule: &'static str) -> Error {
        Error::AccessRegion {
            operation,
            rank: self.job().rank,
            rule,
        }
    }

    /// Returns the groups that belong to the given classes.
    fn implicit_groups(
        self,
        operation: &'static str,
        classes: Class,
    ) -> Result<[Option<OpId>; CLASSES]> {
        with(self.kernel().identity, |implicit| match implicit.region {
            Region::Open { .. } => Err(self.region_error(
                operation,
                "implicit operations can't be synchronised while an access region is open",
            )),
            Region::Closed => {
                let mut groups = implicit.groups;
                for (place, group) in groups.iter_mut().enumerate() {
                    *group = group.filter(|_| classes.bits() >> place & 1 == 1);
                }
                Ok(groups)
            }
        })
    }

    /// Returns whether these groups have ended. If so, removes them, so that a thread that has
    /// synchronised holds no operation id.
    fn implicit_done(self, groups: [Option<OpId>; CLASSES]) -> bool {
        if !self.kernel().operations.take_groups(&groups) {
            return false;
        }
        with(self.kernel().identity, |implicit| {
            for (group, ended) in implicit.groups.iter_mut().zip(groups) {
                *group = group.filter(|_| *group != ended);
            }
        });
        true
    }

    /// Waits for this thread's implicit operations of the given classes.
    pub fn wait_implicit(self, classes: Class) -> Result<()> {
        let operation = match classes {
            Class::PUTS => "wait_puts",
            Class::GETS => "wait_gets",
            Class::ATOMICS => "wait_atomics",
            Class::COLLECTIVES => "wait_collectives",
            _ => "wait_implicit",
        };
        let groups = self.implicit_groups(operation, classes)?;
        if groups == [None; CLASSES] {
            return self.engine.check_fault();
        }
        self.engine
            .wait_for(operation, Awaits::Operations, |engine| {
                Ok(engine.rma().implicit_done(groups).then_some(()))
            })
    }

    /// Polls once and returns whether this thread's implicit operations of the given classes have
    /// ended.
    pub fn try_implicit(self, classes: Class) -> Result<bool> {
        self.engine.poll()?;
        self.test_implicit(classes)
    }

    /// Tests as [`Calls::try_implicit`] does, but without polling.
    pub fn test_implicit(self, classes: Class) -> Result<bool> {
        Ok(self.implicit_done(self.implicit_groups("test_implicit", classes)?))
    }
}
