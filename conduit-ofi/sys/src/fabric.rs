//! Objects, fabrics, and offers (`fi_info`) with their attributes. See fabric(7), fi_getinfo(3),
//! fi_fabric(3).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::{
    fi_av_type, fi_ep_type, fi_eq_attr, fi_progress, fi_resource_mgmt, fi_threading, fi_wait_attr,
    fid_domain, fid_eq, fid_pep, fid_wait,
};

/// The beginning of every object: its class, the user's context and the operations common to all
/// objects.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

tables! {
    /// Operations of every object.
    struct fi_ops {
        close(fid: *mut fid) -> c_int;
        bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int;
        control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int;
        ops_open(fid: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void, context: *mut c_void)
            -> c_int;
        tostr(fid: *const fid, buf: *mut c_char, len: usize) -> c_int;
        ops_set(fid: *mut fid, name: *const c_char, flags: u64, ops: *mut c_void, context: *mut c_void)
            -> c_int;
    }
}

calls! {
    /// Closes an object. Returns `-FI_EBUSY` while other objects are bound to it or were opened
    /// from it and are not closed.
    fn fi_close(fid: *mut fid) -> c_int
        = fi_ops in (*fid).ops => close(fid);

    /// Executes a control command, such as `FI_GETWAIT` or `FI_ENABLE`.
    fn fi_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int
        = fi_ops in (*fid).ops => control(fid, command, arg);

    /// Opens the table of an object's operations that has this name and is the provider's own.
    fn fi_open_ops(fid: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
        context: *mut c_void) -> c_int
        = fi_ops in (*fid).ops => ops_open(fid, name, flags, ops, context);
}
/// An endpoint's capabilities and limits as the initiator of operations.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_tx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
    pub tclass: u32,
}

/// An endpoint's capabilities and limits as the target of operations.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_rx_attr {
    pub caps: u64,
    pub mode: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// An endpoint's type, protocol and limits. Sizes are in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_ep_attr {
    pub r#type: fi_ep_type,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub msg_prefix_size: usize,
    pub max_order_raw_size: usize,
    pub max_order_war_size: usize,
    pub max_order_waw_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
}

/// A domain's modes and limits.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_domain_attr {
    pub domain: *mut fid_domain,
    pub name: *mut c_char,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub mode: u64,
    pub auth_key: *mut u8,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
    pub tclass: u32,
}

/// The fabric and the provider, with the provider's version and the requested API version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_fabric_attr {
    pub fabric: *mut fid_fabric,
    pub name: *mut c_char,
    pub prov_name: *mut c_char,
    pub prov_version: u32,
    pub api_version: u32,
}

/// A provider's offer, which is an element of a list. Only the library allocates offers
/// (`Library::getinfo`, `allocinfo`, `dupinfo`), because the library's own structures may be longer
/// than the part described here.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_info {
    pub next: *mut fi_info,
    pub caps: u64,
    pub mode: u64,
    pub addr_format: u32,
    pub src_addrlen: usize,
    pub dest_addrlen: usize,
    pub src_addr: *mut c_void,
    pub dest_addr: *mut c_void,
    pub handle: *mut fid,
    pub tx_attr: *mut fi_tx_attr,
    pub rx_attr: *mut fi_rx_attr,
    pub ep_attr: *mut fi_ep_attr,
    pub domain_attr: *mut fi_domain_attr,
    pub fabric_attr: *mut fi_fabric_attr,
    pub nic: *mut fid_nic,
}

/// The kind of bus to which a device is connected.
pub type fi_bus_type = c_uint;
pub const FI_BUS_UNSPEC: fi_bus_type = 0;
pub const FI_BUS_UNKNOWN: fi_bus_type = 0;
pub const FI_BUS_PCI: fi_bus_type = 1;

/// A device's place on the PCI bus.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_pci_attr {
    pub domain_id: u16,
    pub bus_id: u8,
    pub device_id: u8,
    pub function_id: u8,
}

/// The state of a link.
pub type fi_link_state = c_uint;
pub const FI_LINK_UNKNOWN: fi_link_state = 0;
pub const FI_LINK_DOWN: fi_link_state = 1;
pub const FI_LINK_UP: fi_link_state = 2;

/// The bus of a device. The only kind described here is `pci`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_bus_attr {
    pub bus_type: fi_bus_type,
    pub pci: fi_pci_attr,
}

/// The network device behind an offer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_device_attr {
    pub name: *mut c_char,
    pub device_id: *mut c_char,
    pub device_version: *mut c_char,
    pub vendor_id: *mut c_char,
    pub driver: *mut c_char,
    pub firmware: *mut c_char,
}

/// The link of a device: its address, its MTU in bytes, its speed in bits per second, and its
/// state.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_link_attr {
    pub address: *mut c_char,
    pub mtu: usize,
    pub speed: usize,
    pub state: fi_link_state,
    pub network_type: *mut c_char,
}

/// The properties of an offer's network device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_nic {
    pub fid: fid,
    pub device_attr: *mut fi_device_attr,
    pub bus_attr: *mut fi_bus_attr,
    pub link_attr: *mut fi_link_attr,
    pub prov_attr: *mut c_void,
}

tables! {
    /// Operations of a fabric.
    struct fi_ops_fabric {
        domain(fabric: *mut fid_fabric, info: *mut fi_info, dom: *mut *mut fid_domain, context: *mut c_void)
            -> c_int;
        passive_ep(fabric: *mut fid_fabric, info: *mut fi_info, pep: *mut *mut fid_pep, context: *mut c_void)
            -> c_int;
        eq_open(fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq, context: *mut c_void)
            -> c_int;
        wait_open(fabric: *mut fid_fabric, attr: *mut fi_wait_attr, waitset: *mut *mut fid_wait) -> c_int;
        trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int;
    }
}

/// A fabric, which is a network whose domains reach the same peers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

/// Space that a provider with the mode bit `FI_CONTEXT` uses during an operation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

/// Space that a provider with the mode bit `FI_CONTEXT2` uses during an operation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}

zeroed! { fi_context, fi_context2 }

calls! {
    /// Checks whether a thread may wait on the descriptors of these queues. Returns `-FI_EAGAIN` if
    /// the queues must be read first.
    fn fi_trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int
        = fi_ops_fabric in (*fabric).ops => trywait(fabric, fids, count);
}
