//! Tests of the bindings against the headers, and in use.

mod layout;
mod load;
mod round_trip;
mod support;
