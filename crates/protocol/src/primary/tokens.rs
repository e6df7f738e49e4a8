//! Fencing tokens of files: a primary refuses an update whose token is lower than the file's.
//!
//! The coordinator gives the token with the lease of a stripe, and raises it at all nodes before a session
//! begins. A node that was declared failed before the raise is not told: after its next join it asks for the
//! tokens of its terms again.
//!
//! After a raise, a primary asks the coordinator before its next update: a stripe that a snapshot shares is not updated
//! in place any more.

use super::{COORDINATOR_DEADLINE_MS, LedStripe, Primaries, Primary};
use crate::locks::lock;
use crate::message::{Refusal, ask};
use crate::ports::{Ask as _, CoordinatorError};
use crate::term::{KnownToken, Term};
use futures::future::join_all;
use gabion_layout::{Epoch, StripeId};
use gabion_meta::{FencingToken, PutId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Primaries {
    /// The number of the node's present membership.
    pub(super) fn membership(&self) -> u64 {
        self.memberships.load(Ordering::Acquire)
    }

    /// The node is not told of new tokens until it has joined again.
    pub(crate) fn end_membership(&self) {
        self.memberships.fetch_add(1, Ordering::AcqRel);
    }

    /// Refuses an update of a client that a session has fenced out.
    pub(super) async fn check_token(
        &self,
        term: &mut Term,
        update: &ask::Update,
    ) -> Result<(), Refusal> {
        let membership = self.membership();
        let is_known = term.token.is_some_and(|known| {
            (known.file, known.membership) == (update.file, membership)
                && known.is_confirmed
                && known.token >= update.token
        });
        if !is_known {
            let token = self.ask_token(update.file, update.stripe).await?;
            term.token = KnownToken::of(Some(update.file), Some(token), membership);
        }
        match term.token {
            Some(known) if known.token != update.token => Err(Refusal::Superseded {
                current: known.token,
            }),
            _ => Ok(()),
        }
    }

    async fn ask_token(&self, file: PutId, stripe: StripeId) -> Result<FencingToken, Refusal> {
        let request = ask::Token { file, stripe };
        let asked = self.ports.ask_coordinator(request, COORDINATOR_DEADLINE_MS);
        asked.await.map_err(|error| match error {
            CoordinatorError::Silent(error) => Refusal::Unavailable(error.peer),
            other => Refusal::Interrupted(other.to_string()),
        })
    }

    /// Refuses updates of these files with lower tokens from now on. When it returns, no such update runs in the
    /// returned terms. Others of the files may have updates on their way.
    pub(crate) async fn raise_tokens(
        &self,
        tokens: &BTreeMap<PutId, FencingToken>,
    ) -> Vec<(StripeId, Epoch)> {
        let mut led: Vec<Arc<LedStripe>> = lock(&self.stripes).values().cloned().collect();
        // Updates of others may be stuck. A stripe that has been another file's is settled instead.
        led.retain(|led| {
            let file = led.file.get();
            file.is_none_or(|file| tokens.contains_key(file))
        });
        let raised = join_all(led.iter().map(|led| led.raise_tokens(tokens))).await;
        raised.into_iter().flatten().collect()
    }
}

impl LedStripe {
    async fn raise_tokens(
        &self,
        tokens: &BTreeMap<PutId, FencingToken>,
    ) -> Option<(StripeId, Epoch)> {
        // A locked one may run an update, or wait for a lease with an earlier token.
        if let Some(mut primary) = self.primary.try_lock() {
            return primary.raise_tokens(tokens);
        }
        let _turn = self.turns.wait().await;
        self.primary.lock().await.raise_tokens(tokens)
    }
}

impl Primary {
    /// Returns the term if its stripe is known to be of one of the files.
    fn raise_tokens(
        &mut self,
        tokens: &BTreeMap<PutId, FencingToken>,
    ) -> Option<(StripeId, Epoch)> {
        let term = self.term.as_mut()?;
        let known = term.token.as_mut()?;
        let token = tokens.get(&known.file)?;
        known.token = known.token.max(*token);
        // A snapshot may be the reason of the raise.
        known.is_confirmed = false;
        Some((term.stripe.id, term.epoch))
    }
}
