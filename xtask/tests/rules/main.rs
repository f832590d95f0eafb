//! The rules of `CONTRIBUTING.md` that a program can check, for the whole workspace.

mod width;
mod workspace;
