//! Random operations on real stores against a model that is too simple to be wrong. Between any
//! two operations the coordinator may restart or be killed; any operation may first be cut short by
//! a failing engine. After each one every row is compared and checked. The tests of `sql` use these files too.

mod bed;
mod expected;
mod operation;
mod watched;

pub(crate) use bed::Bed;
use expected::{Expected, kind, stopped_clock};
use gabion_layout::{Epoch, NodeId, RackId, StripeId, Survive, UpdateScheme};
use gabion_meta::{ClusterId, Holder, KeyValue, Lease, Meta, NewAttributes, PoolSpec};
use operation::{Answer, INLINE_BYTES, NODES, World};
pub(crate) use operation::{Operation, operations};
use std::collections::BTreeMap;
use watched::Watched;

const CLUSTER: ClusterId = ClusterId(7);

/// Runs all operations on a fresh cluster and on the model of one.
pub(crate) fn run<B: Bed>(mut bed: B, operations: &[Operation]) {
    let meta = Meta::create(bed.create(), CLUSTER, stopped_clock()).expect("the store is empty");
    let mut world = furnish(&meta);
    let mut watched = Watched::default();
    let mut meta = watched.watch(meta);
    let mut expected = Expected::new(meta.incarnation(), meta.nodes().expect("nodes"));
    let mut epochs = BTreeMap::new();
    for operation in operations {
        if let Operation::Restart { killed } = *operation {
            let store = bed.reopen(meta.into_store(), killed);
            meta = watched.watch(Meta::open(store, stopped_clock()).expect("the cluster"));
            assert_eq!(meta.cluster(), CLUSTER);
            assert_eq!(meta.incarnation(), expected.incarnation + 1);
            expected.incarnation += 1;
            world.restart();
        } else if let Some(action) = world.action(operation, &expected) {
            let answer = bed.perform(&meta, || action.apply(&meta, &world));
            if let Ok(answer) = &answer {
                expected.note_ids(answer);
            }
            let predicted = expected.apply(&action, &world);
            let answer = answer.map_err(|error| kind(&error));
            assert_eq!(answer, predicted.map_err(str::to_owned), "{action:?}");
            if let Ok(Answer::Lease(lease)) = answer {
                check_epoch(&mut epochs, lease);
            }
        }
        watched.look(&meta);
        compare(&meta, &expected);
    }
}

/// Nodes, a pool, and the directory of all files.
fn furnish<K: KeyValue>(meta: &Meta<K>) -> World {
    for node in 0..NODES {
        let address = format!("node-{node}:7000");
        let id = meta.join(None, RackId(node / 3), &address, 1 << 40, 0);
        assert_eq!(id, Ok(NodeId(node)));
    }
    let directory = meta.make_directory("file", NewAttributes::DIRECTORY, 0);
    assert_eq!(directory, Ok(()));
    let spec = PoolSpec {
        name: "main".to_owned(),
        code: "rs(4,2)".to_owned(),
        k: 4,
        m: 2,
        sub_chunks: 1,
        chunk_bytes: 1024,
        survive: Survive::Nodes(2),
        chunks_per_rack: 3,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
        inline_bytes: INLINE_BYTES,
    };
    World::new(meta.create_pool(&spec).expect("a pool").id)
}

/// An epoch goes to one holder only, and later ones are higher.
fn check_epoch(epochs: &mut BTreeMap<StripeId, (Epoch, Holder)>, lease: Lease) {
    let last = epochs.insert(lease.stripe, (lease.epoch, lease.holder));
    let same = last == Some((lease.epoch, lease.holder));
    let higher = lease.epoch > last.map_or(Epoch(0), |(epoch, _)| epoch);
    assert!(same || higher, "{lease:?} after {last:?}");
}

/// Compares every answer of the cluster with the model's.
fn compare<K: KeyValue>(meta: &Meta<K>, expected: &Expected) {
    let all = usize::MAX;
    assert_eq!(meta.check(), Ok(Vec::new()));
    assert_eq!(meta.nodes().expect("nodes"), expected.nodes);
    let stripes = meta.stripes(None, all).expect("stripes");
    assert!(stripes.iter().eq(expected.live.values()));
    assert_eq!(meta.stripe_count(), Ok(stripes.len() as u64));
    let garbage = meta.garbage(None, all).expect("garbage");
    assert!(garbage.iter().eq(expected.garbage.values()));
    let files = meta.files("", None, all).expect("files");
    assert!(files.iter().eq(expected.files.values()));
    for file in &files {
        let bytes = meta.inline_bytes(file.put).expect("a file");
        assert_eq!(
            bytes.as_ref(),
            expected.inline.get(&file.put),
            "{}",
            file.name
        );
    }
    let puts = meta.puts().expect("puts");
    assert!(puts.iter().eq(expected.puts.values().map(|(put, _)| put)));
    for node in (0..=NODES).map(NodeId) {
        let on = meta.stripes_on(node, None, all).expect("the index");
        let holds = expected.live.values().filter(|s| s.nodes.contains(&node));
        assert!(on.iter().eq(holds), "{node}");
    }
    for &stripe in expected.live.keys() {
        let lease = meta.lease(stripe).expect("a live stripe");
        let (epoch, holder) = expected.leases.get(&stripe).copied().unwrap_or_default();
        let predicted = holder.map(|holder| (epoch, holder));
        assert_eq!(lease.map(|lease| (lease.epoch, lease.holder)), predicted);
        assert_eq!(meta.last_epoch(stripe), Ok(epoch));
    }
}
