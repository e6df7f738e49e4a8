//! Peers of other versions: the version in which two processes talk, and the refusals.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::node_hello;
use crate::processes::{Process, answer, ask, bytes_in_version, far, raw_connection, within};
use bytes::Bytes;
use gabion_layout::{ChunkIndex, StripeId};
use gabion_protocol::message::{NodeReply, NodeRequest, RunId, ask};
use gabion_wire::frame::{HEADER_BYTES, Header, Kind};
use gabion_wire::{Connection, Frame, Hello, Options, Role, Rpc, Versions, WireError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The first version that has [`Later`].
const LATER: u16 = 27;

/// The options of a process that speaks the versions from `oldest` to `newest`.
fn speaking(oldest: u16, newest: u16) -> Options {
    Options {
        versions: Versions::between(oldest, newest).unwrap(),
        ..Options::default()
    }
}

/// A request that came with version 27. On the wire it is what it holds.
#[derive(Serialize, Deserialize)]
struct Later(NodeRequest);

impl Rpc for Later {
    type Reply = NodeReply;
    const REQUEST: Kind = Kind::NodeRequest;
    const REPLY: Kind = Kind::NodeReply;
    fn since(&self) -> u16 {
        LATER
    }
}

/// Connects a node to a coordinator and has them call each other. Returns the version in which they did.
async fn talk(node: Options, coordinator: Options) -> u16 {
    let hello = Hello {
        role: Role::Coordinator,
        ..Hello::client()
    };
    let coordinator = Process::listen_with(hello, coordinator).await;
    let node = Process::with(node_hello(3, 1), node);
    let connection = node.connect(&coordinator).await;
    let reserves = ask::Reserves(Vec::new()).into();
    let asked = connection.call_coordinator(&reserves, far());
    within(asked).await.unwrap();
    let back = coordinator.accepted().await;
    let answered = within(back.call_node(&ask(8), far())).await;
    assert_eq!(answered.unwrap(), answer(8));
    assert_eq!(back.version(), connection.version());
    connection.version()
}

#[tokio::test]
async fn processes_at_most_one_version_apart_call_each_other() {
    for (ours, theirs, agreed) in [
        ((26, 26), (26, 26), 26),
        ((26, 27), (26, 27), 27),
        ((26, 26), (26, 27), 26),
        ((26, 27), (26, 26), 26),
        ((26, 27), (27, 28), 27),
        ((27, 28), (26, 27), 27),
    ] {
        let (ours, theirs) = (speaking(ours.0, ours.1), speaking(theirs.0, theirs.1));
        let version = talk(ours, theirs).await;
        assert_eq!(version, agreed);
    }
}

#[tokio::test]
async fn processes_without_a_common_version_refuse_each_other_in_one_sentence() {
    for (ours, theirs, words) in [
        (
            (26, 26),
            (27, 28),
            "the peer speaks versions 27 to 28 of Gabion's protocol and this process speaks version 26; upgrade this \
            process, release by release",
        ),
        (
            (27, 28),
            (26, 26),
            "the peer speaks version 26 of Gabion's protocol and this process speaks versions 27 to 28; upgrade the \
            peer, release by release",
        ),
        (
            (26, 26),
            (27, 27),
            "the peer speaks version 27 of Gabion's protocol and this process speaks version 26; upgrade this process, \
            release by release",
        ),
    ] {
        let server = Process::listen_with(node_hello(1, 0), speaking(theirs.0, theirs.1)).await;
        let client = Process::with(Hello::client(), speaking(ours.0, ours.1));
        let refused = Connection::connect(&server.address(), &client.endpoint).await;
        let error = refused.err().expect("they have no version in common");
        assert!(matches!(error, WireError::WrongVersion { .. }), "{error}");
        assert_eq!(error.to_string(), words);
        let why = server.next_not_accepted().await;
        assert!(why.contains("; upgrade "), "{why}");
    }
}

#[tokio::test]
async fn hellos_without_valid_versions_are_refused_in_one_sentence() {
    let hello = |oldest, newest| {
        let versions = Versions::between(oldest, newest).unwrap();
        Hello::client().frame(versions).unwrap()
    };
    let earlier = || Frame::message(Kind::Hello, 0, &Hello::client(), 64).unwrap();
    let unclear = "the peer's hello of version 26 of Gabion's protocol names no valid oldest version, and this process \
        speaks version 26; install the release of this process at the peer";
    let cases = [
        // The form of earlier versions, under their number and under this one.
        (
            bytes_in_version(25, earlier()),
            "the peer speaks version 25 of Gabion's protocol and this process speaks version 26; upgrade the peer, \
            release by release",
        ),
        (bytes_in_version(26, earlier()), unclear),
        // An oldest version above the newest one, and none at all.
        (bytes_in_version(26, hello(27, 28)), unclear),
        (
            bytes_in_version(26, Frame::new(Kind::Hello, Bytes::new()).unwrap()),
            unclear,
        ),
        // Bytes that no version from before this one has.
        (
            {
                let body = [&hello(26, 26).body[..], &[0]].concat();
                bytes_in_version(26, Frame::new(Kind::Hello, body.into()).unwrap())
            },
            "received a corrupt frame: bytes follow the hello",
        ),
        (
            {
                let body = hello(26, 26).body.slice(..2);
                bytes_in_version(26, Frame::new(Kind::Hello, body).unwrap())
            },
            "received a corrupt frame: the hello cannot be decoded",
        ),
    ];
    let server = Process::listen_with(node_hello(1, 0), speaking(26, 26)).await;
    for (bytes, words) in cases {
        let mut raw = TcpStream::connect(server.address()).await.unwrap();
        raw.write_all(&bytes).await.unwrap();
        assert_eq!(server.next_not_accepted().await, words);
    }
}

/// Reads a whole frame.
async fn read_frame(raw: &mut TcpStream) -> Frame {
    let mut header = [0; HEADER_BYTES];
    within(raw.read_exact(&mut header)).await.unwrap();
    let header = Header::decode(&header).unwrap();
    let mut body = vec![0; header.body_bytes as usize];
    within(raw.read_exact(&mut body)).await.unwrap();
    let body = body.into();
    Frame { header, body }
}

#[tokio::test]
async fn a_longer_hello_of_a_later_version_is_understood() {
    let server = Process::listen_with(node_hello(1, 0), speaking(26, 26)).await;
    let mut raw = TcpStream::connect(server.address()).await.unwrap();
    let versions = Versions::between(26, 27).unwrap();
    let known = Hello::client().frame(versions).unwrap().body;
    let body = [&known[..], b"what version 27 adds"].concat();
    let hello = Frame::new(Kind::Hello, body.into()).unwrap();
    raw.write_all(&bytes_in_version(27, hello)).await.unwrap();
    let theirs = read_frame(&mut raw).await;
    assert_eq!(
        (theirs.header.kind, theirs.header.version),
        (Kind::Hello, 26)
    );
    let request = Frame::message(Kind::NodeRequest, 5, &ask(7), 64).unwrap();
    raw.write_all(&bytes_in_version(26, request)).await.unwrap();
    let reply = read_frame(&mut raw).await;
    assert_eq!((reply.header.id, reply.header.version), (5, 26));
    let reply: NodeReply = reply.decode_message().unwrap();
    assert_eq!(reply, answer(7));
}

#[tokio::test]
async fn frames_of_another_version_than_agreed_end_the_connection() {
    for version in [25, 27] {
        let client = Process::with(Hello::client(), speaking(26, 26));
        let (mut raw, connection) = raw_connection(&client).await;
        let abort = Frame::new(Kind::Abort, Bytes::new()).unwrap();
        let sent = bytes_in_version(version, abort);
        raw.write_all(&sent).await.unwrap();
        let error = within(connection.closed()).await;
        assert!(matches!(error, WireError::Corrupt(_)), "{error}");
        assert!(error.to_string().contains("another version"), "{error}");
    }
    // A peer that refuses this process may say so in its own version.
    let client = Process::with(Hello::client(), speaking(26, 26));
    let (mut raw, connection) = raw_connection(&client).await;
    let words = Frame::new(Kind::Goodbye, Bytes::from_static(b"no place is left")).unwrap();
    raw.write_all(&bytes_in_version(27, words)).await.unwrap();
    let error = within(connection.closed()).await;
    assert!(error.to_string().contains("no place is left"), "{error}");
}

fn stage() -> NodeRequest {
    NodeRequest::Stage(ask::Stage {
        run: RunId(1),
        stripe: StripeId(9),
        chunk: ChunkIndex(2),
        offset: 0,
        bytes: Bytes::from_static(b"new bytes"),
        ticket: None,
    })
}

#[tokio::test]
async fn a_request_that_the_peer_s_version_lacks_is_not_sent() {
    let server = Process::listen_with(node_hello(1, 0), speaking(26, 27)).await;
    let connected = async |newest| {
        let client = Process::with(Hello::client(), speaking(26, newest));
        let connection: Arc<Connection> = client.connect(&server).await;
        (client, connection)
    };
    let (_client, connection) = connected(26).await;
    let error = connection.call(&Later(stage()), far()).await.unwrap_err();
    assert!(
        matches!(
            error,
            WireError::Unsupported {
                needed: LATER,
                agreed: 26
            }
        ),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "the peer speaks version 26 of Gabion's protocol, and this request needs version 27; upgrade the peer"
    );
    // The connection goes on, and nothing came before this request.
    let answered = connection.call_node(&ask(1), far()).await.unwrap();
    assert_eq!(answered, answer(1));
    assert_eq!(server.last_stage(), None);

    let (_client, connection) = connected(27).await;
    let answered = connection.call(&Later(stage()), far()).await.unwrap();
    assert_eq!(answered, NodeReply::Done);
    assert_eq!(server.last_stage(), Some(stage()));
}
