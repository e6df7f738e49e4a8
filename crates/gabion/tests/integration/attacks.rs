//! Attacks that once were possible on a cluster of real processes, with and without certificates: delete the chunks of
//! a node by one message, fence out every later primary, fill a node's memory with slices of unknown runs, and, as a
//! client, read and write stripes for which it has no ticket.

use crate::support::{TestCluster, pattern};
use bytes::Bytes;
use gabion_client::Client;
use gabion_layout::{
    COUNT_MAX, ChunkId, ChunkIndex, Epoch, Generation, Keeping, NodeId, Sequence, StripeRecord,
};
use gabion_meta::{Existing, FencingToken, NewAttributes, PutId};
use gabion_plan::{Part, StepOrder};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Effect, Flow, NodeReply, NodeRequest, NodeStatus,
    OpenPut, Purpose, PutPlaces, ReadCut, Refusal, RunId, RunPart, Ticket, TicketFault, ask,
};
use gabion_protocol::ticket::Operations;
use gabion_wire::trust::Security;
use gabion_wire::{Connection, Endpoint, Handler, Hello, Options};
use serde_json::Value;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const BYTES: usize = 3 << 20;
/// Bytes of slices of unknown runs that the attacker sends, far more than a node keeps.
const FLOOD_BYTES: usize = 1 << 30;
const SLICE_BYTES: usize = 1 << 20;
/// Most memory of a node with them, and with the memory that it has anyway.
const MEMORY_MAX_KIB: u64 = (256 + 128) << 10;

/// Takes part in no runs.
struct Nothing;

impl Handler for Nothing {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

/// A process with a client's certificate, or one that says that it is a client.
fn attacker(security: Security) -> Arc<Endpoint> {
    let hello = Hello::client();
    let options = Options {
        security,
        ..Options::default()
    };
    let handler = Arc::new(Nothing) as Arc<dyn Handler>;
    Endpoint::new(hello, handler, options, Arc::default())
}

fn deadline() -> Instant {
    Instant::now() + Duration::from_mins(2)
}

/// The requests that delete, fence or settle.
fn attacks(chunk: ChunkId) -> Vec<NodeRequest> {
    let stripe = chunk.stripe;
    let (epoch, generation) = (Epoch::LAST, Generation(COUNT_MAX));
    vec![
        NodeRequest::from(ask::Remove {
            chunks: vec![chunk],
        }),
        ask::Discard { chunk, epoch }.into(),
        ask::Collect {
            stripe,
            epoch,
            generation,
        }
        .into(),
        ask::Fence {
            stripe,
            epoch,
            generation,
        }
        .into(),
        ask::Resolve {
            stripe,
            epoch,
            mark: Sequence(COUNT_MAX),
            dropped: Vec::new(),
        }
        .into(),
    ]
}

/// Memory of a node's process, in KiB.
fn memory_kib(cluster: &TestCluster, node: u32) -> u64 {
    let running = fs::read(cluster.path(&format!("cluster/run/node-{node}"))).expect("it runs");
    let running: Value = serde_json::from_slice(&running).expect("its file is JSON");
    let status = fs::read_to_string(format!("/proc/{}/status", running["pid"]));
    let status = status.expect("the process is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.expect("Linux tells it").split_whitespace().nth(1);
    words.and_then(|kib| kib.parse().ok()).expect("a number")
}

async fn attack(cluster: &TestCluster, as_client: Security, as_operator: Security) {
    let coordinator = cluster.coordinator();
    let options = gabion_client::ClientOptions::default();
    let client = gabion_wire::connect(&coordinator, as_operator, options).await;
    let client = client.expect("the coordinator answers");
    let layout = client.layout("f").await.expect("the file is there");
    let endpoint = attacker(as_client);
    for stripe in &layout.stripes {
        for (at, node) in stripe.nodes.iter().enumerate() {
            let connection = reach(&endpoint, &layout.nodes, *node).await;
            let index = ChunkIndex(at as u8);
            let stripe = stripe.id;
            for request in attacks(ChunkId { stripe, index }) {
                let answer = connection.call_node(&request, deadline()).await;
                let error = answer.expect_err("it is refused").to_string();
                assert!(
                    error.contains("a client may not send this request"),
                    "{error}"
                );
            }
            connection.close("it has tried all");
        }
    }
    use_tickets(&endpoint, &client, &coordinator).await;
    let first = layout.nodes.iter().find(|status| status.node == NodeId(0));
    flood(&endpoint, &first.expect("node 0 is a member").address).await;
}

/// The attacker's connection to a node.
async fn reach(endpoint: &Arc<Endpoint>, nodes: &[NodeStatus], node: NodeId) -> Arc<Connection> {
    let status = nodes.iter().find(|status| status.node == node);
    let address = &status.expect("the node is known").address;
    let connection = Connection::connect(address, endpoint).await;
    connection.expect("the attacker reaches the node")
}

/// Returns a client's possible requests to the node of a stripe's first chunk, each with the operation that its ticket
/// must permit.
fn client_requests(
    stripe: &StripeRecord,
    ticket: Option<Ticket>,
) -> [(NodeRequest, Operations); 5] {
    let (id, generation, run) = (stripe.id, stripe.generation, RunId(1));
    let (chunk, node) = (ChunkIndex(0), stripe.nodes[0]);
    let part = |effect| {
        NodeRequest::RunPart(Box::new(RunPart {
            run,
            joined: Vec::new(),
            part: Part {
                stripe: id,
                node,
                holds: Some(chunk),
                chunk_bytes: stripe.chunk_bytes,
                keeping: Keeping::InPlace,
                order: StepOrder::default(),
                steps: Vec::new(),
            },
            epoch: Epoch(0),
            generation,
            cut: ReadCut::Committed(Epoch(0), Sequence(0)),
            effect,
            purpose: Purpose::Client,
            spread_ms: 0,
            deadline_ms: 1_000,
            stall_ms: None,
            ticket,
        }))
    };
    let (stage, update, mark) = (
        ask::Stage {
            run,
            stripe: id,
            chunk,
            offset: 0,
            bytes: Bytes::from_static(b"theirs"),
            ticket,
        },
        ask::Update {
            run,
            stripe: id,
            generation,
            ranges: Vec::new(),
            substitutes: Vec::new(),
            file: PutId(u64::MAX),
            token: FencingToken(0),
            ticket,
        },
        ask::Mark {
            stripe: id,
            settle: false,
            decode: Vec::new(),
            ticket,
        },
    );
    let base = Sequence(0);
    [
        (stage.into(), Operations::UPDATE),
        (update.into(), Operations::UPDATE),
        (mark.into(), Operations::READ),
        (part(Effect::None), Operations::READ),
        (part(Effect::Install { base }), Operations::INSTALL),
    ]
}

/// Begins a put of 1 MiB, and never ends it.
async fn begin_put(connection: &Connection, name: &str) -> PutPlaces {
    let request = ask::BeginPut {
        at: name.into(),
        existing: Existing::Stays,
        pool: None,
        size_bytes: 1 << 20,
        attributes: NewAttributes::FILE,
        whole: None,
        opener: None,
    };
    let reply = connection
        .call_coordinator(&request.into(), deadline())
        .await;
    match reply.expect("the coordinator answers") {
        CoordinatorReply::Put(places) => *places,
        other => panic!("{other:?}"),
    }
}

/// Asks for the stripes of a file and of another client's put without a ticket, and with tickets that are not for that.
async fn use_tickets(endpoint: &Arc<Endpoint>, victim: &Client, coordinator: &str) {
    let connection = Connection::connect(coordinator, endpoint).await;
    let asking = connection.expect("the attacker reaches the coordinator");
    let theirs = begin_put(&asking, "theirs").await;
    let open = begin_put(&asking, "open").await;
    let layout = victim.layout("f").await.expect("the file is there");
    let stored = &layout.stripes[0];
    let own = Ticket::find(&layout.tickets, stored.id).expect("its reader has a ticket");
    let store = theirs.tickets[0];
    let later = Ticket {
        expires_ms: own.expires_ms + 1,
        ..own
    };
    let moved = StripeRecord {
        generation: Generation(stored.generation.0 + 1),
        ..stored.clone()
    };
    for (stripe, ticket, operations, fault) in [
        (stored, None, None, TicketFault::Missing),
        (stored, Some(later), None, TicketFault::Forged),
        (stored, Some(store), None, TicketFault::OtherStripe),
        (
            &open.stripes[0],
            Some(store),
            None,
            TicketFault::OtherStripe,
        ),
        (&open.stripes[0], Some(own), None, TicketFault::OtherStripe),
        (
            stored,
            Some(own),
            Some(Operations::INSTALL),
            TicketFault::OtherOperation,
        ),
        (
            &theirs.stripes[0],
            Some(store),
            Some(Operations::UPDATE),
            TicketFault::OtherOperation,
        ),
        (
            &theirs.stripes[0],
            Some(store),
            Some(Operations::READ),
            TicketFault::OtherOperation,
        ),
    ] {
        let connection = reach(endpoint, &layout.nodes, stripe.nodes[0]).await;
        for (request, operation) in client_requests(stripe, ticket) {
            if operations.is_none_or(|only| only == operation) {
                check_fault(&connection, &request, fault).await;
            }
        }
    }
    let connection = reach(endpoint, &layout.nodes, stored.nodes[0]).await;
    let [_, update, _, read, _] = client_requests(&moved, Some(own)).map(|(request, _)| request);
    for request in [update, read] {
        check_fault(&connection, &request, TicketFault::OtherGeneration).await;
    }
    interfere(&asking, (open.put, theirs.put), &open.stripes[0]).await;
    // The file's number in the request is another one.
    let [_, update, ..] = client_requests(stored, Some(own)).map(|(request, _)| request);
    check_fault(&connection, &update, TicketFault::OtherFile).await;
}

/// Names another client's put as if it were one's own.
async fn interfere(
    coordinator: &Connection,
    (victim, own): (OpenPut, OpenPut),
    stripe: &StripeRecord,
) {
    let mut put = own;
    put.id = victim.id;
    let anew = ask::PlaceAnew {
        put,
        first: stripe.id,
        failed: None,
        avoid: Vec::new(),
    };
    let requests: [CoordinatorRequest; 4] = [
        anew.into(),
        ask::TouchPut(put).into(),
        ask::CommitPut(put).into(),
        ask::AbortPut(put).into(),
    ];
    for request in requests {
        let reply = coordinator.call_coordinator(&request, deadline()).await;
        let reply = reply.expect("the coordinator answers");
        let CoordinatorReply::Refused(denial) = &reply else {
            panic!("{request:?}: {reply:?}")
        };
        assert!(
            denial.sentence.contains("not begun by this client"),
            "{denial:?}"
        );
    }
    let touch = CoordinatorRequest::TouchPut(victim);
    let touched = coordinator.call_coordinator(&touch, deadline()).await;
    let touched = touched.expect("the coordinator answers");
    assert_eq!(
        touched,
        CoordinatorReply::Done,
        "its own client may, and it is there"
    );
}

async fn check_fault(connection: &Connection, request: &NodeRequest, fault: TicketFault) {
    let reply = connection.call_node(request, deadline()).await;
    let refusal = Refusal::Ticket(fault);
    let expected = match request {
        NodeRequest::Update(_) => NodeReply::NotBegun(refusal),
        _ => NodeReply::Refused(refusal),
    };
    assert_eq!(reply.expect("the node answers"), expected, "{request:?}");
}

/// Sends slices of runs that no node knows, and waits until they have arrived.
async fn flood(endpoint: &Arc<Endpoint>, address: &str) {
    let connection = Connection::connect(address, endpoint).await;
    let connection = connection.expect("the attacker reaches the node");
    let bytes = Bytes::from(vec![1; SLICE_BYTES]);
    for number in 0..(FLOOD_BYTES / SLICE_BYTES) as u64 {
        let flow = Flow::Slice {
            run: RunId(number),
            value: gabion_plan::ValueId(0),
            slice: 0,
            purpose: Purpose::Update,
            bytes: bytes.clone(),
        };
        let sent = connection.send_flow(flow).await;
        sent.expect("the node reads");
    }
    let stripe = gabion_layout::StripeId(1);
    let request = NodeRequest::from(ask::Attest { stripe });
    let answer = connection.call_node(&request, deadline());
    // The request may overtake the last slices, but not by more than the connection queues.
    answer.await.expect("the node answers");
}

/// Attacks a cluster; nothing of it may have had an effect.
fn check(cluster: &TestCluster, security: impl Fn(&str) -> Security) {
    cluster.run(&["pool", "create", "vm", "--code=rs(4,2)", "--chunk=256KiB"]);
    let mut bytes = pattern(BYTES, 3);
    cluster.put("f", &bytes);
    let runtime = tokio::runtime::Runtime::new().expect("a run-time");
    runtime.block_on(attack(cluster, security("client"), security("operator")));
    let held_kib = memory_kib(cluster, 0);
    assert!(held_kib < MEMORY_MAX_KIB, "the node holds {held_kib} KiB");
    assert!(cluster.get("f") == bytes, "the chunks are whole");
    // Each stripe gets a primary, whose term no attacker has fenced out.
    let patch = pattern(4096, 4);
    for offset in (0..BYTES).step_by(512 << 10) {
        cluster.write("f", offset, &patch);
        bytes[offset..offset + patch.len()].copy_from_slice(&patch);
    }
    assert!(cluster.get("f") == bytes, "updates go on");
}

#[test]
fn a_client_s_certificate_deletes_fences_and_fills_nothing() {
    let cluster = TestCluster::start(3, 2);
    let directory = cluster.path("attacker");
    let out = format!("--out={}", directory.display());
    cluster.run(&["cert", "issue", "client", &out]);
    check(&cluster, |role| match role {
        "client" => Security::open(&directory).expect("it was issued"),
        _ => cluster.security(),
    });
    // Without a certificate there is not even a connection.
    let runtime = tokio::runtime::Runtime::new().expect("a run-time");
    let endpoint = attacker(Security::insecure());
    let connected = runtime.block_on(Connection::connect(&cluster.coordinator(), &endpoint));
    let error = connected.map(drop).expect_err("it has no certificate");
    assert!(error.to_string().contains("wants TLS"), "{error}");
}

#[test]
fn a_client_without_certificates_deletes_fences_and_fills_nothing() {
    let behaviour = ["--insecure", "--lease-ms=1000", "--grace-s=3600"];
    let cluster = TestCluster::start_with(3, 2, &behaviour);
    check(&cluster, |_| Security::insecure());
}
