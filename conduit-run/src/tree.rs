//! What connects the launcher with its daemons, one on each host.
//!
//! A daemon is started through a remote shell, and its standard input and output are the channel:
//! no port is opened, the shell authenticates, and the end of the launcher, the shell or the daemon
//! is the end of the channel. Beyond [`children::FAN_OUT`] hosts, daemons start further daemons in
//! the same way. Each host has a number; a daemon and those below it have consecutive numbers, so
//! frames are routed by the number of their host.

pub(crate) mod children;
mod environment;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod root;
pub(crate) mod shell;
pub(crate) mod start;
