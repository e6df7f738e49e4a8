//! The cache in front of a cluster in memory: one client against a model, concurrent users, several
//! clients.

mod cluster;

use super::{Handle, SegmentCache};
use crate::error::ClientError;
use crate::extent::extents;
use cluster::Cluster;
use gabion_layout::ByteRange;
use gabion_meta::PutId;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng as _};
use std::task::Poll;

const KIB: u64 = 1024;
/// Bytes of a full segment here.
const SEGMENT: u64 = 20 * KIB;

/// The segments of a long file.
fn spans() -> Vec<ByteRange> {
    let spans = (0..1000).map(|at| ByteRange::new(at * SEGMENT, SEGMENT));
    spans.collect()
}
/// Bytes of the file; its last segment is not full.
const SIZE: u64 = 5 * SEGMENT - 3000;

/// A client that has the file open.
struct Client<'a> {
    cluster: &'a Cluster,
    cache: &'a SegmentCache<Cluster>,
    handle: Handle<()>,
}

impl<'a> Client<'a> {
    fn open(cluster: &'a Cluster, cache: &'a SegmentCache<Cluster>) -> Self {
        let handle = Handle::new((), PutId(1), cache.now());
        Self {
            cluster,
            cache,
            handle,
        }
    }

    async fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for extent in extents(&spans(), ByteRange::new(offset, length)) {
            let segment_bytes = SEGMENT.min(SIZE - extent.start);
            let read = self
                .cache
                .read(self.cluster, &self.handle, extent, segment_bytes);
            bytes.extend(read.await.expect("reads do not fail here"));
        }
        bytes
    }

    async fn write(&self, offset: u64, bytes: Vec<u8>) -> Result<(), ClientError> {
        let extents = extents(&spans(), ByteRange::new(offset, bytes.len() as u64));
        self.cache
            .write(self.cluster, &self.handle, &extents, &bytes.into())
            .await
    }

    async fn flush(&self) -> Result<(), ClientError> {
        self.cache.flush(self.cluster, Some(&self.handle)).await
    }

    fn assert_bounded(&self, capacity: u64) {
        let used = self.cache.counts().used_bytes;
        assert!(used <= capacity + BOOKKEEPING, "{used} of {capacity}");
    }
}

/// Memory that requests in flight may take beyond the size of the cache.
const BOOKKEEPING: u64 = 16 * 1024;
/// A cache with space for some of the segments, but not for all their changes.
const CAPACITY: u64 = 64 * KIB;

fn now<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a run-time").block_on(future)
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    Flush,
    Reopen,
    Fail(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![4 => 1..600_u64, 2 => 1..9000_u64, 1 => 1..45_000_u64];
    let place = (0..SIZE, length).prop_map(|(at, length)| (at, length.min(SIZE - at)));
    let step = prop_oneof![
        6 => place.clone().prop_map(|(at, length)| Step::Read(at, length)),
        8 => (place, any::<u8>()).prop_map(|((at, length), byte)| Step::Write(at, length, byte)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        1 => any::<bool>().prop_map(Step::Fail),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #[test]
    fn one_client_reads_what_it_wrote_and_all_of_it_arrives(
        steps in steps(),
        capacity in prop_oneof![Just(0), 0..8 * KIB, 8 * KIB..300 * KIB],
        read_ahead in prop_oneof![Just(0), 0..3 * SEGMENT],
        seed in any::<u64>(),
    ) {
        let cluster = Cluster::new(seed);
        let cache = SegmentCache::new(capacity, read_ahead);
        let mut model = vec![0; SIZE as usize];
        now(async {
            let mut client = Client::open(&cluster, &cache);
            for step in steps {
                match step {
                    Step::Read(at, length) => {
                        let expected = &model[at as usize..(at + length) as usize];
                        prop_assert!(client.read(at, length).await == expected);
                    }
                    Step::Write(at, length, byte) => {
                        let bytes = vec![byte; length as usize];
                        // A failed write may be there in some segments.
                        let written = client.write(at, bytes.clone()).await;
                        let place = at as usize..(at + length) as usize;
                        if written.is_ok() {
                            model[place].copy_from_slice(&bytes);
                        } else {
                            prop_assert!(cluster.state().fails);
                            let found = client.read(at, length).await;
                            let either = found.iter().zip(&model[place.clone()]);
                            prop_assert!(either.clone().all(|(f, m)| f == m || *f == byte));
                            model[place].copy_from_slice(&found);
                        }
                    }
                    Step::Flush => {
                        let has_changes = cache.counts().changed_bytes > 0;
                        let fails = cluster.state().fails;
                        let flushed = client.flush().await;
                        prop_assert_eq!(flushed.is_err(), has_changes && fails);
                        prop_assert!(flushed.is_err() || cluster.state().bytes == model);
                    }
                    Step::Reopen => client = Client::open(&cluster, &cache),
                    Step::Fail(fails) => cluster.state().fails = fails,
                }
                client.assert_bounded(capacity);
            }
            cluster.state().fails = false;
            client.flush().await.expect("the cluster works again");
            prop_assert_eq!(cache.counts().changed_bytes, 0);
            prop_assert!(cluster.state().bytes == model);
            Ok(())
        })?;
    }
}

/// Bytes in each unit of the file that belong to one of several writers.
const LANE: u64 = 300;
const LANES: u64 = 4;
const UNITS: u64 = SIZE / (LANE * LANES);

/// One of several concurrent users of the cache, each with its own bytes next to the others'.
async fn use_lane(client: &Client<'_>, lane: u64, seed: u64, model: &mut [u8]) {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let mut below = |limit: u64| random.next_u64() % limit;
    for step in 0..150 {
        let from = below(LANE);
        let length = 1 + below(LANE - from);
        let at = (below(UNITS) * LANES + lane) * LANE + from;
        let place = at as usize..(at + length) as usize;
        let patience = below(30);
        match below(10) {
            0..4 => {
                let bytes = vec![step as u8 + 1; length as usize];
                model[place].copy_from_slice(&bytes);
                client
                    .write(at, bytes)
                    .await
                    .expect("writes do not fail here");
            }
            4..8 => assert!(
                client.read(at, length).await == model[place],
                "{at}+{length}"
            ),
            // A caller may cancel its wait at any moment.
            8 => drop(within_steps(patience, client.read(at, length)).await),
            _ => drop(within_steps(patience, client.flush()).await),
        }
    }
}

/// The outcome, if it comes within `count` steps.
async fn within_steps<T>(count: u64, work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    for _ in 0..count {
        if let Poll::Ready(done) = futures::poll!(work.as_mut()) {
            return Some(done);
        }
        tokio::task::yield_now().await;
    }
    None
}

fn check_lanes(seed: u64, capacity: u64) {
    let cluster = Cluster::new(seed);
    let cache = SegmentCache::new(capacity, KIB);
    let mut models = vec![vec![0; SIZE as usize]; LANES as usize];
    now(async {
        let client = Client::open(&cluster, &cache);
        let users = models.iter_mut().zip(0..).map(|(model, lane)| {
            let seed = seed * LANES + lane;
            use_lane(&client, lane, seed, model)
        });
        futures::future::join_all(users).await;
        client.assert_bounded(capacity);
        client.flush().await.expect("nothing fails here");
    });
    // Lanes are disjoint, and no writer writes zeros.
    let all: Vec<u8> = (0..SIZE as usize)
        .map(|at| models.iter().map(|model| model[at]).sum())
        .collect();
    assert!(cluster.state().bytes == all, "seed {seed}");
    assert!(cluster.state().under_way.is_empty());
}

#[test]
fn concurrent_users_read_their_own_writes_and_all_of_them_arrive() {
    for seed in 0..60 {
        check_lanes(seed, [20, 40, 64, 1000][seed as usize % 4] * KIB);
    }
}

#[test]
fn bytes_that_have_arrived_are_not_written_again_over_later_ones() {
    let mut outcomes = [0, 0];
    for seed in 0..20 {
        let cluster = Cluster::new(seed);
        let cache = SegmentCache::new(CAPACITY, 0);
        now(async {
            let client = Client::open(&cluster, &cache);
            client.write(10, vec![7; 20]).await.unwrap();
            cluster.state().fails = true;
            assert!(client.flush().await.is_err());
            // One byte changes here, others elsewhere, before the outcome of the flush is known.
            client.write(12, vec![8]).await.unwrap();
            cluster.write_elsewhere(11, &[9; 4]);
            assert!(
                client.flush().await.is_err(),
                "the outcome is not known yet"
            );
            cluster.state().fails = false;
            client.flush().await.unwrap();
            let has_arrived = cluster.state().bytes[11] == 9;
            outcomes[usize::from(has_arrived)] += 1;
            let expected = if has_arrived {
                [7, 9, 8, 9]
            } else {
                [7, 7, 8, 7]
            };
            assert_eq!(cluster.state().bytes[10..14], expected, "seed {seed}");
        });
    }
    assert!(outcomes.iter().all(|&count| count > 3), "{outcomes:?}");
}

#[test]
fn bytes_of_a_forgotten_write_back_are_dropped_and_each_opening_is_told() {
    for seed in 0..20 {
        let cluster = Cluster::new(seed);
        let cache = SegmentCache::new(CAPACITY, 0);
        now(async {
            let [client, other] = [0; 2].map(|_| Client::open(&cluster, &cache));
            client.write(10, vec![7; 4]).await.unwrap();
            cluster.state().fails = true;
            assert!(client.flush().await.is_err());
            cluster.write_elsewhere(11, &[9; 2]);
            // A change in the same segment whose fate is not in doubt.
            client.write(40, vec![8]).await.unwrap();
            cluster.state().fails = false;
            cluster.state().forgets = true;
            let before = cluster.state().bytes.clone();
            let update_count = cluster.state().updates.len();
            let error = client.flush().await.unwrap_err();
            assert!(matches!(&error, ClientError::Forgotten(name) if name == "disk"));
            assert_eq!(cluster.state().bytes, before, "seed {seed}: undone");
            assert_eq!(cluster.state().updates.len(), update_count);
            assert_eq!(cache.counts().changed_bytes, 1);
            assert_eq!(client.read(10, 4).await, before[10..14]);
            client.flush().await.unwrap();
            assert_eq!(cluster.state().bytes[40], 8);
            assert_eq!(cluster.state().bytes[10..14], before[10..14]);
            let error = other.flush().await.unwrap_err();
            assert!(matches!(error, ClientError::Forgotten(_)), "{error}");
            other.flush().await.unwrap();
            // A later opening has no write in it.
            Client::open(&cluster, &cache).flush().await.unwrap();
        });
    }
}

#[test]
fn a_displacement_keeps_bytes_whose_write_back_is_forgotten_for_the_flush() {
    let cluster = Cluster::new(3);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        client.write(0, vec![7; 100]).await.unwrap();
        cluster.state().fails = true;
        assert!(client.flush().await.is_err());
        cluster.state().fails = false;
        cluster.state().forgets = true;
        let is_first = |(at, _): &&(u64, Vec<ByteRange>)| *at == 0;
        let first_count = cluster.state().updates.iter().filter(is_first).count();
        for page in 5..15 {
            client.write(page * 4096, vec![1; 4096]).await.unwrap();
        }
        assert_eq!(
            client.read(0, 100).await,
            [7; 100],
            "the write is not acknowledged yet"
        );
        let error = client.flush().await.unwrap_err();
        assert!(matches!(error, ClientError::Forgotten(_)), "{error}");
        assert_eq!(
            cluster.state().updates.iter().filter(is_first).count(),
            first_count,
            "the bytes are never written again"
        );
        let stored = cluster.state().bytes[..100].to_vec();
        assert_eq!(client.read(0, 100).await, stored);
    });
}

#[test]
fn an_opening_after_a_close_reads_the_written_bytes() {
    let cluster = Cluster::new(1);
    let caches = [0, 1].map(|_| SegmentCache::new(CAPACITY, 0));
    now(async {
        let reader = Client::open(&cluster, &caches[1]);
        assert_eq!(reader.read(0, 10).await, [0; 10]);
        assert_eq!(reader.read(SEGMENT, 10).await, [0; 10]);
        let writer = Client::open(&cluster, &caches[0]);
        writer.write(0, vec![7; 5]).await.unwrap();
        assert_eq!(cluster.state().bytes[0], 0, "not before the flush");
        writer.flush().await.unwrap();
        assert_eq!(cluster.state().bytes[..6], [7, 7, 7, 7, 7, 0]);
        assert_eq!(reader.read(0, 10).await, [0; 10], "opened before, and kept");

        let reads = cluster.state().reads.len();
        let reader = Client::open(&cluster, &caches[1]);
        assert_eq!(reader.read(0, 6).await, [7, 7, 7, 7, 7, 0]);
        assert_eq!(reader.read(SEGMENT, 10).await, [0; 10]);
        assert_eq!(
            cluster.state().reads.len(),
            reads + 1,
            "only the changed bytes"
        );
        let counts = caches[1].counts();
        assert_eq!((counts.confirmed_count, counts.outdated_count), (1, 1));

        // A client's own updates do not make it read its own bytes again.
        let writer = Client::open(&cluster, &caches[0]);
        assert_eq!(writer.read(0, 5).await, [7; 5]);
        assert_eq!(caches[0].counts().fetched_bytes, 0);
        // Unless another client has written in between.
        writer.write(2, vec![8]).await.unwrap();
        cluster.write_elsewhere(4, &[9]);
        writer.flush().await.unwrap();
        let writer = Client::open(&cluster, &caches[0]);
        assert_eq!(writer.read(0, 5).await, [7, 7, 8, 7, 9]);
        assert_eq!(cluster.state().versions_asked, 4);
    });
}

/// The version after a flush has the other client's byte too, which the cache does not have.
#[test]
fn an_opening_reads_what_was_written_by_the_update_of_a_flush_for_another_client() {
    let cluster = Cluster::new(4);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let writer = Client::open(&cluster, &cache);
        assert_eq!(writer.read(0, 10).await, [0; 10]);
        writer.write(20, vec![7]).await.unwrap();
        cluster.state().joined = Some((5, 9));
        writer.flush().await.unwrap();
        let reader = Client::open(&cluster, &cache);
        assert_eq!(reader.read(5, 1).await, [9]);
        assert_eq!(reader.read(20, 1).await, [7]);
    });
}

/// A flush with a slow answer, and an overwrite by another client before the answer.
#[test]
fn bytes_overwritten_during_a_flush_are_not_read_by_later_openings() {
    for is_opened_meanwhile in [false, true] {
        let cluster = Cluster::new(2);
        let cache = SegmentCache::new(CAPACITY, 0);
        now(async {
            let writer = Client::open(&cluster, &cache);
            writer.write(0, vec![7; 4]).await.unwrap();
            cluster.state().holds_updates = true;
            let mut flush = std::pin::pin!(writer.flush());
            while cluster.state().updates.is_empty() {
                assert!(futures::poll!(flush.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            cluster.write_elsewhere(1, &[9; 2]);
            let mut reader = Client::open(&cluster, &cache);
            if is_opened_meanwhile {
                assert_eq!(reader.read(0, 4).await, [7; 4], "it has not arrived");
            } else {
                // Other bytes of the segment are as of the other client's write.
                writer.read(100, 10).await;
            }
            cluster.state().holds_updates = false;
            flush.await.unwrap();
            if !is_opened_meanwhile {
                reader = Client::open(&cluster, &cache);
            }
            assert_eq!(reader.read(0, 4).await, [7, 9, 9, 7]);
        });
    }
}

#[test]
fn bytes_that_turn_out_to_have_arrived_are_read_from_the_cluster() {
    let mut arrived_count = 0;
    for seed in 0..20 {
        let cluster = Cluster::new(seed);
        let cache = SegmentCache::new(CAPACITY, 0);
        now(async {
            let writer = Client::open(&cluster, &cache);
            writer.write(0, vec![7; 4]).await.unwrap();
            cluster.state().fails = true;
            assert!(writer.flush().await.is_err());
            cluster.write_elsewhere(1, &[9; 2]);
            let reader = Client::open(&cluster, &cache);
            reader.read(100, 10).await;
            cluster.state().fails = false;
            writer.flush().await.unwrap();
            let stored = cluster.state().bytes[..4].to_vec();
            arrived_count += u64::from(stored[1] == 9);
            assert_eq!(reader.read(0, 4).await, stored, "seed {seed}");
        });
    }
    assert!((4..17).contains(&arrived_count), "{arrived_count}");
}

/// A stripe that has moved takes several updates, and one of them fails.
#[test]
fn ranges_that_have_arrived_alone_are_not_written_again() {
    let cluster = Cluster::new(7);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let writer = Client::open(&cluster, &cache);
        writer.write(0, vec![7; 4]).await.unwrap();
        writer.write(100, vec![7; 4]).await.unwrap();
        cluster.state().splits_at = Some(100);
        assert!(writer.flush().await.is_err());
        assert_eq!(cluster.state().bytes[..4], [7; 4]);
        cluster.write_elsewhere(0, &[9; 4]);
        cluster.state().splits_at = None;
        writer.flush().await.unwrap();
        assert_eq!(cluster.state().bytes[..4], [9; 4]);
        assert_eq!(cluster.state().bytes[100..104], [7; 4]);
    });
}

#[test]
fn bytes_that_came_later_do_not_make_the_others_newer() {
    let cluster = Cluster::new(8);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        client.read(0, 10).await;
        cluster.write_elsewhere(0, &[1; 10]);
        client.read(100, 10).await;
        let client = Client::open(&cluster, &cache);
        assert_eq!(client.read(0, 10).await, [1; 10]);
    });
}

#[test]
fn a_read_that_was_overtaken_leaves_nothing_old_behind() {
    let cluster = Cluster::new(9);
    let cache = SegmentCache::new(16 * KIB, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        cluster.state().held = Some(0);
        let mut slow = std::pin::pin!(client.read(0, 100));
        while cluster.state().reads.is_empty() {
            assert!(futures::poll!(slow.as_mut()).is_pending());
        }
        // A change that is written back, and evicted before the read ends.
        client.write(50, vec![1; 10]).await.unwrap();
        client.flush().await.unwrap();
        for at in 1..5 {
            client.read(at * SEGMENT, 4000).await;
        }
        let hits = cache.counts().read_hit_count;
        // And a change of another client that was read in between.
        cluster.write_elsewhere(10, &[2; 10]);
        assert_eq!(client.read(5, 20).await[5..15], [2; 10]);
        assert_eq!(cache.counts().read_hit_count, hits, "none of it was left");
        cluster.state().held = None;
        assert_eq!(slow.await[50..60], [1; 10]);
        assert_eq!(client.read(50, 10).await, [1; 10]);
        assert_eq!(client.read(10, 10).await, [2; 10]);
    });
}

#[test]
fn changes_of_others_beside_ours_survive_our_flush() {
    let cluster = Cluster::new(2);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        client.read(0, 100).await;
        client.write(10, vec![1; 10]).await.unwrap();
        client.write(30, vec![1; 10]).await.unwrap();
        cluster.write_elsewhere(0, &[2; 60]);
        client.flush().await.unwrap();
        let expected = [[2; 10], [1; 10], [2; 10], [1; 10], [2; 10], [2; 10]].concat();
        assert_eq!(cluster.state().bytes[..60], expected);
    });
}

#[test]
fn writes_of_a_segment_become_one_update() {
    let cluster = Cluster::new(3);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        // Touching, overlapping, separate, repeated, and across the border.
        for (at, length) in [
            (0, 10),
            (10, 5),
            (8, 4),
            (100, 7),
            (100, 7),
            (SEGMENT - 2, 4),
        ] {
            client.write(at, vec![1; length]).await.unwrap();
        }
        client.flush().await.unwrap();
        let range = ByteRange::new;
        let expected = [
            (0, vec![range(0, 15), range(100, 7), range(SEGMENT - 2, 2)]),
            (SEGMENT, vec![range(0, 2)]),
        ];
        cluster.state().updates.sort_by_key(|(at, _)| *at);
        assert_eq!(cluster.state().updates, expected);
        let counts = cache.counts();
        assert_eq!((counts.write_count, counts.write_bytes), (7, 37));
        assert_eq!((counts.update_count, counts.update_bytes), (2, 26));
        assert_eq!(counts.coalesced_write_count, 5);
        assert_eq!(counts.overwritten_bytes, 4 + 7);
        client.flush().await.unwrap();
        assert_eq!(cache.counts().update_count, 2, "nothing is left to write");
    });
}

#[test]
fn a_failed_flush_reports_it_and_keeps_every_byte() {
    let cluster = Cluster::new(4);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        client.write(5, vec![1; 10]).await.unwrap();
        client.write(SEGMENT, vec![2; 10]).await.unwrap();
        cluster.state().fails = true;
        for _ in 0..4 {
            let error = client.flush().await.unwrap_err();
            assert!(
                matches!(error, ClientError::NotWrittenBack { .. }),
                "{error}"
            );
            assert_eq!(cache.counts().changed_bytes, 20);
        }
        assert_eq!(
            client.read(0, 16).await[5..],
            [[1; 10].as_slice(), &[0]].concat()
        );
        cluster.state().fails = false;
        client.flush().await.unwrap();
        assert_eq!(cluster.state().bytes[5..15], [1; 10]);
        assert_eq!(cluster.state().bytes[SEGMENT as usize..][..10], [2; 10]);
        // Nothing is written again before the outcome of the first attempt is known.
        assert_eq!(cache.counts().failed_update_count, 2);
    });
}

#[test]
fn a_cache_full_of_stuck_changes_lets_writes_through() {
    let cluster = Cluster::new(5);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        cluster.state().fails = true;
        let mut taken = 0;
        while client.write(taken * 4096, vec![1; 4096]).await.is_ok() {
            taken += 1;
        }
        assert!((3..8).contains(&taken), "{taken}");
        let kept = client.read(0, taken * 4096).await;
        assert!(kept.iter().all(|&byte| byte == 1), "nothing is lost");
        cluster.state().fails = false;
        // Larger than any write that the cache takes; the overwritten bytes do not come back.
        client.write(0, vec![3; 5 * 4096]).await.unwrap();
        assert_eq!(cache.counts().write_through_count, 1);
        client.flush().await.unwrap();
        assert_eq!(client.read(0, 5 * 4096).await, vec![3; 5 * 4096]);
        assert!(cluster.state().bytes[..5 * 4096] == vec![3; 5 * 4096]);
    });
}

#[test]
fn discarded_changes_are_gone_and_nothing_else() {
    let cluster = Cluster::new(6);
    let cache = SegmentCache::new(CAPACITY, 0);
    now(async {
        let client = Client::open(&cluster, &cache);
        client.read(0, 100).await;
        client.write(50, vec![1; 100]).await.unwrap();
        assert_eq!(cache.discard(|()| true).await, 100);
        client.flush().await.unwrap();
        assert_eq!(client.read(0, 150).await, [0; 150]);
        assert!(cluster.state().updates.is_empty());
    });
}

#[test]
fn reads_that_follow_each_other_are_read_ahead() {
    let read_all = |read_ahead| {
        let cluster = Cluster::new(7);
        let cache = SegmentCache::new(CAPACITY, read_ahead);
        now(async {
            let client = Client::open(&cluster, &cache);
            for at in 0..20 {
                client.read(at * KIB, KIB).await;
            }
        });
        let state = cluster.state();
        (state.reads.len(), cache.counts().read_hit_count)
    };
    assert_eq!(read_all(0), (20, 0));
    assert_eq!(read_all(4 * KIB), (4, 16));
    // Never beyond the segment.
    assert_eq!(read_all(100 * KIB), (1, 19));
}
