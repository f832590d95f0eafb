//! Tests of the self-test, with a library that supports only what the self-test needs, which is one
//! entry and a put to that entry.

use portals4_sys::*;

use crate::load::{FUNCTIONS, build, functions};

/// Builds a library with custom numbers for `PTL_PT_IN_USE` and `PTL_ME_MANAGE_LOCAL`.
fn library(name: &str, has_abort: bool, in_use: i32, manage_local: u32, fail: u8) -> Library {
    let own = [
        "PtlPTAlloc",
        "PtlMEAppend",
        "PtlMDBind",
        "PtlPut",
        "PtlEQPoll",
    ];
    let rest = FUNCTIONS.into_iter().filter(|name| !own.contains(name));
    let abort = has_abort.then_some("PtlAbort");
    // All other functions succeed.
    let text = functions(rest.chain(abort)).replace("return ", "return 0 * ");
    let text = format!(
        "{text}
         #include <stdint.h>
         #include <string.h>
         typedef union {{ uint32_t rank; struct {{ uint32_t nid, pid; }} phys; }} process;
         typedef struct {{
             char *start; uint64_t length; uint32_t counter, uid; unsigned options;
         }} entry;
         typedef struct {{ char *start; uint64_t length; }} memory;
         typedef struct {{
             void *start, *user;
             uint64_t data, bits, rlength, mlength, offset;
             process initiator;
             uint32_t uid, index;
             unsigned char type, list, fail, operation, datatype;
         }} event;
         static int entries;
         static entry target;
         static memory source;
         static event acknowledgement;
         static int waiting;
         int PtlPTAlloc(uint32_t ni, unsigned options, uint32_t eq, uint32_t wanted,
                 uint32_t *got) {{
             *got = 0;
             return entries++ ? {in_use} : 0;
         }}
         int PtlMEAppend(uint32_t ni, uint32_t index, const entry *me) {{
             target = *me;
             return 0;
         }}
         int PtlMDBind(uint32_t ni, const memory *md) {{
             source = *md;
             return 0;
         }}
         int PtlPut(uint32_t md, uint64_t local, uint64_t length, unsigned char ack, process to,
                 uint32_t index, uint64_t bits, uint64_t remote) {{
             event *ack_event = &acknowledgement;
             ack_event->offset = target.options & {manage_local} ? 0 : remote;
             memcpy(target.start + ack_event->offset, source.start + local, length);
             ack_event->type = 10;
             ack_event->fail = {fail};
             waiting = 1;
             return 0;
         }}
         int PtlEQPoll(const uint32_t *eq, unsigned size, unsigned timeout, event *out) {{
             *out = acknowledgement;
             return waiting ? waiting = 0 : 4;
         }}"
    );
    Library::load(Some(&build(&format!("self-{name}"), &text))).expect("a library")
}

fn test(library: &Library) -> Result<(), SelfTestError> {
    // SAFETY: these libraries take any number for an interface.
    unsafe { library.self_test(1) }
}

#[test]
fn both_versions_pass() {
    let old = library("old", false, 15, 1 << 16, 0);
    assert_eq!(test(&old), Ok(()));
    let new = library("new", true, 14, 1 << 15, 0);
    assert_eq!(test(&new), Ok(()));
}

#[test]
fn what_lies_between_versions_is_noticed() {
    for (name, in_use, manage_local, difference) in [
        ("codes", 14, 1 << 16, "its return codes have other numbers"),
        ("options", 15, 1 << 15, "its options have other numbers"),
    ] {
        let library = library(name, false, in_use, manage_local, 0);
        let error = test(&library).unwrap_err();
        let path = library.path().display().to_string();
        assert!(
            error.to_string().starts_with(&format!(
                "{path} was taken for Portals version 4.0, but {difference}; "
            )),
            "{error}"
        );
    }
}

#[test]
fn a_put_that_fails_is_an_error() {
    let drops = library("drops", true, 14, 1 << 15, 2);
    let error = test(&drops).unwrap_err();
    assert!(
        matches!(&error, SelfTestError::Failed { function: "PtlPut", reason, .. }
            if reason == "an event with failure 2"),
        "{error}"
    );
}
