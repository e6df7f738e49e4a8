//! Nodes of other clusters, copies of nodes' directories, and old copies of the coordinator's metadata.

use crate::coordinator::bed::{Bed, TIMING, chunk_on, gone};
use futures::FutureExt;
use futures::future::ready;
use gabion_layout::{ChunkId, ChunkIndex, ClusterId, Epoch, Generation, NodeId, Sequence, Start};
use gabion_meta::REMEMBERED_START_COUNT;
use gabion_protocol::event::Event;
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, HeldChunk, JoinBegun, NodeHealth, NodeReply,
    NodeRequest, Origin, Progress, RepairOrder, StoreFailure, ask,
};
use std::sync::Arc;

#[track_caller]
pub(super) fn assert_refused(reply: &CoordinatorReply, words: &str) {
    assert!(
        matches!(reply, CoordinatorReply::Refused(why) if why.sentence.contains(words)),
        "{reply:?}"
    );
}

#[track_caller]
pub(super) fn assert_busy(reply: &CoordinatorReply, words: &str) {
    assert!(
        matches!(reply, CoordinatorReply::Busy(why) if why.sentence.contains(words)),
        "{reply:?}"
    );
}

fn start(number: u64, nonce: u64) -> Start {
    Start { number, nonce }
}

/// A heartbeat of node 3, which has heard of this coordinator.
fn heartbeat(heard: Option<Origin>) -> ask::Heartbeat {
    ask::Heartbeat {
        node: NodeId(3),
        incarnation: u64::MAX,
        heard,
        position: 0,
        health: NodeHealth::default(),
    }
}

fn of_start(start: Start) -> Origin {
    Origin {
        start,
        change_count: 0,
    }
}

fn held(chunk: ChunkId, epoch: u64, mark: u64) -> HeldChunk {
    HeldChunk {
        chunk,
        generation: Generation(1),
        epoch: Epoch(epoch),
        mark: Sequence(mark),
        undecided: vec![],
    }
}

#[test]
fn a_node_of_another_cluster_is_refused_and_keeps_its_chunks() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let node = stripe.nodes[0];
    let foreign = Applicant {
        cluster: Some(ClusterId(2)),
        ..bed.applicant(Some(node), node.0, node.0 / 3, 7)
    };
    let refused = bed.let_in(foreign, vec![]);
    assert_refused(
        &refused,
        "belongs to cluster 00000000000000000000000000000002",
    );
    assert_eq!(bed.stripe("f").stale, [], "nothing is concluded of it");
}

#[test]
fn a_directory_that_does_not_follow_on_the_last_start_has_missed_all_after_its_marks() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let (node, index) = (stripe.nodes[0], ChunkIndex(0));
    let chunk = chunk_on(&stripe, node);
    let applicant = |bed: &Bed, number, earlier: Vec<Start>| Applicant {
        start: start(number, 70 + number),
        earlier,
        ..bed.applicant(Some(node), node.0, node.0 / 3, number)
    };
    // Nothing mends what the test is about to look at.
    bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
    let admitted = bed.applicant(Some(node), node.0, node.0 / 3, 0).earlier[0];
    let number = admitted.number;
    let stale = |bed: &mut Bed| bed.stripe("f").staleness(index);

    // A start that was let in without hearing of it, and one that never was, are of its history.
    let tried = start(number + 1, 99);
    let next = applicant(&bed, number + 2, vec![admitted, tried]);
    let last = next.start;
    bed.let_in(next, vec![held(chunk, 0, 4)]);
    assert_eq!(stale(&mut bed), None);
    let again = applicant(&bed, number + 2, vec![tried]);
    bed.let_in(again, vec![held(chunk, 0, 4)]);
    assert_eq!(stale(&mut bed), None, "the same start joins anew");

    // A copy of before that start knows only those before it.
    let copy = applicant(&bed, number + 3, vec![admitted, tried]);
    assert!(!copy.earlier.contains(&last));
    let reply = bed.let_in(copy, vec![held(chunk, 0, 3)]);
    let CoordinatorReply::Joined(joined) = reply else {
        panic!("{reply:?}");
    };
    let decided = joined.answer.decided;
    let missed_after = stale(&mut bed).map(|stale| stale.missed_after);
    assert_eq!(
        missed_after,
        Some(Some(Sequence(3))),
        "what it shows it has"
    );
    assert_eq!(decided.len(), 1, "its chunk serves nothing");
    assert!(decided[0].generation > stripe.generation);
}

#[test]
fn a_second_process_of_a_node_is_refused_while_the_first_one_answers() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let node = stripe.nodes[0];
    let chunk = chunk_on(&stripe, node);
    let twin = |bed: &Bed| Applicant {
        address: "127.0.0.1:65000".to_owned(),
        ..bed.applicant(Some(node), node.0, node.0 / 3, 7)
    };
    let address = |bed: &mut Bed| match bed.ask(CoordinatorRequest::Nodes) {
        CoordinatorReply::Nodes(nodes) => nodes[node.0 as usize].address.clone(),
        other => panic!("{other:?}"),
    };
    let first = address(&mut bed);
    let applicant = twin(&bed);
    let refused = bed.let_in(applicant, vec![held(chunk, 0, 0)]);
    assert_refused(&refused, "already");
    assert_eq!(address(&mut bed), first, "the first one stays reachable");

    bed.ask(CoordinatorRequest::StoreFailed(StoreFailure {
        node,
        incarnation: bed.incarnation(node),
        reason: "cannot sync".to_owned(),
    }));
    let applicant = twin(&bed);
    let refused = bed.let_in(applicant, vec![held(chunk, 0, 0)]);
    assert_refused(&refused, "already");
    assert_eq!(address(&mut bed), first, "it has failed and still answers");

    bed.stop(node);
    let applicant = twin(&bed);
    let joined = bed.let_in(applicant, vec![held(chunk, 0, 0)]);
    assert!(
        matches!(joined, CoordinatorReply::Joined(_)),
        "a node that has ended may come back elsewhere: {joined:?}"
    );
}

#[test]
fn a_coordinator_that_nodes_know_more_of_than_itself_stops() {
    for (number, nonce) in [(1, 77), (2, 77), (9, 1)] {
        let mut bed = Bed::three_racks();
        bed.put("f", 1);
        bed.restart();
        let heartbeat = ask::Heartbeat {
            node: NodeId(3),
            incarnation: u64::MAX,
            heard: Some(of_start(start(number, nonce))),
            position: 0,
            health: NodeHealth::default(),
        };
        let words = "is an old copy (node 3 has heard of start";
        assert_refused(&bed.ask(heartbeat), words);
        assert_refused(&bed.ask(CoordinatorRequest::Nodes), words);
        let lookup = ask::Lookup {
            name: "f".to_owned(),
        };
        assert_refused(&bed.ask(lookup), words);
        let stopped = futures::FutureExt::now_or_never(bed.coordinator.broken());
        assert!(stopped.is_some_and(|why| why.to_string().contains(words)));
    }
}

#[test]
fn a_coordinator_whose_metadata_has_made_fewer_changes_than_nodes_know_stops() {
    for is_old in [false, true] {
        let mut bed = Bed::three_racks();
        let node = Box::new(bed.applicant(Some(NodeId(0)), 0, 0, 2));
        let reply = bed.ask(ask::BeginJoin {
            node,
            chunk_count: 0,
        });
        let CoordinatorReply::JoinBegun(JoinBegun { coordinator, .. }) = reply else {
            panic!("{reply:?}");
        };
        assert!(coordinator.change_count > 0, "the nodes joined");
        let change_count = if is_old {
            u64::MAX
        } else {
            coordinator.change_count
        };
        let heartbeat = ask::Heartbeat {
            node: NodeId(3),
            incarnation: u64::MAX,
            heard: Some(Origin {
                change_count,
                ..coordinator
            }),
            position: 0,
            health: NodeHealth::default(),
        };
        let answer = bed.ask(heartbeat);
        if is_old {
            assert_refused(&answer, "is an old copy (node 3 has heard of change");
            assert_refused(&bed.ask(CoordinatorRequest::Nodes), "is an old copy");
        } else {
            let is_alive = matches!(answer, CoordinatorReply::Alive { .. });
            assert!(is_alive, "{answer:?}");
        }
    }
}

#[test]
fn one_change_that_is_missing_gives_old_metadata_away_however_many_were_made_since() {
    for missing_count in [0, 1] {
        let mut bed = Bed::three_racks();
        bed.put("f", 1);
        let told = bed.ask(heartbeat(None));
        let CoordinatorReply::Alive { coordinator, .. } = told else {
            panic!("{told:?}");
        };
        let last = coordinator.expect("it says who it is");
        bed.restart();
        bed.restart();
        for node in (0..9).map(NodeId).filter(|node| *node != NodeId(3)) {
            bed.heartbeat(node, NodeHealth::default());
        }
        bed.put("g", 1);
        let answer = bed.ask(heartbeat(Some(Origin {
            change_count: last.change_count + missing_count,
            ..last
        })));
        if missing_count > 0 {
            assert_refused(&answer, "is an old copy (node 3 has heard of change");
        } else {
            let is_alive = matches!(answer, CoordinatorReply::Alive { .. });
            assert!(is_alive, "{answer:?}");
        }
    }
}

/// A supervisor starts a coordinator that was refused again and again.
#[test]
fn an_old_copy_is_refused_however_often_it_is_started() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let CoordinatorReply::Alive { coordinator, .. } = bed.ask(heartbeat(None)) else {
        panic!("it is not refused yet");
    };
    let own = coordinator.expect("it says who it is");
    // One node has heard of a change that is missing, and later one of a start.
    let change = Origin {
        change_count: own.change_count + 1,
        ..own
    };
    let other_start = of_start(start(own.start.number + 1, 77));
    bed.restart();
    for heard in [change, other_start] {
        assert_refused(&bed.ask(heartbeat(Some(heard))), "is an old copy");
        bed.restart();
    }
    for _ in 0..REMEMBERED_START_COUNT {
        bed.restart();
    }
    for heard in [change, other_start] {
        assert_refused(&bed.ask(heartbeat(Some(heard))), "is an old copy");
        bed.restart();
    }
    // Of starts that are forgotten, nothing is known.
    let answer = bed.ask(heartbeat(Some(of_start(start(own.start.number + 4, 77)))));
    assert!(
        matches!(answer, CoordinatorReply::Alive { .. }),
        "{answer:?}"
    );
}

#[test]
fn a_coordinator_answers_clients_when_most_nodes_have_spoken() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    bed.restart();
    let coordinator = Arc::clone(&bed.coordinator);
    let lookup = ask::Lookup {
        name: "f".to_owned(),
    };
    let mut answer = std::pin::pin!(coordinator.handle(lookup.into()));
    for node in (0..5).map(NodeId) {
        let none_yet = answer.as_mut().now_or_never();
        assert!(none_yet.is_none(), "before {node} has spoken: {none_yet:?}");
        bed.heartbeat(node, NodeHealth::default());
    }
    bed.pass(100);
    let answer = answer.now_or_never();
    assert!(
        matches!(answer, Some(CoordinatorReply::File(_))),
        "{answer:?}"
    );
    // An operator wants to know more before that.
    bed.restart();
    assert!(
        bed.coordinator
            .handle(CoordinatorRequest::Status)
            .now_or_never()
            .is_some()
    );
}

#[test]
fn a_coordinator_grants_leases_of_stripes_when_most_nodes_have_spoken() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1)[0].clone();
    bed.restart();
    let coordinator = Arc::clone(&bed.coordinator);
    // Participants would obey no older epoch any more than an old copy's.
    let acquire = ask::Acquire {
        stripe: stripe.id,
        node: stripe.nodes[0],
        incarnation: u64::MAX,
        file: None,
    };
    let mut answer = std::pin::pin!(coordinator.handle(acquire.into()));
    for node in (0..5).map(NodeId) {
        let none_yet = answer.as_mut().now_or_never();
        assert!(none_yet.is_none(), "before {node} has spoken: {none_yet:?}");
        bed.heartbeat(node, NodeHealth::default());
    }
    bed.pass(100);
    let answer = answer.now_or_never();
    assert!(
        matches!(answer, Some(CoordinatorReply::Lease(_))),
        "{answer:?}"
    );
}

#[test]
fn a_coordinator_with_few_nodes_answers_clients_when_the_others_are_given_up() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    for node in (0..5).map(NodeId) {
        bed.stop(node);
    }
    bed.restart();
    let lookup = || {
        CoordinatorRequest::Lookup(ask::Lookup {
            name: "f".to_owned(),
        })
    };
    // Their leases run out: they may have followed a newer run of the coordinator, and have failed since.
    bed.pass(TIMING.lease_ms + TIMING.margin_ms + 500);
    let answer = bed.ask(lookup());
    assert_busy(&answer, "4 of 9 nodes");
    bed.pass(TIMING.grace_ms);
    let answer = bed.ask(lookup());
    assert!(matches!(answer, CoordinatorReply::File(_)), "{answer:?}");
}

#[test]
fn nodes_that_an_earlier_run_gave_up_count_until_this_run_gives_them_up() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    let failed: Vec<NodeId> = (0..8).map(NodeId).collect();
    bed.fail(&failed);
    bed.pass(TIMING.grace_ms);
    bed.take_events();
    bed.restart();
    // Metadata copied now may come back after these nodes have returned and have followed a later run.
    let lookup = || ask::Lookup {
        name: "f".to_owned(),
    };
    bed.pass(TIMING.lease_ms);
    let answer = bed.ask(lookup());
    assert_busy(&answer, "1 of 9 nodes");
    bed.pass(TIMING.grace_ms);
    let answer = bed.ask(lookup());
    assert!(matches!(answer, CoordinatorReply::File(_)), "{answer:?}");
}

#[test]
fn an_operator_ends_no_grace_before_most_nodes_have_spoken() {
    let mut bed = Bed::three_racks();
    bed.put("f", 1);
    for node in (0..5).map(NodeId) {
        bed.stop(node);
    }
    bed.restart();
    bed.pass(TIMING.lease_ms + TIMING.margin_ms + 500);
    // An old copy with four of nine nodes would answer clients once the other five count no more.
    let repair_now = CoordinatorRequest::from(ask::RepairNow { scheme: None });
    let lookup = CoordinatorRequest::from(ask::Lookup {
        name: "f".to_owned(),
    });
    for request in [repair_now.clone(), lookup] {
        let answer = bed.ask(request);
        assert_busy(&answer, "4 of 9 nodes");
    }
    let abandoned = |bed: &mut Bed| {
        let events = bed.take_events().into_iter();
        let abandoned = events.filter(|event| matches!(event, Event::Abandoned(_)));
        abandoned.count()
    };
    assert_eq!(abandoned(&mut bed), 0);
    bed.rejoin_obsolete(NodeId(0), vec![]);
    assert_eq!(bed.ask(repair_now), CoordinatorReply::Done);
    assert_eq!(abandoned(&mut bed), 4);
}

#[test]
fn a_coordinator_has_nothing_removed_before_all_nodes_have_spoken() {
    let mut bed = Bed::three_racks();
    let (file, stripes) = bed.begin_put("f", 4 << 20);
    bed.ask(CoordinatorRequest::CommitPut(file));
    bed.hook(|node, request| {
        matches!(request, NodeRequest::Remove { .. }).then(|| ready(Err(gone(node))).boxed())
    });
    bed.ask(ask::RemoveFile {
        at: "f".into(),
        file: file.id,
        generation: 0,
        number: 212,
    });
    bed.unhook();
    bed.take_log();
    bed.restart();
    let asked_at = |bed: &mut Bed| {
        let log = bed.take_log();
        let removals = log
            .iter()
            .filter(|asked| matches!(asked.request, NodeRequest::Remove { .. }));
        removals.map(|asked| asked.node).collect::<Vec<_>>()
    };
    for node in (0..9).map(NodeId) {
        assert_eq!(asked_at(&mut bed), [], "not before {node} has spoken");
        bed.heartbeat(node, NodeHealth::default());
    }
    bed.pass(100);
    let mut asked = asked_at(&mut bed);
    let mut nodes = stripes[0].nodes.clone();
    asked.sort_unstable();
    nodes.sort_unstable();
    assert_eq!(asked, nodes);
}

#[test]
fn a_copy_from_before_its_chunk_was_made_anew_is_worth_nothing() {
    for (generation, is_trusted) in [(1, false), (2, true)] {
        let mut bed = Bed::three_racks();
        let stripe = bed.put("f", 1).remove(0);
        let node = stripe.nodes[3];
        let chunk = chunk_on(&stripe, node);
        bed.report_damage(chunk);
        bed.pass(100);
        assert_eq!(bed.stripe("f").stale, [], "it was made anew in place");
        bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
        let applicant = bed.applicant(Some(node), node.0, node.0 / 3, u64::MAX);
        let told = HeldChunk {
            generation: Generation(generation),
            ..held(chunk, 1, 0)
        };
        bed.let_in(applicant, vec![told]);
        let stale = bed.stripe("f").staleness(chunk.index);
        let missed_after = stale.map(|stale| stale.missed_after);
        assert_eq!(missed_after, (!is_trusted).then_some(None), "{generation}");
    }
}

#[test]
fn one_node_that_followed_an_old_copy_does_not_stop_a_coordinator_that_most_confirm() {
    let mut bed = Bed::three_racks();
    let applicant = bed.applicant(Some(NodeId(0)), 0, 0, 2);
    let node = Box::new(applicant);
    let reply = bed.ask(ask::BeginJoin {
        node,
        chunk_count: 0,
    });
    let CoordinatorReply::JoinBegun(JoinBegun { coordinator, .. }) = reply else {
        panic!("{reply:?}");
    };
    bed.restart();
    for node in (0..5).map(NodeId) {
        let heartbeat = ask::Heartbeat {
            node,
            incarnation: bed.incarnation(node),
            heard: Some(coordinator),
            position: 0,
            health: NodeHealth::default(),
        };
        let reply = bed.ask(heartbeat);
        assert!(matches!(reply, CoordinatorReply::Alive { .. }), "{reply:?}");
    }
    let misled = Applicant {
        heard: Some(of_start(start(
            coordinator.start.number,
            coordinator.start.nonce + 1,
        ))),
        ..bed.applicant(Some(NodeId(8)), 8, 2, u64::MAX)
    };
    assert_refused(&bed.let_in(misled, vec![]), "old copy of the metadata");
    let nodes = bed.ask(CoordinatorRequest::Nodes);
    assert!(matches!(nodes, CoordinatorReply::Nodes(_)), "{nodes:?}");
}

#[test]
fn chunks_of_unknown_terms_and_stripes_give_old_metadata_away() {
    let mut bed = Bed::three_racks();
    let stripe = bed.put("f", 1).remove(0);
    let node = stripe.nodes[0];
    let chunk = chunk_on(&stripe, node);
    let unknown = ChunkId {
        stripe: gabion_layout::StripeId(99),
        ..chunk
    };
    for told in [held(chunk, 5, 0), held(unknown, 0, 0)] {
        bed.restart();
        let join = bed.applicant(Some(node), node.0, node.0 / 3, u64::MAX);
        let refused = bed.let_in(join, vec![held(chunk, 0, 0), told]);
        assert_refused(&refused, "is an old copy");
        assert_refused(&bed.ask(CoordinatorRequest::Nodes), "is an old copy");
    }
}

/// A node that has said how far it has come, and is about to start again.
struct Witnessed {
    bed: Bed,
    node: NodeId,
    chunk: ChunkId,
}

impl Witnessed {
    fn at(position: u64) -> Self {
        let mut bed = Bed::three_racks();
        let stripe = bed.put("f", 1).remove(0);
        let node = stripe.nodes[0];
        // Nothing mends what the test is about to look at.
        bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
        let alive = ask::Heartbeat {
            node,
            incarnation: bed.incarnation(node),
            heard: None,
            position,
            health: NodeHealth::default(),
        };
        let reply = bed.ask(alive);
        assert!(matches!(reply, CoordinatorReply::Alive { .. }), "{reply:?}");
        let chunk = chunk_on(&stripe, node);
        Self { bed, node, chunk }
    }

    /// Starts it with a journal that ends there. Whether its chunk is stale from what it shows.
    fn is_stale_from(&mut self, position: u64) -> bool {
        let (bed, node) = (&mut self.bed, self.node);
        let number = bed.incarnation(node) + 1;
        bed.take_events();
        let applicant = Applicant {
            position,
            ..bed.applicant(Some(node), node.0, node.0 / 3, number)
        };
        let reply = bed.let_in(applicant, vec![held(self.chunk, 0, 4)]);
        assert!(matches!(reply, CoordinatorReply::Joined(_)), "{reply:?}");
        let stale = bed.stripe("f").staleness(self.chunk.index);
        let is_stale = stale.is_some_and(|stale| stale.missed_after == Some(Sequence(4)));
        assert_eq!(stale.is_some(), is_stale);
        let told = bed.take_events().contains(&Event::WentBack(node));
        assert_eq!(told, is_stale, "the log says so");
        is_stale
    }
}

#[test]
fn a_journal_that_ends_before_what_its_run_has_said_went_back() {
    assert!(!Witnessed::at(500).is_stale_from(500));
    assert!(!Witnessed::at(500).is_stale_from(501));
    let mut node = Witnessed::at(500);
    assert!(node.is_stale_from(499));
    // It is let in with what it shows, and is measured by that from then on.
    node.bed.restart();
    let (number, id) = (node.bed.incarnation(node.node) + 1, node.node);
    let next = Applicant {
        position: 499,
        ..node.bed.applicant(Some(id), id.0, id.0 / 3, number)
    };
    node.bed.take_events();
    node.bed.let_in(next, vec![held(node.chunk, 0, 4)]);
    assert!(!node.bed.take_events().contains(&Event::WentBack(id)));
}

#[test]
fn a_coordinator_that_starts_anew_remembers_how_far_nodes_had_come() {
    let mut node = Witnessed::at(500);
    node.bed.pass(11_000);
    node.bed.restart();
    assert!(node.is_stale_from(499));
}

#[test]
fn other_nodes_remember_what_the_coordinator_has_not_heard() {
    for (word, is_stale) in [(600, true), (500, false)] {
        let mut node = Witnessed::at(400);
        let incarnation = node.bed.incarnation(node.node);
        let others = node.bed.stripe("f").nodes[1..].to_vec();
        node.bed.hook(move |asked, request| {
            let NodeRequest::Progress { .. } = request else {
                return None;
            };
            // One remembers, one remembers another run, and the rest is silent.
            let said = |incarnation, position| Progress {
                incarnation,
                position,
            };
            let reply = match others.iter().position(|&other| other == asked) {
                Some(0) => Ok(NodeReply::Progress(Some(said(incarnation, word)))),
                Some(1) => Ok(NodeReply::Progress(Some(said(incarnation - 1, 9_000)))),
                _ => Err(gone(asked)),
            };
            Some(ready(reply).boxed())
        });
        assert_eq!(node.is_stale_from(500), is_stale, "{word}");
    }
}

#[test]
fn the_run_that_was_let_in_last_joins_anew_whatever_others_have_heard_of_it() {
    let mut node = Witnessed::at(500);
    let (id, number) = (node.node, node.bed.incarnation(node.node));
    let same = Applicant {
        position: 499,
        ..node.bed.applicant(Some(id), id.0, id.0 / 3, number)
    };
    let same = Applicant {
        start: same.earlier[0],
        ..same
    };
    node.bed.let_in(same, vec![held(node.chunk, 0, 4)]);
    assert_eq!(node.bed.stripe("f").stale, []);
}

/// Starts a node with an empty directory.
fn lose_directory(bed: &mut Bed, node: NodeId) {
    let number = bed.incarnation(node) + 1;
    let empty = Applicant {
        earlier: vec![],
        ..bed.applicant(Some(node), node.0, node.0 / 3, number)
    };
    let reply = bed.let_in(empty, vec![]);
    assert!(matches!(reply, CoordinatorReply::Joined(_)), "{reply:?}");
}

#[test]
fn chunks_of_a_put_in_a_lost_directory_do_not_count() {
    let mut bed = Bed::three_racks();
    bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
    let (put, stripes) = bed.begin_put("f", 1 << 20);
    lose_directory(&mut bed, stripes[0].nodes[0]);
    // Also when the coordinator starts anew between.
    bed.restart();
    assert_eq!(
        bed.ask(CoordinatorRequest::CommitPut(put)),
        CoordinatorReply::Done
    );
    let known = bed.stripe("f");
    let stale: Vec<_> = (known.stale.iter().map(|s| (s.chunk.0, s.missed_after))).collect();
    assert_eq!(stale, [(0, None)]);
    assert!(
        known.generation > stripes[0].generation,
        "the client's layout is refused"
    );
    let (put, stripes) = bed.begin_put("g", 1 << 20);
    assert!(stripes[0].stale.is_empty(), "a later put is not concerned");
    for &node in &stripes[0].nodes {
        lose_directory(&mut bed, node);
    }
    assert_refused(&bed.ask(CoordinatorRequest::CommitPut(put)), "are lost");
}

/// Stripes that are stored are in the map of the put, and not pending any more.
#[test]
fn a_put_is_not_committed_when_a_stripe_that_was_stored_is_lost() {
    for (lost_count, restarts) in [(2, false), (2, true), (3, false), (3, true)] {
        let mut bed = Bed::three_racks();
        bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
        let size_bytes = 4 << 20;
        let (put, stripes) = bed.begin_put("f", size_bytes);
        let stored = bed.ask(ask::ExtendPut {
            put,
            step: 0,
            stored_count: 1,
            kept_count: 1,
            size_bytes,
        });
        assert!(matches!(stored, CoordinatorReply::Put(_)), "{stored:?}");
        for &node in &stripes[0].nodes[..lost_count] {
            lose_directory(&mut bed, node);
        }
        if restarts {
            bed.restart();
        }
        let committed = bed.ask(CoordinatorRequest::CommitPut(put));
        let again = bed.ask(CoordinatorRequest::CommitPut(put));
        if lost_count == 2 {
            assert_eq!(committed, CoordinatorReply::Done);
            assert_eq!(again, CoordinatorReply::Done);
            assert_eq!(bed.stripe("f").stale.len(), 2);
        } else {
            assert_refused(&committed, "3 chunks of");
            assert_refused(&again, "3 chunks of");
        }
    }
}
