//! Exclusive opens: which session, if any, is the only writer of a file.
//!
//! A session is durable, and its last renewal is in memory: a coordinator that restarts gives
//! each session the full time. Before a session begins, every node that may serve refuses updates with a
//! lower fencing token, and none of them runs any more.

use super::Files;
use super::replace::SETTLE_PARALLEL_COUNT;
use super::sessions::SESSIONS_MAX;
use crate::coordinator::core::{Answer, refused_for_now};
use crate::message::{Cause, CoordinatorReply, Denial, NotOpened, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use gabion_layout::{NodeId, StripeId};
use gabion_meta::{
    Displaced, Exclusive, FencingToken, Inode, KeyValue, Meta, MetaError, PutId, RelativePath,
    SessionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time limit of a node's answer, which waits for updates that run.
const TELL_DEADLINE_MS: u64 = 5_000;

/// The outcome of an exclusive open.
enum Opening {
    /// The session has the file.
    Begun(FencingToken),
    /// It has not been opened.
    Refused(NotOpened),
    /// The session is durable, but earlier writes have not ended yet.
    Busy(Denial),
}

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Opens a file exclusively.
    pub(in crate::coordinator) async fn open_exclusive(
        self: &Arc<Self>,
        asked: ask::OpenExclusive,
    ) -> Answer {
        Ok(match self.begin_session(asked).await? {
            Opening::Begun(token) => CoordinatorReply::Exclusive(token),
            Opening::Refused(why) => CoordinatorReply::NotOpened(why),
            Opening::Busy(why) => CoordinatorReply::Busy(why),
        })
    }

    async fn begin_session(self: &Arc<Self>, asked: ask::OpenExclusive) -> Result<Opening, Denial> {
        let ask::OpenExclusive {
            file,
            session,
            seen,
            takes_over,
        } = asked;
        // One open after another: a session has its first renewal before the next open looks for it.
        let opening = self.opening.lock().await;
        let present = self.exclusive(file).await?;
        let other = present.session.filter(|&other| other != session);
        if let Some(left_ms) = self.left_ms(file, other)
            && !takes_over
        {
            return Ok(Opening::Refused(NotOpened::InUse { left_ms }));
        }
        if !self.sessions.has_room(file, self.core.ports.now_ms()) {
            return Err(Denial::new(
                Cause::Failure,
                format!(
                    "{SESSIONS_MAX} files are open exclusively, which is the limit; end some of these clients"
                ),
            ));
        }
        let open = move |meta: &Meta<K>| meta.open_exclusive(file, session, seen);
        let token = match self.core.with_meta(open).await {
            Ok(token) => token,
            Err(MetaError::Superseded { .. }) => {
                return Ok(Opening::Refused(NotOpened::Changed));
            }
            Err(error) => return Err(error.into()),
        };
        self.sessions
            .take_over(file, session, self.core.ports.now_ms());
        drop(opening);
        let raised = self.raise(file, token).await;
        if matches!(raised, Ok(None)) {
            self.sessions.begin(file, session);
        }
        // The client begins to renew when it has the answer.
        self.sessions.renew(file, session, self.core.ports.now_ms());
        Ok(match raised? {
            None => Opening::Begun(token),
            Some(why) => Opening::Busy(why),
        })
    }

    async fn exclusive(&self, file: PutId) -> Result<Exclusive, MetaError> {
        self.core.with_meta(move |meta| meta.exclusive(file)).await
    }

    /// Displaces the session of a file that its client has not renewed for too long, so that no session has the
    /// file. If that fails, returns what is in the way.
    async fn displace(
        self: &Arc<Self>,
        file: PutId,
        seen: FencingToken,
    ) -> Result<Opening, Denial> {
        let session = SessionId(self.core.ports.random());
        let opened = self
            .begin_session(ask::OpenExclusive {
                file,
                session,
                seen,
                takes_over: false,
            })
            .await;
        match opened {
            Ok(Opening::Refused(_)) => {}
            Ok(Opening::Begun(_)) => {
                self.close_exclusive(ask::CloseExclusive { file, session })
                    .await?;
            }
            // The writes of the earlier client have not ended yet: the session stays without a client until they have.
            Ok(Opening::Busy(_)) | Err(_) => {
                self.sessions.leave(file, session);
            }
        }
        opened
    }

    /// Ends all writes of the file that clients have begun. They may begin others: a client that may not knows it by
    /// then.
    ///
    /// # Errors
    /// If a node or a stripe is in the way: the call is to be repeated.
    pub(in crate::coordinator) async fn fence_writers(
        self: &Arc<Self>,
        file: PutId,
    ) -> Result<(), Denial> {
        let raise = move |meta: &Meta<K>| meta.raise_token(file);
        let token = match self.core.with_meta(raise).await {
            Ok(token) => token,
            // Its locks have gone with it.
            Err(MetaError::FileGone(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.raise(file, token).await?.map_or(Ok(()), Err)
    }

    /// Ends all that writers with lower tokens have begun. Every node that may serve refuses their updates from
    /// now on, and says in which terms none runs any more. Other stripes that ever had a primary are settled
    /// under a new term: what a primary left behind that failed, was restarted or has lost its term can no
    /// longer take effect. A node that is declared failed joins before it serves, and then asks for tokens anew. Returns
    /// what is in the way for now, if anything is.
    pub(super) async fn raise(
        self: &Arc<Self>,
        file: PutId,
        token: FencingToken,
    ) -> Result<Option<Denial>, Denial> {
        self.raise_within(file, token, TELL_DEADLINE_MS).await
    }

    /// The same with another time limit of each node's answer.
    pub(super) async fn raise_within(
        self: &Arc<Self>,
        file: PutId,
        token: FencingToken,
        tell_deadline_ms: u64,
    ) -> Result<Option<Denial>, Denial> {
        let failed = self.nodes.failed();
        let nodes = self.nodes.statuses().into_iter().map(|status| status.node);
        let nodes: Vec<NodeId> = nodes.filter(|node| !failed.contains(node)).collect();
        let told = nodes.iter().map(|&node| {
            let request = ask::RaiseToken { file, token };
            self.core.ports.ask_node(node, request, tell_deadline_ms)
        });
        let mut vouched = BTreeMap::new();
        for (node, told) in nodes.iter().zip(join_all(told).await) {
            match told {
                Ok(terms) => vouched.extend(terms),
                Err(_) if self.nodes.failed().contains(node) => {}
                Err(_) => {
                    let why = format!(
                        "{node} has not confirmed yet that it refuses writes of earlier clients"
                    );
                    return Ok(Some(why.into()));
                }
            }
        }
        let find = move |meta: &Meta<K>| meta.unsettled(file, &vouched);
        let led = self.core.with_meta(find).await?;
        let settling = led.into_iter().map(|stripe| self.fence_primary(stripe));
        let mut settling = stream::iter(settling).buffer_unordered(SETTLE_PARALLEL_COUNT);
        let mut is_done = true;
        while let Some(settled) = settling.next().await {
            is_done &= settled?;
        }
        let in_the_way = "stripes of the file are being repaired or rewritten";
        Ok((!is_done).then(|| in_the_way.into()))
    }

    /// Settles a stripe under a term of the coordinator, so that its former primaries' messages are refused. Returns
    /// whether that succeeded; if not, the stripe stays unsettled for the next attempt.
    async fn fence_primary(self: &Arc<Self>, stripe: StripeId) -> Result<bool, MetaError> {
        let Ok(occupation) = self.occupied.occupy(vec![stripe]) else {
            return Ok(false);
        };
        let is_settled = match self.leases.take_leases(&[stripe]).await {
            Ok(leases) => {
                let mut is_settled = true;
                for Displaced { stripe, epoch } in leases {
                    let settled = self.settle_old(stripe, epoch).await.is_ok();
                    is_settled &= settled;
                    let release = move |meta: &Meta<K>| {
                        if settled {
                            meta.release_settled(stripe, epoch)
                        } else {
                            meta.release(stripe, epoch)
                        }
                    };
                    is_settled &= self.core.with_meta(release).await?;
                }
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
        self.sessions
            .note_life(file, session, self.core.ports.now_ms());
        if let Err(error) = self.core.check_leads() {
            return refused_for_now(error);
        }
        let goes_on = self.exclusive(file).await?.session == Some(session);
        if goes_on {
            self.sessions.renew(file, session, self.core.ports.now_ms());
        }
        Ok(CoordinatorReply::Renewed(goes_on))
    }

    /// Ends a session. One that has not begun first ends the writes of earlier clients. If that fails, it stays without a
    /// client, and the next writer displaces it.
    pub(in crate::coordinator) async fn close_exclusive(
        self: &Arc<Self>,
        asked: ask::CloseExclusive,
    ) -> Answer {
        let ask::CloseExclusive { file, session } = asked;
        let (present, may_end) = {
            let _opening = self.opening.lock().await;
            let present = self.exclusive(file).await?;
            let has_it = present.session == Some(session);
            (present, !has_it || self.sessions.leave(file, session))
        };
        if !may_end {
            let raised = self.raise(file, present.token).await;
            if !matches!(raised, Ok(None)) {
                return Ok(CoordinatorReply::Done);
            }
        }
        let close = move |meta: &Meta<K>| meta.close_exclusive(file, session);
        self.core.with_meta(close).await?;
        self.sessions.forget(file, session);
        Ok(CoordinatorReply::Done)
    }

    /// The fencing token of a file, for the primary of one of its stripes.
    pub(in crate::coordinator) async fn token(&self, asked: ask::Token) -> Answer {
        let ask::Token { file, stripe } = asked;
        let look = move |meta: &Meta<K>| meta.token_to_update(file, stripe);
        Ok(CoordinatorReply::Exclusive(
            self.core.with_meta(look).await?,
        ))
    }

    /// Refuses to remove or replace a file whose session is alive, if the request `concerns` the file that has the name,
    /// and displaces a session that is not alive. The transaction that removes the file refuses again if a session has
    /// it by then. If the change with this `number` was made already, nothing is in its way.
    pub(in crate::coordinator) async fn check_unused(
        self: &Arc<Self>,
        name: &RelativePath,
        number: Option<u64>,
        concerns: impl Fn(PutId) -> bool,
    ) -> Result<(), Denial> {
        let at = name.clone();
        let find = move |meta: &Meta<K>| {
            if number.map_or(Ok(false), |number| meta.is_change_done(number))? {
                return Ok(None);
            }
            match meta.inode(at.clone()).map(|status| status.inode) {
                Ok(Inode::File(file)) => Ok(Some((file, meta.exclusive(file)?))),
                Ok(Inode::Directory(_))
                | Err(
                    MetaError::UnknownPath(_)
                    | MetaError::DirectoryGone(_)
                    | MetaError::NotADirectory(_),
                ) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let Some((file, present)) = self.core.with_meta(find).await? else {
            return Ok(());
        };
        if present.session.is_none() || !concerns(file) {
            return Ok(());
        }
        match self.displace(file, present.token).await? {
            Opening::Refused(NotOpened::InUse { left_ms }) => Err(Denial::new(
                Cause::InUse,
                format!(
                    "a client has '{name}' open exclusively; end that client first. Without a renewal the file becomes \
                    free in {} s",
                    left_ms.div_ceil(1_000)
                ),
            )),
            Opening::Busy(why) => Err(Denial::new(why.cause, format!("{why}; try again"))),
            Opening::Begun(_) | Opening::Refused(NotOpened::Changed) => Ok(()),
        }
    }

    fn left_ms(&self, file: PutId, session: Option<SessionId>) -> Option<u64> {
        self.sessions
            .left_ms(file, session?, self.core.ports.now_ms())
    }
}
