//! Exclusive opens: which session, if any, is the only writer of a file.
//!
//! A session is durable, and the signs of life of its client are in memory: a coordinator that restarts gives
//! each session the full time. Before a session begins, every node that may serve refuses updates with a
//! lower fencing token, and none of them runs any more.

use super::Files;
use super::sessions::SESSIONS_MAX;
use crate::coordinator::core::{Answer, Denied};
use crate::message::{CoordinatorReply, InUse, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use gabion_layout::{NodeId, StripeId};
use gabion_meta::{FencingToken, Holder, KeyValue, Meta, MetaError, PutId, SessionId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Time limit of a node's answer, which waits for updates that run.
const TELL_DEADLINE_MS: u64 = 5_000;
/// Stripes that are settled concurrently.
const SETTLE_PARALLEL_COUNT: usize = 16;
impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Opens a file for one session alone.
    pub(in crate::coordinator) async fn open_exclusive(
        self: &Arc<Self>,
        asked: ask::OpenExclusive,
    ) -> Answer {
        let ask::OpenExclusive {
            file,
            session,
            takes_over,
        } = asked;
        let present = self
            .core
            .with_meta(move |meta| meta.exclusive(file))
            .await?;
        if let Some(left_ms) = self.left_ms(file, present.session.filter(|&one| one != session))
            && !takes_over
        {
            return Ok(CoordinatorReply::InUse(InUse { left_ms }));
        }
        let seen = present.token;
        let open = move |meta: &Meta<K>| meta.open_exclusive(file, session, seen);
        let token = match self.core.with_meta(open).await {
            Ok(token) => token,
            Err(error @ MetaError::Superseded { .. }) => {
                return Ok(CoordinatorReply::Busy(error.to_string()));
            }
            Err(error) => return Err(error.into()),
        };
        if !self.sessions.note(file, session, self.core.ports.now_ms()) {
            let sentence =
                format!("{SESSIONS_MAX} files are open for one client each, which is the limit");
            return Err(Denied(sentence));
        }
        self.raise(file, token).await
    }

    /// Ends all that writers with lower tokens have begun. Every node that may serve refuses their updates from
    /// now on, and says in which terms none runs any more. Other stripes that ever had a primary are settled
    /// under a new term: what a primary left behind that failed, was restarted or has lost its term can no
    /// longer take effect. A node that is declared failed joins before it serves, and then asks for tokens anew.
    async fn raise(self: &Arc<Self>, file: PutId, token: FencingToken) -> Answer {
        let failed = self.nodes.failed();
        let nodes = self.nodes.statuses().into_iter().map(|status| status.node);
        let nodes: Vec<NodeId> = nodes.filter(|node| !failed.contains(node)).collect();
        let told = nodes.iter().map(|&node| {
            let request = ask::RaiseToken { file, token };
            self.core.ports.ask_node(node, request, TELL_DEADLINE_MS)
        });
        let mut quiet = BTreeSet::new();
        for (node, told) in nodes.iter().zip(join_all(told).await) {
            match told {
                Ok(stripes) => quiet.extend(stripes),
                Err(_) if self.nodes.failed().contains(node) => {}
                Err(_) => {
                    return Ok(CoordinatorReply::Busy(format!(
                        "{node} has not confirmed yet that it refuses writes of earlier clients"
                    )));
                }
            }
        }
        let find = move |meta: &Meta<K>| {
            let mut led = Vec::new();
            for (_, stripe) in meta.layout_of(file)?.1 {
                let holder = meta.lease(stripe.id)?.map(|lease| lease.holder);
                if matches!(holder, Some(Holder::Node { .. })) && !quiet.contains(&stripe.id) {
                    led.push(stripe.id);
                }
            }
            Ok(led)
        };
        let led = self.core.with_meta(find).await?;
        let settling = led.into_iter().map(|stripe| self.fence_primary(stripe));
        let mut settling = stream::iter(settling).buffer_unordered(SETTLE_PARALLEL_COUNT);
        let mut is_done = true;
        while let Some(settled) = settling.next().await {
            is_done &= settled?;
        }
        Ok(if is_done {
            CoordinatorReply::Exclusive(token)
        } else {
            CoordinatorReply::Busy("stripes of the file are being repaired or rewritten".to_owned())
        })
    }

    /// Settles a stripe under a term of the coordinator, so that its former primary's messages are refused.
    /// Returns whether that succeeded.
    async fn fence_primary(self: &Arc<Self>, stripe: StripeId) -> Result<bool, MetaError> {
        let Ok(occupation) = self.occupied.occupy(vec![stripe]) else {
            return Ok(false);
        };
        let is_settled = match self.leases.take_leases(&[stripe]).await {
            Ok(leases) => {
                let mut is_settled = true;
                for lease in &leases {
                    is_settled &= self.settle_old(stripe, lease.epoch).await.is_ok();
                }
                self.leases.release_leases(leases).await?;
                is_settled
            }
            // It has left the file.
            Err(MetaError::UnknownStripe(_)) => true,
            Err(MetaError::Held { .. }) => false,
            Err(error) => return Err(error),
        };
        self.leave(occupation).await?;
        Ok(is_settled)
    }

    /// Notes that a session's client is alive.
    pub(in crate::coordinator) async fn renew_exclusive(
        &self,
        asked: ask::RenewExclusive,
    ) -> Answer {
        let ask::RenewExclusive { file, session } = asked;
        let present = self.core.with_meta(move |meta| meta.exclusive(file)).await;
        let goes_on = match present {
            Ok(present) => present.session == Some(session),
            Err(MetaError::FileGone(_)) => false,
            Err(error) => return Err(error.into()),
        };
        if goes_on {
            self.sessions.note(file, session, self.core.ports.now_ms());
        }
        Ok(CoordinatorReply::Renewed(goes_on))
    }

    /// Ends a session.
    pub(in crate::coordinator) async fn close_exclusive(
        &self,
        asked: ask::CloseExclusive,
    ) -> Answer {
        let ask::CloseExclusive { file, session } = asked;
        let close = move |meta: &Meta<K>| meta.close_exclusive(file, session);
        self.core.with_meta(close).await?;
        self.sessions.forget(file, session);
        Ok(CoordinatorReply::Done)
    }

    /// The fencing token of a file, for a primary.
    pub(in crate::coordinator) async fn token(&self, file: PutId) -> Answer {
        match self.core.with_meta(move |meta| meta.exclusive(file)).await {
            Ok(present) => Ok(CoordinatorReply::Exclusive(present.token)),
            Err(error @ MetaError::FileGone(_)) => Ok(CoordinatorReply::Busy(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses to remove or replace a file whose session is alive.
    pub(in crate::coordinator) async fn check_unused(&self, name: &str) -> Result<(), Denied> {
        let named = name.to_owned();
        let find = move |meta: &Meta<K>| {
            let file = match meta.file(&named) {
                Ok(file) => file,
                Err(MetaError::UnknownFile(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            Ok(Some((file.put, meta.exclusive(file.put)?.session)))
        };
        let found = self.core.with_meta(find).await?;
        let left_ms = found.and_then(|(file, session)| self.left_ms(file, session));
        match left_ms {
            None => Ok(()),
            Some(left_ms) => Err(Denied(format!(
                "a client has opened '{name}' for itself alone; end that client first. Without a sign of life \
                 the file is free in {} s",
                left_ms.div_ceil(1_000)
            ))),
        }
    }

    fn left_ms(&self, file: PutId, session: Option<SessionId>) -> Option<u64> {
        self.sessions
            .left_ms(file, session?, self.core.ports.now_ms())
    }
}
