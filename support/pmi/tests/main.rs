//! Tests of client and server together.

mod connection;
mod simulated_job;
