//! The ways of synchronising.

use conduit_core::kernel::{Error, Handle};
use conduit_core::rma::Class;
use conduit_core::threads::Mode;

use super::{Done, Rank, Sync, text};

impl<M: Mode> Rank<'_, M> {
    pub(super) fn sync(&mut self, sync: Sync) -> Done {
        let engine = self.engine;
        match sync {
            Sync::One | Sync::TryOne if self.handles.is_empty() => engine.poll().map_err(text),
            Sync::One => {
                engine.rma().wait(self.handles.remove(0)).map_err(text)?;
                self.kept.remove(0).check()
            }
            Sync::TryOne => match engine
                .rma()
                .try_wait(self.handles.remove(0))
                .map_err(text)?
            {
                Some(handle) => {
                    self.handles.insert(0, handle);
                    Ok(())
                }
                None => self.kept.remove(0).check(),
            },
            Sync::Some => {
                let under_way = self.under_way();
                let ended = engine.rma().wait_some(&mut self.handles).map_err(text)?;
                self.count("wait_some", ended, under_way)?;
                if under_way > 0 && ended == 0 {
                    return Err("wait_some returned before any operation had ended".to_owned());
                }
                self.drop_ended()
            }
            Sync::TrySome => {
                let under_way = self.under_way();
                let ended = engine
                    .rma()
                    .try_wait_some(&mut self.handles)
                    .map_err(text)?;
                self.count("try_wait_some", ended, under_way)?;
                self.drop_ended()
            }
            Sync::All => {
                engine.rma().wait_all(&mut self.handles).map_err(text)?;
                self.count("wait_all", 0, 0)?;
                self.drop_ended()
            }
            Sync::TryAll => {
                let all = engine.rma().try_wait_all(&mut self.handles).map_err(text)?;
                if all != (self.under_way() == 0) {
                    return Err(format!(
                        "try_wait_all returned {all} with {} operations under way",
                        self.under_way()
                    ));
                }
                self.drop_ended()
            }
            Sync::Implicit(classes) => {
                let ended = engine.rma().wait_implicit(classes);
                self.implicit(ended.map(|()| true), classes)
            }
            Sync::TryImplicit => {
                let ended = engine.rma().try_implicit(Class::all());
                self.implicit(ended, Class::all())
            }
        }
    }

    fn implicit(&mut self, ended: Result<bool, Error>, classes: Class) -> Done {
        if self.region.is_some() {
            return match ended {
                Err(Error::AccessRegion { .. }) => Ok(()),
                other => Err(format!("synchronising in a region returned {other:?}")),
            };
        }
        if !ended.map_err(text)? {
            return Ok(());
        }
        let all = std::mem::take(&mut self.implicit);
        let (ended, left) = all
            .into_iter()
            .partition(|(class, _)| classes.contains(*class));
        self.implicit = left;
        let ended: Vec<_> = ended;
        ended.into_iter().try_for_each(|(_, kept)| kept.check())
    }

    fn under_way(&self) -> usize {
        self.handles
            .iter()
            .filter(|handle| !handle.is_done())
            .count()
    }

    /// Checks that the handles of the `ended` operations are done, and that no other handles are.
    fn count(&self, call: &str, ended: usize, before: usize) -> Done {
        let left = self.under_way();
        if left + ended == before || before == 0 && left == 0 {
            return Ok(());
        }
        Err(format!(
            "{call}: {ended} of {before} have ended, {left} are left"
        ))
    }

    fn drop_ended(&mut self) -> Done {
        let kept = std::mem::take(&mut self.kept);
        let handles = std::mem::take(&mut self.handles);
        for (handle, kept) in handles.into_iter().zip(kept) {
            if handle == Handle::DONE {
                kept.check()?;
            } else {
                self.handles.push(handle);
                self.kept.push(kept);
            }
        }
        Ok(())
    }
}
