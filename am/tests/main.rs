//! Tests of headers and bodies, the handler table and the pairing of longs.

mod pairing;
mod table;
mod wire;
