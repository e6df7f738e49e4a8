//! Exclusive opens: one session at a time, and none before all earlier writes are over.

use crate::coordinator::bed::{Bed, gone};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{NodeId, StripeId};
use gabion_meta::{FencingToken, PutId, SessionId};
use gabion_protocol::message::{CoordinatorReply, InUse, NodeReply, NodeRequest, ask};
use std::collections::BTreeSet;

const FIRST: SessionId = SessionId(7);
const SECOND: SessionId = SessionId(8);

fn put_of(bed: &mut Bed, name: &str) -> PutId {
    let name = name.to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => layout.file.put,
        other => panic!("{other:?}"),
    }
}

fn open(bed: &mut Bed, file: PutId, session: SessionId, takes_over: bool) -> CoordinatorReply {
    bed.ask(ask::OpenExclusive {
        file,
        session,
        takes_over,
    })
}

fn renew(bed: &mut Bed, file: PutId, session: SessionId) -> CoordinatorReply {
    bed.ask(ask::RenewExclusive { file, session })
}

const fn opened(token: u64) -> CoordinatorReply {
    CoordinatorReply::Exclusive(FencingToken(token))
}

#[test]
fn a_session_lasts_as_long_as_its_client_gives_signs_of_life() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1), "repeated");
    bed.pass(8_000);
    assert_eq!(
        renew(&mut bed, file, FIRST),
        CoordinatorReply::Renewed(true)
    );
    bed.pass(8_000);
    let left_ms = 2_000;
    assert_eq!(
        open(&mut bed, file, SECOND, false),
        CoordinatorReply::InUse(InUse { left_ms })
    );
    let name = "f".to_owned();
    let removed = bed.ask(ask::RemoveFile { name, file });
    assert!(
        matches!(&removed, CoordinatorReply::Refused(why) if why.contains("for itself alone")),
        "{removed:?}"
    );
    bed.pass(left_ms);
    assert_eq!(open(&mut bed, file, SECOND, false), opened(2));
    assert_eq!(
        renew(&mut bed, file, FIRST),
        CoordinatorReply::Renewed(false)
    );
}

#[test]
fn a_session_that_runs_is_displaced_on_demand_and_ends_by_itself() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(open(&mut bed, file, SECOND, true), opened(2));
    let session = SECOND;
    let closed = bed.ask(ask::CloseExclusive { file, session });
    assert_eq!(closed, CoordinatorReply::Done);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(3));
    assert_eq!(bed.ask(ask::Token(file)), opened(3));
}

#[test]
fn a_session_survives_the_coordinator() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    bed.restart();
    for node in 0..9 {
        bed.rejoin(NodeId(node), Vec::new());
    }
    let other = open(&mut bed, file, SECOND, false);
    assert!(matches!(other, CoordinatorReply::InUse(_)), "{other:?}");
    assert_eq!(
        renew(&mut bed, file, FIRST),
        CoordinatorReply::Renewed(true)
    );
}

#[test]
fn no_session_begins_before_every_node_that_may_serve_knows_it() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    let silent = stripe.nodes[1];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::RaiseToken { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    let busy = open(&mut bed, file, FIRST, false);
    assert!(
        matches!(&busy, CoordinatorReply::Busy(why) if why.contains("has not confirmed")),
        "{busy:?}"
    );
    bed.fail(&[silent]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
}

#[test]
fn the_updates_of_a_primary_that_does_not_vouch_for_its_term_are_settled_first() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 2);
    let file = put_of(&mut bed, "f");
    for stripe in &stripes {
        let lease = bed.acquire(stripe.id, stripe.nodes[0]);
        assert!(matches!(lease, CoordinatorReply::Lease(_)));
    }
    // Only the first stripe's primary still has its term.
    let (quiet, primary) = (stripes[0].id, stripes[0].nodes[0]);
    bed.hook(move |node, request| {
        let is_asked = matches!(request, NodeRequest::RaiseToken { .. });
        let raised = if node == primary { vec![quiet] } else { vec![] };
        is_asked.then(|| ready(Ok(NodeReply::Raised(raised))).boxed())
    });
    bed.take_log();
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    let log = bed.take_log();
    let collected = log.iter().filter_map(|asked| match &asked.request {
        NodeRequest::Collect(ask::Collect { stripe, .. }) => Some(*stripe),
        _ => None,
    });
    let collected: BTreeSet<StripeId> = collected.collect();
    assert_eq!(collected, [stripes[1].id].into());
}
