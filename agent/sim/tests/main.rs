//! Worlds of agents: at random, and with a death at each point of a message's way, and with work that is stolen.

mod dragonfly;
mod faults;
mod figures;
mod hostile;
mod stealing;
mod worlds;
