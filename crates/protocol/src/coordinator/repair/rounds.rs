//! The repair of one stripe: the steps during which its updates wait, and those during which they continue.
//!
//! In a *round* the coordinator has the stripe's lease, which fences its primary, and settles the stripe.
//! It brings chunks up to date that only missed some updates, and counts those that were rebuilt since the
//! last round. Then it pins the mark at the helpers of the next chunk, and gives the lease back: the chunk
//! is rebuilt as of that mark while updates continue, and catches up with them in the next round.
//!
//! A chunk counts again only when its node has read all of it back. Until then the record keeps its old
//! place, so that a crash of any process leaves the stripe unchanged except for the lease, which the next
//! run of the coordinator supersedes.

use super::Repair;
use super::attempt::{Admitted, Ended, OUTRUN_COUNT_MAX, Progress, Rebuild, Round};
use super::pins::Pins;
use super::survey::{Survey, TaskError};
use gabion_layout::{NodeId, StripeId};
use gabion_meta::KeyValue;
use std::sync::Arc;

/// The step after a round.
enum Next {
    /// This chunk is made while updates go on.
    Make(Box<Begun>),
    /// Another round, in a new term.
    Round,
    /// Nothing.
    End,
}

/// A chunk to make while updates go on.
struct Begun {
    survey: Survey,
    rebuild: Rebuild,
    pins: Pins,
}

impl Next {
    fn make(survey: Survey, rebuild: Rebuild, pins: Pins) -> Self {
        Self::Make(Box::new(Begun {
            survey,
            rebuild,
            pins,
        }))
    }
}

impl<K: KeyValue + Send + Sync + 'static> Repair<K> {
    /// Repairs all chunks of a stripe that need it. A stripe that is gone, or needs no repair any more, is
    /// left unchanged.
    pub(super) async fn repair_stripe(
        self: Arc<Self>,
        id: StripeId,
        admitted: Option<Admitted>,
    ) -> Result<Ended, TaskError> {
        let Some(survey) = self.survey(id).await? else {
            return Ok(Ended::Done);
        };
        if survey.fleet.work(&survey.stripe).is_empty() {
            return Ok(Ended::Done);
        }
        survey.check_hope()?;
        let Ok(_occupation) = self.occupied.occupy(vec![id]) else {
            return Err(TaskError(
                "it is being rewritten; its repair waits".to_owned(),
            ));
        };
        let mut progress = Progress::new(admitted);
        let mut made = None;
        let mut patient_until_ms = 0;
        loop {
            let ended = self.leased_round(id, &mut progress, &mut made).await;
            if ended.is_err() && made.is_some() && self.core.ports.now_ms() < patient_until_ms {
                // A silent node soon answers again or is declared failed: the rebuilt chunk is kept until
                // then.
                self.core.ports.sleep_ms(self.core.options.retry_ms).await;
                continue;
            }
            if let Some((rebuild, pins)) = made.take() {
                // The round ended before the chunk counted.
                for made in &rebuild.made {
                    self.abandon(id, made, rebuild.epoch, &mut progress).await;
                }
                self.unpin(pins);
            }
            let begun = match ended? {
                Next::Make(begun) => begun,
                Next::Round => continue,
                Next::End => {
                    return match progress.no_place {
                        Some(error) => Err(error),
                        None if progress.is_unfinished => Ok(Ended::Unfinished),
                        None => Ok(Ended::Done),
                    };
                }
            };
            let Begun {
                survey,
                mut rebuild,
                pins,
            } = *begun;
            match self.make(&survey, &mut rebuild, &mut progress).await {
                Ok(true) => {
                    made = Some((rebuild, pins));
                    let timing = self.core.options.timing;
                    let patience_ms = 2 * (timing.lease_ms + timing.margin_ms);
                    patient_until_ms = self.core.ports.now_ms().saturating_add(patience_ms);
                }
                not_made => {
                    self.unpin(pins);
                    not_made?;
                }
            }
        }
    }

    /// One round under the lease: counts rebuilt chunks, and chooses the next chunk to make, if any.
    async fn leased_round(
        self: &Arc<Self>,
        id: StripeId,
        progress: &mut Progress,
        made: &mut Option<(Rebuild, Pins)>,
    ) -> Result<Next, TaskError> {
        let Some(epoch) = self.leases.take_lease(id).await? else {
            return Ok(Next::End);
        };
        progress.taken_away.clear();
        let settled = self.settle(id, epoch).await;
        let is_settled = settled.is_ok();
        let ended = match settled {
            Ok(Some((outcome, absent))) => {
                let round = Round {
                    epoch,
                    outcome,
                    absent,
                };
                self.round(id, round, progress, made).await
            }
            Ok(None) => Ok(Next::End),
            Err(error) => Err(error),
        };
        // A repair makes no update, so a client that ends the writes of others need not settle the stripe again.
        let released = self.leases.release_lease(id, epoch, is_settled).await;
        let next = ended?;
        released?;
        Ok(next)
    }

    async fn round(
        self: &Arc<Self>,
        id: StripeId,
        round: Round,
        progress: &mut Progress,
        made: &mut Option<(Rebuild, Pins)>,
    ) -> Result<Next, TaskError> {
        if let Some((rebuild, pins)) = made.take() {
            let counted = self.count_made(id, &round, &rebuild, progress).await;
            self.unpin(pins);
            counted?;
        }
        // Each iteration makes a chunk whole, finds a lost one, avoids one more node, or finds a chunk
        // without a place or beyond the logs, so the loop ends.
        while let Some(survey) = self.survey(id).await? {
            let mut work = survey.fleet.work(&survey.stripe).into_iter();
            let Some(chunk) = work.find(|chunk| !progress.unplaced.contains(chunk)) else {
                break;
            };
            let behind = survey.behind(chunk);
            if let Some(from) = behind.filter(|_| !progress.beyond_logs.contains(&chunk)) {
                if !self.return_chunk(&survey, chunk, from, &round).await? {
                    progress.beyond_logs.insert(chunk);
                }
                continue;
            }
            let requestor = match self.choose_requestor(&survey, chunk, progress).await {
                Ok(requestor) => requestor,
                Err(error) => {
                    progress.unplaced.insert(chunk);
                    progress.no_place = Some(error);
                    continue;
                }
            };
            let targets = self.companions(&survey, (chunk, requestor), progress);
            if targets
                .iter()
                .any(|target| progress.taken_away.contains(target))
            {
                // Each such round has made and discarded a chunk, which it does a few times at most.
                return Ok(Next::Round);
            }
            let mut rebuild = self.prepare(&survey, &targets, &round, progress).await?;
            if progress.outrun_count < OUTRUN_COUNT_MAX {
                let Some(spread_ms) = self.admit(&survey, &rebuild, progress) else {
                    progress.is_unfinished = true;
                    return Ok(Next::End);
                };
                rebuild.spread_ms = spread_ms;
                let pins = self.pin(&survey, &round, spread_ms).await;
                return Ok(Next::make(survey, rebuild, pins));
            }
            // Updates wait for it, so it is not throttled.
            self.charge(&survey, &rebuild.cost);
            if self.make(&survey, &mut rebuild, progress).await? {
                self.count_made(id, &round, &rebuild, progress).await?;
            }
        }
        Ok(Next::End)
    }

    /// Pins the mark at the nodes that may help. A node without the pin may merge later updates into its
    /// chunk, and then the rebuild has to start again.
    async fn pin(&self, survey: &Survey, round: &Round, spread_ms: u64) -> Pins {
        let (stripe, cut) = (survey.stripe.id, round.outcome.mark);
        let unreadable = survey.unreadable(&round.absent);
        let helpers = survey.stripe.chunks().filter(|c| !unreadable.contains(c));
        let nodes: Vec<NodeId> = helpers.filter_map(|c| survey.stripe.node_of(c)).collect();
        let hold_ms = 2 * self
            .core
            .options
            .repair_deadline_ms
            .saturating_add(spread_ms);
        self.pin_nodes(stripe, cut, nodes, hold_ms).await
    }
}
