//! Snapshots and clones: files that begin with the bytes of others and share their stripes. Each file takes a few rows,
//! whatever its size. A snapshot never changes; a clone is a file like any other.
//!
//! A snapshot of a directory is one of all that is below it at one instant: one transaction, so the number of entries
//! is limited. In the directories of a snapshot no name is made, and names may be removed.

use crate::attributes::{Attributes, WallTime};
use crate::changes_done::is_done;
use crate::directories::{check_levels, link, make_parents, note_levels};
use crate::directory_rows::{absolute, check_free, key_of, path_of, record};
use crate::directory_uses::{check_put, count_directory, path};
use crate::error::{MetaError, SnapshotError};
use crate::extents::rows_from;
use crate::files::{check_no_symlink, file_of, file_row, put_file};
use crate::hard_links::{NameKey, set_others};
use crate::ids::{Change, Leased};
use crate::inline_rows;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::layers::{LAYERS_MAX, disown, layers, put_above};
use crate::map_records::MapRecord;
use crate::meta::Meta;
use crate::names::check_file_name;
use crate::paths::{DirectoryId, RelativePath};
use crate::pools::pool;
use crate::quotas::{check_files, check_more, count_file};
use crate::records::{DirectoryRecord, FencingToken, FileRecord, Inode, MapId, PutId};
use crate::schema::{DIRECTORIES, MAPS, MERGES, NAMES, USER_ATTRIBUTES};
use crate::tokens::exclusive;
use crate::tree::{Tree, tree};
use gabion_layout::{PoolId, StripeId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Most files and directories below a directory of which a snapshot is made: one transaction makes some rows for each.
pub const TREE_ENTRIES_MAX: usize = 4096;

/// Most inline bytes of these files, with the targets of symbolic links and the attributes that users have given to
/// the files and directories.
pub const TREE_BYTES_MAX: u64 = 16 << 20;

impl<K: KeyValue> Meta<K> {
    /// The files that clients may write in place, with their present tokens, of those of which a snapshot is to be
    /// made; none if the change with this number was made.
    ///
    /// # Errors
    /// Those of [`Meta::snapshot`], for what has no snapshots and for a name that the snapshot cannot have.
    pub fn check_snapshot(
        &self,
        source: Inode,
        to: impl Into<RelativePath>,
        number: u64,
    ) -> Result<Option<BTreeMap<PutId, FencingToken>>, MetaError> {
        let to = to.into();
        self.store.read(|txn| {
            if is_done(txn, number)? {
                return Ok(None);
            }
            let shared = Shared::find(txn, source, &to)?;
            shared.check_room(txn)?;
            let mut written = BTreeMap::new();
            for (file, _) in &shared.files {
                if may_be_written(txn, file)? {
                    written.insert(file.put, exclusive(txn, file.put)?.token);
                }
            }
            Ok(Some(written))
        })
    }

    /// Makes a file or directory `to` with what the `source` has at this instant. Of a directory, that is all below it:
    /// names of one file are names of one file again, and puts that are open are not in it. No client writes the files,
    /// which were frozen under these tokens. Does nothing if the change with this number was made: a lost answer leads
    /// to a second request.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::DirectoryGone`]; [`SnapshotError::NotFrozen`] when clients may write a
    /// file, and [`MetaError::Superseded`] when one was thawed or frozen since; [`MetaError::IsASymlink`];
    /// [`SnapshotError::NotShareable`]; [`SnapshotError::TooMany`]; [`SnapshotError::TooManyEntries`];
    /// [`SnapshotError::TooManyBytes`]; [`SnapshotError::ReadOnlyDirectory`]; [`MetaError::FileName`];
    /// [`MetaError::FileExists`]; [`MetaError::DirectoryExists`]; [`MetaError::IntoItself`]; [`MetaError::TooDeep`];
    /// [`MetaError::NotADirectory`]; [`MetaError::Quota`] for files or bytes.
    pub fn snapshot(
        &self,
        (source, frozen): (Inode, &BTreeMap<PutId, FencingToken>),
        to: impl Into<RelativePath>,
        is_read_only: bool,
        (number, now_ms): (u64, u64),
    ) -> Result<(), MetaError> {
        let to = to.into();
        let kind = Copied {
            is_read_only,
            now: self.wall_time(),
            now_ms,
        };
        self.change_once(number, |txn| {
            let shared = Shared::find(txn, source, &to)?;
            for (file, _) in &shared.files {
                check_frozen(txn, file, frozen)?;
            }
            shared.copy(txn, kind)
        })
    }
}

/// The contents of a snapshot.
struct Shared {
    /// The path of the snapshot.
    path: String,
    /// The directory and all below it, each behind the one in which it lies; none for a snapshot of one file.
    directories: Vec<(DirectoryId, DirectoryRecord)>,
    /// The files, each with its names in these directories.
    files: Vec<(FileRecord, Vec<NameKey>)>,
    /// Inline bytes by pool.
    inline: BTreeMap<PoolId, u64>,
}

/// The ids of the copies. One call takes all of a kind: if a block has too few, the transaction starts again.
struct Ids {
    puts: Range<u64>,
    directories: Range<u64>,
}

/// The kind of the copies.
#[derive(Clone, Copy)]
struct Copied {
    is_read_only: bool,
    now: WallTime,
    now_ms: u64,
}

impl Copied {
    /// The attributes of a copy.
    fn attributes(self, of: &Attributes) -> Attributes {
        Attributes {
            created: self.now,
            changed: self.now,
            ..*of
        }
    }
}

impl Shared {
    /// Finds what a snapshot has, and checks that it can be shared and have this name.
    fn find(txn: &dyn ReadTxn, source: Inode, to: &RelativePath) -> Result<Self, MetaError> {
        let path = absolute(txn, to)?;
        check_file_name(&path)?;
        let mut shared = Self {
            path,
            directories: Vec::new(),
            files: Vec::new(),
            inline: BTreeMap::new(),
        };
        match source {
            Inode::File(put) => {
                let file = file_of(txn, put)?;
                check_no_symlink(&file)?;
                check_free(txn, &shared.path)?;
                shared.add_file(txn, file, Vec::new())?;
            }
            Inode::Directory(id) => shared.add_directory(txn, id)?,
        }
        Ok(shared)
    }

    fn add_directory(&mut self, txn: &dyn ReadTxn, id: DirectoryId) -> Result<(), MetaError> {
        let row = DIRECTORIES.get(txn, &id)?;
        let row = row.ok_or(MetaError::DirectoryGone(id))?;
        let own = match id {
            DirectoryId::ROOT => String::new(),
            _ => format!("{}/", path_of(txn, row.parent, &row.name)?),
        };
        if self.path.starts_with(&own) {
            return Err(MetaError::IntoItself(self.path.clone()));
        }
        check_free(txn, &self.path)?;
        check_levels(&self.path, row.level_count)?;
        let limit = TREE_ENTRIES_MAX;
        let Some(Tree { directories, files }) = tree(txn, id, limit)? else {
            let directory = path(txn, id)?;
            return Err(SnapshotError::TooManyEntries { directory, limit }.into());
        };
        self.directories.push((id, row));
        for below in directories {
            self.directories.push((below, record(txn, below)?));
        }
        for (put, names) in files {
            self.add_file(txn, file_row(txn, put)?, names)?;
        }
        let (bytes, limit) = (self.row_bytes(txn)?, TREE_BYTES_MAX);
        if bytes > limit {
            let directory = path(txn, id)?;
            let error = SnapshotError::TooManyBytes {
                directory,
                bytes,
                limit,
            };
            return Err(error.into());
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        txn: &dyn ReadTxn,
        file: FileRecord,
        names: Vec<NameKey>,
    ) -> Result<(), MetaError> {
        let path = || -> Result<String, MetaError> { Ok(file_of(txn, file.put)?.name) };
        let is_symlink = file.symlink.is_some();
        if !is_symlink && pool(txn, file.pool)?.lifecycle.is_some() {
            return Err(SnapshotError::NotShareable(path()?).into());
        }
        if layers(txn, file.map)?.len() >= LAYERS_MAX {
            let (name, count) = (path()?, LAYERS_MAX);
            return Err(SnapshotError::TooMany { name, count }.into());
        }
        let inline_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
        let inline = self.inline.entry(file.pool).or_default();
        *inline = inline.saturating_add(inline_bytes);
        self.files.push((file, names));
        Ok(())
    }

    /// Bytes of the rows that grow with what users store in them.
    fn row_bytes(&self, txn: &dyn ReadTxn) -> Result<u64, MetaError> {
        let targets = self
            .files
            .iter()
            .filter_map(|(file, _)| Some(file.symlink.as_ref()?.target.len() as u64));
        let inline = self.inline.values().copied();
        let mut bytes = inline.chain(targets).fold(0, u64::saturating_add);
        let files = self.files.iter().map(|(file, _)| Inode::File(file.put));
        let directories = self.directories.iter().map(|(id, _)| Inode::Directory(*id));
        for inode in files.chain(directories) {
            for (name, value) in USER_ATTRIBUTES.get(txn, &inode)?.unwrap_or_default() {
                bytes = bytes.saturating_add((name.len() + value.len()) as u64);
            }
        }
        Ok(bytes)
    }

    /// Refuses early what quotas have no room for. The transaction counts exactly.
    fn check_room(&self, txn: &dyn ReadTxn) -> Result<(), MetaError> {
        let sizes = self.files.iter().map(|(file, _)| file.size_bytes);
        // The name is free.
        let is_kept = |_| false;
        check_put(txn, &self.path, sizes.fold(0, u64::saturating_add), is_kept)?;
        for (&id, &inline_bytes) in &self.inline {
            check_files(txn, id)?;
            check_more(txn, &pool(txn, id)?, inline_bytes)?;
        }
        Ok(())
    }

    /// Makes the snapshot.
    fn copy(self, txn: &mut Change<'_>, kind: Copied) -> Result<(), MetaError> {
        let Self {
            path,
            directories,
            files,
            ..
        } = self;
        let mut ids = Ids::take(txn, directories.len(), files.len())?;
        let top = match directories.first() {
            Some((_, row)) => row.attributes,
            None => files.first().expect("a file or a directory").0.attributes,
        };
        let (parent, name) = make_parents(txn, &path, (top.for_parent(), kind.now))?;
        let mut copies: BTreeMap<DirectoryId, DirectoryId> = BTreeMap::new();
        for (id, row) in directories {
            let copy = ids.directory();
            let is_top = copies.is_empty();
            let place = if is_top {
                let key = (parent, key_of(name));
                link(txn, &key, Inode::Directory(copy), kind.now)?;
                note_levels(txn, parent, row.level_count + 1)?;
                (parent, name.to_owned())
            } else {
                let place = (copies[&row.parent], row.name.clone());
                // The directory is new, and keeps the times of its original.
                let key = (place.0, key_of(&place.1));
                NAMES.put(txn, &key, &Inode::Directory(copy))?;
                place
            };
            copy_directory(txn, (id, &row), (copy, place), kind)?;
            copies.insert(id, copy);
        }
        for (file, names) in files {
            if copies.is_empty() {
                let key = (parent, name.to_owned());
                let copy = copy_file(txn, file, (&mut ids, vec![key.clone()]), kind)?;
                return link(txn, &key, Inode::File(copy), kind.now);
            }
            let names = names.into_iter();
            let names: Vec<NameKey> = names.map(|(at, name)| (copies[&at], name)).collect();
            let copy = copy_file(txn, file, (&mut ids, names.clone()), kind)?;
            for key in names {
                NAMES.put(txn, &key, &Inode::File(copy))?;
            }
        }
        Ok(())
    }
}

impl Ids {
    /// Takes those of this many copies: of each file, that of the copy and that of the file's next map.
    fn take(
        txn: &mut Change<'_>,
        directory_count: usize,
        file_count: usize,
    ) -> Result<Self, MetaError> {
        let mut take = |kind, count: u64| -> Result<Range<u64>, MetaError> {
            let first = txn.take(kind, count)?;
            Ok(first..first + count)
        };
        Ok(Self {
            puts: take(Leased::Put, 2 * file_count as u64)?,
            directories: take(Leased::Directory, directory_count as u64)?,
        })
    }

    fn put(&mut self) -> u64 {
        self.puts.next().expect("two were taken for each file")
    }

    fn directory(&mut self) -> DirectoryId {
        let id = self.directories.next();
        DirectoryId(id.expect("one was taken for each directory"))
    }
}

/// Makes a copy of a directory without names in it. The caller gives it its name in the table of names.
fn copy_directory(
    txn: &mut dyn WriteTxn,
    (id, row): (DirectoryId, &DirectoryRecord),
    (copy, (parent, name)): (DirectoryId, NameKey),
    kind: Copied,
) -> Result<(), MetaError> {
    let made = DirectoryRecord {
        parent,
        name,
        level_count: row.level_count,
        generation: 0,
        attributes: kind.attributes(&row.attributes),
        quota: count_directory(txn, parent)?,
        is_read_only: kind.is_read_only,
    };
    DIRECTORIES.put(txn, &copy, &made)?;
    copy_user_attributes(txn, Inode::Directory(id), Inode::Directory(copy))
}

/// Makes a file with the bytes of another one. The caller gives it its names in the table of names.
fn copy_file(
    txn: &mut Change<'_>,
    mut file: FileRecord,
    (ids, mut names): (&mut Ids, Vec<NameKey>),
    kind: Copied,
) -> Result<PutId, MetaError> {
    check_files(txn, file.pool)?;
    let put = PutId(ids.put());
    let below = share(txn, &mut file, MapId(ids.put()))?;
    let link_count = names.len() as u64;
    let first = names.remove(0);
    let attributes = kind.attributes(&file.attributes);
    let mut copy = FileRecord {
        size_bytes: file.size_bytes,
        stripe_count: file.stripe_count,
        shared_stripe_count: file.stripe_count,
        shared_below: file.shared_below,
        symlink: file.symlink.clone(),
        is_read_only: kind.is_read_only,
        link_count,
        ..FileRecord::new(first, (put, file.pool), attributes, kind.now_ms)
    };
    if let Some(below) = below {
        let file = Some(put);
        put_above(txn, copy.map, MapRecord { below, file })?;
    }
    inline_rows::copy(txn, &file, &mut copy)?;
    count_file(txn, &copy)?;
    put_file(txn, &copy)?;
    set_others(txn, put, &names)?;
    copy_user_attributes(txn, Inode::File(file.put), Inode::File(put))?;
    Ok(put)
}

fn copy_user_attributes(txn: &mut dyn WriteTxn, of: Inode, to: Inode) -> Result<(), MetaError> {
    match USER_ATTRIBUTES.get(txn, &of)? {
        Some(own) => USER_ATTRIBUTES.put(txn, &to, &own),
        None => Ok(()),
    }
}

/// Whether clients may update stripes of a file in place: others are in lower maps, or there are none.
fn may_be_written(txn: &dyn ReadTxn, file: &FileRecord) -> Result<bool, MetaError> {
    Ok(!rows_from(txn, file.map, 0, 1)?.is_empty())
}

/// Refuses to share the stripes of a file that clients write in place.
fn check_frozen(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    frozen: &BTreeMap<PutId, FencingToken>,
) -> Result<(), MetaError> {
    if !may_be_written(txn, file)? {
        return Ok(());
    }
    let Some(&token) = frozen.get(&file.put) else {
        return Err(SnapshotError::NotFrozen(file.put).into());
    };
    let present = exclusive(txn, file.put)?;
    if present.token != token || present.frozen_in.is_none() {
        let current = present.token;
        return Err(MetaError::Superseded { current });
    }
    Ok(())
}

/// Makes all stripes of a file shared ones, if it has any of its own by giving it this map. Returns the map that has
/// them; none if there is no stripe.
fn share(
    txn: &mut Change<'_>,
    file: &mut FileRecord,
    next: MapId,
) -> Result<Option<MapId>, MetaError> {
    if rows_from(txn, file.map, 0, 1)?.is_empty() {
        // All of them are shared already, and one more map will be above the one that has them.
        MERGES.delete(txn, &file.map)?;
        return Ok(MAPS.get(txn, &file.map)?.map(|record| record.below));
    }
    let below = file.map;
    disown(txn, below)?;
    file.map = next;
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
