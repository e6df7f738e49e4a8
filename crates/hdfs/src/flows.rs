//! The flows of one run: the ports of its part, over one connection to each other node of the run.

use crate::frame::{Kind, Reading, Writing};
use crate::message::{End, message_of};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::{BoxFuture, ready};
use gabion_layout::{NodeId, RunId};
use gabion_plan::{Part, ValueId};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, Flow, NodeReply, NodeRequest, NodeStatus, Purpose,
    Refusal,
};
use gabion_protocol::ports::{Address, CallError, Ports};
use gabion_protocol::run::{LocalIo, RunContext, run_part};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

/// Bytes before a slice's own in its frame: the step and the slice's number.
const SLICE_HEADER_BYTES: usize = 12;

/// The end of a run's connection.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer has reported the end of its part.
    Reported(End),
    /// The connection has broken, or the peer has sent what it must not.
    Broken,
}

/// This node's connections of one run.
pub(crate) struct Flows {
    run: RunId,
    writings: BTreeMap<NodeId, Writing>,
    /// The connections whose frames are not read yet. Until the part begins nothing takes them.
    waiting: Vec<(NodeId, Reading)>,
    pumps: JoinSet<(NodeId, Ended)>,
    /// Nodes whose connections have ended.
    gone: BTreeSet<NodeId>,
    received_bytes: Arc<AtomicU64>,
}

impl Flows {
    pub(crate) fn of(run: RunId) -> Self {
        Self {
            run,
            writings: BTreeMap::new(),
            waiting: Vec::new(),
            pumps: JoinSet::new(),
            gone: BTreeSet::new(),
            received_bytes: Arc::default(),
        }
    }

    /// Adds the connection to a node. Its frames are read when the part begins.
    pub(crate) fn add(&mut self, node: NodeId, reading: Reading, writing: Writing) {
        self.writings.insert(node, writing);
        self.waiting.push((node, reading));
    }

    /// Reads a connection's frames for the part, and after the part for what the peer reports.
    fn read(&mut self, node: NodeId, reading: Reading, sender: UnboundedSender<Flow>) {
        let run = self.run;
        let received_bytes = Arc::clone(&self.received_bytes);
        self.pumps.spawn(async move {
            let ended = pump(reading, run, &sender, &received_bytes).await;
            if !matches!(ended, Ended::Reported(Ok(()))) {
                // The part cannot end without this node.
                let _ = sender.unbounded_send(Flow::Abort { run });
            }
            (node, ended)
        });
    }

    /// Bytes of slices that arrived.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Runs this node's part. Later flows are dropped.
    ///
    /// # Errors
    /// As [`run_part`].
    pub(crate) async fn run(
        &mut self,
        part: &Part,
        io: &dyn LocalIo,
        deadline: Duration,
        stall: Duration,
    ) -> Result<(), Refusal> {
        let ports = RunPorts {
            writings: self.writings.clone(),
            began: Instant::now(),
            runtime: Handle::current(),
        };
        let context = RunContext {
            run: self.run,
            origin: Address::Origin(0),
            purpose: Purpose::Repair,
            spread_ms: 0,
            deadline_ms: deadline.as_millis() as u64,
            stall_ms: Some(stall.as_millis() as u64),
        };
        let (sender, mut receiver) = unbounded();
        for (node, reading) in std::mem::take(&mut self.waiting) {
            self.read(node, reading, sender.clone());
        }
        run_part(&ports, io, part, context, &mut receiver).await
    }

    /// The next connection that has ended; none when all have.
    pub(crate) async fn ended(&mut self) -> Option<(NodeId, Ended)> {
        let joined = self.pumps.join_next().await?;
        Some(self.note_end(joined))
    }

    /// A connection that has ended by now, if there is one.
    pub(crate) fn try_ended(&mut self) -> Option<(NodeId, Ended)> {
        let joined = self.pumps.try_join_next()?;
        Some(self.note_end(joined))
    }

    /// Waits until the connection to a node has ended, also if that was told before.
    pub(crate) async fn until_gone(&mut self, node: NodeId) {
        while !self.gone.contains(&node) && self.ended().await.is_some() {}
    }

    fn note_end(&mut self, joined: Result<(NodeId, Ended), JoinError>) -> (NodeId, Ended) {
        // A pump neither panics nor is it cancelled while this waits for it.
        let (node, ended) = joined.unwrap_or((NodeId::CLIENT, Ended::Broken));
        self.gone.insert(node);
        (node, ended)
    }
}

/// Passes a peer's flows on while the part takes them, until the connection ends.
async fn pump(
    mut reading: Reading,
    run: RunId,
    flows: &UnboundedSender<Flow>,
    received_bytes: &AtomicU64,
) -> Ended {
    while let Ok(frame) = reading.frame().await {
        let mut body = frame.body;
        let flow = match frame.kind {
            Kind::Slice if body.len() >= SLICE_HEADER_BYTES => {
                let value = ValueId(body.get_u32());
                let slice = body.get_u64();
                received_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
                Flow::Slice {
                    run,
                    value,
                    slice,
                    purpose: Purpose::Repair,
                    bytes: body,
                }
            }
            Kind::Credit if body.len() == SLICE_HEADER_BYTES => Flow::Credit {
                run,
                value: ValueId(body.get_u32()),
                slices: body.get_u64(),
            },
            Kind::End => {
                return message_of::<End>(&body).map_or(Ended::Broken, Ended::Reported);
            }
            _ => return Ended::Broken,
        };
        // After the part only the peer's report is awaited.
        let _ = flows.unbounded_send(flow);
    }
    Ended::Broken
}

/// The bytes before a slice's own, and the body of credit.
fn header(value: ValueId, number: u64) -> Bytes {
    let mut header = BytesMut::with_capacity(SLICE_HEADER_BYTES);
    header.put_u32(value.0);
    header.put_u64(number);
    header.freeze()
}

/// The ports of a part. It only sends flows: nothing in a part calls a node or a coordinator.
struct RunPorts {
    writings: BTreeMap<NodeId, Writing>,
    began: Instant,
    runtime: Handle,
}

fn no_calls<T: Send + 'static>() -> BoxFuture<'static, Result<T, CallError>> {
    let error = CallError {
        peer: "an agent of HDFS".to_owned(),
        reason: "answers no calls".to_owned(),
    };
    ready(Err(error)).boxed()
}

impl Ports for RunPorts {
    fn call_node(
        &self,
        _: NodeId,
        _: NodeRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<NodeReply, CallError>> {
        no_calls()
    }

    fn call_coordinator(
        &self,
        _: CoordinatorRequest,
        _: u64,
    ) -> BoxFuture<'static, Result<CoordinatorReply, CallError>> {
        no_calls()
    }

    fn send_flows(
        &self,
        to: Address,
        mut flows: UnboundedReceiver<Flow>,
    ) -> BoxFuture<'static, Result<(), Refusal>> {
        let (name, writing) = match to {
            Address::Node(node) => (node.to_string(), self.writings.get(&node).cloned()),
            Address::Origin(_) => ("the asker".to_owned(), None),
        };
        async move {
            let gone = || Refusal::Unavailable(name.clone());
            let writing = writing.ok_or_else(gone)?;
            while let Some(flow) = flows.next().await {
                let sent = match flow {
                    Flow::Slice {
                        value,
                        slice,
                        bytes,
                        ..
                    } => {
                        let header = header(value, slice);
                        writing.send(Kind::Slice, vec![header, bytes]).await
                    }
                    Flow::Credit { value, slices, .. } => {
                        writing
                            .send(Kind::Credit, vec![header(value, slices)])
                            .await
                    }
                    // A run ends with its connections.
                    Flow::Abort { .. } => Ok(()),
                };
                sent.map_err(|_| gone())?;
            }
            Ok(())
        }
        .boxed()
    }

    fn learn_nodes(&self, _: &[NodeStatus]) {}

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn sleep_ms(&self, ms: u64) -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_millis(ms)).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime.spawn(task);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.runtime.spawn_blocking(work);
    }

    /// No part draws random numbers.
    fn random(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::connect;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    const LIMIT: Duration = Duration::from_mins(1);

    #[tokio::test]
    async fn a_peer_whose_end_was_told_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (gone, stays) = (NodeId(1), NodeId(2));
        let mut flows = Flows::of(RunId(1));
        let (sender, _receiver) = unbounded();
        let mut peers = Vec::new();
        for node in [gone, stays] {
            let (reading, writing) = connect(&address).await.unwrap();
            peers.push(listener.accept().await.unwrap().0);
            flows.writings.insert(node, writing);
            flows.read(node, reading, sender.clone());
        }
        drop(peers.remove(0));
        let told = timeout(LIMIT, flows.ended()).await.unwrap();
        assert!(matches!(told, Some((node, Ended::Broken)) if node == gone));
        timeout(LIMIT, flows.until_gone(gone)).await.unwrap();
        assert!(flows.until_gone(stays).now_or_never().is_none());
        drop(peers);
        timeout(LIMIT, flows.until_gone(stays)).await.unwrap();
    }
}
