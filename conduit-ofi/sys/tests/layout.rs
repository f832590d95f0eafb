//! Compares structures and constants with libfabric's headers, both those of the vendored sources
//! and the installed ones, if any. A C program that is compiled with the headers prints their
//! values.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use libfabric_sys::*;

/// A structure, given by its name, its size, and the offsets of its fields.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

/// The structures that later versions of libfabric extend. The library's structures are at least as
/// long as those of this crate.
const GROWN: [&str; 2] = ["fi_domain_attr", "fi_ep_attr"];

/// Constants that are neither macros nor enumerators of the headers.
const OURS: [&str; 1] = ["API_VERSION"];

macro_rules! layouts {
    ($($name:ident { $($field:ident)* })*) => {
        vec![$((
            stringify!($name),
            size_of::<$name>(),
            vec![$((stringify!($field), offset_of!($name, $field)),)*],
        ),)*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        fi_ioc { addr count }
        fi_atomic_attr { count size }
        fi_msg_atomic { msg_iov desc iov_count addr rma_iov rma_iov_count datatype op context data }
        fi_msg_fetch { msg_iov desc iov_count }
        fi_msg_compare { msg_iov desc iov_count }
        fi_av_attr { r#type rx_ctx_bits count ep_per_node name map_addr flags later }
        fid_av { fid ops }
        fi_cntr_attr { events wait_obj wait_set flags later }
        fid_cntr { fid ops }
        fi_cq_entry { op_context }
        fi_cq_msg_entry { op_context flags len }
        fi_cq_data_entry { op_context flags len buf data }
        fi_cq_tagged_entry { op_context flags len buf data tag }
        fi_cq_err_entry { op_context flags len buf data tag olen err prov_errno err_data err_data_size later
            }
        fi_cq_attr { size flags format wait_obj signaling_vector wait_cond wait_set later }
        fid_cq { fid ops }
        fid_domain { fid ops mr }
        fid_mr { fid mem_desc key }
        fi_mr_attr { mr_iov iov_count access offset requested_key context auth_key_size auth_key iface
            device later }
        fid_ep { fid ops cm msg rma tagged atomic collective }
        fid_pep { fid ops cm }
        fi_wait_pollfd { change_index nfds fd }
        fi_eq_attr { size flags wait_obj signaling_vector wait_set later }
        fi_eq_entry { fid context data }
        fi_eq_cm_entry { fid info }
        fi_eq_err_entry { fid context data err prov_errno err_data err_data_size }
        fid_eq { fid ops }
        fid { fclass context ops }
        fi_tx_attr { caps mode op_flags msg_order comp_order inject_size size iov_limit rma_iov_limit tclass
            }
        fi_rx_attr { caps mode op_flags msg_order comp_order total_buffered_recv size iov_limit }
        fi_ep_attr { r#type protocol protocol_version max_msg_size msg_prefix_size max_order_raw_size
            max_order_war_size max_order_waw_size mem_tag_format tx_ctx_cnt rx_ctx_cnt auth_key_size
            auth_key }
        fi_domain_attr { domain name threading control_progress data_progress resource_mgmt av_type mr_mode
            mr_key_size cq_data_size cq_cnt ep_cnt tx_ctx_cnt rx_ctx_cnt max_ep_tx_ctx max_ep_rx_ctx
            max_ep_stx_ctx max_ep_srx_ctx cntr_cnt mr_iov_limit caps mode auth_key auth_key_size
            max_err_data mr_cnt tclass }
        fi_fabric_attr { fabric name prov_name prov_version api_version }
        fi_info { next caps mode addr_format src_addrlen dest_addrlen src_addr dest_addr handle tx_attr
            rx_attr ep_attr domain_attr fabric_attr nic }
        fi_pci_attr { domain_id bus_id device_id function_id }
        fi_bus_attr { bus_type pci }
        fi_device_attr { name device_id device_version vendor_id driver firmware }
        fi_link_attr { address mtu speed state network_type }
        fid_nic { fid device_attr bus_attr link_attr prov_attr }
        fid_fabric { fid ops api_version }
        fi_context { internal }
        fi_context2 { internal }
        fi_msg { msg_iov desc iov_count addr context data }
        fi_rma_iov { addr len key }
        fi_rma_ioc { addr count key }
        fi_msg_rma { msg_iov desc iov_count addr rma_iov rma_iov_count context data }
        fi_msg_tagged { msg_iov desc iov_count addr tag ignore context data }
        fi_ops_atomic { size write writev writemsg inject readwrite readwritev readwritemsg compwrite
            compwritev compwritemsg writevalid readwritevalid compwritevalid }
        fi_ops_av { size insert insertsvc insertsym remove lookup straddr av_set }
        fi_ops_cntr { size read readerr add set wait adderr seterr }
        fi_ops_cq { size read readfrom readerr sread sreadfrom signal strerror }
        fi_ops_domain { size av_open cq_open endpoint scalable_ep cntr_open poll_open stx_ctx srx_ctx
            query_atomic query_collective }
        fi_ops_mr { size reg regv regattr }
        fi_ops_ep { size cancel getopt setopt tx_ctx rx_ctx rx_size_left tx_size_left }
        fi_ops_cm { size setname getname getpeer connect listen accept reject shutdown join }
        fi_ops_eq { size read readerr write sread strerror }
        fi_ops { size close bind control ops_open tostr ops_set }
        fi_ops_fabric { size domain passive_ep eq_open wait_open trywait }
        fi_ops_msg { size recv recvv recvmsg send sendv sendmsg inject senddata injectdata }
        fi_ops_rma { size read readv readmsg write writev writemsg inject writedata injectdata }
        fi_ops_tagged { size recv recvv recvmsg send sendv sendmsg inject senddata injectdata }
    }
}

/// Returns all sources of this crate.
fn sources() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(folder).expect("the sources");
    let texts = files.map(|file| {
        let path = file.expect("a file").path();
        std::fs::read_to_string(path).expect("text")
    });
    texts.collect()
}

/// Returns the name that a line declares after `start`.
fn declared<'a>(line: &'a str, start: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(start)?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '#')
        .next()
}

/// Returns the structures that the sources declare, with their fields. In the macro `tables!`,
/// structures are declared without `pub`.
fn declared_structures() -> BTreeMap<String, Vec<String>> {
    let mut structures = BTreeMap::new();
    let text = sources();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (name, table) = match (declared(line, "pub struct "), declared(line, "    struct ")) {
            (Some(name), _) => (name, false),
            (_, Some(name)) => (name, true),
            _ => continue,
        };
        if !line.ends_with('{') || !(name.starts_with("fi_") || name.starts_with("fid")) {
            continue;
        }
        let mut fields: Vec<String> = Vec::new();
        if table {
            fields.push("size".to_owned());
        }
        for line in lines.by_ref().take_while(|line| line.trim() != "}") {
            let field = match table {
                // Continuation lines are indented further.
                true => declared(line, "        ").filter(|field| !field.is_empty()),
                false => declared(line, "    pub "),
            };
            fields.extend(field.map(str::to_owned));
        }
        structures.insert(name.to_owned(), fields);
    }
    structures
}

/// Returns the constants that the sources declare, each with its value as C text.
fn declared_constants() -> Vec<(String, String)> {
    let text = sources();
    let statements = text.split("pub const ").skip(1);
    let constants = statements.filter_map(|statement| {
        let (declaration, _) = statement.split_once(';')?;
        let (name, rest) = declaration.split_once(':')?;
        let (_, value) = rest.split_once(" = ")?;
        let value = value
            .replace("libc::", "")
            .replace("u64::MAX", "UINT64_MAX")
            .replace("usize::MAX", "SIZE_MAX")
            .replace("1 <<", "1ull <<");
        (!name.starts_with("fn ") && !OURS.contains(&name)).then(|| (name.to_owned(), value))
    });
    constants.collect()
}

/// Returns a program that prints the layouts of the headers' structures, and the constants whose
/// values differ.
fn program() -> String {
    let mut c = String::from("#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n");
    for header in [
        "fabric",
        "fi_domain",
        "fi_endpoint",
        "fi_cm",
        "fi_rma",
        "fi_tagged",
        "fi_atomic",
        "fi_eq",
        "fi_errno",
    ] {
        writeln!(c, "#include <rdma/{header}.h>").unwrap();
    }
    c.push_str("int main(void) {\n");
    for (name, _, fields) in layouts() {
        writeln!(c, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").unwrap();
        for (field, _) in fields.iter().filter(|field| field.0 != "later") {
            let field = c_field(name, field);
            writeln!(
                c,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));"
            )
            .unwrap();
        }
    }
    for (name, value) in declared_constants() {
        writeln!(
            c,
            "if ((uint64_t)({name}) != (uint64_t)({value})) printf(\"const {name} %llu\\n\", (unsigned long long)({name}));"
        )
        .unwrap();
    }
    c.push_str(
        "printf(\"version %u\\n\", FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION));\nreturn 0; }\n",
    );
    c
}

/// Returns the name of a field in the header.
fn c_field<'a>(structure: &str, field: &'a str) -> &'a str {
    match (structure, field) {
        ("fi_bus_attr", "pci") => "attr",
        (_, field) => field.trim_start_matches("r#"),
    }
}

/// Returns the output of the program for the headers in `include`.
fn probe(include: &Path, name: &str) -> BTreeMap<String, usize> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("layout-{name}.c"));
    let binary = folder.join(format!("layout-{name}"));
    std::fs::write(&source, program()).expect("the folder can be written");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-w", "-I"])
        .arg(include)
        .arg("-o")
        .args([&binary, &source])
        .status()
        .expect("cc runs");
    assert!(
        status.success(),
        "the headers lack something that this crate declares"
    );
    let output = Command::new(&binary).output().expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    lines
        .map(|(name, value)| (name.to_owned(), value.parse().expect("a number")))
        .collect()
}

fn compare(include: &Path, name: &str) {
    let said = probe(include, name);
    let version = said["version"] as u32;
    println!(
        "{name}: headers of {}.{}",
        fi_major(version),
        fi_minor(version)
    );
    let wrong: Vec<_> = said
        .iter()
        .filter(|(name, _)| name.starts_with("const "))
        .collect();
    assert!(
        wrong.is_empty(),
        "values differ from the headers': {wrong:?}"
    );
    for (name, size, fields) in layouts() {
        for &(field, offset) in fields.iter().filter(|field| field.0 != "later") {
            let theirs = said[&format!("{name}.{}", c_field(name, field))];
            assert_eq!(offset, theirs, "{name}.{field}");
        }
        let theirs = said[name];
        let room = fields.iter().any(|field| field.0 == "later");
        let grown = GROWN.contains(&name) || name.starts_with("fi_ops");
        match (room, grown) {
            (true, _) => assert!(size >= theirs, "{name}: {size} bytes, {theirs} there"),
            (_, true) => assert!(size <= theirs, "{name}: {size} bytes, {theirs} there"),
            _ => assert_eq!(size, theirs, "{name}"),
        }
    }
}

#[test]
fn all_structures_are_compared() {
    let declared = declared_structures();
    let compared: BTreeMap<String, Vec<String>> = layouts()
        .iter()
        .map(|(name, _, fields)| {
            let fields = fields.iter().map(|field| field.0.to_owned());
            ((*name).to_owned(), fields.collect())
        })
        .collect();
    assert!(
        compared.keys().eq(declared.keys()),
        "{:?}\n{:?}",
        compared.keys(),
        declared.keys()
    );
    for (name, fields) in &declared {
        assert_eq!(&compared[name], fields, "{name}");
    }
    assert!(
        declared_constants().len() > 250,
        "{}",
        declared_constants().len()
    );
}

#[test]
fn as_the_vendored_headers() {
    compare(Path::new(libfabric_vendored::INCLUDE), "vendored");
}

#[test]
fn as_the_installed_headers() {
    let answer = Command::new("pkg-config")
        .args(["--variable=includedir", "libfabric"])
        .output();
    match answer {
        Ok(output) if output.status.success() => {
            let folder = String::from_utf8(output.stdout).expect("text");
            compare(Path::new(folder.trim()), "installed");
        }
        _ => println!("not compared: no headers installed"),
    }
}
