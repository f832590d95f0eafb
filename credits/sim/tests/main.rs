//! The program and its simulations.

mod command;
mod simulation;
