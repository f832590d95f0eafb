//! Tests of the checker with faulty code, in which it must find the faults, and checks of the real
//! code, in which it must find none.

mod faults;
mod small;
