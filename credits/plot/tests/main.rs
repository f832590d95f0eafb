//! The program and its pictures.

mod command;
mod demo;
mod picture;
