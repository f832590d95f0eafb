//! Worlds of agents: at random, and with a death at each point of a message's way.

mod faults;
mod worlds;
