//! Jobs of several processes, in Rust and in C.

mod bad_input;
mod c_interface;
mod engine_api;
mod exits;
mod faults;
mod faults_ofi;
mod hangs;
mod hosts;
mod hosts_ofi;
mod hosts_portals4;
mod install;
mod launchers;
mod na_peers;
mod na_plugin;
mod processes;
mod semantics;
mod tools;
