//! Tests of the program, which run one at a time. Of measured values, they check only that they are
//! numbers.

mod credits;
mod figures;
mod limits;
mod ofi;
mod peers;
mod portals4;
mod support;
