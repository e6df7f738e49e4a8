//! Messages that no tool of Debian's sends: extended headers, `EXPORT_NAME`, and the order of replies.

use crate::conversation::{DISC, FLUSH, READ, STATUS, Talk, WRITE, go};
use crate::memory::{GATED_BYTE, SEGMENT};
use crate::serving::{SIZE, Serving};
use gabion_layout::ByteRange;
use gabion_nbd::Limits;

const PAYLOAD: u16 = 1 << 5;

#[tokio::test]
async fn extended_headers_carry_reads_writes_and_long_extents() {
    let serving = Serving::start(Limits::default()).await;
    let mut talk = Talk::attach(&serving, "vm/disk").await;
    talk.request((WRITE, PAYLOAD), 1, (SEGMENT - 2, 2), b"ab")
        .await;
    assert_eq!(talk.outcome().await, (1, 0));
    talk.request((READ, 0), 2, (SEGMENT - 3, 6), b"").await;
    let (cookie, kind, payload) = talk.chunk().await;
    assert_eq!((cookie, kind), (2, (0, 1)));
    assert_eq!(
        payload,
        [&(SEGMENT - 3).to_be_bytes()[..], b"\0ab"].concat()
    );
    let (_, kind, payload) = talk.chunk().await;
    assert_eq!(kind, (1, 2));
    assert_eq!(
        payload,
        [&SEGMENT.to_be_bytes()[..], &[0, 0, 0, 3]].concat()
    );
    talk.request((STATUS, 0), 3, (0, SIZE), b"").await;
    for (last, id, stored, hole) in [(0, 1, 0, 3), (1, 2, 2, 1 << 30)] {
        let (_, kind, payload) = talk.chunk().await;
        assert_eq!(kind, (last, 6));
        let mut expected = [[0, 0, 0, id], [0, 0, 0, 2]].concat();
        for (length, state) in [(SEGMENT, stored), (SIZE - SEGMENT, hole)] {
            expected.extend(length.to_be_bytes());
            expected.extend(u64::from(state as u32).to_be_bytes());
        }
        assert_eq!(payload, expected);
    }
    // A write without its flag has no payload, and other requests have none either; both leave the stream intact.
    talk.request((WRITE, 0), 4, (0, 2), b"").await;
    assert_eq!(talk.outcome().await, (4, 22));
    talk.request((FLUSH, PAYLOAD), 5, (0, 3), b"abc").await;
    assert_eq!(talk.outcome().await, (5, 22));
    talk.request((READ, 0), 6, (0, u64::MAX), b"").await;
    assert_eq!(talk.outcome().await, (6, 22));
    talk.request((FLUSH, 0), 7, (0, 0), b"").await;
    assert_eq!(talk.outcome().await, (7, 0));
    talk.request((DISC, 0), 8, (0, 0), b"").await;
    assert!(talk.end().await.is_empty());
}

#[tokio::test]
async fn export_name_starts_simple_replies_with_and_without_padding() {
    let serving = Serving::start(Limits::default()).await;
    for (flags, padding) in [(1, 124), (3, 0)] {
        let mut talk = Talk::greet(&serving, flags).await;
        talk.send_option(1, b"vm/old").await;
        let reply = talk.bytes(10 + padding).await;
        assert_eq!(reply[..8], SIZE.to_be_bytes());
        assert_eq!(reply[8..10], 0x050f_u16.to_be_bytes(), "{reply:?}");
        talk.send(&[
            &0x2560_9513_u32.to_be_bytes(),
            &[0; 4],
            &7_u64.to_be_bytes(),
            &[0; 8],
            &3_u32.to_be_bytes(),
        ])
        .await;
        let reply = talk.bytes(19).await;
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        assert_eq!(reply[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    }
    let mut talk = Talk::greet(&serving, 3).await;
    talk.send_option(1, b"vm/none").await;
    assert!(talk.end().await.is_empty(), "the only answer is the end");
}

#[tokio::test]
async fn each_option_gets_its_reply_and_the_handshake_goes_on() {
    const ERROR: u32 = 1 << 31;
    let serving = Serving::start(Limits::default()).await;
    let mut talk = Talk::greet(&serving, 3).await;
    let long = vec![0; (64 << 10) + 1];
    for (option, data, expected) in [
        (5, &b""[..], ERROR | 1),
        (5, b"x", ERROR | 3),
        (4, b"", ERROR | 1),
        (999, b"abc", ERROR | 1),
        (3, b"x", ERROR | 3),
        (6, b"", ERROR | 3),
        (6, b"\0\0\0\x07vm/none\0\0", ERROR | 6),
        (7, b"\0\0\0\x09vm/broken\0\0", ERROR | 2),
        (7, b"\0\0\0\xffvm", ERROR | 3),
        (10, b"\0\0\0\x07vm/disk\0\0\0\0", ERROR | 3),
        (9, b"\0\0\0\x07vm/none\0\0\0\0", ERROR | 6),
        (6, &long, ERROR | 9),
        (8, b"", 1),
        (11, b"", 1),
        (8, b"", ERROR | 0xa),
    ] {
        let replies = talk.option(option, data).await;
        assert_eq!(replies.len(), 1, "option {option}");
        assert_eq!(replies[0].0, expected, "option {option}: {replies:?}");
    }
    let listed = talk.option(3, b"").await;
    assert_eq!(listed.len(), 4);
    let contexts = talk.option(9, b"\0\0\0\x07vm/disk\0\0\0\0").await;
    assert_eq!(contexts.len(), 3);
    // Contexts of another export do not count.
    let selected = b"\0\0\0\x06vm/old\0\0\0\x01\0\0\0\x0fbase:allocation";
    assert_eq!(talk.option(10, selected).await.len(), 2);
    assert_eq!(talk.option(7, &go("vm/disk")).await.len(), 3);
    talk.request((STATUS, 0), 1, (0, SIZE), b"").await;
    assert_eq!(talk.outcome().await, (1, 22));
    let mut talk = Talk::greet(&serving, 3).await;
    assert_eq!(talk.option(2, b"").await, [(1, Vec::new())]);
    assert!(talk.end().await.is_empty());
}

#[tokio::test]
async fn requests_do_not_wait_for_each_other_and_the_end_waits_for_all() {
    let serving = Serving::start(Limits::default()).await;
    let mut talk = Talk::attach(&serving, "vm/odd").await;
    talk.request((WRITE, PAYLOAD), 1, (GATED_BYTE, 3), b"abc")
        .await;
    talk.request((WRITE, PAYLOAD), 2, (0, 3), b"xyz").await;
    assert_eq!(talk.outcome().await, (2, 0), "the first one waits");
    let mut other = Talk::attach(&serving, "vm/odd").await;
    other.request((READ, 1 << 2), 3, (0, 3), b"").await;
    let (_, _, payload) = other.chunk().await;
    assert_eq!(payload[8..], *b"xyz", "another connection sees it");
    talk.request((DISC, 0), 4, (0, 0), b"").await;
    serving.odd.gate.add_permits(1);
    assert_eq!(talk.outcome().await, (1, 0));
    assert!(talk.end().await.is_empty());
    let range = ByteRange::new(GATED_BYTE, 3);
    assert_eq!(serving.odd.bytes(range), b"abc");
}
