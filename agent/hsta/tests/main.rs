//! Tests of `conduit-hsta`, started as its users start it.

mod dragon;
mod native;
