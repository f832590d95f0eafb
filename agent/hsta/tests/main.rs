//! Tests of `conduit-hsta`, which they start in the way that users do.

mod dragon;
mod native;
