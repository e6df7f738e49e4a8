//! A node's upkeep: applies and merges settled records in the background, and manages the reserved space
//! behind parity chunks.
//!
//! [`crate::reserves`] decides the size of a reserve, and the store resizes it. This file decides when: the
//! work of reviews is done while no updates arrive, within a budget; and a reserve grows as soon as writes
//! have stalled.
//!
//! Chunks that were set aside are deleted after a day of this process.

use crate::measure::{Measure, Merging};
use crate::message::{Damage, NodeUsage, Refusal, ask};
use crate::participant::{Participant, damage};
use crate::ports::Ask as _;
use crate::reserves::Reserves;
use crate::trash::Trash;
use gabion_layout::ChunkId;
use gabion_planner::reserve::{Budget, Task};
use gabion_store::{ReserveStats, Store, StoreCounts, StoreError};

/// Bytes of records in one round of applying.
const APPLY_LIMIT_BYTES: u64 = 64 << 20;
/// Period of the checks of all reserves, unless a pool's period is shorter or writes have stalled.
const LOOK_EVERY_MS: u64 = 10_000;
/// Stripes in one question about reserves to the coordinator.
const ASK_STRIPE_COUNT: usize = 4096;
/// Time limit of the coordinator's answer.
const ASK_DEADLINE_MS: u64 = 2_000;

/// A node's state between rounds of upkeep.
#[derive(Debug)]
pub(crate) struct Upkeep {
    reserves: Reserves,
    /// The space of the store at the last check.
    usage: Option<NodeUsage>,
    /// Since when no round has left the journal without pending records; none when the last one did.
    pending_since_ms: Option<u64>,
    budget: Budget,
    trash: Trash,
    counts: StoreCounts,
    round_ms: u64,
    look_ms: u64,
}

impl Upkeep {
    /// Upkeep with an empty history. Shrinking and merging reserves may move this many bytes in a second in
    /// which no updates arrive.
    pub(crate) fn new(now_ms: u64, reserve_bytes_per_s: u64) -> Self {
        Self {
            reserves: Reserves::default(),
            usage: None,
            pending_since_ms: None,
            budget: Budget::new(reserve_bytes_per_s),
            trash: Trash::default(),
            counts: StoreCounts::default(),
            round_ms: now_ms,
            look_ms: now_ms,
        }
    }

    /// The space of the store at the last check, if there was one.
    pub(crate) fn usage(&self) -> Option<&NodeUsage> {
        self.usage.as_ref()
    }

    /// Since when no round has left the journal without pending records; none when the last one did.
    pub(crate) fn pending_since_ms(&self) -> Option<u64> {
        self.pending_since_ms
    }

    /// One round. Returns the damage that it found, also if it ends with an error of the store: the next round retries.
    pub(crate) async fn round(&mut self, participant: &Participant) -> Vec<Damage> {
        let mut damage = Vec::new();
        if let Err(Refusal::Damaged(found)) = self.try_round(participant, &mut damage).await {
            damage.push(found);
        }
        damage
    }

    async fn try_round(
        &mut self,
        participant: &Participant,
        damage: &mut Vec<Damage>,
    ) -> Result<(), Refusal> {
        log_witnesses(participant).await?;
        let (found, is_pending) = apply(participant).await?;
        damage.extend(found);
        let now_ms = participant.ports.now_ms();
        self.pending_since_ms = is_pending.then(|| self.pending_since_ms.unwrap_or(now_ms));
        let counts = participant.store.counts();
        let is_idle = counts.append_count == self.counts.append_count;
        let has_stalled = counts.stalled_append_count != self.counts.stalled_append_count;
        if is_idle {
            self.budget.pass(now_ms - self.round_ms);
        }
        self.counts = counts;
        self.round_ms = now_ms;
        if has_stalled || now_ms >= self.look_ms {
            self.look(participant, now_ms).await?;
        }
        while let Some(task) = is_idle
            .then(|| self.reserves.take(&mut self.budget))
            .flatten()
        {
            damage.extend(tend(participant, task).await?);
            // Updates should not wait for the rest.
            if participant.store.counts().append_count != counts.append_count {
                break;
            }
        }
        Ok(())
    }

    /// Checks all reserves: grows those whose writes have stalled, and reviews those whose period has ended. Deletes
    /// due files from the trash.
    async fn look(&mut self, participant: &Participant, now_ms: u64) -> Result<(), Refusal> {
        let looked = participant.with_store(|store| {
            let found = found_reserves(store)?;
            Ok((found, store.used_bytes()))
        });
        let (found, used_bytes) = looked.await?;
        self.reserves.retain(&found);
        self.learn_specs(participant, &found).await;
        self.usage = Some(self.count(&found, used_bytes + self.trash.bytes()));
        let decided = self.reserves.decide(&found, now_ms);
        self.look_ms = decided.next_ms.min(now_ms + LOOK_EVERY_MS);
        let planned = decided.planned;
        let plans = participant.with_store(move |store| store.plan_reserves(&planned));
        plans.await?;
        for (chunk, bytes) in decided.grown {
            grow(participant, chunk, bytes).await?;
        }
        // At last, since a file that cannot be deleted must end nothing else.
        self.tend_trash(participant, now_ms).await
    }

    /// Measures new files of the trash, and deletes due ones. A file that cannot be measured takes no space, and is
    /// measured again.
    async fn tend_trash(&mut self, participant: &Participant, now_ms: u64) -> Result<(), Refusal> {
        let trash = participant.with_store(Store::trash).await?;
        let unmeasured = self.trash.unmeasured(&trash);
        if !unmeasured.is_empty() {
            let measured = participant.with_store(move |store| Ok(store.trash_bytes(unmeasured)));
            self.trash.learn(measured.await?);
        }
        let due = self.trash.due(trash, now_ms);
        if due.is_empty() {
            return Ok(());
        }
        let emptied = participant.with_store(move |store| store.empty_trash(&due));
        emptied.await
    }

    /// The space of the store. A reserve whose pool is not known yet is in the sum only.
    fn count(&self, found: &[(ReserveStats, u64)], used_bytes: u64) -> NodeUsage {
        let mut usage = NodeUsage {
            used_bytes,
            ..NodeUsage::default()
        };
        for (stats, _) in found {
            if let Some(pool) = self.reserves.pool_of(stats.chunk.stripe) {
                *usage.reserved_bytes.entry(pool).or_default() += stats.backed_bytes;
            }
        }
        usage
    }

    /// Asks the coordinator for the pools' rules of new reserves. The next check repeats a question without
    /// an answer.
    async fn learn_specs(&mut self, participant: &Participant, found: &[(ReserveStats, u64)]) {
        let unknown = self.reserves.unknown(found, ASK_STRIPE_COUNT);
        if unknown.is_empty() {
            return;
        }
        let request = ask::Reserves(unknown);
        let answer = participant.ports.ask_coordinator(request, ASK_DEADLINE_MS);
        if let Ok(specs) = answer.await {
            self.reserves.learn_specs(specs);
        }
    }
}

/// All reserves with the bytes of their chunks.
fn found_reserves(store: &Store) -> Result<Vec<(ReserveStats, u64)>, StoreError> {
    let mut found = Vec::new();
    for stats in store.reserves()? {
        let info = match store.chunk_info(stats.chunk) {
            Ok(info) => info,
            // Deleted after it was listed.
            Err(StoreError::NoSuchChunk { .. }) => continue,
            Err(error) => return Err(error),
        };
        found.extend(info.spec.map(|spec| (stats, spec.chunk_bytes)));
    }
    Ok(found)
}

/// Makes the settled marks and the durable positions of records durable: until then, damage to the last
/// record may be taken for a torn tail after a crash.
async fn log_witnesses(participant: &Participant) -> Result<(), Refusal> {
    let witnessed = participant.with_store(|store| {
        store.log_marks()?;
        store.log_witnesses()
    });
    match witnessed.await {
        // Applying makes room, and the next round retries.
        Ok(()) | Err(Refusal::NoSpace) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Applies settled records to their chunks, oldest in the journal first. Returns whether others are pending.
async fn apply(participant: &Participant) -> Result<(Vec<Damage>, bool), Refusal> {
    let began_us = participant.ports.now_us();
    let applied = participant.with_store(|store| {
        if store.pending_bytes() == 0 {
            return Ok(None);
        }
        let found = store.apply_pending(APPLY_LIMIT_BYTES)?.damage;
        Ok(Some((all_damage(store, found), store.pending_bytes() > 0)))
    });
    let Some(applied) = applied.await? else {
        return Ok((Vec::new(), false));
    };
    measure(participant, Merging::Apply, began_us);
    Ok(applied)
}

/// Tells the process of merged records.
fn measure(participant: &Participant, what: Merging, began_us: u64) {
    let took_us = participant.ports.now_us().saturating_sub(began_us);
    participant
        .ports
        .measure(&Measure::Merged { what, took_us });
}

/// Executes the result of a review, unless the reserve has changed since.
async fn tend(participant: &Participant, task: Task) -> Result<Vec<Damage>, Refusal> {
    let Task { chunk, review } = task;
    let began_us = participant.ports.now_us();
    let tended = participant.with_store(move |store| {
        let Some(stats) = store.reserve(chunk)? else {
            return Ok(Vec::new());
        };
        if stats.reserved_bytes != review.reserved_bytes + review.freed_bytes {
            return Ok(Vec::new());
        }
        if review.freed_bytes > 0 {
            store.shrink(chunk, review.reserved_bytes, review.freed_bytes)?;
        }
        if review.merges {
            let found = store.merge(chunk)?.damage;
            return Ok(all_damage(store, found));
        }
        Ok(Vec::new())
    });
    match tended.await {
        Ok(found) => {
            if review.merges {
                measure(participant, Merging::Reserve, began_us);
            }
            Ok(found)
        }
        // Deleted after its review.
        Err(Refusal::NoSuchChunk(_)) => Ok(Vec::new()),
        Err(Refusal::Damaged(found)) => Ok(vec![found]),
        Err(refusal) => Err(refusal),
    }
}

/// Grows a reserve if the disk has room. Otherwise updates continue as before.
async fn grow(participant: &Participant, chunk: ChunkId, bytes: u64) -> Result<(), Refusal> {
    match participant
        .with_store(move |store| store.grow(chunk, bytes))
        .await
    {
        Ok(()) | Err(Refusal::NoSpace | Refusal::NoSuchChunk(_)) => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

fn all_damage(store: &Store, found: Vec<gabion_store::Damage>) -> Vec<Damage> {
    let found = found.into_iter();
    found
        .map(|found| damage(store, found.chunk, found.range))
        .collect()
}
