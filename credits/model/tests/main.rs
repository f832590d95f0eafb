//! The faults that the checker finds, and that it finds none in the real code.

mod faults;
mod small;
