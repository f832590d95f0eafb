//! The program itself. Its jobs run one at a time; the only assertion on numbers is that they are
//! numbers.

mod credits;
mod figures;
mod limits;
mod ofi;
mod peers;
mod portals4;
mod support;
