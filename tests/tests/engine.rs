//! The engine over networks of every kind, with all ranks in this process.

#![expect(
    clippy::duplicate_mod,
    reason = "the cases of the settings, for two networks"
)]

mod chaos_threads;
mod collective;
mod engine_model;
mod engine_model_ofi;
mod engine_model_portals4;
mod engine_model_udp;
mod forged;
mod settings_effects;
mod settings_effects_udp;
mod vis;
