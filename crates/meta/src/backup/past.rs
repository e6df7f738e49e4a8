//! What tells the history of one store from that of another, when the changes between a backup and a log are gone: the
//! cluster, and the starts of its coordinators. Each has a random number, and the number of changes before it.

use crate::error::MetaError;
use crate::kv::KeyValue as _;
use crate::memory_store::MemoryStore;
use crate::metadata_log::{Chain, decode_changes};
use crate::records::StartRecord;
use crate::schema::{CLUSTER, COUNTERS, Counter, STARTS};
use gabion_layout::ClusterId;
use std::collections::BTreeMap;

/// The rows of a log, as of its end, that tell its store from others.
pub(super) struct Past {
    /// The cluster; none in a store without one.
    pub(super) cluster: Option<ClusterId>,
    /// The starts that the store remembers, by their numbers.
    starts: Vec<(u64, StartRecord)>,
    /// Changes of the metadata.
    change_count: u64,
}

impl Past {
    /// Reads it.
    ///
    /// # Errors
    /// [`MetaError::Log`] if the log is not whole; [`MetaError::Corrupt`].
    pub(super) fn of(log: &Chain) -> Result<Self, MetaError> {
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        log.rows::<MetaError>(|page| {
            let telling = page.iter().filter(|(key, _)| tells(key));
            rows.extend(telling.cloned());
            Ok(())
        })?;
        log.changes::<MetaError>(|_, bytes| {
            let changes = decode_changes(bytes).ok_or_else(undecodable)?;
            for (key, value) in changes {
                match value {
                    Some(value) if tells(key) => drop(rows.insert(key.to_vec(), value.to_vec())),
                    Some(_) => {}
                    None => drop(rows.remove(key)),
                }
            }
            Ok(())
        })?;
        let store = MemoryStore::new();
        store.write(|txn| rows.iter().try_for_each(|(key, value)| txn.put(key, value)))?;
        store.read(|txn| {
            Ok(Self {
                cluster: CLUSTER.get(txn, &())?,
                starts: STARTS.scan(txn, &STARTS.all(), usize::MAX)?,
                change_count: Counter::Changes.value(txn)?,
            })
        })
    }

    /// Whether a later state of the store with the earlier past may have this one. Starts that were forgotten since
    /// tell nothing.
    pub(super) fn may_follow(&self, earlier: &Self) -> bool {
        let Some((last, start)) = earlier.starts.last() else {
            return true;
        };
        let mut later = self.starts.iter().filter(|(number, _)| number >= last);
        let next = match later.next() {
            None => return false,
            Some((number, known)) if number == last => {
                if known != start {
                    return false;
                }
                later.next()
            }
            other => other,
        };
        // A start counts all changes of the runs before it.
        let change_count = next.map_or(self.change_count, |(_, start)| start.change_count);
        change_count >= earlier.change_count
    }
}

/// Whether the row of this key tells one store from another.
fn tells(key: &[u8]) -> bool {
    CLUSTER.key_of(key).is_some() || COUNTERS.key_of(key).is_some() || STARTS.key_of(key).is_some()
}

fn undecodable() -> MetaError {
    MetaError::Storage {
        operation: "read a transaction of the log",
        reason: "it has no changes".to_owned(),
    }
}
