//! Stripes in their append phase: what is settled and committed before anything is repaired, and which
//! nodes are waited for.

use crate::coordinator::bed::{Asked, Bed, chunk_on};
use futures::FutureExt;
use futures::future::ready;
use gabion_codec::Code;
use gabion_layout::{
    AppendSpec, ByteRange, ChunkIndex, Epoch, Geometry, NodeId, Sequence, StripeRecord, Topology,
    UpdateScheme,
};
use gabion_meta::{Exclusion, StoodUpdate};
use gabion_planner::Stripe;
use gabion_planner::update::cau;
use gabion_protocol::message::{
    Applicant, CoordinatorReply, CoordinatorRequest, Effect, HeldChunk, Holding, NodeReply,
    NodeRequest, PoolRequest, RepairOrder, ask,
};
use gabion_store::{AppendedPiece, AppendedState, AppendedSummary, UpdateStamp};
use std::sync::Arc;

const CHUNK_BYTES: u64 = 1 << 20;
/// The last update that was appended.
const LAST: Sequence = Sequence(8);

/// The node with the one copy of what is appended to a data chunk.
fn keeper(stripe: &StripeRecord, data: ChunkIndex) -> NodeId {
    let code: Code = "rs(4,2)".parse().unwrap();
    let stripe = Stripe {
        id: stripe.id,
        code: &code,
        geometry: Geometry::new(4, 2, 1, CHUNK_BYTES).unwrap(),
        placement: &stripe.nodes,
        lost: &[],
    };
    cau::keepers(&stripe, &Topology::uniform(3, 3), data, 1).unwrap()[0]
}

/// Has the primary of a stripe begin an append phase; its term.
fn begin_phase(bed: &mut Bed, stripe: &StripeRecord) -> Epoch {
    let CoordinatorReply::Lease(lease) = bed.acquire(stripe.id, stripe.nodes[0]) else {
        panic!("no other node has it")
    };
    let noted = bed.ask(ask::NotePhase {
        stripe: stripe.id,
        epoch: lease.epoch,
        mark: Sequence(0),
        appends: true,
    });
    assert_eq!(noted, CoordinatorReply::Done);
    lease.epoch
}

/// A cluster with a file of one stripe to whose first chunk something was appended: the stripe, the node
/// that keeps the copy, and the term of its primary.
fn appended(bed: &mut Bed) -> (StripeRecord, NodeId, Epoch) {
    let reply = bed.ask(CoordinatorRequest::CreatePool(PoolRequest {
        inline_bytes: 0,
        name: "p".to_owned(),
        survive: "1-rack".parse().unwrap(),
        code: Some("rs(4,2)".to_owned()),
        chunk_bytes: CHUNK_BYTES,
        update: UpdateScheme::Cau,
        reserve: None,
        append: Some(AppendSpec::default()),
        lifecycle: None,
    }));
    assert!(matches!(reply, CoordinatorReply::Pool(_)), "{reply:?}");
    let stripe = bed.put("f", 1).remove(0);
    let keeper = keeper(&stripe, ChunkIndex(0));
    let epoch = begin_phase(bed, &stripe);
    let record = AppendedSummary {
        chunk: chunk_on(&stripe, keeper),
        stamp: UpdateStamp {
            epoch,
            sequence: LAST,
        },
        pieces: vec![AppendedPiece {
            data: ChunkIndex(0),
            is_original: false,
            range: ByteRange::new(0, 100),
        }],
    };
    bed.hook(move |node, request| {
        let asked = matches!(request, NodeRequest::Collect { .. });
        asked.then(|| {
            let records = if node == keeper {
                vec![record.clone()]
            } else {
                Vec::new()
            };
            ready(Ok(NodeReply::Holding(Holding {
                mark: LAST,
                records: Vec::new(),
                appended: AppendedState {
                    covered: Sequence(0),
                    records,
                },
            })))
            .boxed()
        })
    });
    (stripe, keeper, epoch)
}

/// The effects of the parts that nodes were given, in order and each once.
fn effects(log: &[Asked]) -> Vec<Effect> {
    let effects = log.iter().filter_map(|asked| match &asked.request {
        NodeRequest::RunPart(part) => Some(part.effect.clone()),
        _ => None,
    });
    let mut effects: Vec<Effect> = effects.filter(|effect| *effect != Effect::None).collect();
    effects.dedup();
    effects
}

#[test]
fn a_keeper_that_a_failed_commit_left_out_counts_again_before_the_next() {
    let mut bed = Bed::new(3, 3);
    let (stripe, keeper, epoch) = appended(&mut bed);
    bed.fail(&[keeper]);
    // Its primary begins a commit without the keeper, which does not come to stand, for the data chunk
    // itself turns out to be damaged.
    let copy = chunk_on(&stripe, keeper);
    let noted = bed.ask(ask::NoteDegraded {
        stripe: stripe.id,
        epoch,
        since: bed.joins,
        chunks: vec![(copy.index, LAST)],
    });
    assert_eq!(noted, CoordinatorReply::Done);
    bed.report_damage(chunk_on(&stripe, stripe.nodes[0]));
    bed.pass(2_000);
    bed.take_log();
    let held = HeldChunk {
        chunk: copy,
        generation: stripe.generation,
        mark: LAST,
        epoch,
        undecided: vec![],
    };
    bed.join_holding(Some(keeper), keeper.0, keeper.0 / 3, vec![held]);
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(10_000);
    let after = bed.stripe("f");
    assert_eq!((after.stale, after.nodes), (vec![], stripe.nodes));
    let effects = effects(&bed.take_log());
    assert!(
        matches!(
            effects[..],
            [Effect::Record { .. }, Effect::Install { .. }, ..]
        ),
        "what the keeper has is committed, and then the damaged chunk is made: {effects:?}"
    );
}

#[test]
fn a_keeper_without_which_an_append_stands_is_no_copy_of_it() {
    let mut bed = Bed::new(3, 3);
    let (stripe, keeper, epoch) = appended(&mut bed);
    bed.fail(&[keeper]);
    let copy = chunk_on(&stripe, keeper);
    let last = StoodUpdate {
        epoch,
        sequence: LAST,
        participants: vec![ChunkIndex(0), copy.index],
    };
    let before = Sequence(LAST.0 - 1);
    let noted = bed.ask(ask::Settling {
        stripe: stripe.id,
        exclusion: Exclusion {
            epoch,
            nodes: vec![keeper],
            known: before,
            stood: vec![last],
        },
    });
    assert_eq!(noted, CoordinatorReply::Done);
    let held = HeldChunk {
        chunk: copy,
        generation: stripe.generation,
        mark: before,
        epoch: Epoch(0),
        undecided: vec![],
    };
    // Before the keeper has returned, the only node that has the update is gone.
    bed.fail(&[stripe.nodes[0]]);
    bed.join_holding(Some(keeper), keeper.0, keeper.0 / 3, vec![held]);
    bed.take_log();
    bed.ask(ask::RepairNow { scheme: None });
    bed.pass(10_000);
    let stale: Vec<ChunkIndex> = bed.stripe("f").stale.iter().map(|one| one.chunk).collect();
    assert!(stale.contains(&copy.index), "{stale:?}");
    assert_eq!(
        effects(&bed.take_log()),
        [],
        "nothing is committed without it"
    );
    let error = bed.status().repair.last_error.unwrap_or_default();
    assert!(error.contains("the last updates of chunk 0"), "{error}");
}

#[test]
fn a_pool_commits_in_rounds_that_say_how_much_is_left() {
    /// Longer than a round.
    const COMMIT_MS: u64 = 5_000;
    let mut bed = Bed::new(3, 3);
    let (first, ..) = appended(&mut bed);
    let mut stripes = bed.put("g", 9);
    for stripe in &stripes {
        begin_phase(&mut bed, stripe);
    }
    stripes.push(first);
    bed.unhook();
    let ports = bed.ports();
    bed.hook(move |_, request| {
        let asked = matches!(request, NodeRequest::Commit { .. });
        let ports = Arc::clone(&ports);
        let commit = async move {
            ports.sleep_ms(COMMIT_MS).await;
            Ok(NodeReply::Done)
        };
        asked.then(|| commit.boxed())
    });
    bed.take_log();
    let commit = || {
        CoordinatorRequest::CommitPool(ask::CommitPool {
            name: "p".to_owned(),
        })
    };
    assert_eq!(
        bed.ask(commit()),
        CoordinatorReply::Committing { left_count: 2 }
    );
    let asked = |log: &[Asked]| {
        let commits = log
            .iter()
            .filter(|asked| matches!(asked.request, NodeRequest::Commit { .. }));
        commits.count()
    };
    assert_eq!(asked(&bed.take_log()), 8, "so many commit at a time");
}

#[test]
fn copies_of_a_node_that_went_back_count_for_nothing() {
    let mut bed = Bed::new(3, 3);
    let (stripe, keeper, epoch) = appended(&mut bed);
    bed.ask(CoordinatorRequest::OrderRepair(RepairOrder::Pause));
    let copy = chunk_on(&stripe, keeper);
    let held = HeldChunk {
        chunk: copy,
        generation: stripe.generation,
        mark: LAST,
        epoch,
        undecided: vec![],
    };
    let number = bed.incarnation(keeper) + 1;
    let old = Applicant {
        earlier: vec![],
        ..bed.applicant(Some(keeper), keeper.0, keeper.0 / 3, number)
    };
    bed.let_in(old, vec![held]);
    let stale = bed.stripe("f").staleness(copy.index);
    assert_eq!(stale.map(|stale| stale.missed_after), Some(None));
}
