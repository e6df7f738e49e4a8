//! The first frame of a peer: its header, which may be of another version, and its hello.

use super::stream::{OURS, read};
use crate::samples::samples;
use crate::script::Script;
use crate::target::Target;
use gabion_wire::frame::{Header, Kind};
use gabion_wire::{Hello, OLDEST_VERSION, VERSION, Versions, WireError};

/// The target.
pub(crate) const TARGET: Target = Target {
    name: "hello",
    run,
    seeds,
    input_bytes_max: 512,
    memory_bytes_max: 1 << 20,
    test_input_count: 400_000,
};

/// An even first byte: the others are the body of a hello, of this version or a neighbour. Otherwise they are the
/// stream.
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
    let mut header = Header::new(Kind::Hello, body).expect("an input is shorter than the limit");
    header.version = VERSION - 1 + u16::from(choice >> 1) % 3;
    let stream = [&header.encode()[..], body].concat();
    let heard = read(&stream, 1 + usize::from(choice >> 1));
    match (heard.hello, heard.error) {
        (Some(hello), None) => {
            let (oldest, _) = postcard::take_from_bytes::<u16>(body).expect("it was read");
            let theirs = Versions::between(oldest, header.version).expect("it was accepted");
            let agreed = Versions::CURRENT.agree(theirs);
            assert!(agreed.is_some() && heard.version == agreed);
            let sent = hello.frame(theirs).expect("a hello is short");
            assert!(
                sent.body.len() <= body.len(),
                "a hello grows when it is sent on"
            );
            let stream = [&sent.header.encode()[..], &sent.body].concat();
            assert_eq!(read(&stream, stream.len()).hello, Some(hello));
            assert!(
                OURS.check(&hello).is_ok(),
                "a hello of another cluster passed"
            );
        }
        (
            None,
            Some(
                WireError::Corrupt(_)
                | WireError::WrongCluster { .. }
                | WireError::WrongVersion { .. }
                | WireError::UnclearVersions { .. },
            ),
        ) => {}
        other => panic!("{other:?}"),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let oldest = postcard::to_stdvec(&OLDEST_VERSION).expect("a number can be encoded");
    for hello in samples::<Hello>() {
        let body = [&oldest[..], &hello].concat();
        let header = Header::new(Kind::Hello, &body).expect("a hello is short");
        // Of the version before, of this one and of the next one.
        for choice in [0, 2, 4] {
            seeds.push([&[choice][..], &body].concat());
        }
        seeds.push([&[9][..], &header.encode(), &body].concat());
    }
    seeds.truncate(96);
    seeds
}
