//! Exclusive opens: one session at a time, and none before all earlier writes are over.

use crate::coordinator::bed::{Bed, chunk_on, gone, no_updates_after};
use futures::FutureExt;
use futures::future::{pending, ready};
use gabion_layout::{Epoch, NodeId, StripeId};
use gabion_meta::{Existing, FencingToken, NewAttributes, PutId, SessionId};
use gabion_protocol::message::{CoordinatorReply, NodeReply, NodeRequest, NotOpened, OpenPut, ask};
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

fn request(bed: &mut Bed, file: PutId, session: SessionId, takes_over: bool) -> ask::OpenExclusive {
    let CoordinatorReply::Exclusive(seen) = bed.ask(token_of(file)) else {
        panic!("the file is there")
    };
    ask::OpenExclusive {
        file,
        session,
        seen,
        takes_over,
    }
}

fn open(bed: &mut Bed, file: PutId, session: SessionId, takes_over: bool) -> CoordinatorReply {
    let request = request(bed, file, session, takes_over);
    bed.ask(request)
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
        CoordinatorReply::NotOpened(NotOpened::InUse { left_ms })
    );
    let name = "f";
    let removed = bed.ask(ask::RemoveFile {
        at: name.into(),
        file,
        generation: 0,
        number: 201,
    });
    assert!(
        matches!(&removed, CoordinatorReply::Refused(why) if why.sentence.contains("open exclusively")),
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
    assert_eq!(bed.ask(token_of(file)), opened(3));
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
    assert!(
        matches!(other, CoordinatorReply::NotOpened(NotOpened::InUse { .. })),
        "{other:?}"
    );
    assert_eq!(
        renew(&mut bed, file, FIRST),
        CoordinatorReply::Renewed(true)
    );
    let session = FIRST;
    let closed = bed.ask(ask::CloseExclusive { file, session });
    assert_eq!(closed, CoordinatorReply::Done);
    assert!(!has_session(&mut bed, "f"));
}

#[test]
fn no_session_begins_before_every_node_that_may_serve_knows_it() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    let silent = stripe.nodes[1];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::RaiseTokens { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    let busy = open(&mut bed, file, FIRST, false);
    assert!(
        matches!(&busy, CoordinatorReply::Busy(why) if why.sentence.contains("has not confirmed")),
        "{busy:?}"
    );
    bed.fail(&[silent]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
}

/// The request for the token of a file of which no stripe is shared.
fn token_of(file: PutId) -> ask::Token {
    let stripe = StripeId(0);
    ask::Token { file, stripe }
}

/// Lets the nodes vouch for these terms, and the others for none.
fn vouch(bed: &mut Bed, terms: &[(NodeId, StripeId, u64)]) {
    let terms = terms.to_vec();
    bed.hook(move |node, request| {
        let is_asked = matches!(request, NodeRequest::RaiseTokens { .. });
        let own = terms.iter().filter(|(of, ..)| *of == node);
        let raised = own.map(|&(_, stripe, epoch)| (stripe, Epoch(epoch)));
        is_asked.then(|| ready(Ok(NodeReply::Raised(raised.collect()))).boxed())
    });
    bed.take_log();
}

/// The stripes that the coordinator has settled since the last time.
fn settled(bed: &mut Bed) -> BTreeSet<StripeId> {
    let log = bed.take_log();
    let collected = log.iter().filter_map(|asked| match &asked.request {
        NodeRequest::Collect(ask::Collect { stripe, .. }) => Some(*stripe),
        _ => None,
    });
    collected.collect()
}

#[test]
fn the_updates_of_a_primary_that_does_not_vouch_for_its_term_are_settled_first() {
    let mut bed = Bed::three_racks();
    let stripes = bed.put("f", 3);
    let file = put_of(&mut bed, "f");
    for stripe in &stripes[..2] {
        let lease = bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
        assert!(matches!(lease, CoordinatorReply::Lease(_)));
    }
    // Only the first stripe's primary still has its term, and the third stripe never had one.
    vouch(&mut bed, &[(stripes[0].nodes[0], stripes[0].id, 1)]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(settled(&mut bed), [stripes[1].id].into());
    assert_eq!(open(&mut bed, file, SECOND, true), opened(2));
    assert_eq!(settled(&mut bed), [].into(), "it had no primary since");
}

#[test]
fn a_node_vouches_for_no_term_but_the_present_one() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    let (first, second) = (stripe.nodes[0], stripe.nodes[1]);
    bed.acquire_for(stripe.id, first, Some(file));
    bed.fail(&[first]);
    let lease = bed.acquire_for(stripe.id, second, Some(file));
    assert!(matches!(lease, CoordinatorReply::Lease(_)), "{lease:?}");
    // The first one returns, and does not know that its term is over.
    bed.rejoin(first, vec![chunk_on(&stripe, first)]);
    vouch(&mut bed, &[(first, stripe.id, 1)]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(settled(&mut bed), [stripe.id].into());
}

#[test]
fn a_settlement_that_fails_is_repeated_before_the_session_begins() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
    let silent = stripe.nodes[2];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::Collect { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    for _ in 0..2 {
        let busy = open(&mut bed, file, FIRST, false);
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    }
    vouch(&mut bed, &[]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(settled(&mut bed), [stripe.id].into());
}

/// A file of one stripe, whose primary does not vouch for its term, and one damaged chunk of it. The nodes take a
/// while to say what they hold, and rebuild nothing.
fn in_slow_repair(bed: &mut Bed) -> PutId {
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(bed, "f");
    bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
    let ports = bed.ports();
    bed.hook(move |_, request| match request {
        NodeRequest::Collect { .. } => Some(no_updates_after(&ports, 900)),
        NodeRequest::RunPart(_) => Some(pending().boxed()),
        _ => None,
    });
    bed.take_log();
    bed.report_damage(chunk_on(&stripe, stripe.nodes[2]));
    file
}

fn rebuilds(bed: &mut Bed) -> bool {
    let log = bed.take_log();
    let mut requests = log.iter().map(|asked| &asked.request);
    requests.any(|request| matches!(request, NodeRequest::RunPart(_)))
}

#[test]
fn an_open_does_not_wait_for_a_rebuild_that_has_settled_the_stripe() {
    let mut bed = Bed::three_racks();
    let file = in_slow_repair(&mut bed);
    bed.pass(2_000);
    assert!(rebuilds(&mut bed));
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(settled(&mut bed), [].into());
}

#[test]
fn an_open_waits_until_a_repair_has_settled_the_stripe() {
    let mut bed = Bed::three_racks();
    let file = in_slow_repair(&mut bed);
    bed.pass(100);
    assert!(!rebuilds(&mut bed), "the stripe is not settled yet");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert!(rebuilds(&mut bed));
}

#[test]
fn a_repair_that_does_not_settle_the_stripe_leaves_that_to_the_open() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
    let silent = stripe.nodes[3];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::Collect { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    bed.take_log();
    bed.report_damage(chunk_on(&stripe, stripe.nodes[2]));
    bed.pass(100);
    assert_eq!(
        settled(&mut bed),
        [stripe.id].into(),
        "the repair has tried it"
    );
    vouch(&mut bed, &[]);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    assert_eq!(settled(&mut bed), [stripe.id].into());
}

#[test]
fn a_late_copy_of_an_open_displaces_nothing() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    let late = request(&mut bed, file, FIRST, true);
    assert_eq!(bed.ask(late.clone()), opened(1));
    assert_eq!(open(&mut bed, file, SECOND, true), opened(2));
    assert_eq!(
        bed.ask(late),
        CoordinatorReply::NotOpened(NotOpened::Changed)
    );
    assert_eq!(
        renew(&mut bed, file, SECOND),
        CoordinatorReply::Renewed(true)
    );
}

/// Begins a put of one stripe that replaces the file `f`.
fn begin_over(bed: &mut Bed) -> OpenPut {
    let begun = bed.ask(ask::BeginPut {
        at: "f".into(),
        existing: Existing::IsReplaced,
        pool: None,
        size_bytes: 4 << 20,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    });
    match begun {
        CoordinatorReply::Put(places) => places.put,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_put_replaces_a_file_whose_session_is_abandoned() {
    for restarts in [false, true] {
        let mut bed = Bed::three_racks();
        let stripe = bed.put("f", 1).remove(0);
        let file = put_of(&mut bed, "f");
        let put = begin_over(&mut bed);
        assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
        if restarts {
            bed.restart();
        }
        bed.pass(11_000);
        // A node may still run a write of the session.
        let silent = stripe.nodes[1];
        bed.hook(move |node, request| {
            let is_silent = node == silent && matches!(request, NodeRequest::RaiseTokens { .. });
            is_silent.then(|| ready(Err(gone(node))).boxed())
        });
        let busy = bed.ask(ask::CommitPut(put));
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
        assert_eq!(put_of(&mut bed, "f"), file);
        bed.unhook();
        assert_eq!(bed.ask(ask::CommitPut(put)), CoordinatorReply::Done);
        assert_eq!(put_of(&mut bed, "f"), put.id);
        assert_eq!(bed.ask(ask::CommitPut(put)), CoordinatorReply::Done);
    }
}

#[test]
fn signs_of_life_keep_a_session_while_the_coordinator_waits_for_most_nodes() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    for node in (0..5).map(NodeId) {
        bed.stop(node);
    }
    bed.restart();
    for _ in 0..8 {
        bed.pass(1_000);
        let busy = renew(&mut bed, file, FIRST);
        assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    }
    bed.rejoin_obsolete(NodeId(0), vec![]);
    let other = open(&mut bed, file, SECOND, false);
    assert!(
        matches!(other, CoordinatorReply::NotOpened(NotOpened::InUse { .. })),
        "{other:?}"
    );
    let renewed = renew(&mut bed, file, FIRST);
    assert_eq!(renewed, CoordinatorReply::Renewed(true));
}

#[test]
fn a_put_that_began_before_a_session_does_not_replace_its_file() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let file = put_of(&mut bed, "f");
    let put = begin_over(&mut bed);
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    let committed = bed.ask(ask::CommitPut(put));
    assert!(
        matches!(&committed, CoordinatorReply::Refused(why) if why.sentence.contains("open exclusively")),
        "{committed:?}"
    );
    // A session without renewals does not keep the name.
    bed.pass(11_000);
    let name = "f";
    assert_eq!(
        bed.ask(ask::RemoveFile {
            at: name.into(),
            file,
            generation: 0,
            number: 202,
        }),
        CoordinatorReply::Done
    );
}

/// The session that displaces an abandoned one for a removal has no client.
#[test]
fn a_removal_that_cannot_end_an_abandoned_session_leaves_none_behind() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    bed.pass(10_000);
    bed.acquire_for(stripe.id, stripe.nodes[0], Some(file));
    let silent = stripe.nodes[2];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::Collect { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    let removed = bed.ask(ask::RemoveFile {
        at: "f".into(),
        file,
        generation: 0,
        number: 203,
    });
    assert!(
        matches!(&removed, CoordinatorReply::Refused(why) if why.sentence.contains("try again")),
        "{removed:?}"
    );
    assert!(
        has_session(&mut bed, "f"),
        "writers without a session would not displace the first one's writes"
    );
    vouch(&mut bed, &[]);
    assert_eq!(open(&mut bed, file, SECOND, false), opened(3));
}

fn has_session(bed: &mut Bed, name: &str) -> bool {
    let name = name.to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => layout.exclusive.session.is_some(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_that_ends_before_it_begins_does_not_open_the_file_to_all_while_a_node_serves_its_predecessor()
 {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let file = put_of(&mut bed, "f");
    assert_eq!(open(&mut bed, file, FIRST, false), opened(1));
    let silent = stripe.nodes[1];
    bed.hook(move |node, request| {
        let is_silent = node == silent && matches!(request, NodeRequest::RaiseTokens { .. });
        is_silent.then(|| ready(Err(gone(node))).boxed())
    });
    let busy = open(&mut bed, file, SECOND, true);
    assert!(matches!(busy, CoordinatorReply::Busy(_)), "{busy:?}");
    let session = SECOND;
    let close = ask::CloseExclusive { file, session };
    assert_eq!(bed.ask(close), CoordinatorReply::Done);
    assert!(has_session(&mut bed, "f"));
    // A renewal that was on its way.
    renew(&mut bed, file, SECOND);
    vouch(&mut bed, &[]);
    let third = SessionId(9);
    assert_eq!(open(&mut bed, file, third, false), opened(3), "at once");
    let session = third;
    let close = ask::CloseExclusive { file, session };
    assert_eq!(bed.ask(close), CoordinatorReply::Done);
    assert!(!has_session(&mut bed, "f"));
}

#[test]
fn a_rename_that_was_made_is_not_refused_because_of_a_later_file_and_its_session() {
    let mut bed = Bed::three_racks();
    bed.put("a", 1);
    bed.put("b", 1);
    let renamed = put_of(&mut bed, "a");
    let rename = |file, from: &str, number| ask::Rename {
        file,
        from: from.into(),
        generation: 0,
        number,
        to: "c".into(),
        existing: Existing::IsReplaced,
    };
    assert_eq!(bed.ask(rename(renamed, "a", 204)), CoordinatorReply::Done);
    let later = put_of(&mut bed, "b");
    assert_eq!(bed.ask(rename(later, "b", 205)), CoordinatorReply::Done);
    assert_eq!(open(&mut bed, later, FIRST, false), opened(1));
    // The first answer was lost.
    assert_eq!(bed.ask(rename(renamed, "a", 204)), CoordinatorReply::Done);
    assert_eq!(put_of(&mut bed, "c"), later);
    let another = bed.ask(rename(renamed, "a", 206));
    assert!(
        matches!(another, CoordinatorReply::Refused(_)),
        "{another:?}"
    );
}
