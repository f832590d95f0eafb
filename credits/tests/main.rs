//! Credits among ranks, against hostile peers, and as they are planned.

mod exchange;
mod hostile;
mod plan;
mod reference;
