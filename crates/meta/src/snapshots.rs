//! Snapshots and clones: files that begin with the bytes of another one and share its stripes. Both take a few rows,
//! whatever the file's size. A snapshot never changes; a clone is a file like any other.

use crate::attributes::Attributes;
use crate::changes_done::is_done;
use crate::directories::{link, make_parents};
use crate::directory_rows::{absolute, check_free};
use crate::directory_uses::check_put;
use crate::error::{MetaError, SnapshotError};
use crate::extents::rows_from;
use crate::files::{check_no_symlink, file_of, put_file};
use crate::ids::{Change, Leased};
use crate::inline_rows;
use crate::kv::{KeyValue, ReadTxn};
use crate::layers::{LAYERS_MAX, disown, layers, put_above};
use crate::map_records::MapRecord;
use crate::meta::Meta;
use crate::names::check_file_name;
use crate::paths::RelativePath;
use crate::pools::pool;
use crate::quotas::{check_files, check_more, count_file};
use crate::records::{FencingToken, FileRecord, Inode, MapId, PutId};
use crate::schema::{MAPS, MERGES, USER_ATTRIBUTES};
use crate::tokens::exclusive;
use gabion_layout::StripeId;

impl<K: KeyValue> Meta<K> {
    /// The present token of a file of which a snapshot is to be made; none if the change with this number was made.
    ///
    /// # Errors
    /// Those of [`Meta::snapshot`], for a file that has no snapshots and for a name that the snapshot cannot have.
    pub fn check_snapshot(
        &self,
        source: PutId,
        to: impl Into<RelativePath>,
        number: u64,
    ) -> Result<Option<FencingToken>, MetaError> {
        let to = to.into();
        self.store.read(|txn| {
            if is_done(txn, number)? {
                return Ok(None);
            }
            check(txn, source, &to)?;
            Ok(Some(exclusive(txn, source)?.token))
        })
    }

    /// Makes a file `to` that has the bytes of the file which the put `source` made. No client writes that file, which
    /// was frozen under this token. Does nothing if the change with this number was made: a lost answer leads to a
    /// second request.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::Superseded`] when the file was thawed or frozen since;
    /// [`MetaError::IsASymlink`]; [`SnapshotError::NotShareable`]; [`SnapshotError::TooMany`];
    /// [`MetaError::FileName`]; [`MetaError::FileExists`]; [`MetaError::IsADirectory`];
    /// [`MetaError::NotADirectory`]; [`MetaError::DirectoryGone`]; [`MetaError::Quota`] for files or inline bytes.
    pub fn snapshot(
        &self,
        (source, token): (PutId, FencingToken),
        to: impl Into<RelativePath>,
        is_read_only: bool,
        (number, now_ms): (u64, u64),
    ) -> Result<(), MetaError> {
        let (to, now) = (to.into(), self.wall_time());
        self.change_once(number, |txn| {
            let (mut file, path) = check(txn, source, &to)?;
            let present = exclusive(txn, source)?;
            if present.token != token || present.frozen_in.is_none() {
                let current = present.token;
                return Err(MetaError::Superseded { current });
            }
            let put = PutId(txn.take(Leased::Put, 1)?);
            let below = share(txn, &mut file)?;
            let attributes = Attributes {
                created: now,
                changed: now,
                ..file.attributes
            };
            let (directory, name) = make_parents(txn, &path, (attributes.for_parent(), now))?;
            let key = (directory, name.to_owned());
            link(txn, &key, Inode::File(put), now)?;
            let mut copy = FileRecord {
                size_bytes: file.size_bytes,
                stripe_count: file.stripe_count,
                shared_stripe_count: file.stripe_count,
                shared_below: file.shared_below,
                is_read_only,
                ..FileRecord::new(key, (put, file.pool), attributes, now_ms)
            };
            if let Some(below) = below {
                let file = Some(put);
                put_above(txn, copy.map, MapRecord { below, file })?;
            }
            inline_rows::copy(txn, &file, &mut copy)?;
            count_file(txn, &copy)?;
            put_file(txn, &copy)?;
            if let Some(own) = USER_ATTRIBUTES.get(txn, &Inode::File(source))? {
                USER_ATTRIBUTES.put(txn, &Inode::File(put), &own)?;
            }
            Ok(())
        })
    }
}

/// The file of which a snapshot is to be made, and the path of the snapshot.
fn check(
    txn: &dyn ReadTxn,
    source: PutId,
    to: &RelativePath,
) -> Result<(FileRecord, String), MetaError> {
    let file = file_of(txn, source)?;
    check_no_symlink(&file)?;
    if pool(txn, file.pool)?.lifecycle.is_some() {
        return Err(SnapshotError::NotShareable(file.name).into());
    }
    if layers(txn, file.map)?.len() >= LAYERS_MAX {
        let count = LAYERS_MAX;
        let name = file.name;
        return Err(SnapshotError::TooMany { name, count }.into());
    }
    let path = absolute(txn, to)?;
    check_file_name(&path)?;
    check_free(txn, &path)?;
    check_put(txn, &path, file.size_bytes)?;
    check_files(txn, file.pool)?;
    let inline_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
    check_more(txn, &pool(txn, file.pool)?, inline_bytes)?;
    Ok((file, path))
}

/// Makes all stripes of a file shared ones. Returns the map that has them; none if there is no stripe.
fn share(txn: &mut Change<'_>, file: &mut FileRecord) -> Result<Option<MapId>, MetaError> {
    if rows_from(txn, file.map, 0, 1)?.is_empty() {
        // All of them are shared already, and one more map will be above the one that has them.
        MERGES.delete(txn, &file.map)?;
        return Ok(MAPS.get(txn, &file.map)?.map(|record| record.below));
    }
    let below = file.map;
    disown(txn, below)?;
    file.map = MapId(txn.take(Leased::Put, 1)?);
    file.shared_stripe_count = file.stripe_count;
    file.shared_below = StripeId(txn.next(Leased::Stripe));
    let above = MapRecord {
        below,
        file: Some(file.put),
    };
    put_above(txn, file.map, above)?;
    put_file(txn, file)?;
    Ok(Some(below))
}
