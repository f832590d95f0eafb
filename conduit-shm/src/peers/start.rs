//! The start of a process's end of the network.

use std::collections::VecDeque;
use std::sync::Arc;

use conduit_core::fork::Standing;
use conduit_portals::host::host;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::process::{PTracer, geteuid, set_ptracer};

use super::memory::FrontPage;
use super::receive::{Found, LISTENER};
use super::table::Peers;
use super::{Local, LocalConfig, LocalError, address, socket};

impl Local {
    /// Opens an end of the network. Other processes can connect at once, and
    /// [`Transport::receive`](conduit_portals::transport::Transport::receive) answers them.
    ///
    /// # Errors
    /// Returns a [`LocalError`] if the network cannot be started. Nothing is left behind in that
    /// case.
    pub fn start(config: &LocalConfig) -> Result<Self, LocalError> {
        config.check()?;
        let random = || getrandom::u64().map_err(LocalError::system("cannot get random numbers"));
        let host = host().map_err(LocalError::system("cannot identify the host"))?;
        let user = geteuid().as_raw();
        let name = match &config.name {
            Some(name) => name.clone(),
            None => format!("{:016x}", random()?),
        };
        let address = address::encode(host, user, &name);
        let listener =
            socket::listen_as(&address::socket_name(&address)).map_err(|error| match error {
                Errno::ADDRINUSE => LocalError::Taken(name),
                error => LocalError::system("cannot listen on a socket")(error),
            })?;
        let (front_file, front) = FrontPage::create(config.max_peers)
            .map_err(LocalError::system("cannot create shared memory"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(LocalError::system("cannot create an epoll descriptor"))?;
        let spare = rustix::io::fcntl_dupfd_cloexec(&epoll, 0)
            .map_err(LocalError::system("cannot reserve a descriptor"))?;
        epoll::add(&epoll, &listener, LISTENER, epoll::EventFlags::IN)
            .map_err(LocalError::system("cannot watch a socket"))?;
        if config.copy {
            allow_copying();
        }
        Ok(Self {
            address,
            host,
            user,
            ring: config.ring,
            probe: match config.copy {
                true => Some(Box::new(random()?)),
                false => None,
            },
            listener: Some(listener),
            is_listener_paused: false,
            spare: Some(spare),
            epoll: Arc::new(epoll),
            front,
            front_file,
            peers: Peers::new(config.max_peers),
            strangers: VecDeque::new(),
            generation: 0,
            watched: Vec::new(),
            pending: Vec::new(),
            sending: Vec::new(),
            wanting: Vec::new(),
            retrying: Vec::new(),
            failing: Vec::new(),
            found: Found::default(),
            is_asleep: false,
            standing: Standing::new(),
        })
    }
}

/// Lets all processes of this user copy this process's memory where the system would allow only the
/// process's parents to do so (Yama). The system can allow one process or all processes, and there
/// are many peers.
fn allow_copying() {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if scope.is_ok_and(|scope| scope.trim() == "1")
        && let Err(error) = set_ptracer(PTracer::Any)
    {
        tracing::debug!(%error, "cannot let peers copy the memory of this process");
    }
}
