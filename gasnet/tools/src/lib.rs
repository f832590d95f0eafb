//! The library behind `gasnet_tools.h`: what of GASNet's portable tools is not inline in the header.
