//! Checks those rules of `CONTRIBUTING.md` that a program can check, for the whole workspace.

mod circles;
mod commits;
mod features;
mod pages;
mod settings;
mod width;
mod workspace;
