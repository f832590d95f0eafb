//! Decides whether a process without a launcher may be a job of one rank.
//!
//! A launcher that offers no way to the other ranks may have started several processes. Each would
//! become a job of its own and repeat the computation of the others. The variables that such a
//! launcher sets reveal it.

use crate::settings::{Groups as _, Settings};
use crate::{Error, Result};

/// Fails if the environment says that this process is one of several, unless `CONDUIT_ALONE`
/// declares it a job of its own.
///
/// Must be called before starting a job from a process that [has no launcher](has_launcher).
/// [`start`](crate::start()), [`start_as`](crate::start_as) and [`join`](crate::join) make this
/// check themselves.
///
/// # Errors
/// Returns [`Error::Start`] with the variables found and the commands to use instead, and
/// [`Error::Settings`] if a setting is unknown or its value is not accepted.
pub fn check_alone() -> Result<()> {
    let (settings, _) = Settings::from_env().map_err(Error::settings)?;
    match pmi::find::one_of_several() {
        Some(found) if !settings.job.alone => Err(Error::start(pmi::find::Error::Several {
            found,
            attempts: Vec::new(),
        })),
        _ => Ok(()),
    }
}

/// Returns whether a launcher has started this process as a rank that can reach the others. A
/// rank's children are not ranks, nor are processes that `CONDUIT_ALONE` declares jobs of their
/// own. That setting does not concern ranks with a connection of PMI-1, because the ranks of a
/// program that starts itself inherit it.
pub fn has_launcher() -> bool {
    let is_alone = || Settings::from_env().is_ok_and(|(settings, _)| settings.job.alone);
    pmi::find::has_pmi1() || pmi::find::has_launcher() && !is_alone()
}
