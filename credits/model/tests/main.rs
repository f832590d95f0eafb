//! What the checker finds, and that there is nothing to be found.

mod faults;
mod small;
