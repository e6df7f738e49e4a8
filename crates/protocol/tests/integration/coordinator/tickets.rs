//! Tickets that the coordinator makes, and the keys that it tells nodes.

use crate::coordinator::bed::Bed;
use gabion_layout::{NodeId, StripeRecord};
use gabion_meta::{FencingToken, PutId, SizeChange};
use gabion_protocol::coordinator::TicketTimes;
use gabion_protocol::message::{
    CoordinatorReply, FileLayout, NewExtent, NodeHealth, Ticket, TicketFault, TicketKeys, ask,
};
use gabion_protocol::ticket::{Claim, Keyring, Operations};

const TIMES: TicketTimes = TicketTimes {
    rotate_ms: 10_000,
    lead_ms: 1_000,
    grace_ms: 0,
};

/// A cluster whose keys change soon.
fn bed() -> Bed {
    let mut bed = Bed::three_racks();
    bed.change_keys_each(TIMES);
    bed
}

fn keys(bed: &mut Bed) -> TicketKeys {
    let node = NodeId(3);
    let told = bed.ask(ask::Heartbeat {
        node,
        incarnation: bed.incarnation(node),
        heard: None,
        position: 0,
        health: NodeHealth::default(),
    });
    match told {
        CoordinatorReply::Alive { keys, .. } => keys,
        other => panic!("{other:?}"),
    }
}

/// Checks a ticket for a stripe as a node does that has just heard of these keys.
fn check(
    keys: &TicketKeys,
    tickets: &[Ticket],
    (put, stripe): (PutId, &StripeRecord),
    operation: Operations,
) -> Result<(), TicketFault> {
    let mut keyring = Keyring::default();
    keyring.learn(keys.clone(), 0);
    let claim = Claim {
        operation,
        stripe: stripe.id,
        generation: Some(stripe.generation),
        file: Some(put),
        ticket: Ticket::find(tickets, stripe.id),
    };
    keyring.check(&claim, 0, false)
}

fn look(bed: &mut Bed) -> FileLayout {
    let name = "f".to_owned();
    match bed.ask(ask::Lookup { name }) {
        CoordinatorReply::File(layout) => *layout,
        other => panic!("{other:?}"),
    }
}

/// Checks each operation on a stripe with these tickets as a node does.
fn permitted(
    bed: &mut Bed,
    tickets: &[Ticket],
    (put, stripe): (PutId, &StripeRecord),
) -> [Result<(), TicketFault>; 3] {
    let keys = keys(bed);
    let all = [Operations::READ, Operations::UPDATE, Operations::INSTALL];
    all.map(|operation| check(&keys, tickets, (put, stripe), operation))
}

#[test]
fn a_reader_s_tickets_permit_no_install_and_a_put_s_nothing_else() {
    let mut bed = bed();
    bed.put("f", 3);
    let no = Err(TicketFault::OtherOperation);
    let layout = look(&mut bed);
    assert_eq!(layout.tickets.len(), 1, "their ids are consecutive");
    let file = layout.file.put;
    for stripe in &layout.stripes {
        let permitted = permitted(&mut bed, &layout.tickets, (file, stripe));
        assert_eq!(permitted, [Ok(()), Ok(()), no]);
    }
    let old = &layout.stripes[1];
    let replaced = bed.ask(ask::BeginReplace {
        file,
        displaced: vec![(layout.offsets[1], old.id)],
        extents: vec![NewExtent {
            offset: layout.offsets[1],
            chunk_bytes: old.chunk_bytes,
        }],
        size: SizeChange::AtLeast(0),
        inline: None,
        token: FencingToken::default(),
    });
    let CoordinatorReply::Replacement(begun) = replaced else {
        panic!("{replaced:?}")
    };
    let settled = (file, &begun.settled[0].stripe);
    let of_old = permitted(&mut bed, &begun.tickets, settled);
    assert_eq!(of_old, [Ok(()), no, no]);
    let of_new = permitted(&mut bed, &begun.tickets, (begun.put.id, &begun.stripes[0]));
    assert_eq!(of_new, [no, no, Ok(())]);
    let (put, stripes) = bed.begin_put("g", 4 << 20);
    let failed = stripes[0].id;
    let again = bed.ask(ask::PlaceAnew {
        put,
        first: failed,
        failed: None,
        avoid: Vec::new(),
    });
    let CoordinatorReply::Put(places) = again else {
        panic!("{again:?}")
    };
    assert_eq!(places.stripes, stripes[..1], "a new ticket alone");
    let of_same = permitted(&mut bed, &places.tickets, (put.id, &places.stripes[0]));
    assert_eq!(of_same, [no, no, Ok(())]);
    let again = bed.ask(ask::PlaceAnew {
        put,
        first: failed,
        failed: Some(failed),
        avoid: vec![stripes[0].nodes[0]],
    });
    let CoordinatorReply::Put(places) = again else {
        panic!("{again:?}")
    };
    let of_next = permitted(&mut bed, &places.tickets, (put.id, &places.stripes[0]));
    assert_eq!(of_next, [no, no, Ok(())]);
    assert_eq!(Ticket::find(&places.tickets, failed), None);
}

#[test]
fn a_ticket_is_good_until_it_expires_however_often_keys_change() {
    let mut bed = bed();
    bed.put("f", 1);
    let mut expired_count = 0;
    // Steps that meet every phase of the period.
    for _ in 0..9 {
        let layout = look(&mut bed);
        let (put, stripe) = (layout.file.put, layout.stripes[0].clone());
        let check = |bed: &mut Bed| {
            let keys = keys(bed);
            check(&keys, &layout.tickets, (put, &stripe), Operations::READ)
        };
        assert_eq!(check(&mut bed), Ok(()));
        bed.pass(TIMES.lifetime_ms() - 200);
        assert_eq!(check(&mut bed), Ok(()));
        bed.pass(400);
        expired_count += u32::from(check(&mut bed) == Err(TicketFault::Expired));
        bed.pass(1_900);
    }
    assert!(
        expired_count >= 7,
        "in {expired_count} of 9 cases a key was live longer"
    );
    let told = keys(&mut bed).keys;
    assert_eq!(told.len(), 2);
    assert!(told[1].number >= 7, "{told:?}");
}

#[test]
fn a_restarted_coordinator_has_the_keys_of_the_last() {
    let mut bed = bed();
    bed.put("f", 1);
    bed.pass(12_000);
    let layout = look(&mut bed);
    let (put, stripe) = (layout.file.put, layout.stripes[0].clone());
    let before = keys(&mut bed);
    bed.restart();
    bed.pass(1_000);
    let after = keys(&mut bed);
    assert_eq!(after.keys, before.keys);
    let checked = check(&after, &layout.tickets, (put, &stripe), Operations::READ);
    assert_eq!(checked, Ok(()));
    let forgotten_ms = before.now_ms.saturating_sub(after.now_ms);
    assert!(forgotten_ms <= TIMES.rotate_ms / 16, "{forgotten_ms} ms");
}
