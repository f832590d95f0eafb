//! Endpoints joined by a network that loses, doubles, changes and reorders, in virtual time.

mod network;
mod outside;
mod parking;
mod reference;

mod bandwidth;
mod death;
mod delivery;
mod hostile;
mod random;
