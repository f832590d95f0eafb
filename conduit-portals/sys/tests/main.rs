//! The bindings against the header, and the loading.

mod constants;
mod layout;
mod load;
mod self_test;
