//! Headers and bodies, the handler table, the pairing of longs.

mod pairing;
mod table;
mod wire;
