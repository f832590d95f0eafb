//! A test that compares the layouts of the structures with the headers of the Python package.

#[path = "../../tests/package/mod.rs"]
mod package;

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::process::Command;

use super::*;

macro_rules! layouts {
    ($($name:ident $(as $ours:ident)? { $($field:ident)* })*) => {{
        let (mut program, mut ours) = (String::new(), String::new());
        $({
            type Ours = layouts!(@ $name $($ours)?);
            let name = stringify!($name);
            writeln!(program, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
            writeln!(ours, "{name} {}", size_of::<Ours>()).unwrap();
            $({
                let (field, offset) = (stringify!($field), offset_of!(Ours, $field));
                writeln!(program, "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));").unwrap();
                writeln!(ours, "{name}.{field} {offset}").unwrap();
            })*
        })*
        (program, ours)
    }};
    (@ $name:ident) => { $name };
    (@ $name:ident $ours:ident) => { $ours };
}

#[test]
fn the_headers_have_the_same_structures() {
    let Some(environment) = package::environment() else {
        return;
    };
    let libraries = std::fs::read_dir(environment.join("lib")).unwrap();
    let include = libraries
        .map(|python| python.unwrap().path().join("site-packages/dragon/include"))
        .find(|include| include.exists())
        .unwrap();
    let (program, ours) = layouts! {
        dragonMemoryDescr_t {}
        dragonMemoryPoolDescr_t {}
        dragonChannelDescr_t {}
        dragonChannelSendh_t {}
        dragonChannelRecvh_t {}
        dragonMemorySerial_t as Serial { len data }
        dragonChannelSerial_t as Serial { len data }
        dragonGatewayMessageSerial_t as Serial { len data }
        dragonMessageAttr_t { hints clientid sendhid send_transfer_ownership no_copy_read_only }
        dragonMessage_t { _attr _mem_descr _mem_descr_provided _mem_descr_inited }
        dragonGatewayMessageHeader_t { client_pid }
        dragonGatewayMessage_t {
            _header target_ch_ser msg_kind target_hostid target_rt_uid deadline send_return_mode send_payload_message
            send_dest_mem_descr_ser get_dest_mem_descr_ser event_mask _send_immediate_buffered_complete
        }
        dragonNodeMap_t { host_id ip_addr }
    };
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let binary = folder.path().join("layout");
    std::fs::write(
        &source,
        format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <dragon/channels.h>\nint main(void) {{\n{program}return \
             0;\n}}\n"
        ),
    )
    .unwrap();
    let compiled = Command::new("cc")
        .arg("-I")
        .arg(include)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
        .unwrap();
    assert!(compiled.success());
    let theirs = Command::new(&binary).output().unwrap();
    assert_eq!(String::from_utf8(theirs.stdout).unwrap(), ours);
}
