//! A process finds the coordinator that leads among several addresses.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::processes::within;
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, Flow, NodeRequest, ask};
use gabion_protocol::ports::Ports as _;
use gabion_wire::{
    Connection, Endpoint, Handler, Hello, Options, PeerIdentity, ProcessPorts, Responder, Role,
    TrafficMeter,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;

const DEADLINE_MS: u64 = 60_000;

/// A coordinator that answers with its number, or not at all while it is paused.
struct Coordinator {
    number: u64,
    is_paused: AtomicBool,
    kept: Mutex<Vec<Responder<CoordinatorRequest>>>,
    asked: watch::Sender<usize>,
}

impl Handler for Coordinator {
    fn coordinator_request(
        &self,
        _: &Arc<Connection>,
        _: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        if self.is_paused.load(Ordering::Relaxed) {
            self.kept.lock().unwrap().push(responder);
        } else {
            responder.reply(&CoordinatorReply::StartAbove(self.number));
        }
        self.asked.send_modify(|count| *count += 1);
    }

    fn node_request(&self, _: &Arc<Connection>, _: NodeRequest, responder: Responder<NodeRequest>) {
        drop(responder);
    }

    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

/// Begins to listen, as one does that begins to lead.
fn lead(number: u64, listener: TcpListener) -> Arc<Coordinator> {
    let coordinator = Arc::new(Coordinator {
        number,
        is_paused: AtomicBool::new(false),
        kept: Mutex::default(),
        asked: watch::Sender::new(0),
    });
    let hello = Hello {
        cluster: None,
        role: Role::Coordinator,
        identity: PeerIdentity::default(),
    };
    let handler = Arc::clone(&coordinator) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(
        hello,
        handler,
        Options::default(),
        Arc::<TrafficMeter>::default(),
    );
    tokio::spawn(endpoint.serve(listener));
    coordinator
}

struct Nothing;

impl Handler for Nothing {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

fn client(addresses: &str) -> ProcessPorts {
    let handler = Arc::new(Nothing) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(Hello::client(), handler, Options::default(), Arc::default());
    ProcessPorts::new(Some(addresses.to_owned()), endpoint).unwrap()
}

/// The number of the coordinator that answers; none if no answer came.
async fn ask(ports: &ProcessPorts) -> Option<u64> {
    let request = CoordinatorRequest::from(ask::Nodes);
    match within(ports.call_coordinator(request, DEADLINE_MS)).await {
        Ok(CoordinatorReply::StartAbove(number)) => Some(number),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

/// An address at which nothing listens until `bind`.
async fn reserved() -> (String, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_finds_the_coordinator_that_leads() {
    let (standby, reserved_standby) = reserved().await;
    drop(reserved_standby);
    let (leader, listener) = reserved().await;
    let coordinator = lead(2, listener);
    let ports = client(&format!("{standby}, {leader}"));
    assert_eq!(ask(&ports).await, Some(2));
    // A coordinator without others may take its time.
    coordinator.is_paused.store(true, Ordering::Relaxed);
    let alone = client(&leader);
    let (slow, ()) = tokio::join!(ask(&alone), async {
        let mut asked = coordinator.asked.subscribe();
        asked.wait_for(|count| *count == 2).await.unwrap();
        let kept = std::mem::take(&mut *coordinator.kept.lock().unwrap());
        for responder in kept {
            responder.reply(&CoordinatorReply::StartAbove(2));
        }
    });
    assert_eq!(slow, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_is_left_as_soon_as_another_one_leads() {
    let (first, listener) = reserved().await;
    let old = lead(1, listener);
    let (second, reserved_second) = reserved().await;
    let ports = client(&format!("{first},{second}"));
    assert_eq!(ask(&ports).await, Some(1));
    old.is_paused.store(true, Ordering::Relaxed);
    let (lost, new) = tokio::join!(ask(&ports), async {
        // While it asks, the other one begins to lead.
        let mut asked = old.asked.subscribe();
        asked.wait_for(|count| *count == 2).await.unwrap();
        lead(2, reserved_second)
    });
    assert_eq!(lost, None, "it may have been carried out");
    assert_eq!(ask(&ports).await, Some(2));
    // The one that was paused comes back; the process stays with the other one.
    old.is_paused.store(false, Ordering::Relaxed);
    assert_eq!(ask(&ports).await, Some(2));
    assert_eq!((*old.asked.borrow(), *new.asked.borrow()), (2, 2));
}
