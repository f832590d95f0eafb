//! Credits among ranks, against hostile peers, and in plans.

mod exchange;
mod hostile;
mod plan;
mod reference;
