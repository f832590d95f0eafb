//! Endpoints joined by a network that loses, duplicates, corrupts and reorders packets, in virtual
//! time.

mod idle;
mod network;
mod reference;
mod zero_copy;

mod bandwidth;
mod death;
mod delivery;
mod hostile;
mod random;
