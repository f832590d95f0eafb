//! System calls that no crate offers in the form needed here: receiving and sending with offload,
//! reading the error queue, and querying an interface's MTU. All `unsafe` code of the driver is in
//! this file.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_void};
use socket2::SockAddr;

/// The number of bytes of a receive buffer, which suffices for the longest datagram or for several
/// joined by offload.
pub(super) const LONGEST: usize = 1 << 16;
/// The number of buffers into which one call receives.
pub(super) const MANY: usize = 16;

/// The content of a filled receive buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Filled {
    /// The number of bytes in the buffer.
    pub(super) length: usize,
    /// The number of bytes of each datagram in the buffer. The last one may be shorter.
    pub(super) segment: usize,
    /// Whether the datagram was longer than the buffer.
    pub(super) truncated: bool,
    /// The source (IPv4 mapped to IPv6), if it was requested.
    pub(super) source: Option<Ipv6Addr>,
    /// The port of the source.
    pub(super) port: u16,
}

impl Filled {
    /// The content of a buffer to skip. Unlike `Filled::default()`, it does not even stand for an
    /// empty datagram.
    pub(super) const SKIPPED: Self = Self {
        length: 0,
        segment: 1,
        truncated: false,
        source: None,
        port: 0,
    };
}

/// Space for the source address of a datagram.
type Name = libc::sockaddr_in6;

/// Space for one control message with one word. The alignment is that of `cmsghdr`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; 32]);

impl Control {
    const EMPTY: Self = Self([MaybeUninit::uninit(); 32]);
}

// SAFETY: CMSG_SPACE only computes a length and accesses no memory.
const _: () = assert!(unsafe { libc::CMSG_SPACE(size_of::<c_int>() as u32) } as usize <= 32);
const _: () = assert!(align_of::<Control>() >= align_of::<libc::cmsghdr>());

/// The number of bytes of a control message with one word.
// SAFETY: CMSG_LEN only computes a length and accesses no memory.
const WORD_MESSAGE: usize = unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize;
/// The number of bytes of a control message with an error, without the address that follows the
/// error.
// SAFETY: CMSG_LEN only computes a length and accesses no memory.
const ERROR_MESSAGE: usize =
    unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) } as usize;

/// Receives into the first `many` buffers in `space`, each of which has [`LONGEST`] bytes.
/// Describes the received data in `filled`, and returns the number of buffers filled. Never blocks:
/// returns [`io::ErrorKind::WouldBlock`] if there is nothing to receive.
///
/// If `asks` is set, also returns the senders' addresses.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    space: &mut [u8],
    many: usize,
    asks: bool,
    filled: &mut [Filled; MANY],
) -> io::Result<usize> {
    assert!((1..=MANY).contains(&many) && space.len() >= many * LONGEST);
    if many == 1 {
        filled[0] = receive_one(socket, &mut space[..LONGEST], asks)?;
        return Ok(1);
    }
    // SAFETY: all-zero bytes are valid message headers, whose pointers are null.
    let mut headers: [libc::mmsghdr; MANY] = unsafe { mem::zeroed() };
    let mut vectors = [libc::iovec {
        iov_base: ptr::null_mut(),
        iov_len: LONGEST,
    }; MANY];
    let mut controls = [Control::EMPTY; MANY];
    let mut names = [MaybeUninit::<Name>::uninit(); MANY];
    if asks {
        for (header, name) in headers.iter_mut().zip(&mut names) {
            header.msg_hdr.msg_name = name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = size_of::<Name>() as _;
        }
    }
    let buffers = space.chunks_exact_mut(LONGEST);
    let parts = headers.iter_mut().zip(&mut vectors).zip(&mut controls);
    for (((header, vector), control), buffer) in parts.zip(buffers).take(many) {
        vector.iov_base = buffer.as_mut_ptr().cast();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = mem::size_of_val(control) as _;
    }
    // SAFETY: each pointer in the first `many` headers is null with length 0, or points to a live
    // local array or a buffer of `space` and has its length. Only those headers are used.
    let received = retry(|| unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            many as u32,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
        ) as isize
    })? as usize;
    for (filled, header) in filled.iter_mut().zip(&headers[..received]) {
        *filled = taken(&header.msg_hdr, header.msg_len as usize);
    }
    Ok(received)
}

/// Receives into one buffer, which is cheaper. This matters because most polls find nothing.
fn receive_one(socket: BorrowedFd<'_>, buffer: &mut [u8], asks: bool) -> io::Result<Filled> {
    let mut name = MaybeUninit::<Name>::uninit();
    let mut vector = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control::EMPTY;
    // SAFETY: all-zero bytes are a valid message header, whose pointers are null.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    if asks {
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = size_of::<Name>() as _;
    }
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of_val(&control) as _;
    // SAFETY: each pointer in the header is null with length 0, or points to a live local variable
    // or to the buffer and has its length.
    let length = retry(|| unsafe { recvmsg(socket.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) })?;
    Ok(taken(&header, length as usize))
}

/// Receives into one buffer by the cheapest call, which does not return the length of joined
/// datagrams.
#[inline]
pub(super) fn receive_plain(socket: BorrowedFd<'_>, space: &mut [u8]) -> io::Result<Filled> {
    let buffer = &mut space[..LONGEST];
    // SAFETY: the pointer and the length are those of the buffer, which is borrowed exclusively. No
    // address is requested.
    let length = retry(|| unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            socket.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            ptr::null_mut::<c_void>(),
            ptr::null_mut::<c_void>(),
        ) as isize
    })? as usize;
    Ok(Filled {
        length,
        segment: length,
        truncated: length > LONGEST,
        source: None,
        port: 0,
    })
}

/// Calls [`libc::recvmsg`], but not as a cancellation point. A cancellation point would cost a
/// tenth of the time of an empty call in a process with several threads.
///
/// # Safety
/// Same as for [`libc::recvmsg`].
unsafe fn recvmsg(socket: c_int, header: &mut libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the caller guarantees what `recvmsg` requires, and these are the arguments of that
    // system call.
    unsafe { libc::syscall(libc::SYS_recvmsg, socket, ptr::from_mut(header), flags) as isize }
}

/// Reads the content of a buffer from its message header.
fn taken(header: &libc::msghdr, length: usize) -> Filled {
    let source = source(header);
    Filled {
        length,
        segment: offload_segment(header).unwrap_or(length),
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        source: source.map(|(address, _)| address),
        port: source.map_or(0, |(_, port)| port),
    }
}

/// Returns the source of a datagram, if its header has space for a [`Name`].
fn source(header: &libc::msghdr) -> Option<(Ipv6Addr, u16)> {
    if header.msg_name.is_null() || header.msg_namelen == 0 {
        return None;
    }
    // SAFETY: all-zero bytes are a valid address without a family.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = (header.msg_namelen as usize).min(size_of::<Name>());
    // SAFETY: the header's name is not null, so it points to a live `Name`, of which the system has
    // written `msg_namelen` bytes. `name` is larger than a `Name`.
    unsafe {
        ptr::copy_nonoverlapping(header.msg_name.cast(), (&raw mut name).cast::<u8>(), length)
    };
    let source = address(&name)?;
    let ip = match source.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Some((ip, source.port()))
}

/// Returns the size of the datagrams joined by receive offload, if any.
fn offload_segment(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the system has filled the header and its control bytes, and has set their length.
    let message = unsafe { libc::CMSG_FIRSTHDR(header) };
    if message.is_null() {
        return None;
    }
    // SAFETY: the pointer is not null, so it points to a message within the control bytes.
    let control = unsafe { message.read() };
    let is_ours = control.cmsg_level == libc::SOL_UDP
        && control.cmsg_type == libc::UDP_GRO
        && control.cmsg_len as usize >= WORD_MESSAGE;
    if !is_ours {
        return None;
    }
    // SAFETY: the message has at least `WORD_MESSAGE` bytes, so its data contain a word.
    let segment = unsafe { libc::CMSG_DATA(message).cast::<c_int>().read_unaligned() };
    usize::try_from(segment).ok().filter(|segment| *segment > 0)
}

/// Sends `bytes` in a single datagram. `to` must be given unless the socket is connected. Never
/// blocks.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    to: Option<&SocketAddr>,
    bytes: &[u8],
) -> io::Result<()> {
    let flags = rustix::net::SendFlags::DONTWAIT;
    match to {
        Some(to) => rustix::net::sendto(socket, bytes, flags, to)?,
        None => rustix::net::send(socket, bytes, flags)?,
    };
    Ok(())
}

/// Sends `bytes` by segmentation offload as datagrams of `segment` bytes, of which the last may be
/// shorter. `to` has the same meaning as for [`send`]. Never blocks.
pub(super) fn send_segments(
    socket: BorrowedFd<'_>,
    to: Option<&SocketAddr>,
    bytes: &[u8],
    segment: u16,
) -> io::Result<()> {
    let to = to.map(|to| SockAddr::from(*to));
    let mut vector = libc::iovec {
        iov_base: bytes.as_ptr().cast::<c_void>().cast_mut(),
        iov_len: bytes.len(),
    };
    let mut control = Control([MaybeUninit::zeroed(); 32]);
    // SAFETY: all-zero bytes are a valid message header, whose pointers are null.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    if let Some(to) = &to {
        header.msg_name = to.as_ptr().cast::<c_void>().cast_mut();
        header.msg_namelen = to.len();
    }
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: CMSG_SPACE only computes a length and accesses no memory.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<u16>() as u32) } as _;
    // SAFETY: the control bytes are zeroed and aligned, and have room for a message with 16 bits of
    // data, so CMSG_FIRSTHDR returns a valid pointer to them.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<u16>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u16>(), segment);
    }
    // SAFETY: the header points to live local variables and to `bytes`, which sendmsg only reads.
    retry(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT) })?;
    Ok(())
}

/// Sends these parts in a single datagram. `to` has the same meaning as for [`send`]. Never blocks.
pub(super) fn send_parts(
    socket: BorrowedFd<'_>,
    to: Option<&SocketAddr>,
    parts: [&[u8]; 3],
) -> io::Result<()> {
    let to = to.map(|to| SockAddr::from(*to));
    let mut vectors = parts.map(|part| libc::iovec {
        iov_base: part.as_ptr().cast::<c_void>().cast_mut(),
        iov_len: part.len(),
    });
    // SAFETY: all-zero bytes are a valid message header, whose pointers are null.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    if let Some(to) = &to {
        header.msg_name = to.as_ptr().cast::<c_void>().cast_mut();
        header.msg_namelen = to.len();
    }
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len() as _;
    // SAFETY: the header points to live local variables and to `parts`, which sendmsg only reads.
    retry(|| unsafe { libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_DONTWAIT) })?;
    Ok(())
}

/// The network's report on a sent packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Report {
    /// The destination of the packet, if it is known.
    pub(super) to: Option<SocketAddr>,
    /// The error number.
    pub(super) errno: i32,
    /// The reporter, if it was not this host.
    pub(super) from: Option<IpAddr>,
}

/// Takes one report from the socket's error queue. Returns `None` if the queue is empty.
pub(super) fn report(socket: BorrowedFd<'_>) -> io::Result<Option<Report>> {
    #[repr(C, align(8))]
    struct Space([MaybeUninit<u8>; 512]);
    let mut control = Space([MaybeUninit::uninit(); 512]);
    // SAFETY: all-zero bytes are a valid address without a family.
    let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut byte = [0u8; 1];
    let mut vector = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: byte.len(),
    };
    // SAFETY: all-zero bytes are a valid message header, whose pointers are null.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as _;
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header points to live local variables and has their lengths.
    let received = retry(|| unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) });
    match received {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    }
    let mut report = Report {
        to: (header.msg_namelen > 0).then(|| address(&name)).flatten(),
        errno: 0,
        from: None,
    };
    // SAFETY: the system has filled the header and its control bytes, and has set their length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    while !message.is_null() {
        // SAFETY: `message` is not null, so it points to a message within the control bytes.
        let control = unsafe { message.read() };
        let is_error = matches!(
            (control.cmsg_level, control.cmsg_type),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        #[allow(clippy::unnecessary_cast)] // 32 bits with musl
        let length = control.cmsg_len as usize;
        if is_error && length >= ERROR_MESSAGE {
            // SAFETY: `message` points to a message within the control bytes, and its data begin
            // within the message because it has at least `ERROR_MESSAGE` bytes.
            let data = unsafe { libc::CMSG_DATA(message) };
            // SAFETY: the message has at least `ERROR_MESSAGE` bytes, so its data contain this
            // structure.
            let error = unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
            report.errno = error.ee_errno as i32;
            if error.ee_origin != libc::SO_EE_ORIGIN_LOCAL {
                // The reporter's address follows, if the message is long enough.
                // SAFETY: all-zero bytes are a valid address without a family.
                let mut from: libc::sockaddr_storage = unsafe { mem::zeroed() };
                let bytes = (length - ERROR_MESSAGE).min(size_of_val(&from));
                // SAFETY: the message has at least `bytes` bytes after the structure, and `from`
                // has room for them.
                unsafe {
                    let behind = data.add(size_of::<libc::sock_extended_err>());
                    ptr::copy_nonoverlapping(behind, (&raw mut from).cast(), bytes);
                }
                report.from = address(&from).map(|from| from.ip());
            }
        }
        // SAFETY: `message` points to a message within the control bytes of this header.
        message = unsafe { libc::CMSG_NXTHDR(&header, message) };
    }
    Ok(Some(report))
}

/// Converts an address written by the system. Returns `None` if it is not an IP address.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let pointer = ptr::from_ref(storage);
    match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is valid for reads, and is larger than any address and aligned
            // for all of them.
            let v4: libc::sockaddr_in = unsafe { pointer.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the storage is valid for reads, and is larger than any address and aligned
            // for all of them.
            let v6: libc::sockaddr_in6 = unsafe { pointer.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Socket options that take a number.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    /// Joins arriving datagrams, which is receive offload (`UDP_GRO`).
    Join,
    /// Forbids the fragmentation of IPv6 packets.
    DontFragmentV6,
    /// Puts reports on sent IPv4 packets into the error queue.
    ReportsV4,
    /// Puts reports on sent IPv6 packets into the error queue.
    ReportsV6,
    /// Segments all sends into datagrams of this size. If the size is 0, sends are not segmented.
    Segment,
}

/// Sets an option.
pub(super) fn set(socket: BorrowedFd<'_>, option: Number, value: c_int) -> io::Result<()> {
    let (level, name) = match option {
        Number::Join => (libc::SOL_UDP, libc::UDP_GRO),
        Number::Segment => (libc::SOL_UDP, libc::UDP_SEGMENT),
        Number::DontFragmentV6 => (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
        Number::ReportsV4 => (libc::IPPROTO_IP, libc::IP_RECVERR),
        Number::ReportsV6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    // SAFETY: these options take a word, and `value` lives until the call returns.
    retry(|| unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as _,
        ) as isize
    })?;
    Ok(())
}

/// Returns the MTU of the interface with this name.
pub(super) fn mtu(name: &str) -> io::Result<usize> {
    // SAFETY: all-zero bytes are a valid request.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // SAFETY: SIOCGIFMTU reads the name and writes the MTU, both within the request.
    unsafe { ask(name, libc::SIOCGIFMTU as _, &mut request) }?;
    // SAFETY: the call has set this field, and any bits are a valid number.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The result of `ETHTOOL_GDRVINFO` (`struct ethtool_drvinfo`).
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// Returns the name of the driver of the interface with this name.
pub(super) fn driver(name: &str) -> io::Result<String> {
    const GET_DRIVER_INFO: u32 = 3;
    const SIOCETHTOOL: u32 = 0x8946;
    let mut info = DriverInfo {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        rest: [0; 160],
    };
    // SAFETY: all-zero bytes are a valid request.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    // SAFETY: SIOCETHTOOL reads the name and the command, and writes the structure to which the
    // request points. `info` has the size of this structure and lives until the call returns.
    unsafe { ask(name, SIOCETHTOOL as _, &mut request) }?;
    let driver = info.driver.split(|byte| *byte == 0).next();
    Ok(String::from_utf8_lossy(driver.unwrap_or_default()).into_owned())
}

/// Queries the system about the interface with this name. `/sys` is not used, because it may show
/// another network namespace.
///
/// # Safety
/// The request must have the form that `number` requires, except for the name.
unsafe fn ask(name: &str, number: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the call takes no pointers. Any datagram socket serves for the query.
    let raw = retry(|| unsafe {
        libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) as isize
    })
    .or_else(|_| {
        // SAFETY: the call takes no pointers. Hosts without IPv4 need this socket.
        retry(|| unsafe {
            libc::socket(libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) as isize
        })
    })?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(raw as c_int) };
    // SAFETY: the caller guarantees that, apart from the name, `request` has the form that `number`
    // requires.
    retry(|| unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut *request) as isize })?;
    Ok(())
}

/// Returns the processor's time-stamp counter, if there is one that programs may read.
#[inline]
pub(super) fn ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux permits programs to use it.
        Some(unsafe { std::arch::x86_64::_rdtsc() })
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// Repeats a system call while signals interrupt it.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<isize> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
