//! Peers that break the protocol, vanish, or hold what they can: each costs its own connection and nothing else.

use crate::conversation::{FLUSH, PATIENCE, READ, Talk, WHOLE, WRITE, go, header};
use crate::memory::GATED_BYTE;
use crate::serving::Serving;
use gabion_layout::ByteRange;
use gabion_nbd::Limits;
use rand::{RngExt, SeedableRng};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PAYLOAD: u16 = 1 << 5;

/// Limits that a test meets soon. What must succeed is never under the limit of a stall: a handshake is not, and
/// requests and replies are so small that they are sent at once.
fn limits() -> Limits {
    Limits {
        connection_count: 3,
        stall: Duration::from_millis(300),
        ..Limits::default()
    }
}

/// Waits until the server has a place for a new connection: it frees one a moment after its client has gone.
async fn wait_for_place(serving: &Serving) {
    let finds_place = async {
        loop {
            let mut stream = TcpStream::connect(serving.address).await.expect("a socket");
            if stream.read_exact(&mut [0; 18]).await.is_ok() {
                return;
            }
        }
    };
    let in_time = timeout(PATIENCE, finds_place).await;
    in_time.expect("the server has a place");
}

/// Checks that a new connection is served.
async fn is_alive(serving: &Serving) {
    let mut talk = Talk::attach(serving, "vm/disk").await;
    talk.request((FLUSH, 0), 9, (0, 0), b"").await;
    assert_eq!(talk.outcome().await, (9, 0));
}

#[tokio::test]
async fn broken_handshakes_end_the_connection() {
    let serving = Serving::start(Limits::default()).await;
    let mut talk = Talk::greet(&serving, 1 << 7).await;
    assert!(talk.end().await.is_empty(), "unknown flags");
    for data in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        b"IHAVEOPT\0\0\0\x06\xff\xff\xff\xff",
        b"IHAVEOPT\0\0\0\x01\0\0\0\x02\xff\xff",
    ] {
        let mut talk = Talk::greet(&serving, 3).await;
        talk.send(&[data]).await;
        assert!(talk.end().await.is_empty(), "{data:?}");
    }
    let mut talk = Talk::greet(&serving, 3).await;
    for _ in 0..63 {
        assert_eq!(talk.option(8, b"").await, [(1, Vec::new())]);
    }
    talk.send_option(8, b"").await;
    assert_eq!(talk.end().await.len(), 20, "the limit of options");
    is_alive(&serving).await;
}

#[tokio::test]
async fn a_handshake_that_stops_loses_the_connection() {
    let serving = Serving::start(Limits {
        handshake: Duration::from_secs(1),
        ..limits()
    })
    .await;
    let stream = TcpStream::connect(serving.address).await;
    let mut silent = Talk(stream.expect("a server"));
    silent.bytes(18).await;
    // On a slow machine, the limit may have passed by now.
    let _ = silent.0.write_all(&3_u32.to_be_bytes()).await;
    assert!(silent.end().await.is_empty());
}

#[tokio::test]
async fn a_request_that_stops_loses_the_connection() {
    let serving = Serving::start(limits()).await;
    let mut half = Talk::attach(&serving, "vm/disk").await;
    half.request((WRITE, PAYLOAD), 1, (0, 4096), b"abc").await;
    assert!(half.end().await.is_empty());
    let mut skipped = Talk::attach(&serving, "vm/disk").await;
    skipped
        .request((FLUSH, PAYLOAD), 1, (0, 4096), b"abc")
        .await;
    assert!(skipped.end().await.is_empty());
    // An idle connection stays.
    let mut idle = Talk::attach(&serving, "vm/disk").await;
    tokio::time::sleep(2 * limits().stall).await;
    idle.request((FLUSH, 0), 2, (0, 0), b"").await;
    assert_eq!(idle.outcome().await, (2, 0));
}

#[tokio::test]
async fn a_peer_that_sends_a_payload_byte_by_byte_loses_the_connection() {
    let serving = Serving::start(limits()).await;
    let mut talk = Talk::attach(&serving, "vm/disk").await;
    talk.request((WRITE, PAYLOAD), 1, (0, 4096), b"").await;
    let (mut reader, mut writer) = talk.0.into_split();
    // No byte is late, but all of them take minutes.
    let slowly = async {
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(limits().stall / 3).await;
        }
    };
    let end = async { reader.read(&mut [0; 64]).await.unwrap_or(0) };
    let ended = async { tokio::join!(slowly, end).1 };
    let ended = timeout(PATIENCE, ended).await;
    assert_eq!(ended, Ok(0), "the server closes the connection");
    is_alive(&serving).await;
}

#[tokio::test]
async fn who_takes_no_replies_loses_the_connection() {
    let serving = Serving::start(limits()).await;
    let mut talk = Talk::attach(&serving, "vm/disk").await;
    // Whole bytes, and not the holes that they are. One packet has both requests: the first reply may be late before a
    // second packet is sent.
    let bytes = 32 << 20;
    let reads = [1, 2].map(|cookie| header((READ, WHOLE), cookie, (0, bytes)));
    talk.send(&[&reads[0], &reads[1]]).await;
    // The replies wait for a reader until the server closes the connection, which frees its place.
    let _others = [
        Talk::attach(&serving, "vm/disk").await,
        Talk::attach(&serving, "vm/disk").await,
    ];
    wait_for_place(&serving).await;
    let rest = talk.end().await;
    assert!((rest.len() as u64) < bytes, "it was cut");
}

#[tokio::test]
async fn garbage_between_requests_ends_the_connection() {
    let serving = Serving::start(Limits::default()).await;
    let mut talk = Talk::attach(&serving, "vm/disk").await;
    talk.send(&[&[0x25; 32]]).await;
    assert!(talk.end().await.is_empty());
    let mut talk = Talk::attach(&serving, "vm/disk").await;
    talk.request((WRITE, PAYLOAD), 1, (0, 1 << 40), b"").await;
    assert!(talk.end().await.is_empty(), "a payload of a tebibyte");
    is_alive(&serving).await;
}

#[tokio::test]
async fn further_connections_are_closed_until_one_ends() {
    let serving = Serving::start(Limits {
        connection_count: 2,
        ..Limits::default()
    })
    .await;
    let first = Talk::attach(&serving, "vm/disk").await;
    let _second = Talk::attach(&serving, "vm/disk").await;
    let stream = TcpStream::connect(serving.address).await.expect("a socket");
    assert!(Talk(stream).end().await.is_empty());
    drop(first);
    wait_for_place(&serving).await;
}

#[tokio::test]
async fn the_writes_of_a_client_that_vanishes_end_and_free_what_they_held() {
    let serving = Serving::start(Limits {
        connection_count: 2,
        request_count: 1,
        ..Limits::default()
    })
    .await;
    let mut talk = Talk::attach(&serving, "vm/odd").await;
    talk.request((WRITE, PAYLOAD), 1, (GATED_BYTE, 3), b"abc")
        .await;
    // The second request waits for the first one's place.
    talk.request((FLUSH, 0), 2, (0, 0), b"").await;
    drop(talk);
    serving.odd.gate.add_permits(1);
    let mut other = Talk::attach(&serving, "vm/odd").await;
    let range = (GATED_BYTE, 3);
    loop {
        other.request((READ, WHOLE), 3, range, b"").await;
        let (_, _, payload) = other.chunk().await;
        if payload[8..] == *b"abc" {
            break;
        }
    }
    let range = ByteRange::new(GATED_BYTE, 3);
    assert_eq!(serving.odd.bytes(range), b"abc");
}

/// A write that is in flight when the server ends must not fail for its client, which makes it again elsewhere.
#[tokio::test]
async fn a_server_that_ends_answers_no_write_in_flight_and_waits_for_it() {
    let serving = Serving::start(Limits::default()).await;
    let mut idle = Talk::attach(&serving, "vm/disk").await;
    let mut talk = Talk::attach(&serving, "vm/odd").await;
    talk.request((WRITE, PAYLOAD), 1, (GATED_BYTE, 3), b"abc")
        .await;
    // The reply to a later request shows that the write has begun.
    talk.request((FLUSH, 0), 2, (0, 0), b"").await;
    assert_eq!(talk.outcome().await, (2, 0));
    // All sessions have heard of the end before the limit passes.
    serving.server.end(Duration::from_millis(50)).await;
    assert!(idle.end().await.is_empty());
    let server = serving.server.clone();
    let ends = tokio::spawn(async move { server.end(Duration::from_hours(1)).await });
    tokio::task::yield_now().await;
    assert!(!ends.is_finished(), "a write is in flight");
    serving.odd.gate.add_permits(1);
    let ends = timeout(PATIENCE, ends).await;
    let ends = ends.expect("the server ends with its last request");
    ends.expect("it does not panic");
    assert!(talk.end().await.is_empty());
    let range = ByteRange::new(GATED_BYTE, 3);
    assert_eq!(serving.odd.bytes(range), b"abc");
}

#[tokio::test]
async fn random_bytes_never_hurt_the_server() {
    let serving = Serving::start(Limits::default()).await;
    let mut dice = rand_chacha::ChaCha8Rng::seed_from_u64(11);
    for round in 0..300 {
        let mut noise = vec![0; dice.random_range(1..400)];
        dice.fill(&mut noise[..]);
        let mut talk = if round % 2 == 0 {
            Talk::greet(&serving, 3).await
        } else {
            Talk::attach(&serving, "vm/disk").await
        };
        // A valid beginning reaches further.
        let magic = match round % 4 {
            0 => &b"IHAVEOPT\0\0\0"[..],
            1 => &[0x21, 0xe4, 0x1c, 0x71, 0, 0, 0],
            _ => b"",
        };
        noise.splice(..0, magic.iter().copied());
        if round % 4 < 2 {
            noise[magic.len()] %= 12;
        }
        // The server may close the connection before it has read all.
        let _ = talk.0.write_all(&noise).await;
        let _ = talk.0.shutdown().await;
        talk.end().await;
    }
    let mut talk = Talk::greet(&serving, 3).await;
    assert_eq!(talk.option(7, &go("vm/disk")).await.len(), 3);
}
