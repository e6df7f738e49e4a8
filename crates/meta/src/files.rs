//! Files: finding, listing and removing them, and the garbage of removed ones.

use crate::displaced::discard;
use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::records::{FileRecord, PutId};
use crate::schema::{Counter, FILES, GARBAGE, REQUESTED_FORMS, WITHDRAWN};
use crate::stripe_rows::{live_stripe, stripe_row};
use gabion_layout::{StripeId, StripeRecord};

impl<K: KeyValue> Meta<K> {
    /// The file with this name.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`].
    pub fn file(&self, name: &str) -> Result<FileRecord, MetaError> {
        self.store.read(|txn| file(txn, name))
    }

    /// At most `limit` files with this prefix, in the byte order of their names. For the next page,
    /// pass the last name as `after`.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn files(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, MetaError> {
        let span = FILES.prefix(prefix, after);
        let rows = self.store.read(|txn| FILES.scan(txn, &span, limit))?;
        rows.into_iter()
            .map(|(name, record)| checked(&name, record))
            .collect()
    }

    /// The stripes of a file, in the order of its segments, from one consistent view.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`].
    pub fn stripes_of(&self, name: &str) -> Result<Vec<StripeRecord>, MetaError> {
        self.store.read(|txn| {
            let file = file(txn, name)?;
            let stripes = file.segments.iter();
            stripes.map(|&id| segment(txn, &file, id)).collect()
        })
    }

    /// Removes the file with this name that `put` made. Its stripes become garbage, and their
    /// leases end: primaries learn of it with the order to remove their chunks.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`]; [`MetaError::FileReplaced`] when that file is gone.
    pub fn remove_file(&self, name: &str, put: PutId) -> Result<FileRecord, MetaError> {
        self.change(|txn| {
            let file = same_file(txn, name, put)?;
            for &id in &file.segments {
                let stripe = segment(txn, &file, id)?;
                discard(txn, stripe.id)?;
            }
            Counter::StripeCount.lower(txn, file.segments.len() as u64)?;
            FILES.delete(txn, &file.name)?;
            REQUESTED_FORMS.delete(txn, &file.name)?;
            Ok(file)
        })
    }

    /// At most `limit` stripes whose chunks are to be removed from their nodes, by id, behind
    /// `after` if it is given: a stripe that waits for a failed node must not hide the others.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn garbage(
        &self,
        after: Option<StripeId>,
        limit: usize,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        let span = GARBAGE.after(after.as_ref());
        let rows = self.store.read(|txn| GARBAGE.scan(txn, &span, limit))?;
        rows.into_iter()
            .map(|row| stripe_row(&GARBAGE, row))
            .collect()
    }

    /// Notes that no node serves these garbage stripes any more. Failed nodes may return with their chunks, so
    /// the stripes are not forgotten yet, but those that have replaced them may be updated.
    ///
    /// # Errors
    /// When the store fails.
    pub fn withdrawn(&self, stripes: &[StripeId]) -> Result<(), MetaError> {
        let is_new = |txn: &dyn ReadTxn, id: StripeId| {
            Ok::<_, MetaError>(
                GARBAGE.get(txn, &id)?.is_some() && WITHDRAWN.get(txn, &id)?.is_none(),
            )
        };
        let is_any_new = self.store.read(|txn| {
            let mut is_any_new = false;
            for &id in stripes {
                is_any_new |= is_new(txn, id)?;
            }
            Ok(is_any_new)
        })?;
        if !is_any_new {
            return Ok(());
        }
        self.change(|txn| {
            for &id in stripes {
                if is_new(txn, id)? {
                    WITHDRAWN.put(txn, &id, &())?;
                }
            }
            Ok(())
        })
    }

    /// Whether [`Meta::withdrawn`] was told of a stripe that is garbage yet.
    ///
    /// # Errors
    /// When the store fails.
    pub fn is_withdrawn(&self, stripe: StripeId) -> Result<bool, MetaError> {
        self.store
            .read(|txn| Ok(WITHDRAWN.get(txn, &stripe)?.is_some()))
    }

    /// Forgets a garbage stripe whose chunks are gone. Returns whether it was known. Chunks may
    /// remain on nodes that did not answer; those nodes' inventories show them as
    /// [`crate::StripeStatus::Unknown`].
    ///
    /// # Errors
    /// When the store fails.
    pub fn reclaimed(&self, stripe: StripeId) -> Result<bool, MetaError> {
        self.change(|txn| {
            let present = GARBAGE.get(txn, &stripe)?.is_some();
            if present {
                GARBAGE.delete(txn, &stripe)?;
                WITHDRAWN.delete(txn, &stripe)?;
            }
            Ok(present)
        })
    }
}

/// The file with this name.
pub(crate) fn file(txn: &dyn ReadTxn, name: &str) -> Result<FileRecord, MetaError> {
    let record = FILES.get(txn, &name.to_owned())?;
    let record = record.ok_or_else(|| MetaError::UnknownFile(name.to_owned()))?;
    checked(name, record)
}

/// The file with this name, if the put `file` made it.
pub(crate) fn same_file(
    txn: &dyn ReadTxn,
    name: &str,
    file: PutId,
) -> Result<FileRecord, MetaError> {
    let found = self::file(txn, name)?;
    if found.put != file {
        return Err(MetaError::FileReplaced(name.to_owned()));
    }
    Ok(found)
}

/// Refuses a record of another file name.
fn checked(name: &str, record: FileRecord) -> Result<FileRecord, MetaError> {
    if record.name != name {
        let reason = format!("the record belongs to '{}'", record.name);
        return Err(FILES.contradiction(&name.to_owned(), reason));
    }
    Ok(record)
}

/// A stripe that a file refers to. If it is missing, the store is damaged; the caller made no
/// mistake.
fn segment(txn: &dyn ReadTxn, file: &FileRecord, id: StripeId) -> Result<StripeRecord, MetaError> {
    live_stripe(txn, id).map_err(|error| match error {
        MetaError::UnknownStripe(_) => {
            FILES.contradiction(&file.name, format!("its {id} is missing"))
        }
        other => other,
    })
}
