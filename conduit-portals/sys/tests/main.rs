//! Tests of the bindings against the header, and of loading.

mod constants;
mod layout;
mod load;
mod self_test;
