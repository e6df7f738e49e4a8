//! Files: finding, listing, renaming and removing them, and the garbage of removed ones. A file is its
//! record, a row for its name, and its extents.

use crate::attributes::WallTime;
use crate::directories::{link, make_parents, unlink};
use crate::directory_rows::{
    PAGE, absolute, behind, descend, entries, find, key_of, last_name, path_of, walk,
};
use crate::directory_uses::{check_border, count_file_row};
use crate::dropped::may_be_served;
use crate::error::MetaError;
use crate::extents::{Found, extents, extents_within, neighbours};
use crate::former_holders::forget_absent_holders;
use crate::hard_links::{NameKey, exchange, others, take};
use crate::ids::Change;
use crate::inline_rows::present_bytes;
use crate::kv::{KeyValue, ReadTxn, WriteTxn};
use crate::meta::Meta;
use crate::names::check_file_name;
use crate::orphans::{is_orphan, leave};
use crate::paths::{DirectoryId, RelativePath};
use crate::records::{Existing, FileRecord, Inode, Listing, PutId, Symlink};
use crate::schema::{Counter, FILES, GARBAGE, WITHDRAWN};
use crate::stripe_rows::{live_stripe, stripe_row};
use crate::tokens::check_no_session;
use crate::written::is_updated_in_place;
use gabion_layout::{ByteRange, StripeId, StripeRecord};

/// The stripes of a file with the offsets of their extents.
pub type Stripes = Vec<(u64, StripeRecord)>;

/// The stripes of a part of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FilePart {
    /// The stripes whose extents begin within the part, with the offsets of these, in their order.
    pub stripes: Stripes,
    /// The offset of the last extent before the part.
    pub before: Option<u64>,
    /// The offset of the first extent behind it.
    pub behind: Option<u64>,
    /// Those of the stripes that are not updated in place, because other files have them too, or had them.
    pub shared: Vec<StripeId>,
    /// All inline bytes of the file, if some of them are in the part.
    pub inline: Option<Vec<u8>>,
}

impl<K: KeyValue> Meta<K> {
    /// The file with this name.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`]; [`MetaError::IsADirectory`]; [`MetaError::NotADirectory`].
    pub fn file(&self, name: &str) -> Result<FileRecord, MetaError> {
        self.store.read(|txn| file(txn, name))
    }

    /// The file that this put made, whatever its name.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn file_of(&self, put: PutId) -> Result<FileRecord, MetaError> {
        self.store.read(|txn| file_of(txn, put))
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
        self.store.read(|txn| {
            let files = walk(txn, prefix, after, limit)?.into_iter();
            files.map(|found| named(txn, found)).collect()
        })
    }

    /// At most `limit` files behind the one that the put `after` made, in the order of their puts. Unlike a list by
    /// names, pages of these miss no file that is renamed between them.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn files_by_put(
        &self,
        after: Option<PutId>,
        limit: usize,
    ) -> Result<Vec<FileRecord>, MetaError> {
        self.store.read(|txn| {
            let rows = FILES.scan(txn, &FILES.after(after.as_ref()), limit)?;
            let files = rows.into_iter().map(|(_, row)| with_path(txn, row));
            files.collect()
        })
    }

    /// At most `limit` entries with this prefix, behind `after`, in the byte order of their paths. Files
    /// whose paths have the delimiter behind the prefix are one entry for each common beginning up to the
    /// delimiter, and not entries of their own. With `/` that costs no more than the entries, and directories are
    /// entries also if they are empty.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        delimiter: Option<&str>,
        limit: usize,
    ) -> Result<Listing, MetaError> {
        self.store.read(|txn| match delimiter {
            Some("/") => list_directory(txn, prefix, after, limit),
            _ => list_files(txn, (prefix, after), delimiter, limit),
        })
    }

    /// A file and its stripes in the order of the offsets of their extents, from one consistent view.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`].
    pub fn layout(&self, name: &str) -> Result<(FileRecord, Stripes), MetaError> {
        self.store.read(|txn| with_stripes(txn, file(txn, name)?))
    }

    /// The same for the file that this put made.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn layout_of(&self, put: PutId) -> Result<(FileRecord, Stripes), MetaError> {
        self.store.read(|txn| with_stripes(txn, file_of(txn, put)?))
    }

    /// The file that this put made, and its stripes in a range, from one consistent view.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn layout_within(
        &self,
        put: PutId,
        range: ByteRange,
    ) -> Result<(FileRecord, FilePart), MetaError> {
        self.store.read(|txn| {
            let file = file_of(txn, put)?;
            let (before, behind) = neighbours(txn, file.map, range)?;
            let extents = extents_within(txn, file.map, range)?;
            let mut shared = Vec::new();
            for &Found { map, extent, .. } in &extents {
                if map != file.map || !is_updated_in_place(txn, &file, extent.stripe)? {
                    shared.push(extent.stripe);
                }
            }
            let inline_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
            let inline = if range.offset < inline_bytes {
                present_bytes(txn, &file)?
            } else {
                None
            };
            let part = FilePart {
                inline,
                shared,
                stripes: stripes_of(txn, put, extents)?,
                before,
                behind,
            };
            Ok((file, part))
        })
    }

    /// Takes the name `at` of the file that `put` made away, if its names are in this generation. The file goes with
    /// its last name, unless a client has it open: [`Meta::discard_removed`] makes its stripes garbage, and ends their
    /// leases; primaries learn of it with the order to remove their chunks. Does nothing if the change with this
    /// number was made: a lost answer leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::FileRenamed`] when its names are in another generation, or this is none of
    /// them; [`MetaError::InUse`].
    pub fn remove_file(
        &self,
        at: impl Into<RelativePath>,
        put: PutId,
        (generation, number): (u64, u64),
    ) -> Result<(), MetaError> {
        let (at, now) = (at.into(), self.wall_time());
        self.change_once(number, |txn| {
            let file = file_of(txn, put)?;
            let key = key_at(txn, &at, put)?;
            let Some(key) = key.filter(|_| file.generation == generation) else {
                return Err(MetaError::FileRenamed(file.name));
            };
            remove(txn, &file, &key, now).map(drop)
        })
    }

    /// Gives the file that `put` made the name `to` instead of `from`, if its names are in this generation: one
    /// transaction whatever the file's size. A file that has that name already stays or is removed; if it is the same
    /// file, both names stay, as POSIX has it. Does nothing if the change with this number was made: a lost answer
    /// leads to a second request.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::FileRenamed`] when its names are in another generation, or `from` is none
    /// of them; [`MetaError::FileName`]; [`MetaError::FileExists`]; [`MetaError::FileReplaced`];
    /// [`MetaError::NotADirectory`]; [`MetaError::DirectoryGone`]; [`MetaError::Quota`] when another quota counts what
    /// is there.
    pub fn rename(
        &self,
        (put, from): (PutId, impl Into<RelativePath>),
        (generation, number): (u64, u64),
        to: impl Into<RelativePath>,
        existing: Existing,
    ) -> Result<(), MetaError> {
        let (from, to, now) = (from.into(), to.into(), self.wall_time());
        self.change_once(number, |txn| {
            let mut file = file_of(txn, put)?;
            let path = absolute(txn, &to)?;
            check_file_name(&path)?;
            let old = key_at(txn, &from, put)?;
            let Some(old) = old.filter(|_| file.generation == generation) else {
                return Err(MetaError::FileRenamed(file.name));
            };
            let present = key_at(txn, &to, put)?;
            if present.as_ref() == Some(&old) || present.is_some() && existing != Existing::Stays {
                return Ok(());
            }
            make_way(txn, &path, existing, now)?;
            let (directory, name) = make_parents(txn, &path, (file.attributes.for_parent(), now))?;
            check_border(txn, (Inode::File(put), file.quota), (directory, &path))?;
            let new = (directory, name.to_owned());
            unlink(txn, &old, now)?;
            link(txn, &new, Inode::File(put), now)?;
            exchange(txn, &mut file, (&old, new))?;
            file.attributes.note_change(now);
            file.generation = generation.saturating_add(1);
            put_file(txn, &file)
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
        let is_any_new = self.store.read(|txn| {
            let mut is_any_new = false;
            for &id in stripes {
                is_any_new |= may_be_served(txn, id)?;
            }
            Ok(is_any_new)
        })?;
        if !is_any_new {
            return Ok(());
        }
        self.change(|txn| {
            for &id in stripes {
                if may_be_served(txn, id)? {
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
                // Its id is known to have been issued, also without a row.
                Counter::ReclaimedStripes.reach(txn, stripe.0.saturating_add(1))?;
                WITHDRAWN.delete(txn, &stripe)?;
                forget_absent_holders(txn, stripe)?;
            }
            Ok(present)
        })
    }
}

/// The file with this path.
pub(crate) fn file(txn: &dyn ReadTxn, name: &str) -> Result<FileRecord, MetaError> {
    match find(txn, name)? {
        Some((directory, Inode::File(put))) => named(txn, (name.to_owned(), directory, put)),
        Some((_, Inode::Directory(_))) => Err(MetaError::IsADirectory(name.to_owned())),
        None => Err(MetaError::UnknownFile(name.to_owned())),
    }
}

/// The file that this put made.
pub(crate) fn file_of(txn: &dyn ReadTxn, put: PutId) -> Result<FileRecord, MetaError> {
    with_path(txn, file_row(txn, put)?)
}

/// Refuses a symbolic link.
pub(crate) fn check_no_symlink(file: &FileRecord) -> Result<(), MetaError> {
    match &file.symlink {
        None => Ok(()),
        Some(Symlink { target }) => Err(MetaError::IsASymlink {
            name: file.name.clone(),
            target: target.clone(),
        }),
    }
}

/// The row of the file that this put made, for those who need no path.
pub(crate) fn file_row(txn: &dyn ReadTxn, put: PutId) -> Result<FileRecord, MetaError> {
    FILES.get(txn, &put)?.ok_or(MetaError::FileGone(put))
}

/// A file's row as its record, whose name is the whole path, or the last one that an orphan had.
fn with_path(txn: &dyn ReadTxn, mut row: FileRecord) -> Result<FileRecord, MetaError> {
    if is_orphan(&row) {
        return Ok(row);
    }
    row.name = path_of(txn, row.directory, &row.name)?;
    Ok(row)
}

/// Sets a file's row, and counts it in the quota of a directory. The caller keeps its name in agreement.
pub(crate) fn put_file(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    put_file_over(txn, file, None)
}

/// The same for a new file, to which another one that has ended has made way.
pub(crate) fn put_file_over(
    txn: &mut dyn WriteTxn,
    file: &FileRecord,
    freed: Option<&FileRecord>,
) -> Result<(), MetaError> {
    let mut row = FileRecord {
        name: last_name(&file.name).to_owned(),
        ..file.clone()
    };
    count_file_row(txn, &mut row, freed)?;
    FILES.put(txn, &file.put, &row)
}

/// The name at a path, if it is one of the file that `put` made.
fn key_at(txn: &dyn ReadTxn, at: &RelativePath, put: PutId) -> Result<Option<NameKey>, MetaError> {
    let path = match absolute(txn, at) {
        Err(MetaError::DirectoryGone(_)) => return Ok(None),
        path => path?,
    };
    let found = match find(txn, &path) {
        Err(MetaError::NotADirectory(_)) => None,
        found => found?,
    };
    let its = found.filter(|(_, inode)| *inode == Inode::File(put));
    Ok(its.map(|(directory, _)| (directory, last_name(&path).to_owned())))
}

/// Refuses to give away a name that another file keeps, or a directory. Returns the file that does not keep it, if
/// there is one.
pub(crate) fn check_name(
    txn: &dyn ReadTxn,
    name: &str,
    existing: Existing,
) -> Result<Option<PutId>, MetaError> {
    let present = match find(txn, name)? {
        None => return Ok(None),
        Some((_, Inode::Directory(_))) => return Err(MetaError::IsADirectory(name.to_owned())),
        Some((_, Inode::File(present))) => present,
    };
    match existing {
        Existing::IsReplaced => Ok(Some(present)),
        Existing::IsReplacedIf(put) if put == present => Ok(Some(present)),
        Existing::IsReplacedIf(_) => Err(MetaError::FileReplaced(name.to_owned())),
        Existing::Stays => Err(MetaError::FileExists(name.to_owned())),
    }
}

/// Frees a name for another file. Returns the file that had it, if that file is gone.
pub(crate) fn make_way(
    txn: &mut Change<'_>,
    name: &str,
    existing: Existing,
    now: WallTime,
) -> Result<Option<FileRecord>, MetaError> {
    let Some(present) = check_name(txn, name, existing)? else {
        return Ok(None);
    };
    let file = file_of(txn, present)?;
    let key = key_at(txn, &name.into(), present)?;
    let key = key.ok_or_else(|| FILES.contradiction(&present, "its name is missing"))?;
    let has_ended = remove(txn, &file, &key, now)?;
    Ok(has_ended.then_some(file))
}

/// Takes a name of a file away. With its last name the file ends, or becomes an orphan. One that a session has alone
/// stays, even if the client of the session is gone: it is displaced first. Returns whether the file has ended.
fn remove(
    txn: &mut Change<'_>,
    file: &FileRecord,
    key: &NameKey,
    now: WallTime,
) -> Result<bool, MetaError> {
    check_no_session(txn, file)?;
    let names = others(txn, file.put)?;
    if names.is_empty() {
        unlink(txn, key, now)?;
        return leave(txn, file, now);
    }
    let mut left = file.clone();
    take(txn, &mut left, (key, names), now)?;
    put_file(txn, &left)?;
    Ok(false)
}

/// The record of a path's file.
fn named(
    txn: &dyn ReadTxn,
    (name, directory, put): (String, DirectoryId, PutId),
) -> Result<FileRecord, MetaError> {
    let contradiction = |reason| FILES.contradiction(&put, reason);
    let record = FILES.get(txn, &put)?;
    let record = record.ok_or_else(|| contradiction(format!("'{name}' is its name")))?;
    let is_first = (record.directory, record.name.as_str()) == (directory, last_name(&name));
    if record.link_count == 1 && !is_first {
        return Err(contradiction(format!("'{name}' is another name of it")));
    }
    Ok(FileRecord { name, ..record })
}

/// A page of files, of which those with a common beginning up to the delimiter are one entry.
fn list_files(
    txn: &dyn ReadTxn,
    (prefix, after): (&str, Option<&str>),
    delimiter: Option<&str>,
    limit: usize,
) -> Result<Listing, MetaError> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
    let (mut listing, mut after) = (Listing::default(), after.map(str::to_owned));
    // The page before has ended with this beginning.
    let ended = after
        .clone()
        .filter(|after| common(after, prefix, delimiter) == Some(after));
    loop {
        let page = walk(
            txn,
            prefix,
            after.as_deref(),
            PAGE.min(limit.saturating_add(1)),
        )?;
        let Some((last, ..)) = page.last() else {
            return Ok(listing);
        };
        after = Some(last.clone());
        for (name, directory, put) in page {
            let shared = common(&name, prefix, delimiter);
            let known = listing.prefixes.last().or(ended.as_ref());
            if shared.is_some_and(|shared| known.is_some_and(|known| known == shared)) {
                continue;
            }
            if listing.files.len() + listing.prefixes.len() >= limit {
                listing.is_cut = true;
                return Ok(listing);
            }
            match shared {
                Some(shared) => {
                    // Behind nearly all names that begin with it; those behind are known by it.
                    after = Some(format!("{shared}{}", char::MAX));
                    listing.prefixes.push(shared.to_owned());
                    break;
                }
                None => listing.files.push(named(txn, (name, directory, put))?),
            }
        }
    }
}

/// A page of the files and directories in one directory: those whose paths begin with the prefix, up to the next
/// `/`.
fn list_directory(
    txn: &dyn ReadTxn,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Listing, MetaError> {
    let mut listing = Listing::default();
    let base = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
    let id = match base.strip_suffix('/') {
        None => Some(DirectoryId::ROOT),
        Some(path) => match descend(txn, path) {
            Err(MetaError::NotADirectory(_)) => None,
            found => found?,
        },
    };
    let Some(id) = id else {
        return Ok(listing);
    };
    let wanted = &prefix[base.len()..];
    let mut next = wanted.to_owned();
    match after.map(|after| (after, after.strip_prefix(base))) {
        None => {}
        // All of this directory is behind it, or none.
        Some((after, None)) if after < base => {}
        Some((_, None)) => return Ok(listing),
        Some((after, Some(rest))) => {
            next = next.max(match rest.split_once('/') {
                Some((name, below)) if !below.is_empty() => {
                    // The page before has not ended with this directory.
                    let has_more =
                        !walk(txn, &format!("{base}{name}/"), Some(after), 1)?.is_empty();
                    let key = key_of(name);
                    if has_more { key } else { behind(&key) }
                }
                _ => behind(rest),
            });
        }
    }
    loop {
        let page = entries(txn, id, &next, PAGE.min(limit.saturating_add(1)))?;
        let Some((last, _)) = page.last() else {
            return Ok(listing);
        };
        next = behind(last);
        for (key, entry) in page {
            if !key.starts_with(wanted) {
                return Ok(listing);
            }
            if listing.files.len() + listing.prefixes.len() >= limit {
                listing.is_cut = true;
                return Ok(listing);
            }
            let path = format!("{base}{key}");
            match entry {
                Inode::File(put) => listing.files.push(named(txn, (path, id, put))?),
                Inode::Directory(_) => listing.prefixes.push(path),
            }
        }
    }
}

/// The common beginning of a name and others up to the first delimiter behind the prefix, if there is one.
fn common<'a>(name: &'a str, prefix: &str, delimiter: Option<&str>) -> Option<&'a str> {
    let (delimiter, rest) = (delimiter?, name.strip_prefix(prefix)?);
    let at = rest.find(delimiter)?;
    Some(&name[..prefix.len() + at + delimiter.len()])
}

/// Adds a file's stripes. If one is missing, the store is damaged; the caller made no mistake.
fn with_stripes(txn: &dyn ReadTxn, file: FileRecord) -> Result<(FileRecord, Stripes), MetaError> {
    let stripes = stripes_of(txn, file.put, extents(txn, file.map)?)?;
    Ok((file, stripes))
}

/// The stripes of some extents of a file.
fn stripes_of(txn: &dyn ReadTxn, file: PutId, extents: Vec<Found>) -> Result<Stripes, MetaError> {
    let stripe = |found: Found| {
        let id = found.extent.stripe;
        let stripe = live_stripe(txn, id).map_err(|error| match error {
            MetaError::UnknownStripe(_) => {
                FILES.contradiction(&file, format!("its {id} is missing"))
            }
            other => other,
        })?;
        Ok((found.offset, stripe))
    };
    extents.into_iter().map(stripe).collect()
}
