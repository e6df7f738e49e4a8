//! The updates of a primary. The primary makes one update of a stripe at a time. Requests that arrive during an
//! update wait in a line, and the primary makes those that change different bytes together: as one plan, with one
//! sequence and one record a participant. So the recovery rule decides about all of them at once.

use super::batch::{Asked, Batch, Line, NotDone, changed_bytes};
use super::{Primaries, Primary};
use crate::initiate::{PartFailed, fits_records, run_heard, substitutes};
use crate::locks::lock;
use crate::measure::{Measure, UpdateTimes, Updated};
use crate::message::{NodeStatus, Refusal, ask};
use crate::term::{Planned, Term};
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkIndex, ChunkRange, NodeId, Sequence};
use gabion_plan::{Goal, Plan};

impl Primaries {
    /// Makes one update, alone or with others that wait.
    pub(crate) async fn update(
        &self,
        update: &ask::Update,
        nodes: &[NodeStatus],
    ) -> Result<Sequence, NotDone> {
        let began_us = self.ports.now_us();
        let ended = self.end_phases(update, nodes).await;
        ended.map_err(NotDone::NotBegun)?;
        let led = self.led(update.stripe);
        led.file.get_or_init(|| update.file);
        let mut answer = led
            .line
            .join(update.clone(), began_us, self.ports.now_us())
            .fuse();
        let lost = |_| {
            let why = "the update that a node made together with others".to_owned();
            Err(NotDone::Refused(Refusal::Interrupted(why)))
        };
        let _turn = select_biased! {
            made = answer => return made.unwrap_or_else(lost),
            turn = led.turns.wait().fuse() => turn,
        };
        let mut primary = led.primary.lock().await;
        loop {
            if let Some(made) = (&mut answer).now_or_never() {
                return made.unwrap_or_else(lost);
            }
            // Its own request is still in the line, perhaps behind one that changes the same bytes.
            if let Some(batch) = led.line.take() {
                self.make(&mut primary, (&led.line, batch), nodes).await;
            }
        }
    }

    /// Makes the requests of a batch, or the first of them alone, and answers them.
    async fn make(
        &self,
        primary: &mut Primary,
        (line, mut batch): (&Line, Batch),
        nodes: &[NodeStatus],
    ) {
        let turn_us = self.ports.now_us();
        let prepared = self.prepare(primary, (line, &mut batch), nodes).await;
        let plan = match prepared {
            Ok(plan) => plan,
            Err(refusal) => return batch.answer(|| Err(NotDone::NotBegun(refusal.clone()))),
        };
        let planned_us = self.ports.now_us();
        match self.run(primary, &batch, &plan).await {
            Ok((sequence, last)) => {
                let times = |asked: &Asked| UpdateTimes {
                    turn_us: turn_us.saturating_sub(asked.ended_us),
                    term_us: (planned_us - turn_us) + (asked.ended_us - asked.began_us),
                    parts_us: self.ports.now_us() - planned_us,
                };
                for asked in &batch.0 {
                    self.measure(primary, &asked.update, (times(asked), last));
                }
                batch.answer(|| Ok(sequence));
            }
            Err(refusal) => batch.answer(|| Err(NotDone::Refused(refusal.clone()))),
        }
    }

    /// Tells the process of a committed update.
    fn measure(
        &self,
        primary: &Primary,
        update: &ask::Update,
        (times, last): (UpdateTimes, Option<NodeId>),
    ) {
        let Some(term) = &primary.term else { return };
        let (pool, scheme) = &term.names;
        self.ports.measure(&Measure::Updated(Updated {
            pool,
            scheme,
            bytes: changed_bytes(update),
            times,
            last,
        }));
    }

    /// All steps before an update gets a sequence: it is planned, and noted at the coordinator where
    /// needed. No part of it begins.
    async fn prepare(
        &self,
        primary: &mut Primary,
        (line, batch): (&Line, &mut Batch),
        nodes: &[NodeStatus],
    ) -> Result<Plan, Refusal> {
        // All requests of a batch have the same generation, file and token.
        self.admit(primary, &batch.0[0].update, nodes).await?;
        let Planned { plan, missed } = plan(primary, (line, batch), nodes)?;
        self.note(primary, &plan, missed, nodes).await?;
        Ok(plan)
    }

    /// Makes sure of a term in which an update may be made: of its layout, and with its token.
    async fn admit(
        &self,
        primary: &mut Primary,
        update: &ask::Update,
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        let (stripe, file) = (update.stripe, Some(update.file));
        self.ensure_whole_term(primary, (stripe, file), nodes)
            .await?;
        if update.generation > term_of(primary).stripe.generation {
            // The layout has changed since this term began; the new one needs a new term.
            primary.renounce();
            self.ensure_term(primary, stripe, file).await?;
        }
        let term = term_of(primary);
        if update.generation < term.stripe.generation {
            return Err(Refusal::StaleGeneration {
                current: term.stripe.generation,
            });
        }
        self.check_token(term, update).await
    }

    /// Makes durable at the coordinator what it must know before the update begins.
    async fn note(
        &self,
        primary: &mut Primary,
        plan: &Plan,
        missed: Vec<ChunkIndex>,
        nodes: &[NodeStatus],
    ) -> Result<(), Refusal> {
        let is_append = matches!(plan.goal, Goal::Append { .. });
        if !is_append {
            // An update that parity does not cover must not precede one that it covers.
            self.commit_waiting(primary, nodes).await?;
        }
        let term = term_of(primary);
        let mut noted = self.leave_out(term, missed).await;
        if noted.is_ok() && is_append {
            noted = self.note_phase(term, true).await;
        }
        if noted.is_err() {
            // Whether the coordinator has made the note is unknown; a new term finds out.
            primary.renounce();
        }
        noted
    }

    /// Runs an update that has been prepared. Returns its number, and the node that was the last to do its part.
    async fn run(
        &self,
        primary: &mut Primary,
        batch: &Batch,
        plan: &Plan,
    ) -> Result<(Sequence, Option<NodeId>), Refusal> {
        let term = term_of(primary);
        let is_append = matches!(plan.goal, Goal::Append { .. });
        let (sequence, terms) = term.number(batch.runs(), plan);
        let no_own_part = |_| futures::future::ready(Ok(())).boxed();
        match run_heard(&*self.ports, plan, &terms, no_own_part, &self.heard).await {
            Ok(ran) => {
                lock(&self.planned).count_plan(plan, &term.topology, terms.purpose);
                term.waiting.note_plan(plan);
                if let Some(of) = term.append.as_ref().filter(|_| is_append) {
                    let now_ms = self.ports.now_ms();
                    let (stripe, bytes) = (term.stripe.id, batch.changed_bytes());
                    lock(&self.phases).note((of.0, &of.1), stripe, bytes, now_ms);
                }
                self.spread_mark(primary.commit(sequence));
                Ok((sequence, ran.last))
            }
            Err(PartFailed { refusal, .. }) => {
                // Some participants may hold a record and others not: the recovery rule must decide.
                primary.renounce();
                Err(refusal)
            }
        }
    }
}

fn term_of(primary: &mut Primary) -> &mut Term {
    let term = primary.term.as_mut();
    term.expect("a primary that makes an update has a term")
}

/// The plan of a batch. If there is none for all of it, the batch keeps its first request alone.
fn plan(
    primary: &mut Primary,
    (line, batch): (&Line, &mut Batch),
    nodes: &[NodeStatus],
) -> Result<Planned, Refusal> {
    let term = term_of(primary);
    if batch.0.len() > 1 {
        let together = plan_ranges(term, &batch.ranges(), nodes);
        let may_run = |planned: &Planned| {
            substitutes(&planned.plan).is_empty() && fits_records(&planned.plan)
        };
        match together {
            Ok(planned) if may_run(&planned) => return Ok(planned),
            _ => line.put_back_others(batch),
        }
    }
    let update = &batch.0[0].update;
    let planned = plan_ranges(term, &update.ranges, nodes)?;
    let expected = substitutes(&planned.plan);
    if update.substitutes != expected {
        return Err(Refusal::StageAt(expected));
    }
    Ok(planned)
}

fn plan_ranges(
    term: &Term,
    ranges: &[ChunkRange],
    nodes: &[NodeStatus],
) -> Result<Planned, Refusal> {
    match term.plan_append(ranges, nodes)? {
        Some(planned) => Ok(planned),
        None => term.plan(ranges, nodes),
    }
}
