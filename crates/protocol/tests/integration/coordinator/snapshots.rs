//! Snapshots: how long their files are frozen.

use crate::coordinator::bed::{Bed, no_updates_after};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{Epoch, StripeId};
use gabion_meta::{Inode, PutId};
use gabion_protocol::message::{CoordinatorReply, NodeReply, NodeRequest, ask};
use std::collections::BTreeSet;

/// Nodes of the cluster: each is asked once when tokens are raised.
const NODE_COUNT: u64 = 9;
const STRIPE_COUNT: u64 = 64;

fn put_of_f(bed: &mut Bed) -> PutId {
    let file = bed.ask(ask::Lookup { name: "f".into() });
    let CoordinatorReply::File(layout) = file else {
        panic!("{file:?}")
    };
    layout.file.put
}

fn snapshot_of(file: PutId, number: u64) -> ask::Snapshot {
    ask::Snapshot {
        inode: Inode::File(file),
        to: "s".into(),
        is_read_only: true,
        number,
    }
}

/// The stripes that the coordinator has settled since the last time.
fn settled(bed: &mut Bed) -> BTreeSet<StripeId> {
    let collected = bed
        .take_log()
        .into_iter()
        .filter_map(|asked| match asked.request {
            NodeRequest::Collect(ask::Collect { stripe, .. }) => Some(stripe),
            _ => None,
        });
    collected.collect()
}

#[test]
fn a_snapshot_settles_the_stripes_that_nodes_may_have_updated_and_no_others() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 8);
    let file = put_of_f(&mut bed);
    let node = |at: usize| stripes[at].nodes[0];
    bed.acquire_for(stripes[2].id, node(2), Some(file));
    // Its node has no token for updates, and the next one asks for it later.
    bed.acquire(stripes[4].id, node(4));
    bed.acquire(stripes[6].id, node(6));
    let token = bed.ask(ask::Token {
        file,
        stripe: stripes[6].id,
    });
    assert!(matches!(token, CoordinatorReply::Exclusive(_)), "{token:?}");
    bed.take_log();
    let made = bed.ask(snapshot_of(file, 302));
    assert_eq!(made, CoordinatorReply::Done);
    assert_eq!(settled(&mut bed), [stripes[2].id, stripes[6].id].into());
}

/// Primaries lose their terms when the file is frozen. The settlements of all its stripes would take longer than a
/// file may be frozen.
#[test]
fn no_settlement_begins_when_files_have_been_frozen_for_too_long() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", STRIPE_COUNT);
    let file = put_of_f(&mut bed);
    for stripe in &stripes {
        let lease = bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
        assert!(matches!(lease, CoordinatorReply::Lease(_)), "{lease:?}");
    }
    let terms: Vec<_> = stripes.iter().map(|stripe| (stripe.id, Epoch(1))).collect();
    let (mut told_count, ports) = (0, bed.ports());
    bed.hook(move |_, request| match request {
        NodeRequest::RaiseTokens { .. } => {
            told_count += 1;
            let is_frozen = told_count > NODE_COUNT;
            let terms = if is_frozen { Vec::new() } else { terms.clone() };
            Some(ready(Ok(NodeReply::Raised(terms))).boxed())
        }
        NodeRequest::Collect { .. } => Some(no_updates_after(&ports, 900)),
        _ => None,
    });
    bed.take_log();
    let snapshot = snapshot_of(file, 301);
    let busy = bed.ask(snapshot.clone());
    assert!(
        matches!(&busy, CoordinatorReply::Busy(why) if why.sentence.contains("settled yet")),
        "{busy:?}"
    );
    let settled_count = settled(&mut bed).len();
    assert!(settled_count < stripes.len(), "{settled_count}");
    // The others are settled before the file is frozen again.
    assert_eq!(bed.ask(snapshot), CoordinatorReply::Done);
}
