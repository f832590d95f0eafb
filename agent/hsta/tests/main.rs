//! `conduit-hsta` as its users start it.

mod dragon;
mod native;
