//! A chunk that is taken away from a node, and given to it again.

use crate::update::bed::{Bed, CHUNK_BYTES, STRIPE, stripe};
use gabion_layout::{ChunkId, ChunkIndex, Epoch, Generation, Geometry, Sequence};
use gabion_planner::Stripe;
use gabion_planner::repair::{self, Scheme};
use gabion_protocol::initiate::{PartFailed, RunTerms, run_between_nodes};
use gabion_protocol::message::{Effect, NodeReply, Purpose, ReadCut, Refusal, RunId, ask};

fn id(chunk: u8) -> ChunkId {
    ChunkId {
        stripe: STRIPE,
        index: ChunkIndex(chunk),
    }
}

impl Bed {
    /// Has a chunk made of data chunk 0 and the last parity chunk where it was, in a term.
    fn make(&self, chunk: u8, epoch: u64) -> Result<(), PartFailed> {
        self.make_under(epoch, chunk, epoch)
    }

    /// The same by this run.
    fn make_under(&self, run: u64, chunk: u8, epoch: u64) -> Result<(), PartFailed> {
        let (chunk, code) = (ChunkIndex(chunk), "rs(2,2)".parse().expect("a code"));
        let (placement, helpers) = (stripe().nodes, [0, 3].map(ChunkIndex));
        let lost = [chunk];
        let view = Stripe {
            id: STRIPE,
            code: &code,
            geometry: Geometry::new(2, 2, 1, CHUNK_BYTES).expect("a geometry"),
            placement: &placement,
            lost: &lost,
        };
        let place = placement[chunk.at()];
        let plan = repair::repair(&view, chunk, place, &helpers, Scheme::Pipeline, CHUNK_BYTES);
        let plan = plan.expect("two chunks are enough");
        let terms = RunTerms::new(
            RunId(run),
            (Epoch(epoch), Generation(1)),
            ReadCut::Settled(Sequence(0)),
            Effect::Install { base: Sequence(0) },
            Purpose::Repair,
            u64::MAX / 2,
        );
        let ports = self.ports(place.0);
        self.run(run_between_nodes(&ports, &plan, &terms))
    }

    /// Tells the node of a chunk, in a term, that it is not its own any more.
    fn discard(&self, chunk: u8, epoch: u64) -> NodeReply {
        let epoch = Epoch(epoch);
        self.ask(
            chunk.into(),
            ask::Discard {
                chunk: id(chunk),
                epoch,
            },
        )
    }

    /// Whether the node of a chunk has all of it.
    fn is_whole(&self, chunk: u8) -> bool {
        let scrubbed = self.ask(
            chunk.into(),
            ask::Scrub {
                chunks: vec![id(chunk)],
            },
        );
        let NodeReply::Scrubbed(found) = scrubbed else {
            panic!("{scrubbed:?}")
        };
        found.chunk_count == 1 && found.damage.is_empty()
    }
}

#[test]
fn an_order_to_discard_a_chunk_does_nothing_to_one_that_was_made_in_a_later_term() {
    let bed = Bed::new(&[]);
    assert_eq!(bed.discard(1, 4), NodeReply::Done);
    assert!(!bed.is_whole(1));
    bed.make(1, 7).unwrap();
    let current = Epoch(7);
    for late in [4, 6] {
        let refused = bed.discard(1, late);
        assert_eq!(refused, NodeReply::Refused(Refusal::Fenced { current }));
        assert!(bed.is_whole(1));
    }
    let late = bed.make(1, 6).unwrap_err();
    assert_eq!(late.refusal, Refusal::Fenced { current }, "nor replaces it");
    assert_eq!(bed.discard(1, 7), NodeReply::Done);
    assert!(!bed.is_whole(1));
    assert_eq!(bed.discard(1, 4), NodeReply::Done, "there is nothing to do");
}

#[test]
fn a_joining_node_keeps_the_file_of_a_chunk_that_is_not_its_any_more() {
    let bed = Bed::new(&[]);
    let trash = bed.rejoin_without(1, id(1));
    assert_eq!(trash.len(), 1, "{trash:?}");
    let name = gabion_store::chunk_path(id(1));
    let name = name.rsplit('/').next().unwrap();
    assert!(trash[0].starts_with(name), "{trash:?}");
    assert!(!bed.is_whole(1), "it is not served");
}

/// Outside of any term, clients store new chunks: none may take the place of one that is there, though no update has
/// ever changed it.
#[test]
fn a_chunk_that_is_stored_is_not_replaced_outside_of_a_term() {
    let bed = Bed::new(&[]);
    assert_eq!(bed.discard(1, 0), NodeReply::Done);
    bed.make(1, 0).unwrap();
    assert!(bed.is_whole(1));
    let again = bed.make_under(2, 1, 0).unwrap_err();
    assert!(matches!(&again.refusal, Refusal::Invalid(why) if why.contains("stored already")));
    bed.make_under(3, 1, 7).unwrap();
}
