//! Data grouping: chunks that change places, and what becomes of it when something is in its way.

use crate::coordinator::bed::{Asked, Bed, gone, words};
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::ready;
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, ChunkId, ChunkIndex, Epoch, Geometry, GroupingRule, NodeId, StripeRecord, Topology,
    UpdateScheme,
};
use gabion_planner::Stripe;
use gabion_planner::update::cau;
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest, PoolRequest, Purpose, Refusal,
    Scrubbed, ask,
};
use std::sync::{Arc, Mutex};

const CHUNK_BYTES: u64 = 1 << 20;

/// A cluster with a file whose chunks the rule would move.
struct Setting {
    bed: Bed,
    stripe: StripeRecord,
    updated: Vec<ChunkIndex>,
    /// The places of the chunks by the rule.
    placement: Vec<NodeId>,
}

impl Setting {
    fn new() -> Self {
        let mut bed = Bed::new(3, 3);
        let rule = GroupingRule::Authors;
        let reply = bed.ask(CoordinatorRequest::CreatePool(PoolRequest {
            inline_bytes: 0,
            name: "p".to_owned(),
            survive: "1-rack".parse().unwrap(),
            code: Some("rs(6,3)".to_owned()),
            chunk_bytes: CHUNK_BYTES,
            update: UpdateScheme::Cau,
            reserve: None,
            append: Some(AppendSpec {
                grouping: Some(rule),
                ..AppendSpec::default()
            }),
            lifecycle: None,
        }));
        assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
        let code: Code = "rs(6,3)".parse().unwrap();
        // Some layouts are as good as they can be.
        for number in 0..50 {
            let name = format!("f{number}");
            let stripe = bed.put(&name, 1).remove(0);
            let view = Stripe {
                id: stripe.id,
                code: &code,
                geometry: Geometry::new(6, 3, 1, stripe.chunk_bytes).unwrap(),
                placement: &stripe.nodes,
                lost: &[],
            };
            for updated in (1..64_u8).map(|set| {
                let chunks = (0..6).filter(|chunk| set & (1 << chunk) != 0);
                chunks.map(ChunkIndex).collect::<Vec<_>>()
            }) {
                let topology = Topology::uniform(3, 3);
                if let Some(found) = cau::group(&view, &topology, &updated, rule) {
                    let placement = found.placement;
                    bed.take_log();
                    return Self {
                        bed,
                        stripe,
                        updated,
                        placement,
                    };
                }
            }
        }
        panic!("the rule moves nothing");
    }

    fn group(&mut self) {
        let told = self.bed.ask(ask::Group {
            stripe: self.stripe.id,
            updated: self.updated.clone(),
        });
        assert_eq!(told, CoordinatorReply::Done);
        self.bed.pass(200);
    }

    /// The stripe now.
    fn now(&mut self) -> StripeRecord {
        let CoordinatorReply::Lease(lease) = self.bed.acquire(self.stripe.id, self.stripe.nodes[0])
        else {
            panic!("the coordinator has given the lease back")
        };
        lease.stripe
    }

    /// Removals of the chunks that move, from where they are or from where they were to be.
    fn removals(&self, from_new_places: bool) -> Vec<Asked> {
        let places = self.stripe.nodes.iter().zip(&self.placement);
        let moved = self
            .stripe
            .chunks()
            .zip(places)
            .filter(|(_, (a, b))| a != b);
        let removal = |(index, (&from, &to)): (ChunkIndex, (&NodeId, &NodeId))| Asked {
            node: if from_new_places { to } else { from },
            request: ask::Discard {
                chunk: ChunkId {
                    stripe: self.stripe.id,
                    index,
                },
                epoch: Epoch(1),
            }
            .into(),
        };
        moved.map(removal).collect()
    }
}

fn all_of(log: &[Asked], wanted: &[Asked]) -> bool {
    !wanted.is_empty() && wanted.iter().all(|one| log.contains(one))
}

#[test]
fn chunks_change_places_under_the_lease_and_the_old_ones_are_removed() {
    let mut setting = Setting::new();
    setting.group();
    let log = setting.bed.take_log();
    for asked in &log {
        if let NodeRequest::RunPart(part) = &asked.request {
            assert_eq!(part.purpose, Purpose::Grouping);
            assert_eq!(part.generation, setting.stripe.generation);
        }
    }
    let asked: Vec<&str> = words(&log).into_iter().map(|(_, word)| word).collect();
    let first = |word| asked.iter().position(|other| *other == word);
    let order = ["collect", "resolve", "part", "scrub", "fence", "discard"].map(first);
    assert!(order.is_sorted() && order[0] == Some(0), "{asked:?}");
    assert!(all_of(&log, &setting.removals(false)), "{log:?}");
    let after = setting.now();
    assert_eq!(after.nodes, setting.placement);
    assert_eq!(after.generation.0, setting.stripe.generation.0 + 1);
    let status = setting.bed.status();
    assert_eq!(
        status.grouped_chunk_count,
        setting.removals(false).len() as u64
    );
    assert!(status.planned.cross_rack(Purpose::Grouping) >= 2 * setting.stripe.chunk_bytes);
}

#[test]
fn no_chunk_changes_its_place_while_too_few_nodes_refuse_the_layout() {
    let mut setting = Setting::new();
    setting.bed.hook(|node, request| {
        matches!(request, NodeRequest::Fence(_)).then(|| ready(Err(gone(node))).boxed())
    });
    setting.group();
    let log = setting.bed.take_log();
    assert!(all_of(&log, &setting.removals(true)), "{log:?}");
    let now = setting.now();
    assert_eq!(now.nodes, setting.stripe.nodes);
    let told = setting.stripe.generation.0 + 1;
    assert_eq!(now.generation.0, told, "nodes may have been told that one");
}

#[test]
fn copies_that_were_not_made_count_nowhere() {
    let mut setting = Setting::new();
    setting.bed.hook(|_, request| {
        let refusal = NodeReply::Refused(Refusal::NoSpace);
        matches!(request, NodeRequest::RunPart(_)).then(|| ready(Ok(refusal)).boxed())
    });
    setting.group();
    let log = setting.bed.take_log();
    assert!(all_of(&log, &setting.removals(true)), "{log:?}");
    assert_eq!(setting.now(), setting.stripe);
}

#[test]
fn a_node_that_joins_meanwhile_keeps_what_it_has() {
    let mut setting = Setting::new();
    // One reply comes only when the test says so.
    let (release, held) = oneshot::channel();
    let held = Arc::new(Mutex::new(Some(held)));
    setting.bed.hook(move |_, request| {
        let is_copied = matches!(request, NodeRequest::Scrub { .. });
        let held = is_copied.then(|| held.lock().unwrap().take()).flatten()?;
        let whole = NodeReply::Scrubbed(Scrubbed {
            chunk_count: 1,
            bytes: CHUNK_BYTES,
            damage: vec![],
        });
        Some(held.map(move |_: Result<(), _>| Ok(whole)).boxed())
    });
    setting.group();
    let moves = setting.removals(true);
    let NodeRequest::Discard(ask::Discard { chunk: copy, .. }) = moves[0].request else {
        unreachable!("removals discard")
    };
    let to = moves[0].node;
    let own = ChunkId {
        stripe: setting.stripe.id,
        index: setting.stripe.chunk_on(to).unwrap(),
    };
    let obsolete = setting.bed.rejoin_obsolete(to, vec![own, copy]);
    assert_eq!(obsolete, [copy], "it is not the node's yet");
    release.send(()).unwrap();
    setting.bed.pass(200);
    let mut refused = setting.stripe.clone();
    refused.generation.0 += 1;
    assert_eq!(setting.now(), refused, "nodes were told that generation");
}

#[test]
fn nothing_moves_while_a_chunk_is_lost() {
    let mut setting = Setting::new();
    let lost = setting.stripe.nodes[5];
    setting.bed.fail(&[lost]);
    setting.bed.take_log();
    setting.group();
    assert_eq!(setting.bed.take_log(), []);
    assert_eq!(setting.now(), setting.stripe);
}
