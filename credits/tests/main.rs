//! Tests of credits among ranks, with hostile peers, and in plans.

mod exchange;
mod hostile;
mod plan;
mod reference;
