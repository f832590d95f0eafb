//! The variables of GASNet's launchers.

use std::ffi::OsString;

/// The variables that name hosts, in the order of GASNet's README. Those of batch systems follow.
pub(crate) const SERVERS: [&str; 3] = ["GASNET_SSH_SERVERS", "AMUDP_SSH_SERVERS", "SSH_SERVERS"];
pub(crate) const FILES: [&str; 2] = ["GASNET_SSH_NODEFILE", "GASNET_NODEFILE"];

/// Finds a variable's value, unless it is empty.
pub(crate) type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Returns the value of the first of these variables that is set and not blank.
pub(crate) fn text(variable: Variable<'_>, names: &[&str]) -> Option<String> {
    let values = names.iter().filter_map(|name| variable(name));
    let mut texts = values.map(|value| value.to_string_lossy().into_owned());
    texts.find(|text| !text.trim().is_empty())
}
