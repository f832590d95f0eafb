//! A node's transport agent: it does the channel operations of all processes of its node that go to other nodes, over one
//! of Conduit's networks. Dragon's HSTA is the model.
//!
//! A [host] is what an agent knows of its node: processes' requests, channels and memory.

mod code;
pub mod dragonfly;
pub mod driver;
pub mod host;

mod machine;

pub use code::Code;
pub use dragonfly::Dragonfly;
pub use machine::{AgentMachine, Counters, Held, Limits, Node, Transfer};
