//! Whole rebuilds between agents of this process, over loopback, with a plugin of the tests' own.

mod cluster;

use crate::policy::{Codec, Policy};
use cluster::{Cluster, Fault};
use gabion_layout::ChunkIndex;
use gabion_planner::repair::SCHEMES;
use std::fmt::Write as _;
use std::time::Duration;

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
        let refused = tokio::time::timeout(
            Duration::from_secs(10),
            cluster.rebuild(targets, scheme, &[]),
        );
        assert!(refused.await.unwrap().is_err(), "{targets:?} {scheme}");
    }
    cluster.deadline_ms = 3_600_001;
    let refused = cluster.rebuild(&[0], "pipeline", &[]).await.unwrap_err();
    assert!(refused.contains("above an hour"), "{refused}");
}
