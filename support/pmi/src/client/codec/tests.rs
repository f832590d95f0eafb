//! Tests of a rank's side of the protocol, line by line.

use super::*;

fn ready() -> Codec {
    let mut codec = Codec::new();
    codec.request(Request::Init).unwrap();
    codec
        .response("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
        .unwrap();
    codec.request(Request::KvsName).unwrap();
    codec.response("cmd=my_kvsname kvsname=kvs_7_0").unwrap();
    codec
}

#[test]
fn the_requests_have_hydras_form() {
    let mut codec = ready();
    let put = codec
        .request(Request::Put {
            key: "k",
            value: "00ff",
        })
        .unwrap();
    assert_eq!(put, "cmd=put kvsname=kvs_7_0 key=k value=00ff\n");
    assert_eq!(
        codec.response("cmd=put_result rc=0 msg=success"),
        Ok(Response::Done)
    );
    let get = codec.request(Request::Get { key: "k" }).unwrap();
    assert_eq!(get, "cmd=get kvsname=kvs_7_0 key=k\n");
    let answer = codec.response("cmd=get_result rc=0 msg=success value=00ff");
    assert_eq!(answer, Ok(Response::Value("00ff".into())));
    assert_eq!(codec.request(Request::Barrier).unwrap(), "cmd=barrier_in\n");
    assert_eq!(codec.response("cmd=barrier_out"), Ok(Response::Done));
    assert_eq!(codec.request(Request::Finalize).unwrap(), "cmd=finalize\n");
    assert_eq!(
        codec.response("cmd=finalize_ack"),
        Ok(Response::Done),
        "rc may be absent"
    );
    assert!(matches!(
        codec.request(Request::Barrier),
        Err(CodecError::OutOfOrder(_))
    ));
}

#[test]
fn a_refusal_says_why() {
    let mut codec = ready();
    codec.request(Request::Get { key: "k" }).unwrap();
    let refused = codec.response("cmd=get_result rc=-1 msg=key_k_not_found value=unknown");
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, "the launcher refused: \"key_k_not_found\" (rc=-1)");
    assert!(
        codec.request(Request::Barrier).is_ok(),
        "the state machine stays usable"
    );
}

#[test]
fn the_launchers_limits_hold_but_never_above_ours() {
    let mut codec = ready();
    codec.request(Request::Maxes).unwrap();
    codec
        .response("cmd=maxes kvsname_max=9999 keylen_max=4 vallen_max=99999")
        .unwrap();
    assert_eq!(
        codec.maxes(),
        Maxes {
            kvsname: 256,
            key: 4,
            value: 1024
        }
    );
    let put = codec.request(Request::Put {
        key: "four",
        value: "",
    });
    assert_eq!(
        put,
        Err(CodecError::TooLong {
            what: "key",
            length: 4,
            limit: 3
        })
    );
    let value = "v".repeat(1024);
    let put = codec.request(Request::Put {
        key: "k",
        value: &value,
    });
    assert!(matches!(
        put,
        Err(CodecError::TooLong { what: "value", .. })
    ));
    assert!(
        codec
            .request(Request::Put {
                key: "k",
                value: "a b"
            })
            .is_err()
    );
    assert!(
        codec
            .request(Request::Put {
                key: "k",
                value: "ab"
            })
            .is_ok(),
        "nothing is outstanding"
    );
}

#[test]
fn order_is_kept() {
    let mut codec = Codec::new();
    assert!(matches!(
        codec.request(Request::Barrier),
        Err(CodecError::OutOfOrder(_))
    ));
    assert!(matches!(
        codec.response("cmd=barrier_out"),
        Err(CodecError::Unasked(_))
    ));
    let mut codec = ready();
    codec.request(Request::Barrier).unwrap();
    assert!(matches!(
        codec.request(Request::Barrier),
        Err(CodecError::OutOfOrder(_))
    ));
    assert!(matches!(
        codec.response("cmd=put_result rc=0"),
        Err(CodecError::Unexpected { .. })
    ));
}

#[test]
fn an_abort_carries_any_message_in_one_word() {
    let line = Codec::new().abort(3, "rank 1: disk full\n");
    assert_eq!(line, "cmd=abort exitcode=3 message=rank_1:_disk_full_\n");
    assert_eq!(Codec::new().abort(-1, ""), "cmd=abort exitcode=-1\n");
    assert!(Codec::new().abort(0, &"x".repeat(9999)).len() < 600);
}
