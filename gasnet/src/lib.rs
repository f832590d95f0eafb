//! GASNet's C interface: what `gasnetex.h` and `gasnet.h` call.
