//! Tickets for clients, and the keys with which they are made and checked.
//!
//! A new key is drawn each period and told to the nodes with their heartbeats; the two newest are live. The coordinator
//! uses a key only some time after it was drawn, when the nodes have it, and for one period. So each ticket expires
//! before its key is forgotten.

use super::core::{Core, lock};
use crate::message::{Cause, Denial, OpenPut, Replacement, TicketKeys};
use crate::ticket::{Grant, Operations, PutKey, ReadyKey, Ticket};
use gabion_layout::StripeRecord;
use gabion_meta::{KeyValue, Meta, MetaError, PutId, Secret, TicketKey};
use std::sync::{Arc, Mutex};

/// Most keys that are live at a time.
const LIVE_COUNT: usize = 2;
/// Times in a period that the coordinator looks whether a key is due. It notes its total run time then: a coordinator
/// that ends unexpectedly forgets at most this part of a period.
const TICKS: u64 = 16;

/// Makes tickets, and knows the client of a put.
pub(in crate::coordinator) struct Tickets<K> {
    core: Arc<Core<K>>,
    keys: Mutex<Keys>,
    put_key: PutKey,
}

/// The live keys, oldest first. Invariant: one or two.
struct Keys {
    rows: Vec<TicketKey>,
    ready: Vec<ReadyKey>,
}

impl Keys {
    fn new(rows: Vec<TicketKey>) -> Self {
        let ready = rows.iter().map(ReadyKey::new).collect();
        Self { rows, ready }
    }

    /// The key to make tickets with.
    fn signing(&self, now_ms: u64, lead_ms: u64) -> Option<&ReadyKey> {
        let is_known = self.rows.last()?.drawn_ms.saturating_add(lead_ms) <= now_ms;
        if is_known {
            self.ready.last()
        } else {
            self.ready.first()
        }
    }
}

impl<K: KeyValue + Send + Sync + 'static> Tickets<K> {
    /// The keys of the metadata, or a first one. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub(in crate::coordinator) fn new(core: &Arc<Core<K>>) -> Result<Self, MetaError> {
        let mut rows = core.meta.ticket_keys()?;
        if rows.is_empty() {
            rows = with_next(core, &rows);
            core.meta.set_ticket_keys(&rows)?;
        }
        let put_key = core.meta.put_key_or(new_secret(core))?;
        Ok(Self {
            core: Arc::clone(core),
            keys: Mutex::new(Keys::new(rows)),
            put_key: PutKey::new(&put_key),
        })
    }

    /// Returns the put as the client that begins it names it from then on.
    pub(in crate::coordinator) fn open(&self, put: PutId) -> OpenPut {
        self.put_key.open(put)
    }

    /// The put that a request is about.
    ///
    /// # Errors
    /// If the request does not come from the client that has begun it.
    pub(in crate::coordinator) fn own(&self, named: OpenPut) -> Result<PutId, Denial> {
        self.put_key.check(named).ok_or_else(|| {
            let sentence = format!("{} was not begun by this client", named.id);
            Denial::new(Cause::NotPermitted, sentence)
        })
    }

    /// Returns the information for a node.
    pub(in crate::coordinator) fn told(&self) -> TicketKeys {
        TicketKeys {
            now_ms: self.core.lifetime_ms(),
            grace_ms: self.core.options.tickets.grace_ms,
            keys: lock(&self.keys).rows.clone(),
        }
    }

    /// Tickets for stripes: one for each run of consecutive ids with the same generation.
    pub(in crate::coordinator) fn grant<'a>(
        &self,
        put: PutId,
        stripes: impl IntoIterator<Item = &'a StripeRecord>,
        operations: Operations,
    ) -> Vec<Ticket> {
        let grants = grants_of(put, stripes, operations);
        let times = self.core.options.tickets;
        let now_ms = self.core.lifetime_ms();
        let keys = lock(&self.keys);
        let key = keys.signing(now_ms, times.lead_ms);
        let expires_ms = now_ms + times.lifetime_ms();
        let tickets = key.map(|key| {
            grants
                .into_iter()
                .map(|g| key.sign(g, expires_ms))
                .collect()
        });
        tickets.unwrap_or_default()
    }

    /// Tickets to read the stripes of a file that are to be replaced, and to store their successors.
    pub(in crate::coordinator) fn grant_replacement(
        &self,
        file: PutId,
        replacement: &Replacement,
    ) -> Vec<Ticket> {
        let settled = replacement.settled.iter().map(|settled| &settled.stripe);
        let mut tickets = self.grant(file, settled, Operations::READ);
        let copies = replacement.copies.iter().map(|(_, copy)| copy);
        let new = replacement.stripes.iter().chain(copies);
        let new = self.grant(replacement.put.id, new, Operations::INSTALL);
        tickets.extend(new);
        tickets
    }

    /// Draws a new key each period, and keeps the total run time, until the metadata store fails.
    pub(in crate::coordinator) async fn rotate(self: Arc<Self>) {
        let rotate_ms = self.core.options.tickets.rotate_ms;
        let tick_ms = (rotate_ms / TICKS).max(1);
        while !self.core.is_broken() {
            self.core.ports.sleep_ms(tick_ms).await;
            let lifetime_ms = self.core.lifetime_ms();
            let rows = lock(&self.keys).rows.clone();
            let drawn_ms = rows.last().map_or(0, |newest| newest.drawn_ms);
            let is_due = lifetime_ms >= drawn_ms.saturating_add(rotate_ms);
            let next = is_due.then(|| with_next(&self.core, &rows));
            let kept = next.clone();
            let note = move |meta: &Meta<K>| {
                meta.note_lifetime(lifetime_ms)?;
                kept.map_or(Ok(()), |keys| meta.set_ticket_keys(&keys))
            };
            match (self.core.with_meta(note).await, next) {
                (Ok(()), Some(rows)) => *lock(&self.keys) = Keys::new(rows),
                (Ok(()), None) => {}
                (Err(error), _) => self.core.note_error(error.to_string()),
            }
        }
    }
}

/// Grants for stripes: one for each run of consecutive ids with the same generation.
pub(in crate::coordinator) fn grants_of<'a>(
    put: PutId,
    stripes: impl IntoIterator<Item = &'a StripeRecord>,
    operations: Operations,
) -> Vec<Grant> {
    let mut stripes: Vec<_> = stripes.into_iter().map(|s| (s.id, s.generation)).collect();
    stripes.sort_unstable();
    let mut grants: Vec<Grant> = Vec::new();
    for (first, generation) in stripes {
        match grants.last_mut() {
            Some(last)
                if last.generation == generation
                    && first.0 - last.first.0 == u64::from(last.count) =>
            {
                last.count += 1;
            }
            _ => grants.push(Grant {
                put,
                first,
                count: 1,
                generation,
                operations,
            }),
        }
    }
    grants
}

/// The live keys after a new one is drawn.
fn with_next<K: KeyValue + Send + Sync + 'static>(
    core: &Core<K>,
    rows: &[TicketKey],
) -> Vec<TicketKey> {
    let mut rows = rows.to_vec();
    rows.push(TicketKey {
        number: rows.last().map_or(0, |newest| newest.number + 1),
        secret: new_secret(core),
        drawn_ms: core.lifetime_ms(),
    });
    rows.drain(..rows.len().saturating_sub(LIVE_COUNT));
    rows
}

/// A secret drawn at random.
fn new_secret<K: KeyValue + Send + Sync + 'static>(core: &Core<K>) -> Secret {
    let mut secret = [0; 32];
    for word in secret.chunks_exact_mut(8) {
        word.copy_from_slice(&core.ports.random().to_ne_bytes());
    }
    Secret(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::TicketTimes;

    #[test]
    fn a_key_is_used_when_nodes_have_it_and_outlives_its_tickets() {
        let row = |number, drawn_ms| TicketKey {
            number,
            secret: Secret([0; 32]),
            drawn_ms,
        };
        let grant = Grant {
            put: PutId(1),
            first: gabion_layout::StripeId(1),
            count: 1,
            generation: gabion_layout::Generation(1),
            operations: Operations::READ,
        };
        let used = |keys: &Keys, now_ms| keys.signing(now_ms, 10).map(|key| key.sign(grant, 0).key);
        let first = Keys::new(vec![row(0, 100)]);
        assert_eq!(used(&first, 100), Some(0), "there is no other");
        let both = Keys::new(vec![row(0, 100), row(1, 200)]);
        assert_eq!(used(&both, 209), Some(0));
        assert_eq!(used(&both, 210), Some(1));
        // The last ticket of a key is made a period and the lead after it was drawn, and it is dropped two
        // periods after.
        let times = TicketTimes::default();
        let last_ms = times.rotate_ms + times.lead_ms;
        assert!(last_ms + times.lifetime_ms() <= 2 * times.rotate_ms);
    }
}
