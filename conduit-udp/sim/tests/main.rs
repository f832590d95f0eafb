//! The program, its simulations, and endpoints that receive malformed packets.

mod command;
mod fuzz;
mod idle_memory;
mod simulation;
