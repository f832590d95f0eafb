//! `conduit-hsta` as its users start it.

mod native;
