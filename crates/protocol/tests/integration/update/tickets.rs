//! Tickets: a node serves a client's request only with a ticket for it, and members' requests without.

use crate::update::bed::{Bed, CHUNK_BYTES, FILE, STRIPE, update_of};
use bytes::Bytes;
use gabion_layout::{
    ByteRange, ChunkIndex, Epoch, Generation, Keeping, NodeId, RunId, Sequence, Slices, StripeId,
};
use gabion_meta::{PutId, Secret, TicketKey};
use gabion_plan::{Part, PartStep, Step, StepOrder, ValueId};
use gabion_protocol::message::{
    AttestedCut, Effect, NodeReply, NodeRequest, Purpose, ReadCut, Refusal, RunPart, RunQuestion,
    Ticket, TicketFault, ask,
};
use gabion_protocol::ports::{Asker, Ports as _};
use gabion_protocol::ticket::{Grant, Operations, ReadyKey};

/// For how long nodes without a lease accept expired tickets, on the bed.
pub(crate) const TICKET_GRACE_MS: u64 = 10_000;
const EXPIRES_MS: u64 = 1_000;
const BYTES: &[u8] = b"new bytes";

/// The key with this number, on the bed.
pub(crate) fn ticket_key(number: u32) -> TicketKey {
    TicketKey {
        number,
        secret: Secret([number as u8 + 1; 32]),
        drawn_ms: 0,
    }
}

fn grant(operations: Operations) -> Grant {
    Grant {
        put: FILE,
        first: STRIPE,
        count: 1,
        generation: Generation(1),
        operations,
    }
}

fn sign(grant: Grant) -> Ticket {
    ReadyKey::new(&ticket_key(0)).sign(grant, EXPIRES_MS)
}

fn ticket(operations: Operations) -> Ticket {
    sign(grant(operations))
}

fn stage(run: u64, ticket: Option<Ticket>) -> NodeRequest {
    let stage = ask::Stage {
        run: RunId(run),
        stripe: STRIPE,
        chunk: ChunkIndex(0),
        offset: 0,
        bytes: Bytes::from_static(BYTES),
        ticket,
    };
    stage.into()
}

fn update(run: u64, ticket: Option<Ticket>) -> NodeRequest {
    let update = update_of(run, 0, BYTES.len(), &[], Generation(1));
    ask::Update { ticket, ..update }.into()
}

fn mark(_: u64, ticket: Option<Ticket>) -> NodeRequest {
    let mark = ask::Mark {
        stripe: STRIPE,
        settle: false,
        decode: Vec::new(),
        ticket,
    };
    mark.into()
}

fn fate(run: u64, ticket: Option<Ticket>) -> NodeRequest {
    let question = RunQuestion {
        stripe: STRIPE,
        generation: Generation(1),
        run: RunId(run),
        after: Sequence(0),
        chunks: vec![ChunkIndex(0)],
    };
    ask::Fate { question, ticket }.into()
}

/// A part of chunk 0 that reads it, or makes it of nothing.
fn part(run: u64, effect: Effect, ticket: Option<Ticket>) -> NodeRequest {
    let (node, chunk) = (NodeId(0), ChunkIndex(0));
    let slices = Slices::whole(ByteRange::new(0, CHUNK_BYTES));
    let read = |step| PartStep {
        id: ValueId(0),
        slices,
        step,
    };
    let is_read = effect == Effect::None;
    let steps = vec![read(Step::Read {
        node,
        chunk,
        slices,
    })];
    let part = Part {
        stripe: STRIPE,
        node,
        holds: Some(chunk),
        chunk_bytes: CHUNK_BYTES,
        keeping: Keeping::InPlace,
        order: StepOrder::default(),
        steps: if is_read { steps } else { Vec::new() },
    };
    NodeRequest::RunPart(Box::new(RunPart {
        run: RunId(run),
        joined: Vec::new(),
        part,
        epoch: Epoch(0),
        generation: Generation(1),
        cut: ReadCut::Committed(Epoch(0), Sequence(0)),
        effect,
        purpose: Purpose::Client,
        spread_ms: 0,
        deadline_ms: 1_000,
        stall_ms: None,
        ticket,
    }))
}

fn read(run: u64, ticket: Option<Ticket>) -> NodeRequest {
    part(run, Effect::None, ticket)
}

fn install(run: u64, ticket: Option<Ticket>) -> NodeRequest {
    let base = Sequence(0);
    part(run, Effect::Install { base }, ticket)
}

type Request = fn(u64, Option<Ticket>) -> NodeRequest;

/// Each request that needs a ticket, with the operation.
const REQUESTS: [(Request, Operations); 6] = [
    (stage, Operations::UPDATE),
    (update, Operations::UPDATE),
    (fate, Operations::UPDATE),
    (mark, Operations::READ),
    (read, Operations::READ),
    (install, Operations::INSTALL),
];

fn fault_of(reply: &NodeReply) -> Option<TicketFault> {
    match reply {
        NodeReply::Refused(Refusal::Ticket(fault))
        | NodeReply::NotBegun(Refusal::Ticket(fault)) => Some(*fault),
        _ => None,
    }
}

#[test]
fn each_request_of_a_client_needs_a_ticket_of_its_own_kind() {
    let bed = Bed::new(&[]);
    let all = [Operations::READ, Operations::UPDATE, Operations::INSTALL];
    for (request, operation) in REQUESTS {
        let fault = |run, ticket| fault_of(&bed.ask_as(Asker::User, 0, request(run, ticket)));
        assert_eq!(fault(1, None), Some(TicketFault::Missing));
        for other in all.into_iter().filter(|&other| other != operation) {
            let wrong = Some(TicketFault::OtherOperation);
            assert_eq!(fault(1, Some(ticket(other))), wrong);
        }
        let stripe = Grant {
            first: StripeId(STRIPE.0 + 1),
            ..grant(operation)
        };
        assert_eq!(fault(1, Some(sign(stripe))), Some(TicketFault::OtherStripe));
        let mut forged = ticket(operation);
        forged.mac[15] ^= 1;
        assert_eq!(fault(1, Some(forged)), Some(TicketFault::Forged));
        assert_eq!(fault(2, Some(ticket(operation))), None, "it is served");
        let member = bed.ask_as(Asker::Member, 0, request(3, None));
        assert_eq!(fault_of(&member), None);
    }
}

#[test]
fn a_ticket_of_another_generation_or_file_is_refused_where_the_request_names_it() {
    let bed = Bed::new(&[]);
    let fault = |request| fault_of(&bed.ask_as(Asker::User, 0, request));
    for (request, operation) in [
        (update as Request, Operations::UPDATE),
        (read, Operations::READ),
        (install, Operations::INSTALL),
    ] {
        let generation = Generation(2);
        let other = Grant {
            generation,
            ..grant(operation)
        };
        assert_eq!(
            fault(request(1, Some(sign(other)))),
            Some(TicketFault::OtherGeneration)
        );
    }
    let other = Grant {
        put: PutId(FILE.0 + 1),
        ..grant(Operations::UPDATE)
    };
    assert_eq!(
        fault(update(1, Some(sign(other)))),
        Some(TicketFault::OtherFile)
    );
}

/// A refused update must not leave its client in doubt.
#[test]
fn an_update_without_a_ticket_has_not_begun() {
    let bed = Bed::new(&[]);
    let operations = Operations::OF_FILE;
    bed.ask_as(Asker::User, 0, stage(1, Some(ticket(operations))));
    let refused = bed.ask_as(Asker::User, 0, update(1, None));
    let missing = Refusal::Ticket(TicketFault::Missing);
    assert_eq!(refused, NodeReply::NotBegun(missing));
    let done = bed.ask_as(Asker::User, 0, update(1, Some(ticket(operations))));
    let sequence = Sequence(1);
    assert_eq!(done, NodeReply::Updated { sequence });
}

#[test]
fn an_expired_ticket_is_good_while_the_node_is_cut_off() {
    let bed = Bed::new(&[]);
    bed.grant_leases_of(EXPIRES_MS + 500, 0);
    bed.join_again(0);
    let cut = ReadCut::Attested(AttestedCut::of_term(Epoch(0), Sequence(0)));
    let attested = |run| match read(run, Some(ticket(Operations::READ))) {
        NodeRequest::RunPart(mut part) => {
            part.cut = cut;
            NodeRequest::RunPart(part)
        }
        other => other,
    };
    let fault_at = |now_ms, run| {
        bed.pass(now_ms - bed.ports(0).now_ms());
        fault_of(&bed.ask_as(Asker::User, 0, attested(run)))
    };
    assert_eq!(fault_at(EXPIRES_MS - 1, 1), None);
    assert_eq!(fault_at(EXPIRES_MS, 2), Some(TicketFault::Expired));
    // Its lease is over.
    assert_eq!(fault_at(EXPIRES_MS + 500, 3), None);
    let over_ms = EXPIRES_MS + TICKET_GRACE_MS;
    assert_eq!(fault_at(over_ms - 1, 4), None);
    assert_eq!(fault_at(over_ms, 5), Some(TicketFault::Expired));
}

#[test]
fn a_node_learns_new_keys_with_its_heartbeat() {
    let bed = Bed::new(&[]);
    let fault = |key: u32| {
        let ticket = ReadyKey::new(&ticket_key(key)).sign(grant(Operations::READ), EXPIRES_MS);
        fault_of(&bed.ask_as(Asker::User, 0, mark(0, Some(ticket))))
    };
    assert_eq!((fault(0), fault(1)), (None, Some(TicketFault::UnknownKey)));
    bed.change_ticket_key(1);
    bed.heartbeat(0);
    assert_eq!((fault(0), fault(1)), (Some(TicketFault::Expired), None));
}
