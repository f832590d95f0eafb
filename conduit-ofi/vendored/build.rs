//! Compiles libfabric from the sources of the crate `lamellar-libfabric-src`, with a configuration
//! of our own instead of libfabric's autotools.

use std::path::Path;

/// The common part: fabric.c and what it needs. The versions of symbols (abi_1_0.c) are for shared libraries only.
const COMMON: &str = "common enosys fabric fasthash fi_tostr hmem hmem_cuda hmem_cuda_gdrcopy hmem_ipc_cache \
    hmem_neuron hmem_rocr hmem_synapseai hmem_ze indexer iov linux/osd log mem ofi_str perf rbtree tree unix/osd var \
    xpmem xpmem_cache";

/// Parts of providers which providers share.
const UTIL: &str = "cuda_ipc_monitor cuda_mem_monitor rocr_ipc_monitor rocr_mem_monitor rxm_av util_atomic util_attr \
    util_av util_buf util_cntr util_cq util_domain util_ep util_eq util_fabric util_main util_mem_hooks \
    util_mem_monitor util_mr_cache util_mr_map util_ns util_pep util_poll util_profile util_srx util_wait \
    xpmem_monitor ze_mem_monitor";

/// The providers that need no hardware, collectives, which two of them are built on, and hooks, which fabric.c names.
const PROVIDERS: [(&str, &str); 8] = [
    ("util", UTIL),
    (
        "coll",
        "coll_attr coll_av coll_av_set coll_coll coll_cq coll_domain coll_ep coll_eq coll_fabric coll_init",
    ),
    (
        "hook",
        "hook hook_av hook_cm hook_cntr hook_cq hook_domain hook_ep hook_eq hook_wait hook_xfer",
    ),
    (
        "tcp",
        "xnet_attr xnet_cm xnet_cq xnet_domain xnet_ep xnet_eq xnet_fabric xnet_init xnet_msg xnet_pep \
         xnet_profile xnet_progress xnet_rdm xnet_rdm_cm xnet_rma xnet_srx",
    ),
    (
        "shm",
        "smr_atomic smr_attr smr_av smr_cntr smr_comp smr_cq smr_domain smr_dsa smr_ep smr_fabric smr_init \
         smr_msg smr_progress smr_rma smr_util",
    ),
    (
        "udp",
        "udpx_attr udpx_cq udpx_domain udpx_ep udpx_fabric udpx_init",
    ),
    (
        "rxm",
        "rxm_atomic rxm_attr rxm_conn rxm_cq rxm_domain rxm_ep rxm_eq rxm_fabric rxm_hmem rxm_init rxm_msg \
         rxm_rma rxm_tagged",
    ),
    (
        "rxd",
        "rxd_atomic rxd_attr rxd_av rxd_cntr rxd_cq rxd_domain rxd_ep rxd_fabric rxd_init rxd_msg rxd_rma \
         rxd_tagged",
    ),
];

/// What libfabric exports and this crate uses, under names of its own here: a program may be linked with another libfabric as
/// well, and a library may give these names to something else.
const EXPORTED: [&str; 7] = [
    "fi_version",
    "fi_getinfo",
    "fi_freeinfo",
    "fi_dupinfo",
    "fi_fabric",
    "fi_strerror",
    "fi_tostr",
];

/// Compiles everything into one static library.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=config.h");
    let source = libfabric_src::source_dir();
    let mut build = cc::Build::new();
    build
        .define("HAVE_CONFIG_H", None)
        .define("_GNU_SOURCE", None)
        // As configure has it unless debugging is asked for: assertions are about its own state, and end the program.
        .define("NDEBUG", None)
        .include(".")
        .include(source.join("include"))
        .flag("-fvisibility=hidden")
        // Debug information would make the archive ten times as large.
        .debug(false)
        // It is quick only with optimisation, and the tests of this workspace run over it.
        .opt_level(2)
        .warnings(false);
    for name in EXPORTED {
        build.define(name, format!("conduit_{name}").as_str());
    }
    add(&mut build, &source.join("src"), COMMON);
    for (provider, files) in PROVIDERS {
        let folder = source.join("prov").join(provider);
        build
            .include(folder.join("src"))
            .include(folder.join("include"));
        add(&mut build, &folder.join("src"), files);
    }
    // Linked only into programs that call it.
    build
        .define("main", "conduit_fi_pingpong")
        .file(source.join("util/pingpong.c"));
    build.compile("fabric");
    // Where tests of the bindings find the headers.
    println!(
        "cargo::rustc-env=VENDORED_INCLUDE={}",
        source.join("include").display()
    );
}

fn add(build: &mut cc::Build, folder: &Path, files: &str) {
    for file in files.split_whitespace() {
        build.file(folder.join(file).with_extension("c"));
    }
}
