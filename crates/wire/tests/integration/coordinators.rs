//! A process finds the coordinator that leads among several addresses.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::processes::{FAR_MS, patient, within};
use gabion_meta::ClusterId;
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, Denial, Flow, NodeRequest, ask,
};
use gabion_protocol::ports::Ports as _;
use gabion_wire::{
    Connection, Endpoint, Handler, Hello, PeerIdentity, ProcessPorts, Responder, Role,
    TrafficMeter, WireError,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Longer than a process waits before it doubts that its coordinator leads.
const SLOW: Duration = Duration::from_millis(1_500);

/// A coordinator that answers with its number.
struct Coordinator {
    number: u64,
    pace: Mutex<Pace>,
    kept: Mutex<Vec<Responder<CoordinatorRequest>>>,
    asked: watch::Sender<usize>,
    serving: Mutex<Option<AbortHandle>>,
}

#[derive(Clone, Copy)]
enum Pace {
    AtOnce,
    Slow,
    /// It says that it may not lead.
    Away,
    /// Never.
    Paused,
}

impl Coordinator {
    fn set(&self, pace: Pace) {
        *self.pace.lock().unwrap() = pace;
    }

    /// Answers no more, and takes no new connections; the open ones stay.
    fn pause(&self) {
        self.set(Pace::Paused);
        self.serving.lock().unwrap().take().unwrap().abort();
    }
}

impl Handler for Coordinator {
    fn coordinator_request(
        &self,
        _: &Arc<Connection>,
        _: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let answer = CoordinatorReply::StartAbove(self.number);
        match *self.pace.lock().unwrap() {
            Pace::AtOnce => responder.reply(&answer),
            Pace::Slow => {
                tokio::spawn(async move {
                    tokio::time::sleep(SLOW).await;
                    responder.reply(&answer);
                });
            }
            Pace::Away => {
                let denial = Denial::new(Cause::NotLeading, "its database does not answer");
                responder.reply(&CoordinatorReply::Busy(denial));
            }
            Pace::Paused => self.kept.lock().unwrap().push(responder),
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
    lead_of(None, number, listener)
}

fn lead_of(cluster: Option<ClusterId>, number: u64, listener: TcpListener) -> Arc<Coordinator> {
    let coordinator = Arc::new(Coordinator {
        number,
        pace: Mutex::new(Pace::AtOnce),
        kept: Mutex::default(),
        asked: watch::Sender::new(0),
        serving: Mutex::default(),
    });
    let hello = Hello {
        cluster,
        role: Role::Coordinator,
        identity: PeerIdentity::default(),
    };
    let handler = Arc::clone(&coordinator) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(hello, handler, patient(), Arc::<TrafficMeter>::default());
    let serving = tokio::spawn(endpoint.serve(listener));
    *coordinator.serving.lock().unwrap() = Some(serving.abort_handle());
    coordinator
}

struct Nothing;

impl Handler for Nothing {
    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

fn client(addresses: &str) -> ProcessPorts {
    client_with(Hello::client(), addresses)
}

fn client_with(hello: Hello, addresses: &str) -> ProcessPorts {
    let handler = Arc::new(Nothing) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(hello, handler, patient(), Arc::default());
    ProcessPorts::new(Some(addresses.to_owned()), endpoint).unwrap()
}

/// The number of the coordinator that answers, 0 if it is busy; none if no answer came.
async fn ask(ports: &ProcessPorts) -> Option<u64> {
    let request = CoordinatorRequest::from(ask::Nodes);
    match within(ports.call_coordinator(request, FAR_MS)).await {
        Ok(CoordinatorReply::StartAbove(number)) => Some(number),
        Ok(CoordinatorReply::Busy(_)) => Some(0),
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
    // One that leads may take its time, while the other does not listen, and if both addresses are its own.
    coordinator.set(Pace::Slow);
    assert_eq!(ask(&ports).await, Some(2));
    let port = leader.rsplit_once(':').unwrap().1;
    let twice = client(&format!("{leader},localhost:{port}"));
    assert_eq!(ask(&twice).await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_is_left_as_soon_as_another_one_leads() {
    let (first, listener) = reserved().await;
    let old = lead(1, listener);
    let (second, reserved_second) = reserved().await;
    let ports = client(&format!("{first},{second}"));
    assert_eq!(ask(&ports).await, Some(1));
    old.pause();
    let (lost, new) = tokio::join!(ask(&ports), async {
        // While it asks, the other one begins to lead.
        let mut asked = old.asked.subscribe();
        asked.wait_for(|count| *count == 2).await.unwrap();
        lead(2, reserved_second)
    });
    assert_eq!(lost, None, "it may have been carried out");
    // The open connection to the one that is paused does not show that it leads.
    new.set(Pace::Slow);
    assert_eq!(ask(&ports).await, Some(2));
    new.set(Pace::AtOnce);
    assert_eq!((*old.asked.borrow(), *new.asked.borrow()), (2, 1));
    // The one that was paused comes back; the process stays with the other one.
    old.set(Pace::AtOnce);
    assert_eq!(ask(&ports).await, Some(2));
    assert_eq!((*old.asked.borrow(), *new.asked.borrow()), (2, 2));
}

/// The machine of the old leader hangs: its system completes connections, and no process answers there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_begins_to_lead_is_found_while_another_hangs() {
    let (down, reserved_down) = reserved().await;
    drop(reserved_down);
    let (hanging, _hangs) = reserved().await;
    let (standby, listener) = reserved().await;
    let ports = client(&format!("{down},{hanging},{standby}"));
    let begin_to_lead = async {
        // The first attempt fails.
        drop(listener.accept().await.unwrap());
        lead(2, listener)
    };
    let (answer, _leads) = tokio::join!(ask(&ports), within(begin_to_lead));
    assert_eq!(answer, Some(2));
}

/// One that has lost its database still answers and takes connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_may_not_lead_is_left() {
    let (first, listener) = reserved().await;
    let old = lead(1, listener);
    let (second, reserved_second) = reserved().await;
    drop(reserved_second);
    let ports = client(&format!("{first},{second}"));
    old.set(Pace::Away);
    assert_eq!(ask(&ports).await, Some(0), "there is no other yet");
    let new = lead(2, TcpListener::bind(&second).await.unwrap());
    // The answer that it may not lead is none.
    let mut answer = ask(&ports).await;
    while answer == Some(0) {
        answer = ask(&ports).await;
    }
    assert_eq!(answer, None);
    // The new one may be so slow that the old one is tried again, which must not lead.
    old.pause();
    assert_eq!(ask(&ports).await, Some(2));
    assert_eq!(*new.asked.borrow(), 1);
}

/// An address of another cluster is told, although the others may only be down for now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_of_another_cluster_is_a_mistake() {
    let (down, reserved_down) = reserved().await;
    drop(reserved_down);
    let (foreign, listener) = reserved().await;
    lead_of(Some(ClusterId(6)), 3, listener);
    let hello = Hello {
        cluster: Some(ClusterId(5)),
        ..Hello::client()
    };
    let ports = client_with(hello, &format!("{down},{foreign}"));
    let error = ports.check_cluster().await.unwrap_err();
    assert!(matches!(error, WireError::WrongCluster { .. }), "{error}");
}
