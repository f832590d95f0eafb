//! The rules of `CONTRIBUTING.md` that a program can check, for the whole workspace.

mod commits;
mod width;
mod workspace;
