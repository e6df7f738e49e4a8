//! A process whose link loses packets is asked over another connection.

#![allow(clippy::unwrap_used)] // Clippy sees that this is a test in `#[test]` functions only.

use crate::node_hello;
use crate::processes::{Process, answer, ask, keep, within};
use gabion_layout::{NodeId, RackId};
use gabion_meta::Departure;
use gabion_protocol::message::{Liveness, NodeStatus};
use gabion_protocol::ports::Ports as _;
use gabion_wire::ProcessPorts;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes bytes on between a process and others, over the connections of the newest kind alone: older ones stay open, and
/// lose all bytes, as those of a cut link do until TCP repeats the bytes.
struct Relay {
    address: String,
    kind: watch::Sender<u32>,
    connected: watch::Sender<u32>,
}

impl Relay {
    async fn new(to: String) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Arc::new(Self {
            address: listener.local_addr().unwrap().to_string(),
            kind: watch::Sender::new(0),
            connected: watch::Sender::new(0),
        });
        let accepting = Arc::clone(&relay);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut to = TcpStream::connect(&to).await.unwrap();
                let mut kind = accepting.kind.subscribe();
                accepting.connected.send_modify(|count| *count += 1);
                let own = *kind.borrow();
                tokio::spawn(async move {
                    let is_over = async {
                        kind.wait_for(|kind| *kind > own).await.unwrap();
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        () = is_over => std::future::pending().await,
                    }
                });
            }
        });
        relay
    }

    /// From now on, connections so far lose all bytes.
    fn lose_present(&self) {
        self.kind.send_modify(|kind| *kind += 1);
    }
}

async fn ports_to(relay: &Relay) -> ProcessPorts {
    let process = Process::new(node_hello(4, 0));
    let ports = ProcessPorts::new(None, Arc::clone(&process.endpoint)).unwrap();
    ports.learn_nodes(&[NodeStatus {
        node: NodeId(9),
        rack: RackId(1),
        address: relay.address.clone(),
        liveness: Liveness::Up,
        departure: Departure::None,
    }]);
    let answered = within(ports.call_node(NodeId(9), ask(1), 60_000)).await;
    assert_eq!(answered.unwrap(), answer(1));
    ports
}

#[tokio::test]
async fn a_connection_that_loses_everything_is_replaced_when_a_call_on_it_is_late() {
    let peer = Process::listen(node_hello(9, 1)).await;
    let relay = Relay::new(peer.address()).await;
    let ports = ports_to(&relay).await;
    relay.lose_present();
    let mut connected = relay.connected.subscribe();
    let late = within(ports.call_node(NodeId(9), ask(2), 50)).await;
    assert!(late.is_err(), "{late:?}");
    within(connected.wait_for(|count| *count == 2))
        .await
        .unwrap();
    let answered = async {
        // Until the new connection is in place, calls wait for the old one.
        while ports.call_node(NodeId(9), ask(3), 50).await.is_err() {}
    };
    within(answered).await;
    assert_eq!(*relay.connected.borrow(), 2, "one at a time");
}

#[tokio::test]
async fn a_late_answer_alone_does_not_cost_a_connection() {
    let peer = Process::listen(node_hello(9, 1)).await;
    let relay = Relay::new(peer.address()).await;
    let ports = ports_to(&relay).await;
    let late = ports.call_node(NodeId(9), keep(), 200);
    let other = async {
        let answered = ports.call_node(NodeId(9), ask(2), 60_000).await;
        assert_eq!(answered.unwrap(), answer(2));
    };
    let (late, ()) = within(futures::future::join(late, other)).await;
    assert!(late.is_err(), "{late:?}");
    let answered = within(ports.call_node(NodeId(9), ask(3), 60_000)).await;
    assert_eq!(answered.unwrap(), answer(3));
    assert_eq!(*relay.connected.borrow(), 1);
}
