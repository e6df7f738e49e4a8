//! Whole rebuilds between agents of this process, over loopback, with a plugin of the tests' own.

mod cluster;

use crate::frame::{Kind, accept};
use crate::policy::{Codec, Policy};
use cluster::{Cluster, Fault};
use gabion_layout::ChunkIndex;
use gabion_planner::repair::SCHEMES;
use std::fmt::Write as _;

/// The results of Hadoop's own coders and layout, written by `hdfs/`'s `KnownAnswersTest`.
const ANSWERS: &str = include_str!("tests/hadoop_answers.txt");

/// The settings of the plugin.
const SETTINGS: &str = include_str!("../../../hdfs/src/main/java/gabion/hdfs/Settings.java");

#[test]
fn the_plugin_accepts_every_scheme() {
    let list = SETTINGS
        .lines()
        .find(|line| line.contains("SCHEMES = Set.of("));
    for name in SCHEMES.map(|known| known.name) {
        let accepts = list.is_some_and(|list| list.contains(&format!("\"{name}\"")));
        assert!(accepts, "{name} is not in SCHEMES of Settings.java");
    }
}

#[test]
fn parities_and_lengths_are_hadoops() {
    let mut checked_count = 0;
    for line in ANSWERS.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, codec, k, m, rest @ ..] = &words[..] else {
            panic!("a line without a code: {line}");
        };
        let (k, m): (usize, usize) = (k.parse().unwrap(), m.parse().unwrap());
        let policy = Policy::new(Codec::named(codec).unwrap(), k, m, 100).unwrap();
        if *what == "lengths" {
            let numbers: Vec<u64> = rest.iter().map(|word| word.parse().unwrap()).collect();
            let blocks = (0..k + m).map(ChunkIndex::new);
            let lengths = blocks.map(|block| policy.block_bytes(block, numbers[0]));
            assert_eq!(lengths.collect::<Vec<_>>(), numbers[1..], "{line}");
        } else {
            let length = rest[0].len() / 2;
            let byte = |unit: usize, at: usize| (unit * 131 + at * 31 + at * at % 251 + 7) as u8;
            let data: Vec<Vec<u8>> = (0..k)
                .map(|unit| (0..length).map(|at| byte(unit, at)).collect())
                .collect();
            let parity = cluster::parity_of(policy.code(), &data);
            let hexadecimal = |bytes: &Vec<u8>| {
                let mut text = String::new();
                for byte in bytes {
                    write!(text, "{byte:02x}").unwrap();
                }
                text
            };
            let made: Vec<String> = parity.iter().map(hexadecimal).collect();
            assert_eq!(made, rest, "{codec} {k} {m}");
        }
        checked_count += 1;
    }
    assert!(checked_count > 50, "{checked_count} lines");
}

/// Rebuilds `targets` of a group, of which the `absent` blocks are dead too.
async fn check(codec: &str, (k, m): (usize, usize), group_bytes: u64, targets: &[u8]) {
    for scheme in SCHEMES.map(|known| known.name) {
        let cluster = Cluster::new(codec, (k, m), group_bytes).await;
        let rebuilt = cluster.rebuild(targets, scheme, &[]).await;
        let rebuilt = rebuilt.unwrap_or_else(|error| panic!("{codec} {k} {m} {scheme}: {error}"));
        for (&target, bytes) in targets.iter().zip(&rebuilt.blocks) {
            assert!(
                *bytes == cluster.block(target),
                "{codec} ({k},{m}), {group_bytes} bytes, {scheme}: block {target}"
            );
        }
        assert_eq!(rebuilt.run_count, 1);
    }
}

#[tokio::test]
async fn every_code_is_rebuilt_by_every_scheme() {
    let cell = cluster::CELL_BYTES;
    check("rs", (3, 2), 3 * cell * 4, &[1]).await;
    check("rs", (6, 3), 6 * cell * 2 + 5, &[7]).await;
    check("rs", (10, 4), 10 * cell + cell * 3 + 17, &[3]).await;
    check("rs-legacy", (6, 3), 6 * cell * 2 + 700, &[0]).await;
    check("rs-legacy", (6, 3), 6 * cell, &[8]).await;
    check("xor", (2, 1), 2 * cell * 3 - 1, &[1]).await;
    check("xor", (2, 1), 2 * cell, &[2]).await;
}

#[tokio::test]
async fn short_groups_have_blocks_that_do_not_exist() {
    let cell = cluster::CELL_BYTES;
    check("rs", (6, 3), 1, &[0]).await;
    check("rs", (6, 3), 1, &[6]).await;
    check("rs", (6, 3), cell + 9, &[1]).await;
    check("rs", (6, 3), 3 * cell - 100, &[2]).await;
    check("rs-legacy", (6, 3), cell + 9, &[7]).await;
    check("xor", (2, 1), 100, &[2]).await;
}

#[tokio::test]
async fn several_blocks_are_rebuilt_together() {
    let cell = cluster::CELL_BYTES;
    check("rs", (6, 3), 6 * cell + 2 * cell + 11, &[0, 8]).await;
    check("rs", (6, 3), 6 * cell * 2, &[1, 2, 5]).await;
    // Of different lengths.
    check("rs", (3, 2), 3 * cell + 40, &[0, 1]).await;
}

#[tokio::test]
async fn a_reader_gets_the_range_that_it_wants() {
    let mut cluster = Cluster::new("rs", (3, 2), 3 * 4 * cluster::CELL_BYTES + 50).await;
    for (offset, length) in [(0, 1), (4095, 2), (1000, 9001), (16_384, 50), (16_000, 999)] {
        cluster.range = gabion_layout::ByteRange::new(offset, length);
        for scheme in ["pipeline", "cyclic"] {
            let rebuilt = cluster.rebuild(&[0], scheme, &[]).await.unwrap();
            let block = cluster.block(0);
            let end = block.len().min((offset + length) as usize);
            assert!(
                rebuilt.blocks[0] == block[offset as usize..end],
                "{offset}+{length}"
            );
        }
    }
}

#[tokio::test]
async fn a_corrupt_source_is_named_and_replaced() {
    let cluster = Cluster::new("rs", (6, 3), 6 * 8 * cluster::CELL_BYTES).await;
    // Near its end, so that rows have been sent by then.
    cluster.flip_byte(2, 8 * cluster::CELL_BYTES - 9);
    for scheme in SCHEMES.map(|known| known.name) {
        let rebuilt = cluster.rebuild(&[0], scheme, &[1]).await.unwrap();
        assert!(rebuilt.blocks[0] == cluster.block(0), "{scheme}");
        // Of 9 blocks, 7 live, and 6 of them help.
        assert!(rebuilt.run_count <= 2, "{scheme}");
        assert_eq!(rebuilt.corrupt.len() as u32, rebuilt.run_count - 1);
    }
    // All of the rest are needed.
    let failed = cluster
        .rebuild(&[0], "pipeline", &[1, 3])
        .await
        .unwrap_err();
    assert!(failed.contains("corrupt"), "{failed}");
}

#[tokio::test]
async fn a_helper_that_cannot_be_reached_is_replaced() {
    for fault in [
        Fault::Refuses,
        Fault::Silent,
        Fault::OtherVersion,
        Fault::DiesInTheMiddle,
    ] {
        let mut cluster = Cluster::new("rs", (3, 2), 3 * 16 * cluster::CELL_BYTES).await;
        cluster.spoil(2, fault).await;
        if fault == Fault::Silent {
            // The others have to be ready within twice this time.
            cluster.stall_ms = 2_000;
        }
        for scheme in ["pipeline", "conventional"] {
            let rebuilt = cluster.rebuild(&[0], scheme, &[]).await;
            let rebuilt = rebuilt.unwrap_or_else(|error| panic!("{fault:?} {scheme}: {error}"));
            assert!(rebuilt.blocks[0] == cluster.block(0), "{fault:?} {scheme}");
            assert!(rebuilt.corrupt.is_empty());
        }
        let failed = cluster.rebuild(&[0], "conventional", &[1]).await;
        assert!(!failed.unwrap_err().is_empty(), "{fault:?}");
    }
}

#[tokio::test]
async fn nothing_is_read_without_permission() {
    let mut cluster = Cluster::new("rs", (3, 2), 3 * cluster::CELL_BYTES).await;
    cluster.token = b"forged".to_vec();
    let failed = cluster.rebuild(&[0], "pipeline", &[]).await.unwrap_err();
    assert!(failed.contains("the token is wrong"), "{failed}");
}

#[tokio::test]
async fn invalid_tasks_are_refused() {
    let mut cluster = Cluster::new("rs", (3, 2), 3 * cluster::CELL_BYTES).await;
    for (targets, scheme) in [
        (&[5u8][..], "pipeline"),
        (&[], "pipeline"),
        (&[1, 1], "pipeline"),
        (&[0], "by-pigeon"),
    ] {
        // Less than the time after which a rebuild fails because no frame comes.
        let refused =
            tokio::time::timeout(cluster::LIMIT / 2, cluster.rebuild(targets, scheme, &[]));
        assert!(refused.await.unwrap().is_err(), "{targets:?} {scheme}");
    }
    cluster.deadline_ms = 3_600_001;
    let refused = cluster.rebuild(&[0], "pipeline", &[]).await.unwrap_err();
    assert!(refused.contains("above an hour"), "{refused}");
}

#[tokio::test]
async fn paths_that_are_listed_or_weighted_rebuild_the_same_bytes() {
    let cell = cluster::CELL_BYTES;
    for group_bytes in [3 * 4 * cell, cell + 9] {
        let mut cluster = Cluster::new("rs", (3, 2), group_bytes).await;
        let source_count = if group_bytes > 2 * cell { 4 } else { 3 };
        let rates =
            |rate: u32| vec![rate.to_be_bytes(); source_count * (source_count + 1)].concat();
        // The path may be one that does not exist.
        for path in [
            vec![1],
            [vec![2], rates(100)].concat(),
            [vec![2], rates(0)].concat(),
        ] {
            cluster.path = path;
            let rebuilt = cluster.rebuild(&[0], "pipeline", &[]).await.unwrap();
            assert!(rebuilt.blocks[0] == cluster.block(0), "{:?}", cluster.path);
        }
        for path in [vec![3], vec![2], vec![]] {
            cluster.path = path;
            cluster.rebuild(&[0], "pipeline", &[]).await.unwrap_err();
        }
        cluster.path = vec![1];
        cluster.flip_byte(3, 1);
        cluster.rebuild(&[0], "pipeline", &[]).await.unwrap();
    }
}

/// A request for a schedule: `DataNode` number `at` is in rack `racks[at]`; block 0 of each group of RS-3-2 is lost.
fn schedule_request(racks: &[&str], groups: &[[u16; 4]], requestors: &[u16]) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat();
    let mut body = vec![1];
    body.extend((racks.len() as u16).to_be_bytes());
    body.extend(racks.iter().flat_map(|rack| text(rack)));
    body.extend((groups.len() as u16).to_be_bytes());
    for (at, nodes) in (0u64..).zip(groups) {
        body.extend(text("rs"));
        body.extend([3, 2]);
        body.extend((at * 16).to_be_bytes());
        body.extend(4096u64.to_be_bytes());
        body.push(0);
        body.extend(u16::MAX.to_be_bytes());
        body.extend(nodes.iter().flat_map(|node| node.to_be_bytes()));
        body.extend((requestors.len() as u16).to_be_bytes());
        body.extend(requestors.iter().flat_map(|node| node.to_be_bytes()));
    }
    body
}

#[tokio::test]
async fn a_schedule_spreads_a_recovery_over_helpers_and_requestors() {
    let racks = ["/a"; 8];
    let body = schedule_request(&racks, &[[0, 1, 2, 3]; 16], &[4, 5, 6, 7]);
    let (kind, body) = Cluster::ask("127.0.0.1:1", Kind::Schedule, body).await;
    assert_eq!(kind, Kind::Scheduled);
    let (mut received, mut helped) = ([0; 8], [0; 5]);
    let assignments: Vec<&[u8]> = body[8..].chunks(6).collect();
    assert_eq!(assignments.len(), 16);
    for assignment in assignments {
        let [high, low, 3, path @ ..] = assignment else {
            panic!("{assignment:?}");
        };
        received[usize::from(u16::from_be_bytes([*high, *low]))] += 1;
        for &chunk in path {
            helped[usize::from(chunk)] += 1;
        }
    }
    assert_eq!(received, [0, 0, 0, 0, 4, 4, 4, 4]);
    assert_eq!(helped, [0, 12, 12, 12, 12]);
}

#[tokio::test]
async fn a_schedule_that_cannot_be_is_refused() {
    let racks = ["/a"; 8];
    for (groups, requestors, why) in [
        ([[0, 1, 2, 3]], &[3][..], "two blocks of a group"),
        ([[0, 1, 2, 2]], &[4], "two blocks of a group"),
        ([[0, 1, 2, 3]], &[8], "two blocks of a group"),
        ([[0, 1, 2, 3]], &[], "there is no node for"),
        ([[0, 1, u16::MAX, u16::MAX]], &[4], "chunk"),
    ] {
        let body = schedule_request(&racks, &groups, requestors);
        let (kind, body) = Cluster::ask("127.0.0.1:1", Kind::Schedule, body).await;
        let said = String::from_utf8(body).unwrap();
        assert_eq!(kind, Kind::Refused);
        assert!(said.contains(why), "{groups:?} {requestors:?}: {said}");
    }
    let (kind, _) = Cluster::ask("127.0.0.1:1", Kind::Schedule, vec![1, 0, 9, 0]).await;
    assert_eq!(kind, Kind::Refused);
}

#[tokio::test]
async fn schedules_wait_for_their_turn_and_leave_it_with_their_asker() {
    let agent = crate::agent::Agent::new("127.0.0.1:1".to_owned()).unwrap();
    let planning = std::sync::Arc::clone(&agent.planning);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(agent.serve(listener));
    // Another schedule is being planned.
    let busy = std::sync::Arc::clone(&planning)
        .try_acquire_owned()
        .unwrap();
    assert_eq!(planning.available_permits(), 0);
    let body = schedule_request(&["/a"; 8], &[[0, 1, 2, 3]], &[4, 5]);
    let ask = async || {
        let (reading, writing) = crate::frame::connect(&address).await.unwrap();
        let parts = vec![body.clone().into()];
        writing.send(Kind::Schedule, parts).await.unwrap();
        (reading, writing)
    };
    let gone = ask().await;
    let (mut reading, _writing) = ask().await;
    // An agent that does not wait would answer within this time.
    let early = reading
        .frame_within(std::time::Duration::from_millis(500))
        .await;
    assert!(early.is_err(), "two schedules are planned at the same time");
    drop(gone);
    drop(busy);
    let limit = std::time::Duration::from_mins(2);
    let answer = reading.frame_within(limit).await.unwrap();
    assert_eq!(answer.kind, Kind::Scheduled);
    serving.abort();
}

#[tokio::test]
async fn orders_go_to_the_plugin_and_its_answers_come_back() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plugin = listener.local_addr().unwrap().to_string();
    let serving = async {
        for (answer, body) in [
            (Kind::Done, &b"1"[..]),
            (Kind::Refused, b"no"),
            (Kind::Row, b""),
        ] {
            let (stream, from) = listener.accept().await.unwrap();
            let (mut reading, writing) = accept(stream, from, cluster::LIMIT).await.unwrap();
            let order = reading.frame().await.unwrap();
            assert_eq!((order.kind, &order.body[..]), (Kind::Order, &b"order"[..]));
            writing.send(answer, vec![body.into()]).await.unwrap();
        }
        drop(listener);
    };
    let asking = async {
        let ask = async || Cluster::ask(&plugin, Kind::Order, b"order".to_vec()).await;
        assert_eq!(ask().await, (Kind::Done, b"1".to_vec()));
        assert_eq!(ask().await, (Kind::Refused, b"no".to_vec()));
        assert_eq!(ask().await.0, Kind::Refused);
        // Nothing listens any more.
        assert_eq!(ask().await.0, Kind::Refused);
    };
    tokio::join!(serving, asking);
}
