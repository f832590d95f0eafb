//! The program itself. Its jobs run one at a time, and no number is asserted beyond that it is one.

mod credits;
mod figures;
mod limits;
mod ofi;
mod peers;
mod portals4;
mod support;
