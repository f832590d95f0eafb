//! The node as its agent sees it: the channels of the node, and the gateways, into which processes
//! put their requests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::env;
use std::ffi::CString;
use std::io;
use std::mem::offset_of;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use agent::Code;
use agent::host::{Attempt, Event, Host, Memory as _, Message, NoMemory, Outcome, Place, Request};

use crate::channel::{self, Channel};
use crate::memory::{Memory, Padded, code};
use crate::message::{Answered, Asks, GatewayMessage};
use crate::processes::Processes;
use crate::siblings::Siblings;
use crate::sys::{Library, dragonMemoryPoolDescr_t, dragonNodeMap_t, text};

/// The maximum number of gateways of an agent: one each for sends, gets and polls.
const GATEWAYS: usize = 3;

/// The number of [`Host::next`] calls for each check whether a process is alive.
const CALLS_PER_PROBE: u64 = 64;

/// How long an ending agent waits for processes to take their answers. A process that is later
/// still finds its answer, but nothing frees the answer's memory.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Why attaching to a node failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting that Dragon passes to its agents is missing.
    #[error("{name} is not set; it must hold the base64 descriptor of this agent's gateway")]
    Missing {
        /// The setting's name.
        name: String,
    },
    /// A setting is not base64.
    #[error("{name} is not valid base64: {value:?}")]
    NoBase64 {
        /// The setting's name.
        name: String,
        /// The setting's value.
        value: String,
    },
    /// A libdragon call failed.
    #[error("cannot access {what}: {code:?}, {text}")]
    Refused {
        /// What could not be accessed.
        what: String,
        /// The result code.
        code: Code,
        /// The code's description.
        text: String,
    },
}

/// An address of a node, as announced by Dragon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAddress {
    /// The node's host id.
    pub host: u64,
    /// The node's address.
    pub address: Ipv4Addr,
}

/// A node, accessed through libdragon.
///
/// Dropping a `Gateway` fails all unfinished requests, and waits up to a second for the requesters
/// to take their answers.
pub struct Gateway {
    library: Library,
    node: u64,
    gateways: Vec<Channel>,
    /// The pool for messages to channels, unless the sender asks for another place.
    pool: dragonMemoryPoolDescr_t,
    /// The pool for the messages of gets, unless the process asks for another place.
    gateway_pool: dragonMemoryPoolDescr_t,
    calls: u64,
    requests: BTreeMap<u64, Arc<GatewayMessage>>,
    last_request: u64,
    processes: Processes,
    siblings: Option<Siblings>,
    answered: VecDeque<Answered>,
    /// The events that precede those of the gateways.
    events: VecDeque<Event<Memory>>,
    /// The flags of channels that have been attached to, by channel number. When a channel is
    /// destroyed, its flag is set and removed from this map.
    channels: HashMap<u64, Arc<AtomicBool>>,
    node_updates: Vec<NodeAddress>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway")
            .field("node", &self.node)
            .field("requests", &self.requests.len())
            .finish_non_exhaustive()
    }
}

impl Gateway {
    /// Attaches to the gateways of the agent with this number (`DRAGON_HSTA_NIC_IDX`). The
    /// environment has their descriptors: `DRAGON_HSTA_GW1_TIDX<nic>` is the gateway for sends,
    /// `DRAGON_HSTA_GW2_TIDX<nic>` that for gets, and `DRAGON_HSTA_GW3_TIDX<nic>` that for polls.
    /// If only the first one is set, it is the gateway for all. An agent at the front end must call
    /// [`at_front_end`] first.
    ///
    /// # Errors
    /// Returns an error if a gateway is missing or cannot be attached to.
    pub fn open(library: Library, nic: u32) -> Result<Self, OpenError> {
        let refused = |what: String, code: Code| OpenError::Refused {
            what,
            code,
            // SAFETY: any code is a valid argument, and the result is a static C string.
            text: unsafe { text((library.dragon_get_rc_string)(code.0)) },
        };
        let mut node = 0;
        // SAFETY: `node` has room for the result.
        code(unsafe { (library.dragon_host_id)(&mut node) })
            .map_err(|code| refused("the host id".to_owned(), code))?;
        let mut channels = HashMap::new();
        let mut gateways = Vec::new();
        for kind in 1..=GATEWAYS {
            let name = format!("DRAGON_HSTA_GW{kind}_TIDX{nic}");
            let Ok(value) = env::var(&name) else {
                // There is either one gateway for all operations or one for each kind.
                if kind == 2 {
                    break;
                }
                return Err(OpenError::Missing { name });
            };
            let Some(descriptor) = base64(library, &value) else {
                return Err(OpenError::NoBase64 { name, value });
            };
            let gateway = attach(library, &descriptor, &mut channels)
                .map_err(|code| refused(format!("the gateway that {name} names"), code))?;
            gateways.push(gateway);
        }
        let mut gateway_pool = dragonMemoryPoolDescr_t::empty();
        gateways[0]
            .pool(&mut gateway_pool)
            .map_err(|code| refused("the pool of the gateways".to_owned(), code))?;
        let mut pool = dragonMemoryPoolDescr_t::empty();
        // SAFETY: `pool` has room for the result.
        if unsafe { (library.dragon_memory_pool_attach_default)(&mut pool) } != 0 {
            // Dragon's own agents have no default pool.
            pool = gateway_pool;
        }
        // SAFETY: the function takes no arguments. The call silences libdragon's messages, because
        // the agent itself reports processes that are too late for their answers.
        unsafe { (library.dragon_gatewaymessage_silence_timeouts)() };
        Ok(Self {
            library,
            node,
            gateways,
            pool,
            gateway_pool,
            calls: 0,
            requests: BTreeMap::new(),
            last_request: 0,
            processes: Processes::default(),
            siblings: None,
            answered: VecDeque::new(),
            events: VecDeque::new(),
            channels,
            node_updates: Vec::new(),
        })
    }

    /// Lets the node's `count` agents, including this one, share work. `own` is this agent's number
    /// (`DRAGON_HSTA_NIC_IDX`), and `port` is the job's port.
    ///
    /// # Errors
    /// Returns an error if an agent with this number exists, or the system refuses sockets.
    pub fn join_siblings(&mut self, port: u16, own: u32, count: u32) -> io::Result<()> {
        self.siblings = Some(Siblings::open(self.node, port, own, count)?);
        Ok(())
    }

    /// Returns the host id of this node.
    pub fn node(&self) -> u64 {
        self.node
    }

    /// Returns the node addresses that Dragon has announced since the last call.
    pub fn node_updates(&mut self) -> Vec<NodeAddress> {
        std::mem::take(&mut self.node_updates)
    }

    /// Takes requests from a gateway until one is an event for the agent, and returns that event.
    fn receive(&mut self, gateway: usize) -> Option<Event<Memory>> {
        loop {
            let descriptor = match self.gateways[gateway].get() {
                Attempt::Done(carrier) => {
                    let length = carrier.memory.length().min(agent::host::MAX_DESCRIPTOR);
                    let mut bytes = vec![0; length];
                    carrier.memory.read(0, &mut bytes);
                    bytes
                }
                Attempt::Blocked(_) => return None,
                Attempt::Failed(code) => {
                    tracing::error!("cannot receive from gateway {}: {code}", gateway + 1);
                    return None;
                }
            };
            let Ok(mut padded) = Padded::new(&descriptor) else {
                continue;
            };
            // SAFETY: a Dragon process has put the bytes into the gateway. They are readable, and
            // are followed by padding.
            let message = match unsafe { GatewayMessage::attach(self.library, &padded.serial()) } {
                Ok(message) => Arc::new(message),
                Err(code) => {
                    tracing::error!("invalid message in gateway {}: {code}", gateway + 1);
                    continue;
                }
            };
            match message.asks() {
                Ok(Asks::For(ask)) => {
                    self.last_request += 1;
                    let id = self.last_request;
                    // Checks that the process is alive. Once it has been checked, `probe` notices
                    // its end.
                    if message.is_awaited() && !self.processes.lives(message.process()) {
                        continue;
                    }
                    self.requests.insert(id, message.clone());
                    return Some(Event::Request(Request {
                        id,
                        node: ask.node,
                        channel: ask.channel,
                        process: message.process(),
                        limit: ask.limit,
                        operation: ask.operation,
                    }));
                }
                Ok(Asks::NodesAt(memory)) => {
                    self.update_nodes(&memory);
                    self.answer(message, Outcome::Sent);
                }
                Ok(Asks::Destroyed(channel)) => {
                    self.destroyed(&channel);
                    message.discard();
                }
                Err(code) => self.answer(message, Outcome::Failed(code)),
            }
        }
    }

    fn answer(&mut self, message: Arc<GatewayMessage>, outcome: Outcome<Memory>) {
        // Does not answer a process that is dead: it may have been killed while it held the lock in
        // the message, for which libdragon would wait forever. The message is left in memory,
        // because the requester may be a fork of the process that the message names.
        if message.is_awaited() && !self.processes.lives(message.process()) {
            return;
        }
        self.answered.push_back(message.answer(outcome));
    }

    fn update_nodes(&mut self, nodes: &Memory) {
        const ENTRY: usize = size_of::<dragonNodeMap_t>();
        for entry in 0..nodes.length() / ENTRY {
            let mut host = [0; 8];
            nodes.read(
                entry * ENTRY + offset_of!(dragonNodeMap_t, host_id),
                &mut host,
            );
            let mut address = [0; 4];
            nodes.read(
                entry * ENTRY + offset_of!(dragonNodeMap_t, ip_addr),
                &mut address,
            );
            self.node_updates.push(NodeAddress {
                host: u64::from_ne_bytes(host),
                address: Ipv4Addr::from_bits(u32::from_ne_bytes(address)),
            });
        }
    }

    fn destroyed(&mut self, channel: &[u8]) {
        let number = channel::number(self.library, channel).ok();
        tracing::debug!("channel destroyed: {number:?}");
        if let Some(flag) = number.and_then(|number| self.channels.remove(&number)) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Checks whether the next process is alive. If it is not, queues events that its requests are
    /// abandoned.
    fn probe(&mut self) {
        if let Some(ended) = self.processes.ended() {
            let abandoned = self
                .requests
                .iter()
                .filter(|(_, message)| message.process() == ended && message.is_awaited());
            self.events
                .extend(abandoned.map(|(&id, _)| Event::Abandoned(id)));
        }
    }

    /// Releases the next answer if its process has taken it or is too late.
    fn settle(&mut self) {
        if let Some(mut answered) = self.answered.pop_front()
            && !answered.is_settled()
        {
            self.answered.push_back(answered);
        }
    }
}

impl Host for Gateway {
    type Memory = Memory;
    type Channel = Channel;

    fn next(&mut self, sends: bool) -> Option<Event<Memory>> {
        self.settle();
        self.calls += 1;
        if self.calls.is_multiple_of(CALLS_PER_PROBE) {
            self.probe();
        }
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let first = usize::from(!sends);
        let gateways = self.gateways.len();
        // Each call starts with the next gateway, in round-robin order.
        let turn = self.calls as usize;
        (0..gateways)
            .map(|index| (turn + index) % gateways)
            .filter(|gateway| *gateway >= first)
            .find_map(|gateway| self.receive(gateway))
    }

    fn complete(&mut self, request: u64, outcome: Outcome<Memory>) {
        if let Some(message) = self.requests.remove(&request) {
            self.answer(message, outcome);
        }
    }

    fn allocate(&mut self, bytes: usize, place: Place<'_>) -> Result<Memory, NoMemory> {
        let (wish, pool) = match place {
            Place::Channel(wish) => (wish.map(Box::from), &self.pool),
            Place::Get(request) => {
                let request = self.requests.get(&request);
                let request = request.ok_or(NoMemory::Ever(Code::INVALID_ARGUMENT))?;
                (request.wish().map_err(NoMemory::Ever)?, &self.gateway_pool)
            }
        };
        match wish {
            Some(wish) => Memory::at(self.library, &wish, bytes),
            None => Memory::allocate(self.library, pool, bytes),
        }
    }

    fn import(&mut self, name: &[u8]) -> Result<Memory, Code> {
        Memory::import(self.library, name)
    }

    fn siblings(&mut self) -> Option<&mut dyn agent::host::Siblings> {
        Some(self.siblings.as_mut()?)
    }

    fn attach(&mut self, descriptor: &[u8]) -> Result<Channel, Code> {
        attach(self.library, descriptor, &mut self.channels)
    }

    fn send(
        &mut self,
        channel: &mut Channel,
        message: &mut Option<Message<Memory>>,
        receipt: Option<u64>,
    ) -> Attempt<()> {
        let attempt = channel.send(message);
        if attempt == Attempt::Done(()) {
            // The receipt is reported at once, because libdragon does not report when a message is
            // taken.
            self.events.extend(receipt.map(Event::Received));
        }
        attempt
    }

    fn get(&mut self, channel: &mut Channel) -> Attempt<Message<Memory>> {
        channel.get()
    }

    fn poll(&mut self, channel: &mut Channel, mask: u16) -> Attempt<(u64, Code)> {
        channel.poll(mask)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        while let Some(event) = self.next(true) {
            drop(event);
        }
        for (_, message) in std::mem::take(&mut self.requests) {
            self.answer(message, Outcome::Failed(Code::FAILURE));
        }
        let deadline = Instant::now() + LAST_ANSWERS;
        while !self.answered.is_empty() && Instant::now() < deadline {
            self.settle();
            std::thread::yield_now();
        }
    }
}

/// Sets the host id that libdragon uses to that of the front end, which differs from the host id of
/// its machine.
///
/// # Errors
/// Returns an error if libdragon refuses.
pub fn at_front_end(library: Library) -> Result<(), Code> {
    /// `FRONTEND_HOSTID`, in the package's `infrastructure/facts.py`.
    const FRONT_END: u64 = 1;
    // SAFETY: the function takes only a number, and any number is valid.
    code(unsafe { (library.dragon_set_host_id)(FRONT_END) })
}

fn attach(
    library: Library,
    descriptor: &[u8],
    channels: &mut HashMap<u64, Arc<AtomicBool>>,
) -> Result<Channel, Code> {
    let number = channel::number(library, descriptor)?;
    // The channel's flag is registered only after attaching. An invalid channel is never reported
    // as destroyed, so nothing would remove its flag.
    Channel::attach(library, descriptor, || {
        channels.entry(number).or_default().clone()
    })
}

fn base64(library: Library, value: &str) -> Option<Box<[u8]>> {
    let value = CString::new(value).ok()?;
    let mut length = 0;
    // SAFETY: `value` is a valid C string, and `length` has room for the length.
    let decoded = unsafe { (library.dragon_base64_decode)(value.as_ptr(), &mut length) };
    if decoded.is_null() {
        return None;
    }
    // SAFETY: `decoded` points to `length` bytes that libdragon has allocated with C's `malloc`.
    unsafe {
        let bytes = std::slice::from_raw_parts(decoded, length).into();
        libc::free(decoded.cast());
        Some(bytes)
    }
}
