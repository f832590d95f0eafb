//! Tests of the program and of its simulations.

mod command;
mod simulation;
