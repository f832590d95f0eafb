//! Channels for processes that have neither Dragon nor a launcher. A channel is a bounded queue of
//! messages on some node of a job. Processes access channels through their node's [agent].
//!
//! A [`Client`] connects to its node's agent. It creates [channels](Channel), or attaches to
//! existing ones by their [descriptors](Descriptor). It can send to, receive from and poll channels
//! on any node. The [`Gateway`] is the agent's side.
//!
//! A client and its agent share memory, namely the rings of a session of the [local
//! network](conduit_shm::peers). The session ends when either of them ends. Channels and their
//! messages belong to the agent, so when a client dies or misbehaves, only its own state is lost.
//!
//! ```no_run
//! use std::time::Duration;
//! use conduit_channels::{Client, Descriptor, Options, ReturnMode, Timeout};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In one process, with `conduit-hsta --native` running on its node:
//! let client = Client::open()?;
//! let channel = client.create(&Options::default())?;
//! println!("{}", channel.descriptor());
//! let message = channel.receive(Timeout::After(Duration::from_secs(10)))?;
//!
//! // In another process on any node, with the text that the first one printed:
//! # let text = String::new();
//! let client = Client::open()?;
//! let sender = client.attach(text.parse::<Descriptor>()?).sender();
//! sender.send(b"hello", ReturnMode::Received, Timeout::Never)?;
//! # Ok(())
//! # }
//! ```

mod c;
mod channel;
mod client;
mod connection;
mod descriptor;
mod gateway;
mod pool;
mod sessions;
#[cfg(test)]
mod tests;
mod wire;

pub use agent::Code;
pub use agent::host::ReturnMode;
pub use channel::{DEFAULT_BLOCK, DEFAULT_CAPACITY};
pub use client::{
    AGENT, Channel, Client, DEFAULT_AGENT, Options, Pending, Poll, Received, Sender, Timeout,
};
pub use connection::OpenError;
pub use descriptor::{DESCRIPTOR, Descriptor, MalformedDescriptor};
pub use gateway::{Gateway, GatewayConfig, GatewayError};
