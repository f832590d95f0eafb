//! Chooses a provider among libfabric's providers on this host. The classes of providers, best
//! first:
//!
//! | class | providers | networks |
//! |---|---|---|
//! | 1 | `cxi`, `opx`, `psm3`, `psm2`, `efa`, `gni` | each made for one fabric |
//! | 2 | `verbs`, `ucx` and providers layered on `verbs` | InfiniBand, RoCE |
//! | 3 | `tcp` and providers layered on it | any |
//! | 4 | `udp;ofi_rxd` | any |
//! | 5 | unknown providers | |
//! | 6 | `sockets` (hangs in every version), `net` (an experiment of 1.15 to 1.17) | any |
//!
//! If all ranks are on one host, `shm` comes first, as class 0. Otherwise `shm` is excluded. Only
//! `shm` and the providers of classes 3 and 4 were tested for this project.

use std::ffi::{CStr, CString, c_int};
use std::fmt;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};

use libfabric_sys::{
    API_VERSION, FI_ADDR_STR, FI_ATOMIC, FI_CONTEXT, FI_CONTEXT2, FI_DELIVERY_COMPLETE, FI_EP_MSG,
    FI_EP_RDM, FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR,
    FI_MSG, FI_MULTI_RECV, FI_ORDER_SAS, FI_PROGRESS_UNSPEC, FI_RM_ENABLED, FI_RMA, FI_SOURCE,
    FI_THREAD_DOMAIN, Library, fi_ep_type, fi_info, fi_major, fi_minor, fi_progress, fi_version,
};

/// The capabilities and flags to request, best first. If two requests yield offers for the same
/// device, only the first offer is used.
const CAPABILITY_SETS: [(u64, u64); 8] = {
    let all = FI_MSG | FI_RMA | FI_MULTI_RECV;
    [
        (all | FI_ATOMIC, FI_DELIVERY_COMPLETE),
        (all, FI_DELIVERY_COMPLETE),
        (FI_MSG | FI_RMA | FI_ATOMIC, FI_DELIVERY_COMPLETE),
        (FI_MSG | FI_RMA, FI_DELIVERY_COMPLETE),
        (all, 0),
        (FI_MSG | FI_RMA, 0),
        (FI_MSG | FI_MULTI_RECV, 0),
        (FI_MSG, 0),
    ]
};
/// The value `FI_PROGRESS_CONTROL_UNIFIED` of libfabric 1.21. It promises that control calls are
/// serialised with data transfers, so that providers can omit locks. All calls of this network are
/// serialised.
const UNIFIED: fi_progress = 3;
/// The registration modes that this network supports.
const MR_MODES: c_int =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

/// Reads a socket address in libfabric's format.
pub(crate) fn socket_address(raw: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*raw.first_chunk()?);
    let port = u16::from_be_bytes(*raw.get(2..)?.first_chunk()?);
    let ip = match (i32::from(family), raw.len()) {
        (libc::AF_INET, 16) => IpAddr::from(*raw[4..].first_chunk::<4>()?),
        (libc::AF_INET6, 28) => IpAddr::from(*raw[8..].first_chunk::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The requirements on a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hints {
    /// A provider's name as printed by `fi_info`. The part before the `;` suffices.
    pub provider: Option<String>,
    /// The name of a domain. The domains of `tcp` have the names of interfaces.
    pub domain: Option<String>,
    /// Whether all ranks are on one host.
    pub one_host: bool,
    /// Whether to use messages only, without access to peers' memory.
    pub messages_only: bool,
}

/// The limits of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The maximum length of a message or an access, in bytes.
    pub(crate) max_message: usize,
    /// The maximum length of a message that the library can inject, in bytes.
    pub(crate) inject: usize,
    /// The maximum number of memory pieces in a message (`iov_limit`).
    pub(crate) pieces: usize,
    /// The maximum number of receives posted at a time.
    pub(crate) receives: usize,
}

/// A provider's offer, which owns an `fi_info`.
pub struct Offer {
    library: Library,
    info: NonNull<fi_info>,
    /// Whether completion upon delivery (`FI_DELIVERY_COMPLETE`) was requested.
    pub(crate) delivery: bool,
    /// The capabilities that were requested and granted.
    pub(crate) caps: u64,
    /// The requested control progress.
    control: fi_progress,
}

// SAFETY: the offer is the only owner of the library's structure, which may be used by any thread.
unsafe impl Send for Offer {}

impl Offer {
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// Returns the library's structure with all attributes.
    pub(crate) fn info(&self) -> *mut fi_info {
        self.info.as_ptr()
    }

    fn info_ref(&self) -> &fi_info {
        // SAFETY: the offer owns the structure, and it is written only through `&mut self`.
        unsafe { self.info.as_ref() }
    }

    /// Returns the provider's name.
    pub fn provider(&self) -> String {
        // SAFETY: every offer has fabric attributes, in which the name is null or a valid string.
        unsafe { name((*self.info_ref().fabric_attr).prov_name) }
    }

    /// Returns the domain's name.
    pub fn domain(&self) -> String {
        // SAFETY: every offer has domain attributes, in which the name is null or a valid string.
        unsafe { name((*self.info_ref().domain_attr).name) }
    }

    /// Gives an endpoint over `shm` a random name. The library's default is the process id, with
    /// which opening fails (`FI_EBUSY`) if a killed process with the same id has left its file
    /// behind. If no random bytes are available, the default is kept.
    pub(crate) fn name_endpoint(&mut self) {
        let mut random = [0; 8];
        if self.provider() != "shm" || getrandom::fill(&mut random).is_err() {
            return;
        }
        let (process, random) = (std::process::id(), u64::from_le_bytes(random));
        let Ok(name) = CString::new(format!("fi_shm://ofi-{process}-{random:016x}")) else {
            return;
        };
        // SAFETY: `&mut self` owns the structure. The library allocates and frees its names with
        // C's allocator, so the old name may be freed with `free` and replaced by a string from
        // `strdup`.
        unsafe {
            let info = self.info.as_mut();
            let copy = libc::strdup(name.as_ptr());
            if !copy.is_null() {
                libc::free(info.src_addr);
                info.src_addr = copy.cast();
                info.src_addrlen = name.as_bytes_with_nul().len();
            }
        }
    }

    /// Returns whether addresses are zero-terminated strings of different lengths.
    pub(crate) fn has_text_addresses(&self) -> bool {
        self.info_ref().addr_format == FI_ADDR_STR
    }

    /// Returns the text that must be the same on all ranks, which names the provider, its protocol
    /// and the protocol's version.
    pub fn identity(&self) -> String {
        // SAFETY: every offer has endpoint attributes, which it owns.
        let (protocol, version) = unsafe {
            let endpoint = &*self.info_ref().ep_attr;
            (endpoint.protocol, endpoint.protocol_version)
        };
        format!("{} (protocol {protocol}.{version})", self.provider())
    }

    /// Returns whether peers' memory can be accessed.
    pub(crate) fn has_rma(&self) -> bool {
        self.caps & FI_RMA != 0
    }

    /// Returns whether to use the provider's atomics. Two providers are excluded: `ofi_rxd`, which
    /// crashes in some of them (1.17 and 1.22), and `shm` of 1.20.0 to 1.21.0, whose plain fetch
    /// returns wrong bytes. (The version has no third number, so all of 1.20 and 1.21 is excluded.)
    pub(crate) fn has_atomics(&self) -> bool {
        let (provider, version) = (self.provider(), self.library.version());
        let fetches_wrongly = fi_version(1, 20)..fi_version(1, 22);
        let is_bad =
            provider.contains("ofi_rxd") || provider == "shm" && fetches_wrongly.contains(&version);
        self.caps & FI_ATOMIC != 0 && !is_bad
    }

    /// Returns whether peers' memory can be accessed directly and a write completes only when the
    /// data are visible there.
    pub(crate) fn has_direct(&self) -> bool {
        self.has_rma() && self.delivery
    }

    /// Returns whether one posted receive may take several messages. Three providers are excluded
    /// because of failures that did not occur with one buffer per message. With `ofi_rxm` over
    /// `tcp` of libfabric 1.17, messages were overwritten in three of eight jobs of eight ranks.
    /// With `ofi_rxd`, all of six such jobs hung or ended with malformed messages. With `shm` of
    /// 1.17, posting such a receive ran out of memory in eight of forty jobs.
    pub(crate) fn has_multi_receive(&self) -> bool {
        let provider = self.provider();
        let is_bad = provider.contains("ofi_rxm")
            || provider.contains("ofi_rxd")
            || provider == "shm" && self.library.version() < fi_version(1, 18);
        self.caps & FI_MULTI_RECV != 0 && !is_bad
    }

    /// Returns whether the provider reports the endpoint from which a message came.
    pub(crate) fn has_source(&self) -> bool {
        self.caps & FI_SOURCE != 0
    }

    /// Returns whether the sources that the provider reports are reliable. This is so for providers
    /// whose sources were tested or whose code was read. Nearly all providers claim `FI_SOURCE`.
    /// However, `opx` reports no source (always `FI_ADDR_NOTAVAIL`), `psm3` reports an error for
    /// the first message from a peer to which nothing has been sent, and `psm2` searches all
    /// addresses for each message. The sources of `shm` and `ofi_rxd`, and of `efa` within a host,
    /// are numbers written by the sender.
    fn knows_sources(&self) -> bool {
        let provider = self.provider();
        matches!(provider.as_str(), "tcp" | "cxi") || provider.ends_with(";ofi_rxm")
    }

    /// Returns the same offer with `FI_SOURCE` if the provider's sources are reliable, and
    /// otherwise returns the offer unchanged.
    fn with_source(self, hints: &Hints) -> Self {
        if !self.knows_sources() {
            return self;
        }
        let flags = if self.delivery {
            FI_DELIVERY_COMPLETE
        } else {
            0
        };
        let caps = self.caps | FI_SOURCE;
        let mut with = getinfo(&self.library, hints, caps, flags, self.control).into_iter();
        let found = with.find(|with| with.is_same_device(&self));
        found.unwrap_or(self)
    }

    /// Returns an offer of connected endpoints (`FI_EP_MSG`) on the same device, from the same
    /// provider or from the one on which it is layered.
    pub(crate) fn connected(&self) -> Option<Self> {
        let provider = self.provider();
        let core = provider.split(';').next().unwrap_or_default();
        let hints = Hints {
            provider: Some(core.to_owned()),
            ..Hints::default()
        };
        let offers = getinfo_of(
            FI_EP_MSG,
            &self.library,
            &hints,
            FI_MSG,
            0,
            FI_PROGRESS_UNSPEC,
        );
        offers.into_iter().find(|offer| {
            offer.provider() == core
                && offer.domain() == self.domain()
                && offer.address_format() == self.address_format()
        })
    }

    /// Returns a copy of the offer with which an endpoint can be opened and connected with this
    /// address.
    pub(crate) fn towards(&self, address: &[u8]) -> Option<Self> {
        // SAFETY: the library made this offer, and `dupinfo` copies all of it. The address is
        // allocated with C's allocator, with which the library frees it, and has room for the bytes
        // copied.
        unsafe {
            let mut info = NonNull::new(self.library.dupinfo(self.info()))?;
            let copy = libc::malloc(address.len().max(1)).cast::<u8>();
            if copy.is_null() {
                self.library.freeinfo(info.as_ptr());
                return None;
            }
            copy.copy_from_nonoverlapping(address.as_ptr(), address.len());
            let place = info.as_mut();
            libc::free(place.dest_addr);
            (place.dest_addr, place.dest_addrlen) = (copy.cast(), address.len());
            Some(Self {
                library: self.library.clone(),
                info,
                delivery: self.delivery,
                caps: self.caps,
                control: self.control,
            })
        }
    }

    fn is_same_device(&self, other: &Self) -> bool {
        self.provider() == other.provider() && self.domain() == other.domain()
    }

    /// Returns whether a frame may be sent directly from the user's memory. Excludes `shm`, whose
    /// receivers fetch a long message from the sender's memory. Such a fetch cannot be cancelled,
    /// not even by closing the endpoint. If the fetch happens later, a receiver in another process
    /// reads bytes that have replaced the frame in that memory, and a receiver in this process
    /// crashes in the library (`smr_progress_iov`, 1.22).
    pub(crate) fn allows_zero_copy(&self) -> bool {
        self.provider() != "shm"
    }

    /// Returns whether to sleep on each of the descriptors of a queue (`FI_WAIT_POLLFD`) rather
    /// than on one joint descriptor (`FI_WAIT_FD`). The joint descriptor is an epoll descriptor,
    /// which over `tcp` contains another one. It makes long writes with delivery completion a
    /// quarter slower, even while no thread sleeps. Only tested providers are included.
    pub(crate) fn has_several_descriptors(&self) -> bool {
        matches!(self.provider().as_str(), "tcp" | "tcp;ofi_rxm")
    }

    pub(crate) fn limits(&self) -> Limits {
        // SAFETY: every offer has these attributes, which it owns.
        unsafe {
            let info = self.info_ref();
            Limits {
                max_message: (*info.ep_attr).max_msg_size,
                inject: (*info.tx_attr).inject_size,
                pieces: (*info.tx_attr).iov_limit,
                receives: (*info.rx_attr).size,
            }
        }
    }

    fn class(&self, one_host: bool) -> u8 {
        let provider = self.provider();
        let core = provider.split(';').next().unwrap_or_default();
        match core {
            "shm" if one_host => 0,
            "cxi" | "opx" | "psm3" | "psm2" | "efa" | "gni" => 1,
            "verbs" | "ucx" => 2,
            "tcp" => 3,
            "udp" => 4,
            "sockets" | "net" => 6,
            _ => 5,
        }
    }

    /// Returns the sort key for open networks, best first. Providers that any process can reach
    /// precede those that only some processes can reach.
    pub(crate) fn open_rank(&self) -> (bool, u8, bool, bool) {
        let provider = self.provider();
        let is_tcp = provider.split(';').next() == Some("tcp");
        let is_layered = provider.contains(';');
        (!is_tcp, self.class(false), is_layered, self.is_loopback())
    }

    /// Returns the address of the interface that the endpoints use, if there is one.
    pub(crate) fn source(&self) -> Option<SocketAddr> {
        let info = self.info_ref();
        if info.src_addr.is_null() {
            return None;
        }
        // SAFETY: the offer owns the address, which is not null and has this length.
        let raw = unsafe { std::slice::from_raw_parts(info.src_addr.cast(), info.src_addrlen) };
        socket_address(raw)
    }

    /// Sets the port of the endpoints. Returns `false` if the endpoints have no ports.
    pub(crate) fn set_port(&mut self, port: u16) -> bool {
        if self.source().is_none() {
            return false;
        }
        // SAFETY: the offer owns the address. `source` has checked that it is an internet address,
        // which has its port at this offset.
        unsafe {
            let place = self.info.as_mut().src_addr.cast::<u8>().add(2);
            place.cast::<[u8; 2]>().write_unaligned(port.to_be_bytes());
        }
        true
    }

    /// Returns the format of the addresses.
    pub(crate) fn address_format(&self) -> u32 {
        self.info_ref().addr_format
    }

    pub(crate) fn matches(&self, hints: &Hints) -> bool {
        let provider = self.provider();
        let is_provider = match &hints.provider {
            Some(name) => provider == *name || provider.split(';').next() == Some(name),
            // `shm` reaches only one host.
            None => hints.one_host || provider != "shm",
        };
        let domain = self.domain();
        is_provider && hints.domain.as_ref().is_none_or(|name| domain == *name)
    }

    fn is_loopback(&self) -> bool {
        self.domain() == "lo"
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: the structure was returned by this library's `dupinfo`, and nothing uses it after
        // the drop.
        unsafe { self.library.freeinfo(self.info.as_ptr()) }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.provider(), self.domain())
    }
}

/// # Safety
///
/// `text` must be null or a valid string.
unsafe fn name(text: *const std::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller guarantees that `text` is null or a valid string, and it is not null.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// Returns all offers on this host for reliable datagram endpoints (`FI_EP_RDM`) with ordered
/// messages, in the library's order. Each device of a provider appears once.
pub fn offers(library: &Library, hints: &Hints) -> Vec<Offer> {
    let mut found: Vec<Offer> = Vec::new();
    let unified = (library.version() >= fi_version(1, 21)).then_some(UNIFIED);
    let matches = |caps: u64| !hints.messages_only || caps & (FI_RMA | FI_ATOMIC) == 0;
    let sets = CAPABILITY_SETS
        .into_iter()
        .filter(|(caps, _)| matches(*caps));
    let sets = sets.flat_map(|(caps, flags)| {
        let plain = iter::once(FI_PROGRESS_UNSPEC);
        let progress = unified.into_iter().chain(plain);
        progress.map(move |progress| (caps, flags, progress))
    });
    for (caps, flags, progress) in sets {
        for offer in getinfo(library, hints, caps, flags, progress) {
            if !found.iter().any(|other| other.is_same_device(&offer)) {
                found.push(offer);
            }
        }
    }
    found
}

fn getinfo(
    library: &Library,
    hints: &Hints,
    caps: u64,
    op_flags: u64,
    control: fi_progress,
) -> Vec<Offer> {
    getinfo_of(FI_EP_RDM, library, hints, caps, op_flags, control)
}

fn getinfo_of(
    kind: fi_ep_type,
    library: &Library,
    hints: &Hints,
    caps: u64,
    op_flags: u64,
    control: fi_progress,
) -> Vec<Offer> {
    let Some(mut wanted) = NonNull::new(library.allocinfo()) else {
        return Vec::new();
    };
    let mut offers = Vec::new();
    // SAFETY: an empty offer from the library has all its attributes. The strings are allocated by
    // C's `malloc`, because the library frees them with `free`. The hints and the list are freed
    // here and not used after that.
    unsafe {
        let info = wanted.as_mut();
        info.caps = caps;
        info.mode = FI_CONTEXT | FI_CONTEXT2;
        (*info.ep_attr).r#type = kind;
        (*info.domain_attr).mr_mode = match kind {
            // Memory regions outlive connected endpoints, so they cannot be bound to a single
            // endpoint.
            FI_EP_MSG => MR_MODES & !FI_MR_ENDPOINT,
            _ => MR_MODES,
        };
        (*info.domain_attr).threading = FI_THREAD_DOMAIN;
        (*info.domain_attr).control_progress = control;
        (*info.domain_attr).resource_mgmt = FI_RM_ENABLED;
        (*info.tx_attr).msg_order = FI_ORDER_SAS;
        (*info.rx_attr).msg_order = FI_ORDER_SAS;
        (*info.tx_attr).op_flags = op_flags;
        // Some providers look for devices only if the hints name the provider.
        if let Some(provider) = &hints.provider
            && let Ok(provider) = CString::new(provider.as_str())
        {
            (*info.fabric_attr).prov_name = libc::strdup(provider.as_ptr());
        }
        let mut first = ptr::null_mut();
        let result = library.getinfo(
            API_VERSION,
            ptr::null(),
            ptr::null(),
            0,
            wanted.as_ptr(),
            &mut first,
        );
        if result == 0 {
            let mut next = first;
            while let Some(info) = next.as_ref() {
                if let Some(copy) = NonNull::new(library.dupinfo(next)) {
                    (*(*copy.as_ptr()).tx_attr).op_flags &= !FI_DELIVERY_COMPLETE;
                    offers.push(Offer {
                        library: library.clone(),
                        info: copy,
                        delivery: op_flags & FI_DELIVERY_COMPLETE != 0,
                        caps,
                        control,
                    });
                }
                next = info.next;
            }
            library.freeinfo(first);
        }
        library.freeinfo(wanted.as_ptr());
    }
    offers
}

/// Returns the best offer that matches `hints`.
///
/// # Errors
/// Returns a description of the request, and a description of the available providers.
pub fn choose(library: &Library, hints: &Hints) -> Result<Offer, (String, String)> {
    // The sort is stable, so equal offers keep the library's order.
    let mut best: Vec<_> = offers(library, hints)
        .into_iter()
        .filter(|offer| offer.matches(hints))
        .collect();
    best.sort_by_key(|offer| {
        (
            offer.class(hints.one_host),
            // A native provider comes before a layered one.
            offer.provider().contains(';'),
            offer.is_loopback() != hints.one_host,
        )
    });
    if let Some(offer) = best.into_iter().next() {
        return Ok(match hints.messages_only {
            // With protection, the tag authenticates the sender of a message, so no source is
            // needed.
            true => offer,
            false => offer.with_source(hints),
        });
    }
    let any = Hints {
        one_host: hints.one_host,
        ..Hints::default()
    };
    let version = library.version();
    let mut all: Vec<_> = offers(library, &any)
        .iter()
        .map(|offer| format!("{offer:?}"))
        .collect();
    all.dedup();
    let offered = match all.is_empty() {
        true => "none with reliable endpoints and ordered messages".to_owned(),
        false => all.join(", "),
    };
    let mut asked = match &hints.provider {
        Some(name) => format!("no provider {name}"),
        None => "no provider".to_owned(),
    };
    if let Some(domain) = &hints.domain {
        asked += &format!(" on the domain {domain}");
    }
    let (major, minor) = (fi_major(version), fi_minor(version));
    Err((
        format!("{asked} of libfabric {major}.{minor} is suitable"),
        offered,
    ))
}
