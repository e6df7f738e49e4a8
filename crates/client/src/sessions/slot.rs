//! The present session of a client, and its open files.

use super::open_table::OpenTable;
use super::session::ClientSession;
use futures::lock::Mutex as AsyncMutex;
use gabion_meta::ClientSessionId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The sessions of a client, one after another.
#[derive(Default)]
pub(crate) struct Sessions {
    /// The last one. It may be over.
    pub(super) last: AsyncMutex<Option<Arc<ClientSession>>>,
    /// The open files.
    pub(super) open: Arc<OpenTable>,
    /// How often a task has begun or ended to keep the sessions: if odd, one keeps them.
    turns: AtomicU64,
}

impl Sessions {
    /// The session, unless it is over.
    pub(crate) async fn present(&self) -> Option<Arc<ClientSession>> {
        let last = self.last.lock().await.clone();
        last.filter(|session| !session.is_over())
    }

    /// Begins a session that the coordinator has given in answer to a request of `asked_ms`. The caller has the last
    /// one locked.
    pub(super) fn begin(
        &self,
        last: &mut Option<Arc<ClientSession>>,
        (id, asked_ms): (ClientSessionId, u64),
    ) -> Arc<ClientSession> {
        self.open.forget_owed();
        // Files that are only about to be opened are known by their requests.
        let is_unreported = self.open.has_opened();
        let session = ClientSession::new(id, asked_ms, last.as_deref(), is_unreported);
        let session = Arc::new(session);
        *last = Some(Arc::clone(&session));
        self.open.wake();
        session
    }

    /// The turn of the task that keeps the sessions, if the caller is to start it.
    pub(super) fn begin_keeping(&self) -> Option<u64> {
        self.next_turn(false).map(|turn| turn + 1)
    }

    /// No task keeps the sessions from now on.
    pub(super) fn end_keeping(&self) {
        self.next_turn(true);
    }

    /// Ends a turn, if it is one of a task that keeps the sessions or not. Returns it.
    fn next_turn(&self, is_kept: bool) -> Option<u64> {
        let next = |turn: u64| (turn % 2 == u64::from(is_kept)).then_some(turn + 1);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        self.turns.fetch_update(done, seen, next).ok()
    }

    /// Whether the task of this turn keeps the sessions.
    pub(super) fn is_kept(&self, turn: u64) -> bool {
        self.turns.load(Ordering::Acquire) == turn
    }
}
