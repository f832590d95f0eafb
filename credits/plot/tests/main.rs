//! Tests of the program and of its pictures.

mod command;
mod demo;
mod picture;
