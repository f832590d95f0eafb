//! Tests of the example programs, and rules for the whole workspace.

mod licences;
mod programs;
mod settings_page;
mod tutorial;
