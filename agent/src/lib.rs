//! A node's transport agent. It performs the channel operations that the processes of its node
//! request on other nodes, over one of Conduit's networks. It is modelled on Dragon's HSTA.
//!
//! A [host] is the agent's view of its node: the processes' requests, the channels and the memory.

mod code;
pub mod dragonfly;
pub mod driver;
pub mod host;

mod machine;

pub use code::Code;
pub use dragonfly::Dragonfly;
pub use machine::{AgentMachine, Counters, Held, Limits, Node, Transfer};
