//! The example programs, and what the whole workspace has to keep to.

mod licences;
mod programs;
mod settings_page;
mod tutorial;
