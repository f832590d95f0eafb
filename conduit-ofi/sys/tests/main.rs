//! The bindings against the headers, and at work.

mod layout;
mod load;
mod round_trip;
mod support;
