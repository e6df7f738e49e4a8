//! A process whose link loses packets is asked over another connection.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::node_hello;
use crate::processes::{FAR_MS, Process, answer, ask, keep, patient, within};
use gabion_layout::{NodeId, RackId};
use gabion_meta::Departure;
use gabion_protocol::message::{Liveness, NodeStatus};
use gabion_protocol::ports::Ports as _;
use gabion_wire::{Hello, Options, ProcessPorts};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

const SILENCE: Duration = Duration::from_millis(100);
/// The age of a connection that may be replaced.
const AGE: Duration = Duration::from_millis(600);

/// Passes bytes on between a process and others, but for the first connections: these stay open, and lose all bytes, as
/// those of a cut link do until TCP repeats the bytes.
struct Relay {
    address: String,
    cut_count: watch::Sender<u32>,
    connected: watch::Sender<u32>,
}

impl Relay {
    async fn new(to: String) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Arc::new(Self {
            address: listener.local_addr().unwrap().to_string(),
            cut_count: watch::Sender::new(0),
            connected: watch::Sender::new(0),
        });
        let accepting = Arc::clone(&relay);
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let to = TcpStream::connect(&to).await.unwrap();
                let number = *accepting.connected.borrow();
                let cut_count = accepting.cut_count.subscribe();
                tokio::spawn(forward((from, to), number, cut_count));
                accepting.connected.send_modify(|count| *count += 1);
            }
        });
        relay
    }

    /// From now on, the connections so far lose all bytes.
    fn cut_present(&self) {
        self.cut_count.send_replace(*self.connected.borrow());
    }

    fn mend(&self) {
        self.cut_count.send_replace(0);
    }
}

async fn forward(
    (mut from, mut to): (TcpStream, TcpStream),
    number: u32,
    mut cut_count: watch::Receiver<u32>,
) {
    loop {
        tokio::select! {
            cut = cut_count.wait_for(|&count| count > number) => drop(cut.unwrap()),
            _ = copy_bidirectional(&mut from, &mut to) => return,
        }
        drop(cut_count.wait_for(|&count| count <= number).await.unwrap());
    }
}

/// The ports of a process with this silence timeout and a connection by the relay.
async fn ports_to(relay: &Relay, silence_timeout: Duration) -> ProcessPorts {
    let options = Options {
        silence_timeout,
        // Attempts to replace a connection end after it.
        stall_timeout: Duration::from_secs(5),
        ..patient()
    };
    // A node's `keep` would be refused at once.
    let process = Process::with(Hello::client(), options);
    let ports = ProcessPorts::new(None, Arc::clone(&process.endpoint)).unwrap();
    ports.learn_nodes(&[NodeStatus {
        node: NodeId(9),
        rack: RackId(1),
        address: relay.address.clone(),
        liveness: Liveness::Up,
        departure: Departure::None,
    }]);
    let answered = within(ports.call_node(NodeId(9), ask(1), FAR_MS)).await;
    assert_eq!(answered.unwrap(), answer(1));
    ports
}

#[tokio::test]
async fn a_connection_that_loses_everything_is_replaced_when_a_call_on_it_is_late() {
    let peer = Process::listen(node_hello(9, 1)).await;
    let relay = Relay::new(peer.address()).await;
    let ports = ports_to(&relay, SILENCE).await;
    sleep(AGE).await;
    relay.cut_present();
    let mut connected = relay.connected.subscribe();
    let late = within(ports.call_node(NodeId(9), ask(2), 50)).await;
    assert!(late.is_err(), "{late:?}");
    within(connected.wait_for(|count| *count == 2))
        .await
        .unwrap();
    // Until the new connection is in place, calls go by the old one.
    while within(ports.call_node(NodeId(9), ask(3), 3_000))
        .await
        .is_err()
    {}
    // Nothing uses the old one any more, so it is closed.
    relay.mend();
    let closed = peer.next_closed().await;
    assert!(
        closed.contains("a newer connection has taken its place"),
        "{closed}"
    );
    assert_eq!(*relay.connected.borrow(), 2, "one at a time");
    let answered = within(ports.call_node(NodeId(9), ask(4), FAR_MS)).await;
    assert_eq!(answered.unwrap(), answer(4));
}

/// The connection is new for ten seconds, in which the call is late, and a replacement would begin two seconds after
/// it.
#[tokio::test]
async fn a_late_answer_does_not_cost_a_new_connection() {
    let silence = Duration::from_secs(2);
    let peer = Process::listen(node_hello(9, 1)).await;
    let relay = Relay::new(peer.address()).await;
    let ports = ports_to(&relay, silence).await;
    let late = within(ports.call_node(NodeId(9), keep(), 50)).await;
    assert!(late.is_err(), "{late:?}");
    peer.wait_for_unanswered(1).await;
    sleep(2 * silence).await;
    let answered = within(ports.call_node(NodeId(9), ask(2), FAR_MS)).await;
    assert_eq!(answered.unwrap(), answer(2));
    assert_eq!(*relay.connected.borrow(), 1);
}

#[tokio::test]
async fn a_late_answer_does_not_cost_a_connection_on_which_another_call_is_answered_meanwhile() {
    let peer = Process::listen(node_hello(9, 1)).await;
    let relay = Relay::new(peer.address()).await;
    let ports = ports_to(&relay, SILENCE).await;
    sleep(AGE).await;
    // The other answer comes long before this call is late.
    let late = ports.call_node(NodeId(9), keep(), 3_000);
    let other = async {
        let answered = ports.call_node(NodeId(9), ask(2), FAR_MS).await;
        assert_eq!(answered.unwrap(), answer(2));
    };
    let (late, ()) = within(futures::future::join(late, other)).await;
    assert!(late.is_err(), "{late:?}");
    peer.wait_for_unanswered(1).await;
    sleep(2 * SILENCE).await;
    let answered = within(ports.call_node(NodeId(9), ask(3), FAR_MS)).await;
    assert_eq!(answered.unwrap(), answer(3));
    assert_eq!(*relay.connected.borrow(), 1);
}
