//! The keys by which the coordinator makes tickets and nodes check them, and the one by which it knows the client of a
//! put. They are durable: nodes accept the tickets of a
//! restarted coordinator, and those that it made before. A process that can read the metadata store can make tickets.

use crate::error::MetaError;
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::records::{Secret, TicketKey};
use crate::schema::{PUT_KEY, TICKET_KEYS};

impl<K: KeyValue> Meta<K> {
    /// The keys of tickets, oldest first.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn ticket_keys(&self) -> Result<Vec<TicketKey>, MetaError> {
        let keys = self.store.read(|txn| TICKET_KEYS.get(txn, &()))?;
        Ok(keys.unwrap_or_default())
    }

    /// Replaces the keys of tickets.
    ///
    /// # Errors
    /// When the store fails.
    pub fn set_ticket_keys(&self, keys: &[TicketKey]) -> Result<(), MetaError> {
        self.change(|txn| TICKET_KEYS.put(txn, &(), &keys.to_vec()))
    }

    /// The key that ties puts to the clients that have begun them. If there is none yet, it becomes `new`.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn put_key_or(&self, new: Secret) -> Result<Secret, MetaError> {
        if let Some(known) = self.store.read(|txn| PUT_KEY.get(txn, &()))? {
            return Ok(known);
        }
        self.change(|txn| PUT_KEY.put(txn, &(), &new))?;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_store::MemoryStore;
    use crate::{Secret, WallClock, WallTime};

    #[test]
    fn keys_outlive_a_restart_and_are_never_printed() {
        let clock = || WallClock::stopped(WallTime::default());
        let meta = Meta::create(MemoryStore::new(), gabion_layout::ClusterId(1), clock());
        let meta = meta.unwrap();
        assert_eq!(meta.ticket_keys().unwrap(), []);
        let key = |number| TicketKey {
            number,
            secret: Secret([171; 32]),
            drawn_ms: 7,
        };
        let keys = [key(1), key(2)];
        meta.set_ticket_keys(&keys).unwrap();
        let put_key = meta.put_key_or(Secret([171; 32])).unwrap();
        let reopened = Meta::open(meta.into_store(), clock()).unwrap();
        assert_eq!(reopened.ticket_keys().unwrap(), keys);
        assert_eq!(reopened.put_key_or(Secret([5; 32])).unwrap(), put_key);
        let printed = format!("{keys:?} {put_key:?}");
        assert!(!printed.contains("171"), "{printed}");
    }
}
