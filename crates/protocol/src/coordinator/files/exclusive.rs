//! Exclusive opens: which session, if any, is the only writer of a file.
//!
//! A session is durable, and its last renewal is in memory: a coordinator that restarts gives
//! each session the full time. Before a session begins, every node that may serve refuses updates with a
//! lower fencing token, and none of them runs any more.

use super::Files;
use super::replace::SETTLE_PARALLEL_COUNT;
use super::sessions::SESSIONS_MAX;
use crate::coordinator::core::{Answer, Rejection, lock};
use crate::message::{Cause, Denial, NotOpened, ask};
use crate::ports::Ask as _;
use futures::future::join_all;
use futures::stream::{self, StreamExt};
use gabion_layout::{NodeId, StripeId};
use gabion_meta::{
    Exclusive, Existing, FencingToken, Inode, KeyValue, Meta, MetaError, PutId, RelativePath,
    SessionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time limit of a node's answer, which waits for updates that run.
pub(super) const TELL_DEADLINE_MS: u64 = 5_000;
/// Longest wait for stripes that other tasks of the coordinator have, and the pause between two looks at one. A request
/// with the wait for nodes before it ends within a client's attempt.
const OCCUPIED_WAIT_MS: u64 = 3_000;
const OCCUPIED_PAUSE_MS: u64 = 50;

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Opens a file exclusively. While earlier writes have not ended yet, the session is durable and the request
    /// rejected for now.
    pub(in crate::coordinator) async fn open_exclusive(
        self: &Arc<Self>,
        asked: ask::OpenExclusive,
    ) -> Answer<Result<FencingToken, NotOpened>> {
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
            return Ok(Err(NotOpened::InUse { left_ms }));
        }
        if !self.sessions.has_room(file, self.core.ports.now_ms()) {
            let sentence = format!(
                "{SESSIONS_MAX} files are open exclusively, which is the limit; end some of these clients"
            );
            return Err(sentence.into());
        }
        let open = move |meta: &Meta<K>| meta.open_exclusive(file, session, seen);
        let token = match self.core.with_meta(open).await {
            Ok(token) => token,
            Err(MetaError::Superseded { .. }) => return Ok(Err(NotOpened::Changed)),
            Err(error) => return Err(error.into()),
        };
        self.sessions
            .take_over(file, session, self.core.ports.now_ms());
        drop(opening);
        let raised = self.raise(file, token).await;
        if raised.is_ok() {
            self.sessions.begin(file, session);
        }
        // The client begins to renew when it has the answer.
        self.sessions.renew(file, session, self.core.ports.now_ms());
        raised.map(|()| Ok(token))
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
    ) -> Answer<Result<FencingToken, NotOpened>> {
        let session = SessionId(self.core.ports.random());
        let opened = self
            .open_exclusive(ask::OpenExclusive {
                file,
                session,
                seen,
                takes_over: false,
            })
            .await;
        match opened {
            Ok(Err(_)) => {}
            Ok(Ok(_)) => {
                self.close_exclusive(ask::CloseExclusive { file, session })
                    .await?;
            }
            // The writes of the earlier client have not ended yet: the session stays without a client until they have.
            Err(_) => {
                self.sessions.leave(file, session);
            }
        }
        opened
    }

    /// Ends all writes of the file that clients have begun. They may begin others: a client that may not knows it by
    /// then.
    ///
    /// # Errors
    /// Those of [`Files::raise`]: the call is to be repeated.
    pub(in crate::coordinator) async fn fence_writers(self: &Arc<Self>, file: PutId) -> Answer<()> {
        let raise = move |meta: &Meta<K>| meta.raise_token(file);
        let token = match self.core.with_meta(raise).await {
            Ok(token) => token,
            // Its locks have gone with it.
            Err(MetaError::FileGone(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.raise(file, token).await
    }

    /// Ends all that writers with lower tokens have begun. Every node that may serve refuses their updates from
    /// now on, and says in which terms none runs any more. Other stripes that ever had a primary are settled
    /// under a new term: what a primary left behind that failed, was restarted or has lost its term can no
    /// longer take effect. A node that is declared failed joins before it serves, and then asks for tokens anew.
    ///
    /// # Errors
    /// A rejection for now if a node or a stripe is in the way.
    async fn raise(self: &Arc<Self>, file: PutId, token: FencingToken) -> Answer<()> {
        let tokens = BTreeMap::from([(file, token)]);
        self.raise_all(&tokens, (TELL_DEADLINE_MS, None)).await
    }

    /// The same for several files, with a time limit of each node's answer, and the time after which no settlement
    /// begins any more.
    pub(super) async fn raise_all(
        self: &Arc<Self>,
        tokens: &BTreeMap<PutId, FencingToken>,
        (tell_deadline_ms, until_ms): (u64, Option<u64>),
    ) -> Answer<()> {
        if tokens.is_empty() {
            return Ok(());
        }
        let failed = self.nodes.failed();
        let nodes = self.nodes.statuses().into_iter().map(|status| status.node);
        let nodes: Vec<NodeId> = nodes.filter(|node| !failed.contains(node)).collect();
        let told = nodes.iter().map(|&node| {
            let tokens = tokens.clone();
            let request = ask::RaiseTokens { tokens };
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
                    return Err(Rejection::busy(why));
                }
            }
        }
        let files: Vec<PutId> = tokens.keys().copied().collect();
        let find = move |meta: &Meta<K>| meta.unsettled(&files, &vouched);
        let led = self.core.with_meta(find).await?;
        let wait_until_ms = self.core.ports.now_ms() + OCCUPIED_WAIT_MS;
        let limits = (until_ms, until_ms.unwrap_or(wait_until_ms));
        let settling = led.into_iter();
        let settling = settling.map(|stripe| self.fence_primary(stripe, limits));
        let mut settling = stream::iter(settling).buffer_unordered(SETTLE_PARALLEL_COUNT);
        let mut in_the_way = None;
        while let Some(fenced) = settling.next().await {
            match fenced {
                Ok(()) => {}
                Err(Rejection::Busy(why)) => {
                    in_the_way.get_or_insert(why);
                }
                Err(refused) => return Err(refused),
            }
        }
        in_the_way.map_or(Ok(()), |why| Err(Rejection::Busy(why)))
    }

    /// Settles a stripe under a term of the coordinator, so that its former primaries' messages are refused. No
    /// settlement begins after the first of the two times. A stripe that another task of the coordinator has is waited
    /// for until the second: a repair settles it, too. If something is in the way, returns that: the stripe stays
    /// unsettled for the next attempt.
    async fn fence_primary(
        self: &Arc<Self>,
        stripe: StripeId,
        (until_ms, wait_until_ms): (Option<u64>, u64),
    ) -> Answer<()> {
        let ports = &self.core.ports;
        let occupation = loop {
            if until_ms.is_some_and(|until_ms| ports.now_ms() >= until_ms) {
                return Err(Rejection::busy(
                    "not all stripes of the file are settled yet",
                ));
            }
            match self.occupied.occupy(vec![stripe]) {
                Ok(occupation) => break occupation,
                Err(_) if ports.now_ms() >= wait_until_ms => {
                    let why = format!("{stripe} is being repaired or rewritten");
                    return Err(Rejection::busy(why));
                }
                Err(_) => ports.sleep_ms(OCCUPIED_PAUSE_MS).await,
            }
            let look = move |meta: &Meta<K>| meta.is_settled(stripe);
            if self.core.with_meta(look).await? {
                return Ok(());
            }
        };
        let fenced = self.settle_alone(stripe).await;
        self.leave(occupation).await?;
        fenced
    }

    /// Does so for a stripe that no other task of the coordinator has.
    async fn settle_alone(self: &Arc<Self>, stripe: StripeId) -> Answer<()> {
        let epoch = match self.leases.take_lease(stripe).await {
            Err(error @ MetaError::Held { .. }) => return Err(Rejection::busy(error.to_string())),
            taken => taken?,
        };
        let Some(epoch) = epoch else {
            // It has left the file.
            return Ok(());
        };
        let settled = self.settle_old(stripe, epoch).await;
        let is_settled = settled.is_ok();
        let released = self.leases.release_lease(stripe, epoch, is_settled).await?;
        if let Err(Rejection::Busy(why) | Rejection::Refused(why)) = settled {
            return Err(Rejection::busy(why.to_string()));
        }
        if !released {
            let why = format!("{stripe} has changed its primary; try again");
            return Err(Rejection::busy(why));
        }
        Ok(())
    }

    /// Notes that a session's client is alive, also if its request cannot be answered yet: another client may displace
    /// the session as soon as one can.
    pub(in crate::coordinator) fn note_life(&self, asked: &ask::RenewExclusive) {
        let &ask::RenewExclusive { file, session } = asked;
        self.sessions
            .note_life(file, session, self.core.ports.now_ms());
    }

    /// Notes that a session's client is alive, and answers whether the session goes on.
    pub(in crate::coordinator) async fn renew_exclusive(
        &self,
        asked: ask::RenewExclusive,
    ) -> Answer<bool> {
        self.note_life(&asked);
        let ask::RenewExclusive { file, session } = asked;
        self.core.check_may_answer()?;
        let goes_on = self.exclusive(file).await?.session == Some(session);
        if goes_on {
            self.sessions.renew(file, session, self.core.ports.now_ms());
        }
        Ok(goes_on)
    }

    /// Ends a session. One that has not begun first ends the writes of earlier clients. If that fails, it stays
    /// without a client, and the next writer displaces it.
    pub(in crate::coordinator) async fn close_exclusive(
        self: &Arc<Self>,
        asked: ask::CloseExclusive,
    ) -> Answer<()> {
        let ask::CloseExclusive { file, session } = asked;
        let (present, may_end) = {
            let _opening = self.opening.lock().await;
            let present = self.exclusive(file).await?;
            let has_it = present.session == Some(session);
            (present, !has_it || self.sessions.leave(file, session))
        };
        if !may_end && self.raise(file, present.token).await.is_err() {
            return Ok(());
        }
        let close = move |meta: &Meta<K>| meta.close_exclusive(file, session);
        self.core.with_meta(close).await?;
        self.sessions.forget(file, session);
        Ok(())
    }

    /// The fencing token of a file, for the primary of one of its stripes.
    pub(in crate::coordinator) async fn token(&self, asked: ask::Token) -> Answer<FencingToken> {
        let ask::Token { file, stripe } = asked;
        let look = move |meta: &Meta<K>| meta.token_to_update(file, stripe);
        Ok(self.core.with_meta(look).await?)
    }

    /// Refuses to remove or replace a file whose session is alive, if the request `concerns` the file that has the
    /// name, and displaces a session that is not alive. The transaction that removes the file refuses again if a
    /// session has it by then. If the change with this `number` was made already, nothing is in its way.
    pub(in crate::coordinator) async fn check_unused(
        self: &Arc<Self>,
        name: &RelativePath,
        number: Option<u64>,
        concerns: impl Fn(PutId) -> bool,
    ) -> Result<(), Denial> {
        let displaced = self.displace_abandoned(name, number, concerns).await;
        displaced.map_err(|in_the_way| match in_the_way {
            Rejection::Busy(why) => Denial::new(why.cause, format!("{why}; try again")),
            Rejection::Refused(why) => why,
        })
    }

    /// Displaces a session that is not alive, if it has the file that an open put replaces. The transaction of the
    /// commit refuses a session that is alive.
    ///
    /// # Errors
    /// A rejection for now if the session's client is gone, but its writes have not ended yet.
    pub(super) async fn displace_replaced(self: &Arc<Self>, put: PutId) -> Answer<()> {
        let replaces = {
            let puts = lock(&self.puts);
            puts.get(&put).and_then(|live| live.replaces.clone())
        };
        let Some((at, existing)) = replaces else {
            return Ok(());
        };
        let concerns = |present: PutId| match existing {
            Existing::IsReplacedIf(expected) => present == expected,
            Existing::IsReplaced => true,
            Existing::Stays => false,
        };
        match self.displace_abandoned(&at, None, concerns).await {
            Err(Rejection::Refused(_)) => Ok(()),
            displaced => displaced,
        }
    }

    /// Displaces the session of the file that has a name, if it is not alive and the request `concerns` the file.
    ///
    /// # Errors
    /// A refusal if a client has the file; one for now if that client is gone, but its writes have not ended yet.
    async fn displace_abandoned(
        self: &Arc<Self>,
        name: &RelativePath,
        number: Option<u64>,
        concerns: impl Fn(PutId) -> bool,
    ) -> Answer<()> {
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
        if let Err(NotOpened::InUse { left_ms }) = self.displace(file, present.token).await? {
            let sentence = format!(
                "a client has '{name}' open exclusively; end that client first. Without a renewal the file becomes \
                free in {} s",
                left_ms.div_ceil(1_000)
            );
            return Err(Denial::new(Cause::InUse, sentence).into());
        }
        Ok(())
    }

    fn left_ms(&self, file: PutId, session: Option<SessionId>) -> Option<u64> {
        self.sessions
            .left_ms(file, session?, self.core.ports.now_ms())
    }
}
