//! Requests to coordinators that do not carry them out.

use crate::client::{Client, ClientOptions};
use crate::error::ClientError;
use crate::scripted_ports::{Script, ScriptedPorts};
use futures::FutureExt as _;
use gabion_layout::NodeId;
use gabion_protocol::message::{
    Cause, CoordinatorReply, CoordinatorRequest, Denial, NodeReply, NodeRequest,
};
use gabion_protocol::ports::CallError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Coordinators that refuse all changes: the first ones for this cause, and all others because they recover a backup.
struct Refusing {
    first: Vec<Cause>,
    count: AtomicUsize,
}

impl Script for Refusing {
    fn ask_node(&self, _: NodeId, request: NodeRequest) -> Result<NodeReply, CallError> {
        panic!("{request:?}")
    }

    fn ask_coordinator(&self, request: CoordinatorRequest, _: &mut u64) -> CoordinatorReply {
        if matches!(request, CoordinatorRequest::Nodes) {
            return CoordinatorReply::Nodes(Vec::new());
        }
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        let cause = self.first.get(at).copied().unwrap_or(Cause::Recovers);
        CoordinatorReply::Refused(Denial::new(cause, "it changes nothing"))
    }
}

/// Asks for a change, and returns the error and the number of requests.
fn ask(first: Vec<Cause>) -> (ClientError, usize) {
    let count = AtomicUsize::new(0);
    let ports = Arc::new(ScriptedPorts::new(Refusing { first, count }));
    let asked = async {
        let client = Client::connect(Arc::clone(&ports) as _, ClientOptions::default()).await?;
        client.repair_now(None).await
    };
    let asked = asked.now_or_never().expect("the script waits for nothing");
    let error = asked.expect_err("no coordinator makes the change");
    (error, ports.script.count.load(Ordering::Relaxed))
}

#[test]
fn a_recovery_refuses_a_new_request_at_once() {
    let (error, count) = ask(Vec::new());
    assert_eq!(count, 1);
    assert_eq!(error.to_string(), "it changes nothing");
    // Not as refused: a caller may have asked an earlier coordinator for the same.
    assert!(matches!(error, ClientError::Recovering(_)), "{error:?}");
}

#[test]
fn a_request_in_doubt_waits_for_a_coordinator_that_knows_its_outcome() {
    let (error, count) = ask(vec![Cause::NotLeading]);
    assert!(count > 2, "{count}");
    assert!(matches!(error, ClientError::Recovering(_)), "{error:?}");
}
