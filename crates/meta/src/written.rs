//! Stripes that nodes may update in place, by the map of their file: those of which a client's update may be under
//! way. A stripe is noted before a node learns the token that its updates need, and until it leaves its file or the
//! coordinator has settled it and holds no lease of it any more. So a search for updates costs what is written, not
//! what a file has.

use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::records::{FileRecord, LeaseRecord, MapId, PutId};
use crate::schema::{COPIES, FILES, LEASES, STRIPES, WRITTEN, WRITTEN_IN};
use crate::table::Span;
use gabion_layout::{Epoch, StripeId};
use std::collections::{BTreeMap, BTreeSet};

/// Rows that one transaction reads at most, with one more for each file.
const PAGE: usize = 1024;

/// The place that a search has reached.
#[derive(Default)]
struct Place {
    /// The file, by its number.
    file: usize,
    /// Its map, and the last stripe that was looked at there.
    behind: Option<(MapId, StripeId)>,
}

impl<K: KeyValue> Meta<K> {
    /// The stripes of the own maps of these files that nodes may have updated in place, and of which parts of earlier
    /// updates may be on their way: all but those that were settled and released since, and those whose primary vouches
    /// for the present term. Files that are gone have none. Takes several transactions if there are many.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn unsettled(
        &self,
        files: &[PutId],
        vouched: &BTreeMap<StripeId, Epoch>,
    ) -> Result<Vec<StripeId>, MetaError> {
        let (mut unsettled, mut place) = (Vec::new(), Place::default());
        while place.file < files.len() {
            let page = self.store.read(|txn| {
                let mut written = Vec::new();
                while let Some(&put) = files.get(place.file)
                    && written.len() < PAGE
                {
                    // Stripes of lower maps take no updates since the file shares them.
                    place = written_of(txn, (put, &place), &mut written)?;
                }
                let is_unsettled = |stripe: &StripeId| -> Result<bool, MetaError> {
                    let last = LEASES.get(txn, stripe)?;
                    Ok(last.is_some_and(|last| !is_quiet(last, vouched.get(stripe))))
                };
                let mut found = Vec::new();
                for stripe in written {
                    if is_unsettled(&stripe)? {
                        found.push(stripe);
                    }
                }
                Ok(found)
            })?;
            unsettled.extend(page);
        }
        Ok(unsettled)
    }

    /// Whether a stripe has no holder and was settled in its last term, so that no earlier update is on its way. A
    /// stripe that is gone is settled, too.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn is_settled(&self, stripe: StripeId) -> Result<bool, MetaError> {
        self.store.read(|txn| {
            let last = LEASES.get(txn, &stripe)?;
            Ok(last.is_none_or(|last| is_quiet(last, None)))
        })
    }
}

/// Whether nothing of an earlier update is on its way. The stripe was settled in its last term, or its holder vouches
/// for that term.
fn is_quiet(last: LeaseRecord, vouched: Option<&Epoch>) -> bool {
    match last.holder {
        None => last.is_settled,
        Some(_) => vouched == Some(&last.epoch),
    }
}

/// Adds stripes of a file that nodes may update in place, some at a time. Returns the next place.
fn written_of(
    txn: &dyn ReadTxn,
    (put, place): (PutId, &Place),
    written: &mut Vec<StripeId>,
) -> Result<Place, MetaError> {
    let file = place.file;
    let next = Place {
        file: file + 1,
        behind: None,
    };
    // A snapshot that another request makes between two pages gives the file another map, and has settled this one.
    let map = match place.behind {
        Some((map, _)) => map,
        None => match FILES.get(txn, &put)? {
            Some(row) => row.map,
            None => return Ok(next),
        },
    };
    let limit = PAGE - written.len().min(PAGE - 1);
    let span = span_behind(map, place.behind.map(|(_, last)| last));
    let rows = WRITTEN_IN.scan(txn, &span, limit)?;
    written.extend(rows.iter().map(|((_, stripe), ())| *stripe));
    Ok(match rows.last() {
        Some(((_, last), ())) if rows.len() == limit && last.0 < u64::MAX => Place {
            file,
            behind: Some((map, *last)),
        },
        _ => next,
    })
}

/// The rows of a map behind a stripe.
fn span_behind(map: MapId, last: Option<StripeId>) -> Span {
    let first = last.map_or(0, |last| last.0.saturating_add(1));
    let end = (MapId(map.0.saturating_add(1)), StripeId(0));
    WRITTEN_IN.between(&(map, StripeId(first)), &end)
}

/// Whether a stripe of a file's own map is in no other file and never was, so that the file's writers update it in
/// place.
pub(crate) fn is_updated_in_place(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    stripe: StripeId,
) -> Result<bool, MetaError> {
    // A file with no such border never had a map below its own.
    let has_copies = file.shared_below > StripeId(0);
    Ok(file.owns(stripe) && !(has_copies && COPIES.get(txn, &stripe)?.is_some()))
}

/// Whether a stripe is noted as one of a file that nodes may update in place.
pub(crate) fn is_written(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    stripe: StripeId,
) -> Result<bool, MetaError> {
    let maps = WRITTEN.get(txn, &stripe)?;
    Ok(maps.is_some_and(|maps| maps.contains(&file.map)))
}

/// Notes a stripe of a file as one that nodes may update in place, if they may.
pub(crate) fn note_written(
    txn: &mut dyn WriteTxn,
    file: &FileRecord,
    stripe: StripeId,
) -> Result<(), MetaError> {
    if !is_updated_in_place(txn, file, stripe)? || STRIPES.get(txn, &stripe)?.is_none() {
        return Ok(());
    }
    note_in(txn, file.map, stripe)
}

fn note_in(txn: &mut dyn WriteTxn, map: MapId, stripe: StripeId) -> Result<(), MetaError> {
    let mut maps = WRITTEN.get(txn, &stripe)?.unwrap_or_default();
    if maps.contains(&map) {
        return Ok(());
    }
    maps.push(map);
    WRITTEN.put(txn, &stripe, &maps)?;
    WRITTEN_IN.put(txn, &(map, stripe), &())
}

/// Forgets a stripe that has left its file, or that no node may update before it is noted again.
pub(crate) fn forget_written(txn: &mut dyn WriteTxn, stripe: StripeId) -> Result<(), MetaError> {
    let Some(maps) = WRITTEN.get(txn, &stripe)? else {
        return Ok(());
    };
    for map in maps {
        WRITTEN_IN.delete(txn, &(map, stripe))?;
    }
    WRITTEN.delete(txn, &stripe)
}

/// A sentence for each contradiction between the two tables, and for each stripe that no file has.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let mut faults = Vec::new();
    let rows = WRITTEN.scan(txn, &WRITTEN.all(), usize::MAX)?;
    let by_map = WRITTEN_IN.scan(txn, &WRITTEN_IN.all(), usize::MAX)?;
    let by_map: BTreeSet<(MapId, StripeId)> = by_map.into_iter().map(|(key, ())| key).collect();
    let pairs = |(stripe, maps): &(StripeId, Vec<MapId>)| {
        let stripe = *stripe;
        maps.clone().into_iter().map(move |map| (map, stripe))
    };
    let by_stripe: BTreeSet<_> = rows.iter().flat_map(pairs).collect();
    for (map, stripe) in by_map.symmetric_difference(&by_stripe) {
        faults.push(format!(
            "the notes of updates in place contradict each other about {stripe} in map {}",
            map.0
        ));
    }
    for (stripe, _) in rows {
        if STRIPES.get(txn, &stripe)?.is_none() {
            faults.push(format!("{stripe} is noted for updates, and no file has it"));
        }
    }
    Ok(faults)
}
