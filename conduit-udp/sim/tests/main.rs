//! The program, its simulations, and what endpoints make of nonsense.

mod command;
mod fuzz;
mod idle_memory;
mod simulation;
