//! A recovery on scripted nodes: what it serves, what it names, and that it only looks.

use crate::coordinator::bed::{Bed, Reply, cause, gone, refused};
use crate::coordinator::membership::beat;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use gabion_layout::{ChunkIndex, Generation, NodeId, RackId, Start, StripeId, StripeRecord};
use gabion_meta::{
    KeyValue, MemoryStore, Meta, PutId, Row, Secret, TicketKey, WallClock, WallTime,
};
use gabion_protocol::coordinator::Recovery;
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, Departure, FileLayout, HeldScope, KnownCluster,
    KnownStripe, KnownStripes, Liveness, NodeHealth, NodeReply, NodeRequest, NodeStatus, Origin,
    RecoveryPage, RecoveryPlace, StripeCounts, TicketKeys, ask,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The stripes that each node holds.
type Holdings = Arc<Mutex<BTreeMap<NodeId, BTreeMap<StripeId, KnownStripe>>>>;

/// A recovery on a copy of the metadata of a cluster with the files `f` and `g`, of one stripe each, and with `h`, of
/// two.
struct Emergency {
    bed: Bed,
    recovery: Arc<Recovery<&'static MemoryStore>>,
    holdings: Holdings,
}

impl Emergency {
    fn new() -> Self {
        let mut bed = Bed::three_racks();
        let holdings = Holdings::default();
        for (name, count) in [("f", 1), ("g", 1), ("h", 2)] {
            for stripe in bed.put(name, count) {
                hold(&holdings, &stripe);
            }
        }
        let told = Arc::clone(&holdings);
        bed.hook(move |node, request| {
            let mut told = told.lock().unwrap();
            let held = told.get_mut(&node)?;
            let reply = match request {
                NodeRequest::Cluster => NodeReply::Cluster(Box::new(known_cluster())),
                NodeRequest::Held(asked) => NodeReply::Held(held_in(held, &asked.scope)),
                _ => return None,
            };
            Some(ready(Ok(reply)).boxed())
        });
        Self::on(bed, holdings)
    }

    /// Begins the recovery.
    fn on(mut bed: Bed, holdings: Holdings) -> Self {
        let clock = WallClock::stopped(WallTime::default());
        let meta = Meta::open_to_read(bed.store(), clock).unwrap();
        let recovery = Recovery::new(meta, bed.ports(), bed.options.clone()).unwrap();
        bed.take_log();
        Self {
            bed,
            recovery,
            holdings,
        }
    }

    /// All nodes answer at once, or not at all.
    fn ask(&self, request: impl Into<CoordinatorRequest>) -> CoordinatorReply {
        // Boxed as a server with several threads would: that needs `Send`.
        let reply = self.recovery.handle(request.into()).boxed().now_or_never();
        reply.expect("it waits for nothing")
    }

    fn look(&self, name: &str) -> CoordinatorReply {
        let name = name.to_owned();
        self.ask(ask::Lookup { name })
    }

    fn layout(&self, name: &str) -> FileLayout {
        match self.look(name) {
            CoordinatorReply::File(layout) => *layout,
            other => panic!("{other:?}"),
        }
    }

    fn page(&self, place: Option<RecoveryPlace>) -> RecoveryPage {
        match self.ask(ask::Recovery(place)) {
            CoordinatorReply::Recovery(page) => *page,
            other => panic!("{other:?}"),
        }
    }

    /// The only stripe of a file.
    fn stripe(&self, name: &str) -> StripeRecord {
        self.layout(name).stripes[0].clone()
    }

    /// A node answers nothing from now on.
    fn silence(&mut self, node: NodeId) {
        self.holdings.lock().unwrap().remove(&node);
        self.bed.stop(node);
    }

    /// Begins the recovery again.
    fn restart(self) -> Self {
        Self::on(self.bed, self.holdings)
    }

    fn rows(&self) -> Vec<Row> {
        let rows = self
            .bed
            .store()
            .read(|txn| txn.scan(b"", &[u8::MAX], usize::MAX));
        rows.unwrap()
    }

    /// Nothing but questions has gone to nodes.
    fn check_only_looked(&mut self) {
        let log = self.bed.take_log();
        assert!(!log.is_empty());
        for asked in log {
            let is_question = matches!(
                asked.request,
                NodeRequest::Cluster | NodeRequest::Held(_) | NodeRequest::Probe(_)
            );
            assert!(is_question, "{asked:?}");
        }
    }
}

/// Opens the metadata as a coordinator's start does.
fn open(store: &'static MemoryStore) -> Meta<&'static MemoryStore> {
    Meta::open(store, WallClock::stopped(WallTime::default())).unwrap()
}

/// The nodes of a stripe hold its chunks.
fn hold(holdings: &Holdings, record: &StripeRecord) {
    let mut holdings = holdings.lock().unwrap();
    for node in (0..9).map(NodeId) {
        holdings.entry(node).or_default();
    }
    for (index, node) in record.nodes.iter().enumerate() {
        let known = KnownStripe {
            stripe: record.id,
            generation: record.generation,
            chunks: vec![ChunkIndex(u8::try_from(index).unwrap())],
        };
        holdings.entry(*node).or_default().insert(record.id, known);
    }
}

fn held_in(held: &BTreeMap<StripeId, KnownStripe>, scope: &HeldScope) -> KnownStripes {
    let wanted = |id: &StripeId| match scope {
        HeldScope::Of(stripes) => stripes.contains(id),
        HeldScope::Behind(after) => after.is_none_or(|after| *id > after),
    };
    let mut found = held.iter().filter(|(id, _)| wanted(id));
    let known = |(_, known): (&StripeId, &KnownStripe)| known.clone();
    match scope {
        HeldScope::Of(_) => KnownStripes {
            stripes: found.map(known).collect(),
            upto: None,
        },
        // Pages of one stripe.
        HeldScope::Behind(_) => {
            let first = found.next().map(known);
            KnownStripes {
                upto: first.as_ref().map(|known| known.stripe),
                stripes: first.into_iter().collect(),
            }
        }
    }
}

fn known_cluster() -> KnownCluster {
    KnownCluster {
        heard: Some(Origin {
            start: Start {
                number: 9,
                nonce: 9,
            },
            change_count: 900,
        }),
        nodes: Vec::new(),
        keys: TicketKeys {
            keys: vec![TicketKey {
                number: 7,
                secret: Secret([7; 32]),
                drawn_ms: 0,
            }],
            ..TicketKeys::default()
        },
    }
}

#[test]
fn layouts_that_hold_are_served_and_others_are_refused() {
    let mut emergency = Emergency::new();
    let layout = emergency.layout("f");
    assert_eq!(layout.tickets.len(), 1, "a key that the nodes know signs");
    assert_eq!(layout.tickets[0].key, 7);
    let nodes = layout.nodes.iter();
    let up_count = nodes.filter(|s| s.liveness == Liveness::Up).count();
    assert_eq!(up_count, 9);
    let (g, h) = (emergency.stripe("g"), emergency.stripe("h"));
    // A node has learnt of a repair.
    {
        let mut holdings = emergency.holdings.lock().unwrap();
        let node = holdings.get_mut(&g.nodes[2]).unwrap();
        node.get_mut(&g.id).unwrap().generation = Generation(g.generation.0 + 1);
        for node in &h.nodes {
            holdings.get_mut(node).unwrap().remove(&h.id);
        }
    }
    refused(&emergency.look("g"), "newer on the nodes: 1, missing: 0");
    refused(&emergency.look("h"), "all 2 stripes");
    refused(&emergency.look("h"), "missing: 1");
    emergency.layout("f");
    // Nodes that do not answer prove nothing.
    let nodes = emergency.stripe("f").nodes;
    emergency.silence(nodes[0]);
    emergency.silence(nodes[1]);
    emergency.bed.pass(6_000);
    emergency.bed.take_log();
    emergency.layout("f");
    emergency.silence(nodes[2]);
    emergency.bed.pass(6_000);
    emergency.bed.take_log();
    refused(
        &emergency.look("f"),
        "unknown: 1); wait until more nodes answer",
    );
    emergency.check_only_looked();
}

#[test]
fn a_recovery_changes_nothing_on_nodes_and_in_the_metadata() {
    let emergency = Emergency::new();
    let before = emergency.rows();
    let mut emergency = emergency.restart();
    let stripe = emergency.stripe("f");
    let changes: Vec<CoordinatorRequest> = vec![
        ask::RemoveFile {
            at: "f".into(),
            file: PutId(1),
            generation: 0,
            number: 1,
        }
        .into(),
        ask::CommitPool {
            name: "p".to_owned(),
        }
        .into(),
        ask::RepairNow { scheme: None }.into(),
        CoordinatorRequest::Drain(NodeId(1)),
        CoordinatorRequest::Accept(NodeId(1)),
        CoordinatorRequest::ScrubAll,
        CoordinatorRequest::OpenSession,
    ];
    for change in changes {
        let name = change.name();
        let reply = emergency.ask(change);
        refused(&reply, "changes nothing");
        // An earlier coordinator may have made it, so it is undecided.
        assert_eq!(cause(reply), Cause::Recovers, "{name}");
        assert!(Cause::Recovers.leaves_doubt());
    }
    for question in [CoordinatorRequest::Status, CoordinatorRequest::Usage] {
        assert_eq!(cause(emergency.ask(question)), Cause::Unsupported);
    }
    // Nodes go on without it.
    let acquire = ask::Acquire {
        stripe: stripe.id,
        node: NodeId(1),
        incarnation: 1,
        file: None,
    };
    let heartbeat: CoordinatorRequest = beat(NodeId(1), 1, NodeHealth::default()).into();
    for request in [acquire.into(), heartbeat] {
        match emergency.ask(request) {
            CoordinatorReply::Busy(denial) => assert_eq!(denial.cause, Cause::NotLeading),
            other => panic!("{other:?}"),
        }
    }
    emergency.page(None);
    emergency.check_only_looked();
    assert!(emergency.rows() == before, "no row has changed");
}

#[test]
fn a_layout_with_a_move_that_was_unfinished_at_the_copy_is_not_served() {
    let emergency = Emergency::new();
    let stripe = emergency.stripe("g");
    let meta = open(emergency.bed.store());
    meta.note_start(5).unwrap();
    let generation = meta.begin_move(stripe.id, stripe.generation).unwrap();
    for node in &stripe.nodes[..4] {
        let mut holdings = emergency.holdings.lock().unwrap();
        let held = holdings.get_mut(node).unwrap();
        held.get_mut(&stripe.id).unwrap().generation = generation;
    }
    let emergency = emergency.restart();
    refused(&emergency.look("g"), "newer on the nodes: 1, missing: 0");
}

#[test]
fn a_copy_that_a_coordinator_has_changed_is_not_served() {
    let mut emergency = Emergency::new();
    // Nodes have followed an earlier start than the copy's last, which is the first one of the cluster.
    emergency.bed.hook(|_, request| {
        let known = KnownCluster {
            heard: Some(Origin {
                start: Start::default(),
                change_count: 0,
            }),
            ..known_cluster()
        };
        let reply = NodeReply::Cluster(Box::new(known));
        (*request == NodeRequest::Cluster).then(|| ready(Ok(reply)).boxed())
    });
    refused(&emergency.look("f"), "restore it again");
    emergency.bed.take_log();
    refused(&emergency.ask(ask::Recovery(None)), "restore it again");
    assert!(
        emergency.bed.take_log().is_empty(),
        "no node is asked again at once"
    );
}

#[test]
fn a_copy_on_which_a_start_has_failed_is_not_served() {
    let emergency = Emergency::new();
    emergency.layout("f");
    // It has abandoned moves, and has not noted itself.
    open(emergency.bed.store());
    refused(&emergency.restart().look("f"), "restore it again");
}

#[test]
fn a_copy_that_nodes_have_contradicted_is_not_served() {
    let emergency = Emergency::new();
    let meta = open(emergency.bed.store());
    let last = meta.note_start(5).unwrap().last().unwrap().0;
    // The nodes have followed a later start since, which is no proof against an earlier copy.
    meta.note_contradicted_start(last.number - 1).unwrap();
    let emergency = emergency.restart();
    emergency.layout("f");
    meta.note_contradicted_start(last.number + 1).unwrap();
    refused(&emergency.restart().look("f"), "restore it again");
}

#[test]
fn a_copy_whose_last_start_has_another_nonce_is_not_served() {
    let emergency = Emergency::new();
    let heard = known_cluster().heard.unwrap().start;
    loop {
        let meta = open(emergency.bed.store());
        meta.note_start(heard.nonce + 1).unwrap();
        if meta.incarnation() == heard.number {
            break;
        }
    }
    refused(&emergency.restart().look("f"), "restore it again");
}

#[test]
fn findings_name_each_file_that_does_not_hold_and_each_stranger() {
    let emergency = Emergency::new();
    let (g, h) = (emergency.stripe("g"), emergency.layout("h").stripes);
    let strangers = [StripeId(1_000), StripeId(1_001)];
    {
        let mut holdings = emergency.holdings.lock().unwrap();
        for stripe in [g.id, h[1].id] {
            for held in holdings.values_mut() {
                held.remove(&stripe);
            }
        }
        for stripe in strangers {
            let known = KnownStripe {
                stripe,
                generation: Generation(1),
                chunks: vec![ChunkIndex(0)],
            };
            holdings.get_mut(&NodeId(4)).unwrap().insert(stripe, known);
        }
    }
    let (mut place, mut sum, mut file_count) = (None, StripeCounts::default(), 0);
    let (mut found, mut strange) = (Vec::new(), Vec::new());
    loop {
        let page = emergency.page(place);
        file_count += page.file_count;
        sum += page.stripes;
        found.extend(page.findings.into_iter().map(|f| (f.name, f.stripes)));
        if let Some((node, stripes)) = page.strangers {
            assert_eq!(node, NodeId(4));
            strange.extend(stripes);
        }
        assert_eq!(page.silent_nodes, Vec::new());
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    let of = |held_count, missing_count| StripeCounts {
        held_count,
        missing_count,
        ..StripeCounts::default()
    };
    assert_eq!(file_count, 3);
    assert_eq!(sum, of(2, 2));
    assert_eq!(
        found,
        [("g".to_owned(), of(0, 1)), ("h".to_owned(), of(1, 1))]
    );
    assert_eq!(strange, strangers, "page by page");
}

/// A node answers at once.
fn answer(reply: NodeReply) -> BoxFuture<'static, Reply> {
    ready(Ok(reply)).boxed()
}

#[test]
fn a_node_that_has_joined_since_the_copy_is_found_and_a_silent_one_is_asked_once() {
    let mut emergency = Emergency::new();
    let (joined, silent) = (NodeId(9), NodeId(8));
    emergency.bed.stop(silent);
    emergency.bed.hook(move |node, request| {
        let status = NodeStatus {
            node: joined,
            rack: RackId(0),
            address: "new:1".to_owned(),
            liveness: Liveness::Up,
            departure: Departure::None,
        };
        let known = KnownCluster {
            nodes: vec![status],
            ..known_cluster()
        };
        let is_asked = *request == NodeRequest::Cluster && node != silent;
        is_asked.then(|| answer(NodeReply::Cluster(Box::new(known))))
    });
    let nodes = match emergency.ask(CoordinatorRequest::Nodes) {
        CoordinatorReply::Nodes(nodes) => nodes,
        other => panic!("{other:?}"),
    };
    let up = nodes.iter().filter(|s| s.liveness == Liveness::Up);
    let up: Vec<u32> = up.map(|status| status.node.0).collect();
    assert_eq!(up, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
    let log = emergency.bed.take_log();
    let asked = log.iter().filter(|asked| asked.node == silent);
    let asked = asked.filter(|asked| asked.request == NodeRequest::Cluster);
    assert_eq!(asked.count(), 1);
}

#[test]
fn a_node_that_does_not_tell_its_chunks_is_named() {
    let mut emergency = Emergency::new();
    let holder = emergency.stripe("f").nodes[0];
    let told = Arc::clone(&emergency.holdings);
    emergency.bed.hook(move |node, request| match request {
        NodeRequest::Cluster => Some(answer(NodeReply::Cluster(Box::new(known_cluster())))),
        NodeRequest::Held(_) if node == holder => Some(ready(Err(gone(node))).boxed()),
        NodeRequest::Held(asked) => {
            let held = held_in(told.lock().unwrap().get(&node)?, &asked.scope);
            Some(answer(NodeReply::Held(held)))
        }
        _ => None,
    });
    assert_eq!(emergency.page(None).silent_nodes, [holder]);
}

#[test]
fn a_node_whose_pages_do_not_advance_is_left() {
    let mut emergency = Emergency::new();
    emergency.bed.hook(|_, request| match request {
        NodeRequest::Cluster => Some(answer(NodeReply::Cluster(Box::new(known_cluster())))),
        NodeRequest::Held(_) => {
            let stripes = [900, 1_001].map(|stripe| KnownStripe {
                stripe: StripeId(stripe),
                generation: Generation(1),
                chunks: vec![ChunkIndex(0)],
            });
            Some(answer(NodeReply::Held(KnownStripes {
                stripes: stripes.to_vec(),
                upto: Some(StripeId(1_000)),
            })))
        }
        _ => None,
    });
    let node = NodeId(8);
    let page = emergency.page(Some(RecoveryPlace::Node {
        node,
        after: Some(StripeId(1_000)),
    }));
    assert_eq!(page.next, None);
    assert_eq!(page.strangers, Some((node, vec![StripeId(1_001)])));
}
