//! The job in which the tools run, as far as the crate `gasnet` has described it at its start.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// This process's place in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// This process's rank, from 0.
    pub rank: u32,
    /// The number of ranks in the job.
    pub ranks: u32,
}

static PLACE: OnceLock<Place> = OnceLock::new();
static BEFORE_ABORT: OnceLock<fn()> = OnceLock::new();
static VARIABLES: Mutex<Option<HashMap<Vec<u8>, &'static CStr>>> = Mutex::new(None);

/// Sets this process's rank and the number of ranks. Errors are prefixed with the rank, and only
/// rank 0 reports settings. Only the first call takes effect.
pub fn set_place(rank: u32, ranks: u32) {
    let _ = PLACE.set(Place { rank, ranks });
}

/// Returns this process's place, once it is known.
pub fn place() -> Option<Place> {
    PLACE.get().copied()
}

/// Sets the job's environment, in which `gasnett_getenv` looks before the process's own. Replaces
/// an environment set earlier.
pub fn set_environment(variables: impl IntoIterator<Item = (CString, CString)>) {
    // The values are leaked, because `gasnett_getenv` returns pointers to them, which must stay
    // valid forever as those of `getenv` do.
    let variables = variables
        .into_iter()
        .map(|(name, value)| (name.into_bytes(), &*Box::leak(value.into_boxed_c_str())))
        .collect();
    *lock() = Some(variables);
}

/// Sets a function that a fatal error calls after its message and before it aborts, to notify the
/// other ranks. Only the first call takes effect.
pub fn set_before_abort(tell: fn()) {
    let _ = BEFORE_ABORT.set(tell);
}

pub(crate) fn before_abort() {
    if let Some(tell) = BEFORE_ABORT.get() {
        tell();
    }
}

/// Returns a variable's value in the job's environment.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    lock().as_ref()?.get(name.to_bytes()).copied()
}

/// Removes a variable from the job's environment, because the process has set or unset its own.
pub(crate) fn forget_variable(name: &CStr) {
    if let Some(variables) = lock().as_mut() {
        variables.remove(name.to_bytes());
    }
}

fn lock() -> MutexGuard<'static, Option<HashMap<Vec<u8>, &'static CStr>>> {
    VARIABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether a list like `0,2-4,6` contains a rank. An empty list and `*` contain all ranks.
pub(crate) fn names_rank(list: &str, rank: u32) -> bool {
    let number = |text: &str| text.trim().parse::<u32>().ok();
    matches!(list.trim(), "" | "*")
        || list.split(',').any(|item| match item.split_once('-') {
            Some((first, last)) => match (number(first), number(last)) {
                (Some(first), Some(last)) => (first..=last).contains(&rank),
                _ => false,
            },
            None => number(item) == Some(rank),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks() {
        for list in ["", " * ", "3", "1,3", "0-3", "2, 3 - 5"] {
            assert!(names_rank(list, 3), "{list}");
        }
        for list in ["4", "0-2", "x", "3-", "5-1"] {
            assert!(!names_rank(list, 3), "{list}");
        }
    }
}
