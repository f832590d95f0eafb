//! The start-up protocol between an agent and the process that starts it. It uses environment
//! variables, and the agent's standard input and output.

use std::env;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

/// The maximum number of nodes in a job.
pub const MAX_NODES: usize = 1 << 20;
/// The maximum number of addresses of a node.
pub const MAX_ADDRESSES: usize = 1 << 12;
/// The maximum number of agents on a node.
pub const MAX_AGENTS: u32 = 64;
/// The maximum length of an interface name or fabric address in bytes.
pub const MAX_LENGTH: usize = 1 << 12;

/// The information that an agent receives at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Startup {
    /// The port that all agents listen on.
    pub port: u16,
    /// The agent's purpose.
    pub purpose: Purpose,
    /// Whether the agent is at the front end.
    pub frontend: bool,
    /// The addresses of this node, with the names of their interfaces.
    pub addresses: Vec<(Ipv4Addr, String)>,
    /// All nodes, including this one.
    pub nodes: Vec<Node>,
}

/// An agent's purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Serves users' channels.
    User,
    /// Serves the channels of Dragon's own services.
    Infrastructure,
    /// Serves the channels of another job. The agent connects to that job at this address and port.
    Connect(Ipv4Addr, u16),
    /// Serves the channels of other jobs, which connect to the agent.
    Accept,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The node's address for this agent.
    pub address: Ipv4Addr,
    /// The node's host id.
    pub host: u64,
    /// The node's address in a fabric, if it has been discovered already.
    pub fabric: Option<Box<[u8]>>,
}

/// Why the start-up information could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    /// Standard input ended early or could not be read.
    #[error("start-up information: cannot read {field} from standard input")]
    Read {
        /// The field that was expected.
        field: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A value is invalid.
    #[error("start-up information: {field} is {value}; accepted: {accepted}")]
    Field {
        /// The field's name.
        field: &'static str,
        /// The value found.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
}

impl Startup {
    /// Reads the start-up information from `input`, and nothing that follows it.
    ///
    /// # Errors
    /// Returns an error if the input ends early or is invalid.
    pub fn read(input: &mut impl Read) -> Result<Self, StartupError> {
        let mut input = Input(input);
        let nodes = input.count("num_nodes", MAX_NODES, "0 to 1048576")?;
        let port = input.port("port")?;
        let user = input.flag("user_initiated")?;
        let frontend = input.flag("frontend")?;
        let infrastructure = input.flag("infrastructure")?;
        let connect = match input.flag("oob_connect")? {
            true => Some((input.address("oob_ip_addr")?, input.port("oob_port")?)),
            false => None,
        };
        let accept = input.flag("oob_accept")?;
        let purpose = match (user, infrastructure, connect, accept) {
            (true, false, None, false) => Purpose::User,
            (false, true, None, false) => Purpose::Infrastructure,
            (false, false, Some((address, port)), false) => Purpose::Connect(address, port),
            (false, false, None, true) => Purpose::Accept,
            several => {
                return Err(StartupError::Field {
                    field: "(user_initiated, infrastructure, oob_connect, oob_accept)",
                    value: format!("{several:?}"),
                    accepted: "exactly one of them",
                });
            }
        };
        let mut addresses = Vec::new();
        for _ in 0..input.count("n_local_ips", MAX_ADDRESSES, "0 to 4096")? {
            let address = input.address("local IP address")?;
            let name = input.block("length of an interface's name", "an interface's name")?;
            let name = String::from_utf8_lossy(&name).into_owned();
            addresses.push((address, name));
        }
        let nodes = (0..nodes).map(|_| {
            Ok(Node {
                address: input.address("IP address of a node")?,
                host: u64::from_le_bytes(input.bytes("host id of a node")?),
                fabric: match input.flag("fabric_ep_addrs_available")? {
                    true => Some(input.block("length of a fabric address", "a fabric address")?),
                    false => None,
                },
            })
        });
        let nodes = nodes.collect::<Result<_, _>>()?;
        Ok(Self {
            port,
            purpose,
            frontend,
            addresses,
            nodes,
        })
    }
}

/// Reads the fields of the start-up information in order. Numbers have four bytes in little-endian
/// order.
struct Input<'a, R>(&'a mut R);

impl<R: Read> Input<'_, R> {
    fn fill(&mut self, field: &'static str, bytes: &mut [u8]) -> Result<(), StartupError> {
        self.0
            .read_exact(bytes)
            .map_err(|source| StartupError::Read { field, source })
    }

    fn bytes<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], StartupError> {
        let mut bytes = [0; N];
        self.fill(field, &mut bytes)?;
        Ok(bytes)
    }

    fn number<T>(
        &mut self,
        field: &'static str,
        accepted: &'static str,
        accept: impl FnOnce(i32) -> Option<T>,
    ) -> Result<T, StartupError> {
        let value = i32::from_le_bytes(self.bytes(field)?);
        accept(value).ok_or_else(|| StartupError::Field {
            field,
            value: value.to_string(),
            accepted,
        })
    }

    fn count(
        &mut self,
        field: &'static str,
        most: usize,
        accepted: &'static str,
    ) -> Result<usize, StartupError> {
        self.number(field, accepted, |value| {
            usize::try_from(value).ok().filter(|count| *count <= most)
        })
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, StartupError> {
        self.number(field, "0 or 1", |value| match value {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        })
    }

    fn port(&mut self, field: &'static str) -> Result<u16, StartupError> {
        self.number(field, "1 to 65535", |value| {
            u16::try_from(value).ok().filter(|port| *port != 0)
        })
    }

    fn address(&mut self, field: &'static str) -> Result<Ipv4Addr, StartupError> {
        Ok(Ipv4Addr::from_bits(u32::from_le_bytes(self.bytes(field)?)))
    }

    fn block(
        &mut self,
        length: &'static str,
        field: &'static str,
    ) -> Result<Box<[u8]>, StartupError> {
        let mut bytes = vec![0; self.count(length, MAX_LENGTH, "0 to 4096")?];
        self.fill(field, &mut bytes)?;
        Ok(bytes.into())
    }
}

/// Returns this agent's number among the agents of its node. The number is the value of
/// `DRAGON_HSTA_NIC_IDX`, or 0 if that is not set.
///
/// # Errors
/// Returns an error if the value is not a number.
pub fn nic() -> Result<u32, StartupError> {
    const NAME: &str = "DRAGON_HSTA_NIC_IDX";
    let Some(value) = env::var_os(NAME) else {
        return Ok(0);
    };
    let value = value.to_string_lossy().into_owned();
    value.parse().map_err(|_| StartupError::Field {
        field: NAME,
        value,
        accepted: "a non-negative number",
    })
}

/// Returns the number of agents on this node. Dragon sets three variables for the gateways of each
/// agent. Those of the first agent are `DRAGON_GW1` to `DRAGON_GW3`.
pub fn agents() -> u32 {
    let is_there = |agent: &u32| env::var_os(format!("DRAGON_GW{}", 3 * agent + 1)).is_some();
    // The cast is lossless: the number is at most `MAX_AGENTS`.
    (0..MAX_AGENTS).take_while(is_there).count() as u32
}

/// Reports that the agent is ready, which Dragon expects within ten seconds.
///
/// # Errors
/// Returns an error if the output is closed.
pub fn ready(output: &mut impl Write) -> io::Result<()> {
    output.write_all(b"HSTA_CHILD_READY\n")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes the start-up information in the same way as the process that starts the agent.
    fn written(startup: &Startup) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = |value: usize| bytes.extend((value as u32).to_le_bytes());
        number(startup.nodes.len());
        number(startup.port.into());
        number((startup.purpose == Purpose::User).into());
        number(startup.frontend.into());
        number((startup.purpose == Purpose::Infrastructure).into());
        match startup.purpose {
            Purpose::Connect(address, port) => {
                number(1);
                number(address.to_bits() as usize);
                number(port.into());
            }
            _ => number(0),
        }
        number((startup.purpose == Purpose::Accept).into());
        number(startup.addresses.len());
        for (address, name) in &startup.addresses {
            bytes.extend(address.to_bits().to_le_bytes());
            bytes.extend((name.len() as u32).to_le_bytes());
            bytes.extend(name.bytes());
        }
        for node in &startup.nodes {
            bytes.extend(node.address.to_bits().to_le_bytes());
            bytes.extend(node.host.to_le_bytes());
            bytes.extend(u32::from(node.fabric.is_some()).to_le_bytes());
            if let Some(fabric) = &node.fabric {
                bytes.extend((fabric.len() as u32).to_le_bytes());
                bytes.extend(fabric);
            }
        }
        bytes
    }

    fn startups() -> impl Strategy<Value = Startup> {
        let address = || any::<u32>().prop_map(Ipv4Addr::from_bits);
        let purpose = prop_oneof![
            Just(Purpose::User),
            Just(Purpose::Infrastructure),
            Just(Purpose::Accept),
            (address(), 1..=u16::MAX).prop_map(|(address, port)| Purpose::Connect(address, port)),
        ];
        let fabric = prop::option::of(prop::collection::vec(any::<u8>(), 0..40));
        let node = (address(), any::<u64>(), fabric).prop_map(|(address, host, fabric)| Node {
            address,
            host,
            fabric: fabric.map(Vec::into),
        });
        (
            1..=u16::MAX,
            purpose,
            any::<bool>(),
            prop::collection::vec((address(), "[a-z0-9]{0,15}"), 0..4),
            prop::collection::vec(node, 0..5),
        )
            .prop_map(|(port, purpose, frontend, addresses, nodes)| Startup {
                port,
                purpose,
                frontend,
                addresses,
                nodes,
            })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_no_more(startup in startups()) {
            let mut bytes = written(&startup);
            bytes.push(7);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(Startup::read(&mut rest).unwrap(), startup);
            prop_assert_eq!(rest, [7]);
        }

        #[test]
        fn an_early_end_is_an_error(startup in startups(), end in any::<prop::sample::Index>()) {
            let bytes = written(&startup);
            let end = end.index(bytes.len());
            let ended = matches!(Startup::read(&mut &bytes[..end]), Err(StartupError::Read { .. }));
            prop_assert!(ended);
        }

        #[test]
        fn any_bytes_give_an_answer(bytes in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u8>()], 0..200)) {
            let _ = Startup::read(&mut bytes.as_slice());
        }
    }

    #[test]
    fn errors_name_the_field_and_what_is_accepted() {
        let said = |numbers: &[i32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            Startup::read(&mut bytes.as_slice())
                .unwrap_err()
                .to_string()
        };
        assert!(said(&[-1]).contains("num_nodes is -1"));
        assert!(said(&[2, 70000]).contains("port is 70000; accepted: 1 to 65535"));
        assert!(said(&[2, 7575, 2]).contains("user_initiated is 2; accepted: 0 or 1"));
        assert!(said(&[2, 7575, 1, 0, 1, 0, 0]).contains("exactly one"));
        assert!(said(&[2, 7575, 1, 0, 0, 0]).contains("oob_accept"));
        assert!(said(&[2, 7575, 1, 0, 0, 0, 0, i32::MAX]).contains("n_local_ips"));
    }
}
