//! Tests that compare the bindings with the headers, and tests that use the bindings.

mod layout;
mod load;
mod round_trip;
mod support;
