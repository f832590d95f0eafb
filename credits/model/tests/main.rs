//! Faults that the checker must find, and the real code, in which it must find none.

mod faults;
mod small;
