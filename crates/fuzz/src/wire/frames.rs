//! Frames after a hello: any headers and bodies, with right checksums and with damage.

use super::stream::{OURS, read};
use crate::script::{Script, edit};
use crate::target::Target;
use bytes::Bytes;
use gabion_layout::NodeId;
use gabion_wire::frame::{HEADER_BYTES, Header, Kind};
use gabion_wire::{Frame, Role, Sender, Versions, WireError};

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "frames",
    run,
    seeds,
    input_bytes_max: 2048,
    // A header may announce a body of 64 MiB, for which the reader makes room.
    memory_bytes_max: 68 << 20,
    test_input_count: 200_000,
};

/// Most frames of a stream.
const FRAME_COUNT_MAX: usize = 8;

/// The first byte: the size of reads, and whether bytes are damaged at the end. Then frames.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let choice = script.u8();
    let hello = OURS.frame(Versions::CURRENT).expect("a hello is short");
    let mut stream = [&hello.header.encode()[..], &hello.body].concat();
    let mut sent = Vec::new();
    while !script.is_empty() && sent.len() < FRAME_COUNT_MAX {
        let (header, body) = frame(&mut script);
        stream.extend_from_slice(&header);
        stream.extend_from_slice(&body);
        sent.push((header, body));
        if choice & 1 == 1 {
            break;
        }
    }
    let is_damaged = choice & 1 == 1;
    while is_damaged && !script.is_empty() {
        edit(&mut stream, &mut script);
    }
    let heard = read(&stream, 1 + usize::from(choice >> 1) * 97);
    if let Some(error) = &heard.error {
        assert!(!error.to_string().is_empty());
    }
    for (at, frame) in heard.frames.into_iter().enumerate() {
        // A frame that is read is the same when it is sent on.
        let header = frame.header.encode();
        assert_eq!(Header::decode(&header).ok(), Some(frame.header));
        assert!(frame.header.check_body(&frame.body).is_ok());
        if !is_damaged {
            assert_eq!((header, &frame.body[..]), (sent[at].0, &sent[at].1[..]));
        }
        serve(&frame);
    }
}

/// The next frame: a header's bytes, whose checksums are right, and its body.
fn frame(script: &mut Script<'_>) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let kind = Kind::ALL[usize::from(script.u8()) % Kind::ALL.len()];
    let (fields, purpose) = (script.u8(), script.u8());
    let body = script.piece().to_vec();
    let mut header = Header::new(kind, &body).expect("an input is shorter than the limit");
    let mut number = |bit: u8| (fields >> bit & 1) as u64 * script.number();
    header.id = number(0);
    header.slice = number(1);
    header.value = number(2) as u32;
    if fields & 8 != 0 {
        header.purpose = purpose;
    }
    if fields & 16 != 0 {
        header.body_bytes = number(4) as u32;
    }
    (header.encode(), body)
}

/// Decodes a frame as a connection does, as if each sender had sent it.
fn serve(frame: &Frame) {
    for (role, node) in [
        (Role::Client, None),
        (Role::Operator, None),
        (Role::Node, None),
        (Role::Node, Some(NodeId(1))),
        (Role::Coordinator, None),
    ] {
        for (is_proven, is_token) in [(false, false), (true, false), (true, true)] {
            let sender = Sender {
                role,
                node,
                is_token,
                is_proven,
            };
            match sender.judge(frame.clone()) {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => assert!(!reason.is_empty()),
                Err(WireError::Corrupt(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    if let Ok(flow) = frame.clone().decode_flow() {
        let again = Frame::flow(flow).expect("it came in a frame");
        assert_eq!(again, *frame);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let all: Vec<u8> = (0..Kind::ALL.len() as u8).collect();
    for &kind in &all {
        for fields in [0_u8, 1, 7, 15, 16] {
            let body = Bytes::from_static(&[0; 24]);
            let numbers = [200_u8, 1, 0, 0, 0, 0, 0, 0, 0];
            seeds.push([&[2, kind, fields, 0, 24][..], &body, &numbers, &numbers].concat());
            seeds.push([&[3, kind, fields, 0, 2, 1, 1, 1, 1, 1, 0, 0, 44, 0][..]].concat());
        }
    }
    let every = all
        .iter()
        .flat_map(|&kind| [kind, 0, 0, 1, 0])
        .collect::<Vec<u8>>();
    seeds.push([&[200][..], &every].concat());
    seeds
}
