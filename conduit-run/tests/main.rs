//! The launcher as a program and as a library.

mod command_line;
mod ends;
mod library;
mod several;
mod support;
