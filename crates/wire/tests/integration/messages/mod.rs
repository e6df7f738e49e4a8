//! The encodings of all messages, compared with the file `tests/messages.txt`.
//!
//! A release speaks with its predecessor, so no message of an earlier version may get another encoding as long as that
//! version is spoken. CONTRIBUTING.md ("Change the wire") has the rules, which [`updated`] checks before it changes the
//! file: `GABION_UPDATE_GOLDEN=1 cargo test -p gabion-wire --test integration messages::` writes it.

mod file;
mod trace;

use file::{File, Release, updated};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest, Purpose,
};
use gabion_wire::frame::Kind;
use gabion_wire::{
    CertificateReply, CertificateRequest, Hello, OLDEST_VERSION, Rpc, VERSION, Versions,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use trace::{Tracer, title};

/// Every type of the messages, with its members.
fn types() -> BTreeMap<String, Vec<String>> {
    let tracer = Tracer::default();
    tracer.trace::<Hello>(|_, _| {});
    tracer.trace::<NodeRequest>(|_, _| {});
    tracer.trace::<NodeReply>(|_, _| {});
    tracer.trace::<CoordinatorRequest>(|_, _| {});
    tracer.trace::<CoordinatorReply>(|_, _| {});
    tracer.trace::<CertificateRequest>(|_, _| {});
    tracer.trace::<CertificateReply>(|_, _| {});
    let mut types = tracer.types();
    // The header has numbers of its own.
    let kinds = Kind::ALL.map(|kind| format!("{kind:?}: {}", kind as u8));
    types.insert("enum of headers: kind".to_owned(), kinds.into());
    let purposes = (0..).zip(Purpose::ALL);
    let purposes = purposes.map(|(number, purpose)| format!("{purpose:?}: {number}"));
    types.insert("enum of headers: purpose".to_owned(), purposes.collect());
    types
}

/// Checks that `since` gives each message the version of the newest variant in it.
fn check_since<T: DeserializeOwned + std::fmt::Debug>(file: &File, since: impl Fn(&T) -> u16) {
    Tracer::default().trace::<T>(|message, visited| {
        let variants = visited.iter();
        let versions = variants.map(|(key, number)| file.since(&title("enum", *key), *number));
        let newest = versions.max().expect("a message is an enum");
        assert_eq!(since(message), newest, "{message:?}");
    });
}

#[test]
fn no_message_of_a_version_that_is_spoken_has_changed() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    let known = std::fs::read_to_string(&path).ok();
    let known = known.map(|text| File::parse(&text).expect("a file that was not edited by hand"));
    let release = Release {
        newest: VERSION,
        oldest: OLDEST_VERSION,
    };
    let now = updated(known.as_ref(), release, &types()).unwrap_or_else(|why| panic!("{why}"));
    if std::env::var_os("GABION_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, now.to_string()).expect("the directory is there");
    } else {
        assert!(
            known.as_ref() == Some(&now),
            "the messages or their versions have changed; run 'GABION_UPDATE_GOLDEN=1 cargo test -p gabion-wire --test \
            integration messages::', and read the difference"
        );
    }
    check_since(&now, NodeRequest::since);
    check_since(&now, CoordinatorRequest::since);
    check_since(&now, CertificateRequest::since);
    check_since(&now, NodeRequest::reply_since);
    check_since(&now, CoordinatorRequest::reply_since);
    check_since(&now, CertificateRequest::reply_since);
}

#[test]
fn the_form_of_a_hello_is_fixed() {
    let versions = Versions::between(26, 27).unwrap();
    let hello = Hello::client().frame(versions).unwrap();
    // The newest version, and the kind.
    assert_eq!(hello.header.encode()[4..7], [27, 0, 1]);
    // The oldest version; no cluster; a client; no node; no rack.
    assert_eq!(hello.body[..], [26, 0, 0, 0, 0]);
}
