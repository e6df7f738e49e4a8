//! Puts: their places, their leases, and their ends.

use crate::coordinator::bed::{Bed, TIMING, all_with, cause, look_up, refused};
use gabion_layout::{ChunkId, NodeId};
use gabion_meta::{Existing, NewAttributes};
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, EndCause, NodeRequest, PUT_LEASE_MS, PutPlaces,
    RENEW_EVERY_MS, ask,
};
use std::collections::BTreeSet;

#[test]
fn a_put_goes_to_nodes_that_are_up_and_is_seen_when_committed() {
    let mut bed = Bed::new(3, 3);
    let begin = |pool: Option<&str>| {
        CoordinatorRequest::BeginPut(ask::BeginPut {
            at: "f".into(),
            existing: Existing::Stays,
            pool: pool.map(str::to_owned),
            size_bytes: (4 << 20) + 1,
            attributes: NewAttributes::FILE,
            whole: None,
            opener: None,
        })
    };
    refused(&bed.ask(begin(None)), "there is no pool");
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
    bed.create_pool("q", "1-rack", Some("rs(4,2)"), 1 << 20);
    refused(&bed.ask(begin(None)), "there are 2 pools (p, q)");
    refused(&bed.ask(begin(Some("r"))), "no pool 'r'");
    bed.stop(NodeId(0));
    bed.pass(TIMING.lease_ms);
    let CoordinatorReply::Put(places) = bed.ask(begin(Some("q"))) else {
        panic!("there is room")
    };
    let PutPlaces {
        put, pool, stripes, ..
    } = *places;
    assert_eq!(pool.spec.name, "q");
    let sizes: Vec<u64> = stripes.iter().map(|stripe| stripe.chunk_bytes).collect();
    assert_eq!(sizes, [1 << 20, 4096]);
    assert!(
        stripes
            .iter()
            .all(|stripe| stripe.chunk_on(NodeId(0)).is_none())
    );
    let look = ask::Lookup {
        name: "f".to_owned(),
    };
    refused(&bed.ask(look.clone()), "no file 'f'");
    assert_eq!(
        bed.ask(CoordinatorRequest::CommitPut(put)),
        CoordinatorReply::Done
    );
    let CoordinatorReply::File(layout) = bed.ask(look) else {
        panic!("it is committed")
    };
    assert_eq!(
        (layout.stripes, layout.file.size_bytes),
        (stripes, (4 << 20) + 1)
    );
    assert_eq!((layout.pool, layout.file.put), (pool, put.id));
    // Its answer may have been lost.
    let again = bed.ask(CoordinatorRequest::CommitPut(put));
    assert_eq!(again, CoordinatorReply::Done);
    refused(&bed.ask(begin(Some("p"))), "file 'f' already exists");
    let listed = bed.ask(all_with("f"));
    assert!(matches!(&listed, CoordinatorReply::Listing(page) if page.files.len() == 1));
}

#[test]
fn a_put_without_room_is_refused() {
    let mut bed = Bed::three_racks();
    bed.fail(&[NodeId(0), NodeId(1), NodeId(2)]);
    let put = bed.ask(ask::BeginPut {
        at: "f".into(),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 1,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    });
    refused(&put, "have room for 4");
}

#[test]
fn a_silent_put_expires_and_leaves_nothing() {
    let mut bed = Bed::three_racks();
    let timeout_ms = bed.options.put_timeout_ms;
    let (lively, _) = bed.begin_put("lively", 1);
    let (silent, stripes) = bed.begin_put("silent", 1);
    bed.take_log();
    for _ in 0..4 {
        bed.pass(timeout_ms / 2);
        assert_eq!(
            bed.ask(CoordinatorRequest::TouchPut(lively)),
            CoordinatorReply::Done
        );
    }
    refused(
        &bed.ask(CoordinatorRequest::TouchPut(silent)),
        "was aborted or has expired",
    );
    let late = bed.ask(CoordinatorRequest::CommitPut(silent));
    refused(&late, "was aborted or has expired");
    assert_eq!(cause(late), Cause::Stale, "the client learns why");
    let removed: BTreeSet<(NodeId, Vec<ChunkId>)> = bed
        .take_log()
        .into_iter()
        .map(|asked| match asked.request {
            NodeRequest::Remove(ask::Remove { chunks }) => (asked.node, chunks),
            other => panic!("{other:?}"),
        })
        .collect();
    let stripe = &stripes[0];
    let held = stripe.nodes.iter().zip(stripe.chunks());
    let expected = held.map(|(&node, index)| {
        let stripe = stripe.id;
        (node, vec![ChunkId { stripe, index }])
    });
    assert_eq!(removed, expected.collect());
    bed.restart();
    bed.pass(timeout_ms - 1_000);
    assert_eq!(
        bed.ask(CoordinatorRequest::CommitPut(lively)),
        CoordinatorReply::Done
    );
}

/// The client renews its puts as often as its session.
#[test]
fn a_put_ends_with_the_lease_of_its_client() {
    let mut bed = Bed::three_racks();
    let (slow, _) = bed.begin_put("slow", 4 << 20);
    let (dead, _) = bed.begin_put("dead", 4 << 20);
    let used = |bed: &mut Bed| match bed.ask(ask::Usage) {
        CoordinatorReply::Usage(usage) => {
            let used = usage.pools.values().map(|pool| pool.used.bytes);
            used.sum::<u64>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(used(&mut bed), 2 * (4 << 20));
    let renewal_count = PUT_LEASE_MS / RENEW_EVERY_MS + 1;
    for _ in 0..renewal_count {
        bed.pass(RENEW_EVERY_MS);
        let touched = bed.ask(CoordinatorRequest::TouchPut(slow));
        assert_eq!(touched, CoordinatorReply::Done);
    }
    assert_eq!(used(&mut bed), 4 << 20, "the dead client has no space");
    refused(
        &bed.ask(CoordinatorRequest::CommitPut(dead)),
        "was aborted or has expired",
    );
    let committed = bed.ask(CoordinatorRequest::CommitPut(slow));
    assert_eq!(committed, CoordinatorReply::Done);
}

#[test]
fn a_coordinator_that_stood_still_has_not_heard_the_clients_of_puts() {
    let mut bed = Bed::three_racks();
    let timeout_ms = bed.options.put_timeout_ms;
    let (put, _) = bed.begin_put("f", 1);
    bed.stand_still(3 * timeout_ms);
    bed.pass(timeout_ms / 2);
    let touched = bed.ask(CoordinatorRequest::TouchPut(put));
    assert_eq!(touched, CoordinatorReply::Done);
    bed.pass(2 * timeout_ms);
    let late = bed.ask(CoordinatorRequest::TouchPut(put));
    refused(&late, "was aborted or has expired");
}

#[test]
fn a_put_obeys_only_the_client_that_has_begun_it() {
    let mut bed = Bed::three_racks();
    let (theirs, stripes) = bed.begin_put("theirs", 4 << 20);
    let mut forged = bed.begin_put("own", 4 << 20).0;
    forged.id = theirs.id;
    let first = stripes[0].id;
    let requests: [CoordinatorRequest; 6] = [
        CoordinatorRequest::TouchPut(forged),
        CoordinatorRequest::CommitPut(forged),
        CoordinatorRequest::AbortPut(forged),
        ask::ExtendPut {
            put: forged,
            step: 0,
            stored_count: 0,
            kept_count: 0,
            size_bytes: 1,
        }
        .into(),
        ask::PlaceAnew {
            put: forged,
            first,
            failed: Some(first),
            avoid: Vec::new(),
        }
        .into(),
        ask::CommitReplace {
            put: forged,
            displaced: Vec::new(),
        }
        .into(),
    ];
    for request in requests {
        refused(&bed.ask(request), "was not begun by this client");
    }
    // A coordinator that starts again knows the client still.
    bed.restart();
    refused(
        &bed.ask(CoordinatorRequest::CommitPut(forged)),
        "was not begun by this client",
    );
    let committed = bed.ask(CoordinatorRequest::CommitPut(theirs));
    assert_eq!(committed, CoordinatorReply::Done);
    assert_eq!(bed.stripe("theirs").id, first);
}

#[test]
fn the_places_of_a_large_put_are_reserved_some_at_a_time_and_stored_stripes_are_repaired() {
    let mut bed = Bed::three_racks();
    bed.options.reserved_count = 2;
    bed.restart();
    let size_bytes = 5 * (4 << 20) + 1;
    let (put, mut stripes) = bed.begin_put("f", size_bytes);
    assert_eq!(stripes.len(), 2);
    bed.fail(&[stripes[0].nodes[0]]);
    for step in 0..2 {
        let kept_count = stripes.len() as u64;
        let extend = ask::ExtendPut {
            put,
            step,
            stored_count: kept_count - 1,
            kept_count,
            size_bytes,
        };
        let mut extend = || match bed.ask(extend.clone()) {
            CoordinatorReply::Put(places) => places.stripes,
            other => panic!("{other:?}"),
        };
        let more = extend();
        assert_eq!(extend(), more, "an answer was lost");
        assert_eq!(more.len(), 2);
        stripes.extend(more);
    }
    assert_eq!(stripes.last().map(|last| last.chunk_bytes), Some(4096));
    for _ in 0..16 {
        bed.pass(TIMING.grace_ms / 12);
        bed.ask(CoordinatorRequest::TouchPut(put));
    }
    assert_eq!(bed.failures_left(), [(2, 3)], "three are stored and whole");
    assert!(bed.status().repair.repaired_chunk_count > 0);
    let listed = bed.ask(all_with(""));
    assert!(matches!(&listed, CoordinatorReply::Listing(page) if page.files.is_empty()));
    let committed = bed.ask(CoordinatorRequest::CommitPut(put));
    assert_eq!(committed, CoordinatorReply::Done);
    bed.pass(100);
    assert_eq!(bed.failures_left(), [(2, 6)]);
    let layout = match bed.ask(ask::Lookup { name: "f".into() }) {
        CoordinatorReply::File(layout) => layout,
        other => panic!("{other:?}"),
    };
    assert_eq!(layout.file.size_bytes, size_bytes);
    let found: Vec<_> = layout.stripes.iter().map(|stripe| stripe.id).collect();
    let expected: Vec<_> = stripes.iter().map(|stripe| stripe.id).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_put_gets_no_more_places_while_the_disk_of_the_metadata_is_full() {
    let mut bed = Bed::three_racks();
    bed.options.reserved_count = 1;
    bed.restart();
    let size_bytes = 2 * (4 << 20);
    let (put, _) = bed.begin_put("f", size_bytes);
    let extend = |step, size_bytes| ask::ExtendPut {
        put,
        step,
        stored_count: 1,
        kept_count: 1,
        size_bytes,
    };
    bed.fill_disk(true);
    let full = bed.ask(extend(0, size_bytes));
    refused(&full, "the disk of the metadata is full");
    assert_eq!(cause(full), Cause::NoSpace);
    // One that needs no more places takes no space.
    let shorter = bed.ask(extend(0, 4 << 20));
    assert!(matches!(shorter, CoordinatorReply::Put(_)), "{shorter:?}");
    bed.fill_disk(false);
    let CoordinatorReply::Put(places) = bed.ask(extend(1, size_bytes)) else {
        panic!("there is room again")
    };
    assert_eq!(places.stripes.len(), 1);
    let committed = bed.ask(CoordinatorRequest::CommitPut(put));
    assert_eq!(committed, CoordinatorReply::Done);
}

#[test]
fn puts_get_a_full_timeout_when_the_coordinator_has_waited_for_most_nodes() {
    let mut bed = Bed::three_racks();
    bed.options.put_timeout_ms = 12_000;
    let (put, _) = bed.begin_put("f", 1);
    for node in (0..5).map(NodeId) {
        bed.stop(node);
    }
    bed.restart();
    bed.pass(16_000);
    bed.rejoin_obsolete(NodeId(0), vec![]);
    bed.pass(6_000);
    let touched = bed.ask(CoordinatorRequest::TouchPut(put));
    assert_eq!(touched, CoordinatorReply::Done);
    bed.pass(14_000);
    let late = bed.ask(CoordinatorRequest::TouchPut(put));
    refused(&late, "was aborted or has expired");
}

#[test]
fn the_stripes_of_a_large_put_that_expires_become_garbage() {
    let mut bed = Bed::three_racks();
    (bed.options.reserved_count, bed.options.discarded_count) = (2, 1);
    bed.restart();
    let size_bytes = 4 * (4 << 20);
    let (put, _) = bed.begin_put("f", size_bytes);
    let (stored_count, kept_count) = (2, 2);
    let extended = bed.ask(ask::ExtendPut {
        put,
        step: 0,
        stored_count,
        kept_count,
        size_bytes,
    });
    assert!(matches!(extended, CoordinatorReply::Put(_)), "{extended:?}");
    bed.take_log();
    bed.pass(bed.options.put_timeout_ms + 60_000);
    let mut removed = BTreeSet::new();
    for asked in bed.take_log() {
        if let NodeRequest::Remove(ask::Remove { chunks }) = asked.request {
            removed.extend(chunks);
        }
    }
    assert_eq!(removed.len(), 4 * 6, "all chunks of four stripes");
    assert_eq!(bed.failures_left(), []);
}

/// As all nodes do after a restart of the coordinator.
#[test]
fn a_put_waits_for_nodes_that_are_about_to_join() {
    let mut bed = Bed::three_racks();
    for node in 0..4 {
        let session = bed.rejoin_in_session(NodeId(node));
        let cause = EndCause::Told;
        let ended = bed.ask(ask::EndMembership { session, cause });
        assert_eq!(ended, CoordinatorReply::Done);
        bed.stop(NodeId(node));
    }
    let put = ask::BeginPut {
        at: "f".into(),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 1,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    };
    let reply = bed.ask(put.clone());
    assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
    bed.pass(TIMING.lease_ms + TIMING.margin_ms);
    refused(&bed.ask(put), "does not fit");
}

#[test]
fn a_put_waits_for_a_silent_node_that_it_needs() {
    let mut bed = Bed::new(3, 2);
    bed.create_pool("p", "1-rack", Some("rs(4,2)"), 1 << 20);
    bed.stop(NodeId(4));
    bed.pass(TIMING.lease_ms + 100);
    let begin = ask::BeginPut {
        at: "f".into(),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 1,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    };
    let reply = bed.ask(begin.clone());
    assert!(matches!(reply, CoordinatorReply::Busy(_)), "{reply:?}");
    bed.pass(TIMING.margin_ms + 500);
    let reply = bed.ask(begin);
    assert!(matches!(reply, CoordinatorReply::Put { .. }), "{reply:?}");
}

/// Its client takes the refusal as final. A delayed copy of the request must not store the file later, and a
/// repetition after a lost answer hears the same reason.
#[test]
fn a_put_that_was_refused_at_its_end_stays_refused() {
    let mut bed = Bed::three_racks();
    let (late, _) = bed.begin_put("f", 4 << 20);
    bed.put("f", 1);
    let refused = |bed: &mut Bed| match bed.ask(CoordinatorRequest::CommitPut(late)) {
        CoordinatorReply::Refused(why) => why.cause,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut bed), Cause::Exists);
    let CoordinatorReply::File(layout) = look_up(&mut bed, "f") else {
        panic!("it was stored")
    };
    let removed = bed.ask(ask::RemoveFile {
        at: "f".into(),
        file: layout.file.put,
        generation: 0,
        number: 212,
    });
    assert_eq!(removed, CoordinatorReply::Done);
    assert_eq!(refused(&mut bed), Cause::Exists);
    let gone = look_up(&mut bed, "f");
    assert!(matches!(gone, CoordinatorReply::Refused(_)), "{gone:?}");
}
