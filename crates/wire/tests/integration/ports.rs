//! The ports of a process: calls to itself, and a client whose coordinator does not answer.

use crate::node_hello;
use crate::processes::{FAR_MS, Process, answer, ask, keep, within};
use futures::FutureExt;
use gabion_client::{ClientError, ClientOptions};
use gabion_layout::NodeId;
use gabion_protocol::message::{CoordinatorReply, CoordinatorRequest, Flow, NodeReply};
use gabion_protocol::ports::Ports as _;
use gabion_wire::trust::Security;
use gabion_wire::{
    Connection, Endpoint, Handler, Hello, Options, PeerIdentity, ProcessPorts, Responder, Role,
    connect,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::Instant;

#[tokio::test]
async fn a_call_of_a_process_to_itself_ends_at_its_deadline_and_its_work_goes_on() {
    let process = Process::new(node_hello(4, 0));
    let ports = ProcessPorts::new(None, Arc::clone(&process.endpoint)).unwrap();
    let (release, released) = oneshot::channel::<()>();
    let (finish, finished) = oneshot::channel::<()>();
    let kept = Mutex::new(Some((released, finish)));
    let own = move |request| {
        if request != keep() {
            return futures::future::ready(answer(7)).boxed();
        }
        let (released, finish) = kept.lock().unwrap().take().unwrap();
        async move {
            released.await.unwrap();
            finish.send(()).unwrap();
            NodeReply::Done
        }
        .boxed()
    };
    ports.set_own(NodeId(4), Box::new(own));
    let late = within(ports.call_node(NodeId(4), keep(), 50)).await;
    let late = late.unwrap_err().to_string();
    assert!(late.contains("did not answer in time"), "{late}");
    let reply = within(ports.call_node(NodeId(4), ask(7), FAR_MS)).await;
    assert_eq!(reply.unwrap(), answer(7));
    release.send(()).unwrap();
    within(finished).await.unwrap();
}

fn coordinator_hello() -> Hello {
    Hello {
        cluster: None,
        role: Role::Coordinator,
        identity: PeerIdentity::default(),
    }
}

/// Connects a client with this time for an operation.
async fn connect_within(address: &str, deadline: Duration) -> Result<(), ClientError> {
    let options = ClientOptions {
        deadline,
        ..ClientOptions::default()
    };
    let connected = connect(address, Security::insecure(), options).await;
    connected.map(drop)
}

#[tokio::test]
async fn a_client_waits_until_its_deadline_for_a_coordinator_that_refuses_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let waits = tokio::spawn({
        let address = address.clone();
        async move { connect_within(&address, Duration::from_millis(FAR_MS)).await }
    });
    // The first connection breaks, and later ones are refused until the coordinator listens.
    drop(within(listener.accept()).await.unwrap());
    drop(listener);
    let begun = Instant::now();
    let refused = within(connect_within(&address, Duration::from_millis(500))).await;
    let is_without = matches!(refused, Err(ClientError::NoCoordinator(_)));
    assert!(is_without, "{refused:?}");
    assert!(begun.elapsed() >= Duration::from_millis(200), "at once");
    let _coordinator = Process::listen_at(coordinator_hello(), &address).await;
    within(waits).await.unwrap().unwrap();
}

/// A coordinator that closes the connection by which it is first asked to commit.
#[derive(Default)]
struct Commits {
    asked_count: AtomicUsize,
}

impl Handler for Commits {
    fn coordinator_request(
        &self,
        connection: &Arc<Connection>,
        request: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let is_commit = matches!(request, CoordinatorRequest::CommitPool(_));
        if is_commit && self.asked_count.fetch_add(1, Ordering::Relaxed) == 0 {
            connection.close("it restarts");
            return;
        }
        let done = CoordinatorReply::Done;
        let nodes = CoordinatorReply::Nodes(Vec::new());
        responder.reply(if is_commit { &done } else { &nodes });
    }

    fn flow(&self, _: &Arc<Connection>, _: Flow) {}
}

#[tokio::test]
async fn a_commit_of_a_pool_is_asked_for_again_when_the_coordinator_goes() {
    let handler = Arc::new(Commits::default());
    let serving = Arc::clone(&handler) as Arc<dyn Handler>;
    let endpoint = Endpoint::new(
        coordinator_hello(),
        serving,
        Options::default(),
        Arc::default(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(endpoint.serve(listener));
    let client = connect(&address, Security::insecure(), ClientOptions::default()).await;
    within(client.unwrap().commit_pool("vm")).await.unwrap();
    assert_eq!(handler.asked_count.load(Ordering::Relaxed), 2);
}
