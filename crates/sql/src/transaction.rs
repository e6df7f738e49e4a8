//! A transaction: its own changes over what the leader knows, over pending changes, over the database's rows.

use crate::connection::{Connection, Stamp};
use crate::error::Fault;
use crate::pending::{Changes, merged};
use crate::store::Shared;
use gabion_meta::{MetaError, ReadTxn, Row, WriteTxn};
use std::ops::Bound;

/// Most rows of a query.
const PAGE: usize = 4096;

/// A transaction for reading or for writing.
pub(crate) struct Transaction<'s> {
    shared: &'s Shared,
    pub(crate) changes: Changes,
}

impl<'s> Transaction<'s> {
    pub(crate) fn new(shared: &'s Shared) -> Self {
        Self {
            shared,
            changes: Changes::new(),
        }
    }

    /// The changes of a range that the database may lack.
    ///
    /// They are taken before the query. A change that becomes durable between the two is in both. One that was durable
    /// before is missing here, and the query is answered by a server that has it: see [`crate::pool`].
    fn over(&self, start: &[u8], end: &[u8]) -> Changes {
        let mut over = Changes::new();
        self.shared.pending.range(start, end, &mut over);
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let own = self.changes.range::<[u8], _>(bounds);
        over.extend(own.map(|(key, change)| (key.clone(), change.clone())));
        over
    }

    fn query<T>(
        &self,
        operation: &'static str,
        query: impl Fn(&Connection) -> Result<(Stamp, T), Fault>,
    ) -> Result<T, MetaError> {
        let shared = self.shared;
        shared.count_query();
        let flusher = &shared.flusher;
        flusher.patiently(operation, || shared.pool.query(flusher, &query))
    }

    /// A page of a scan.
    fn page(&self, start: &[u8], end: &[u8], limit: usize) -> Result<(Vec<Row>, bool), MetaError> {
        let over = self.over(start, end);
        let removed_count = over.values().filter(|change| change.is_none()).count();
        let wanted = limit.saturating_add(removed_count).min(PAGE);
        let rows = self.query("scan rows", |connection| {
            connection.scan(start, end, wanted)
        })?;
        let is_whole = rows.len() < wanted;
        let after = rows.last().map(|(key, _)| key.clone());
        let mut page = merged(rows, over, limit, is_whole);
        // All that the page shows was removed: the next one begins behind it.
        if page.is_empty()
            && !is_whole
            && let Some(after) = after
        {
            let (next, is_whole) = self.page(&behind(&after), end, limit)?;
            page.extend(next);
            return Ok((page, is_whole));
        }
        Ok((page, is_whole))
    }
}

/// The first key behind another.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl ReadTxn for Transaction<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        if let Some(change) = self.changes.get(key) {
            return Ok(change.clone());
        }
        let shared = self.shared;
        if let Some(known) = shared.cache.get(key) {
            return Ok(known);
        }
        if let Some(change) = shared.pending.get(key) {
            return Ok(change);
        }
        let value = self.query("read a row", |connection| connection.get(key))?;
        // No transaction commits during this one, so this is the present state of the row.
        shared.cache.put(key, value.clone());
        Ok(value)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        let mut rows: Vec<Row> = Vec::new();
        let mut start = start.to_vec();
        while rows.len() < limit && start.as_slice() < end {
            let (page, is_whole) = self.page(&start, end, limit - rows.len())?;
            let Some((last, _)) = page.last() else {
                break;
            };
            start = behind(last);
            rows.extend(page);
            if is_whole {
                break;
            }
        }
        rows.truncate(limit);
        Ok(rows)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        if start >= end {
            return Ok(None);
        }
        let over = self.over(start, end);
        let mut end = end.to_vec();
        loop {
            let removed = over.range::<[u8], _>((Bound::Included(start), Bound::Excluded(&*end)));
            let wanted = removed.filter(|(_, change)| change.is_none()).count() + 1;
            let wanted = wanted.min(PAGE);
            let rows = self.query("find a row", |connection| {
                connection.last(start, &end, wanted)
            })?;
            let is_whole = rows.len() < wanted;
            let first = rows.last().map(|(key, _)| key.clone());
            // Changes in the part of the range that was read.
            let from = if is_whole {
                Some(start.to_vec())
            } else {
                first
            };
            let Some(from) = from else {
                return Ok(None);
            };
            let bounds = (Bound::Included(&*from), Bound::Excluded(&*end));
            let changes = over.range::<[u8], _>(bounds);
            let changes = changes.map(|(key, change)| (key.clone(), change.clone()));
            let ascending = rows.into_iter().rev().collect();
            let left = merged(ascending, changes.collect(), usize::MAX, true);
            if let Some(last) = left.into_iter().next_back() {
                return Ok(Some(last));
            }
            if is_whole {
                return Ok(None);
            }
            end = from;
        }
    }
}

impl WriteTxn for Transaction<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        self.changes.insert(key.to_vec(), Some(value.to_vec()));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        self.changes.insert(key.to_vec(), None);
        Ok(())
    }
}
