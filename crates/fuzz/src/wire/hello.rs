//! The first frame of a peer: its header, which may be of another version, and its hello.

use super::stream::{OURS, read};
use crate::samples::samples;
use crate::script::Script;
use crate::target::Target;
use gabion_wire::frame::{Header, Kind};
use gabion_wire::{Hello, WireError};

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "hello",
    run,
    seeds,
    input_bytes_max: 512,
    memory_bytes_max: 1 << 20,
    test_input_count: 400_000,
};

/// An even first byte: the others are the body of a hello. Otherwise they are the stream.
fn run(input: &[u8]) {
    let mut script = Script::new(input);
    let choice = script.u8();
    let body = script.rest();
    if choice % 2 == 1 {
        let heard = read(body, 1 + usize::from(choice >> 1));
        if let Some(error) = heard.error {
            assert!(!error.to_string().is_empty());
        }
        return;
    }
    let header = Header::new(Kind::Hello, body).expect("an input is shorter than the limit");
    let stream = [&header.encode()[..], body].concat();
    let heard = read(&stream, 1 + usize::from(choice >> 1));
    match (heard.hello, heard.error) {
        (Some(hello), None) => {
            let encoded = postcard::to_stdvec(&hello).expect("a hello can be encoded");
            assert!(
                encoded.len() <= body.len(),
                "a hello grows when it is sent on"
            );
            let again: Hello = postcard::from_bytes(&encoded).expect("it was encoded");
            assert_eq!(again, hello);
            assert!(
                OURS.check(&hello).is_ok(),
                "a hello of another cluster passed"
            );
        }
        (None, Some(WireError::Corrupt(_) | WireError::WrongCluster { .. })) => {}
        other => panic!("{other:?}"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for body in samples::<Hello>() {
        let header = Header::new(Kind::Hello, &body).expect("a hello is short");
        seeds.push([&[0][..], &body].concat());
        seeds.push([&[9][..], &header.encode(), &body].concat());
    }
    seeds.truncate(48);
    seeds
}
