//! Worlds of agents: with random operations, with a fault at each point of a message's way, and
//! with stolen work.

mod dragonfly;
mod faults;
mod figures;
mod hostile;
mod stealing;
mod worlds;
