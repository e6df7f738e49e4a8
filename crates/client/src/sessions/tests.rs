//! The keeping of a session beside a program that opens and closes files without a pause.

use super::keeping::keep;
use super::slot::Sessions;
use crate::scripted_ports::{Script, ScriptedPorts};
use futures::FutureExt;
use gabion_layout::NodeId;
use gabion_meta::{ClientSessionId, PutId};
use gabion_protocol::message::{
    CLIENT_LEASE_MS, CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest, SessionState,
};
use gabion_protocol::ports::CallError;
use std::sync::{Arc, Mutex, MutexGuard};

/// Time of a request and its answer.
const ROUND_TRIP_MS: u64 = 20;
/// The client lives for this time.
const END_MS: u64 = 4 * CLIENT_LEASE_MS;

/// A coordinator beside which a file is closed during each request.
#[derive(Default)]
struct Coordinator(Mutex<State>);

#[derive(Default)]
struct State {
    /// None when the client has ended.
    sessions: Option<Arc<Sessions>>,
    closed_count: u64,
    renewed_ms: Vec<u64>,
}

impl Coordinator {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no request panics with it")
    }
}

impl Script for Coordinator {
    fn ask_node(&self, node: NodeId, _: NodeRequest) -> Result<NodeReply, CallError> {
        panic!("{node} is asked nothing")
    }

    fn ask_coordinator(&self, request: CoordinatorRequest, now_ms: &mut u64) -> CoordinatorReply {
        let state = &mut *self.state();
        *now_ms += ROUND_TRIP_MS;
        assert!(*now_ms < 2 * END_MS, "the client does not end");
        match request {
            CoordinatorRequest::RenewSession(_) => state.renewed_ms.push(*now_ms),
            CoordinatorRequest::ReportFiles(asked) => {
                state.closed_count += asked.closed.len() as u64;
            }
            other => panic!("{other:?}"),
        }
        if *now_ms >= END_MS {
            state.sessions = None;
        }
        if let Some(sessions) = &state.sessions {
            drop(sessions.open.hold(PutId(*now_ms)));
        }
        CoordinatorReply::SessionState(SessionState::GoesOn)
    }
}

#[test]
fn a_session_is_renewed_in_time_although_files_are_closed_all_the_time() {
    let (ports, sessions) = (
        Arc::new(ScriptedPorts::new(Coordinator::default())),
        Arc::<Sessions>::default(),
    );
    let begin = sessions.last.lock().now_or_never();
    let mut last = begin.expect("no other task has the lock");
    let session = sessions.begin(&mut last, (ClientSessionId(1), 0));
    drop(last);
    drop(sessions.open.hold(PutId(1)));
    let turn = sessions.begin_keeping().expect("no task keeps it yet");
    let kept = keep(Arc::clone(&ports) as _, Arc::downgrade(&sessions), turn);
    ports.script.state().sessions = Some(sessions);
    kept.now_or_never().expect("nothing waits");
    let state = ports.script.state();
    assert!(session.is_leased(END_MS), "its lease is over");
    let told_count = END_MS / (4 * ROUND_TRIP_MS);
    assert!(state.closed_count > told_count, "closes are not told");
    let gaps = state.renewed_ms.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.max().expect("it was renewed");
    assert!(longest < CLIENT_LEASE_MS / 2, "{longest} ms");
}

#[test]
fn a_task_that_kept_an_ended_session_does_not_keep_the_next_one() {
    let sessions = Sessions::default();
    let first = sessions.begin_keeping();
    assert!(sessions.begin_keeping().is_none(), "one is enough");
    sessions.end_keeping();
    sessions.end_keeping();
    let next = sessions.begin_keeping();
    assert!(first.is_some() && next.is_some());
    assert!(first.is_some_and(|turn| !sessions.is_kept(turn)));
    assert!(next.is_some_and(|turn| sessions.is_kept(turn)));
}
