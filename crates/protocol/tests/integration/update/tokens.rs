//! Fencing tokens: a primary refuses updates of clients that a session has fenced out.

use crate::update::bed::{Bed, FILE, STRIPE};
use gabion_layout::Epoch;
use gabion_meta::FencingToken;
use gabion_protocol::message::{NodeReply, Refusal, ask};

const OLD: FencingToken = FencingToken(0);
const NEW: FencingToken = FencingToken(1);
const BYTES: &[u8] = b"new bytes";

fn superseded() -> NodeReply {
    NodeReply::NotBegun(Refusal::Superseded { current: NEW })
}

fn raise() -> ask::RaiseTokens {
    ask::RaiseTokens {
        tokens: [(FILE, NEW)].into(),
    }
}

/// Stages bytes and asks for the update.
fn write(bed: &Bed, run: u64, token: FencingToken) -> NodeReply {
    bed.stage(0, run, 0, BYTES);
    bed.update_under(run, token, BYTES.len())
}

#[test]
fn a_raised_token_refuses_lower_ones() {
    let bed = Bed::new(&[]);
    assert!(matches!(write(&bed, 1, OLD), NodeReply::Updated { .. }));
    bed.set_token(NEW);
    assert_eq!(
        bed.ask(0, raise()),
        NodeReply::Raised(vec![(STRIPE, Epoch(1))])
    );
    assert_eq!(write(&bed, 2, OLD), superseded());
    assert!(matches!(write(&bed, 3, NEW), NodeReply::Updated { .. }));
    assert_eq!(
        bed.ask(1, raise()),
        NodeReply::Raised(vec![]),
        "it is no primary of the file"
    );
}

#[test]
fn a_primary_learns_the_token_with_its_lease() {
    let bed = Bed::new(&[]);
    bed.set_token(NEW);
    assert_eq!(write(&bed, 1, OLD), superseded());
}

#[test]
fn a_client_that_knows_a_higher_token_makes_the_primary_ask() {
    let bed = Bed::new(&[]);
    assert!(matches!(write(&bed, 1, OLD), NodeReply::Updated { .. }));
    bed.set_token(NEW);
    assert!(matches!(write(&bed, 2, NEW), NodeReply::Updated { .. }));
    assert_eq!(write(&bed, 3, OLD), superseded());
}

#[test]
fn a_node_that_was_away_asks_for_the_token_again() {
    let bed = Bed::new(&[]);
    assert!(matches!(write(&bed, 1, OLD), NodeReply::Updated { .. }));
    // The node is declared failed, so the coordinator does not tell it of the session.
    bed.set_token(NEW);
    bed.join_again(0);
    assert_eq!(write(&bed, 2, OLD), superseded());
}

#[test]
fn a_token_is_raised_when_the_update_before_it_is_over() {
    let bed = Bed::new(&[]);
    assert!(
        bed.raise_waits_for_stuck_update(BYTES, raise()),
        "the update may yet take effect"
    );
}
