//! Messages of all kinds in both directions, and the table of roles for each pair of sender and receiver.

use crate::samples::samples;
use crate::script::{Script, edit};
use crate::target::Target;
use bytes::Bytes;
use gabion_layout::NodeId;
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest};
use gabion_wire::frame::Kind;
use gabion_wire::{CertificateReply, CertificateRequest, Frame, Hello, Role, Sender, WireError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "messages",
    run,
    seeds,
    input_bytes_max: 4096,
    memory_bytes_max: 4 << 20,
    test_input_count: 500_000,
};

/// Numbers of the kinds in an input's first byte.
const KINDS: u8 = 8;

/// The first byte: the kind of message. The others: its encoding.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let kind = script.u8();
    let body = script.rest();
    match kind % KINDS {
        0 => request::<NodeRequest>(Kind::NodeRequest, body),
        1 => request::<CoordinatorRequest>(Kind::CoordinatorRequest, body),
        2 => request::<CertificateRequest>(Kind::CertificateRequest, body),
        3 => drop(message::<NodeReply>(Kind::NodeReply, body)),
        4 => drop(message::<CoordinatorReply>(Kind::CoordinatorReply, body)),
        5 => drop(message::<CertificateReply>(Kind::CertificateReply, body)),
        6 => drop(message::<Hello>(Kind::Hello, body)),
        _ => {
            // Edits of an encoding, which keep more of it than plain mutations do.
            let mut script = Script::new(body);
            let kind = script.u8();
            let mut encoding = script.piece().to_vec();
            while !script.is_empty() {
                edit(&mut encoding, &mut script);
            }
            if kind % KINDS < KINDS - 1 {
                run(&[&[kind][..], &encoding].concat());
            }
        }
    }
}

/// Decodes a request, and judges it as if each sender had sent it.
fn request<T>(kind: Kind, body: &[u8])
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let Some(frame) = message::<T>(kind, body) else {
        return;
    };
    let mut permitted_count = 0;
    for role in [Role::Client, Role::Node, Role::Coordinator, Role::Operator] {
        for node in [None, Some(NodeId(0)), Some(NodeId(1))] {
            for (is_proven, is_token) in [(false, false), (true, false), (true, true)] {
                let sender = Sender {
                    role,
                    node,
                    is_token,
                    is_proven,
                };
                let judged = sender.judge(frame.clone()).expect("it was decoded before");
                permitted_count += usize::from(judged.is_ok());
            }
        }
    }
    // Requests about certificates need one, and all others have a role that may send them.
    assert!(permitted_count > 0, "no sender may send {frame:?}");
}

/// Decodes a message. What is decoded is the same when it is sent on, and no longer.
fn message<T>(kind: Kind, body: &[u8]) -> Option<Frame>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let frame = Frame::new(kind, Bytes::copy_from_slice(body)).expect("inputs are short");
    let message: T = match frame.decode_message() {
        Ok(message) => message,
        Err(WireError::Corrupt(_)) => return None,
        Err(error) => panic!("{error}"),
    };
    let sent = Frame::message(kind, 0, &message, 0).expect("it came in a frame");
    assert!(sent.body.len() <= body.len(), "{message:?} grows");
    let again: T = sent.decode_message().expect("it was encoded");
    assert_eq!(again, message);
    Some(sent)
}

fn seeds() -> Vec<Vec<u8>> {
    let all = [
        samples::<NodeRequest>(),
        samples::<CoordinatorRequest>(),
        samples::<CertificateRequest>(),
        samples::<NodeReply>(),
        samples::<CoordinatorReply>(),
        samples::<CertificateReply>(),
        samples::<Hello>(),
    ];
    let mut seeds = Vec::new();
    for (kind, encodings) in (0..).zip(all) {
        for encoding in encodings {
            if let Ok(count @ ..=200) = u8::try_from(encoding.len()) {
                seeds.push([&[KINDS - 1, kind, count][..], &encoding].concat());
            }
            seeds.push([&[kind][..], &encoding].concat());
        }
    }
    seeds.retain(|seed| seed.len() <= TARGET.input_bytes_max);
    seeds
}
