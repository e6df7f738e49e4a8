//! Inline files: files whose bytes are a row of the metadata, because they are small. Such a file has no extent. It
//! takes one transaction to store it, to change it or to remove it, and no node. When it outgrows its pool's limit,
//! its client stores its bytes in a stripe, and the replacement that brings the stripe removes the row; it is never
//! inline again.

use crate::attributes::{Attributes, NewAttributes};
use crate::changes_done::{note, note_done, outcome};
use crate::directories::{link, make_parents};
use crate::directory_rows::absolute;
use crate::error::MetaError;
use crate::files::{file_of, file_row, make_way, put_file, put_file_over};
use crate::ids::Leased;
use crate::inline_rows::{bytes_of, present_bytes, set_bytes};
use crate::kv::{KeyValue, ReadTxn};
use crate::meta::Meta;
use crate::names::{check_attributes, check_file_name};
use crate::paths::RelativePath;
use crate::pools::pool;
use crate::quotas::{check_files, count_file};
use crate::records::{ChangeOutcome, Existing, FencingToken, FileRecord, Inline, Inode, PutId};
use crate::tokens::check_token;
use gabion_layout::PoolId;

/// A change of the bytes of an inline file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InlineWrite<'a> {
    /// The version of the file's bytes that the writer has seen.
    pub version: u64,
    /// The offset of the new bytes. The file grows if they reach past its end.
    pub offset: u64,
    /// The new bytes.
    pub bytes: &'a [u8],
    /// The file's token as the writer knows it.
    pub token: FencingToken,
    /// Drawn at random for this change: a repetition is told by it.
    pub number: u64,
}

impl<K: KeyValue> Meta<K> {
    /// Makes an inline file with these bytes: one transaction stores all of it. Returns the id of its put, and the
    /// file. If the file was made by an earlier request with this number, returns that one, or its id alone if it is
    /// gone.
    ///
    /// # Errors
    /// [`MetaError::NotInline`] if the pool keeps no inline files of this size; [`MetaError::WasRefused`];
    /// [`MetaError::FileName`], [`MetaError::Attributes`], [`MetaError::FileExists`], [`MetaError::FileReplaced`],
    /// [`MetaError::IsADirectory`], [`MetaError::NotADirectory`], [`MetaError::DirectoryGone`], [`MetaError::InUse`],
    /// [`MetaError::UnknownPool`], [`MetaError::IdsExhausted`]; [`MetaError::Quota`].
    pub fn put_inline(
        &self,
        (at, existing, attributes): (impl Into<RelativePath>, Existing, NewAttributes),
        pool_id: PoolId,
        bytes: &[u8],
        (number, now_ms): (u64, u64),
    ) -> Result<(PutId, Option<FileRecord>), MetaError> {
        let (at, now) = (at.into(), self.wall_time());
        check_attributes(&attributes.into())?;
        self.change_as(Some(number), |txn| {
            let was_refused = match outcome(txn, number)? {
                None => false,
                Some(ChangeOutcome::Refused) => true,
                Some(ChangeOutcome::MadeFile(put)) => {
                    txn.made(number, put);
                    return Ok((put, found(txn, put)?));
                }
                Some(ChangeOutcome::Made) => return Err(MetaError::WasRefused),
            };
            if !pool(txn, pool_id)?.keeps_inline(bytes.len() as u64) {
                return Err(MetaError::NotInline);
            }
            let name = absolute(txn, &at)?;
            check_file_name(&name)?;
            let freed = make_way(txn, &name, existing, now)?;
            if freed.as_ref().map(|freed| freed.pool) != Some(pool_id) {
                check_files(txn, pool_id)?;
            }
            let put = PutId(txn.take(Leased::Put, 1)?);
            let attributes = Attributes::new(attributes, now);
            let (directory, last) = make_parents(txn, &name, (attributes.for_parent(), now))?;
            let key = (directory, last.to_owned());
            let mut file = FileRecord {
                size_bytes: bytes.len() as u64,
                inline: Some(Inline::default()),
                ..FileRecord::new((directory, name), (put, pool_id), attributes, now_ms)
            };
            set_bytes(txn, &mut file, bytes)?;
            link(txn, &key, Inode::File(put), now)?;
            count_file(txn, &file)?;
            put_file_over(txn, &file, freed.as_ref())?;
            // The last check: as long as the reason holds, a repetition hears the reason.
            if was_refused {
                return Err(MetaError::WasRefused);
            }
            txn.made(number, put);
            note(txn, number, ChangeOutcome::MadeFile(put))?;
            Ok((put, Some(file)))
        })
    }

    /// Changes bytes of the inline file that `put` made, if they are of the version that the writer has seen. Does
    /// nothing if the change with this number was made. Returns the file; none if the change was made and the file is
    /// gone since.
    ///
    /// # Errors
    /// [`MetaError::FileGone`]; [`MetaError::FileChanged`] when the file has another version, or is inline no more, or
    /// would be too large for that; [`MetaError::Superseded`]; [`MetaError::WasRefused`];
    /// [`SnapshotError::ReadOnly`](crate::SnapshotError); [`MetaError::Quota`].
    pub fn write_inline(
        &self,
        put: PutId,
        write: &InlineWrite<'_>,
    ) -> Result<Option<FileRecord>, MetaError> {
        let now = self.wall_time();
        self.change_as(Some(write.number), |txn| {
            let was_refused = match outcome(txn, write.number)? {
                None => false,
                Some(ChangeOutcome::Refused) => true,
                Some(_) => return found(txn, put),
            };
            let mut file = file_of(txn, put)?;
            check_token(txn, &file, write.token)?;
            if write.bytes.is_empty() {
                if was_refused {
                    return Err(MetaError::WasRefused);
                }
                return Ok(Some(file));
            }
            let Some(inline) = file.inline.filter(|inline| inline.version == write.version) else {
                return Err(MetaError::FileChanged("its bytes have changed"));
            };
            let end = write.offset.checked_add(write.bytes.len() as u64);
            let pool = pool(txn, file.pool)?;
            let size = end.map(|end| end.max(file.size_bytes));
            // Bytes that are inline already may be overwritten, whatever the file's size.
            let is_within = end.is_some_and(|end| end <= inline.length_bytes);
            let Some(size) = size.filter(|&size| is_within || pool.keeps_inline(size)) else {
                return Err(MetaError::FileChanged("it needs stripes"));
            };
            let mut bytes = bytes_of(txn, put, inline)?;
            let (start, end) = (
                write.offset as usize,
                write.offset as usize + write.bytes.len(),
            );
            bytes.resize(bytes.len().max(end), 0);
            bytes[start..end].copy_from_slice(write.bytes);
            file.size_bytes = size;
            set_bytes(txn, &mut file, &bytes)?;
            file.attributes.note_content(now);
            put_file(txn, &file)?;
            // The last check, as above.
            if was_refused {
                return Err(MetaError::WasRefused);
            }
            note_done(txn, write.number)?;
            Ok(Some(file))
        })
    }

    /// The inline bytes of the file that this put made; the file's bytes behind them are zero. None for a file without
    /// inline bytes.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn inline_bytes(&self, put: PutId) -> Result<Option<Vec<u8>>, MetaError> {
        self.store
            .read(|txn| present_bytes(txn, &file_row(txn, put)?))
    }
}

/// The file that a put made, if it is not gone.
fn found(txn: &dyn ReadTxn, put: PutId) -> Result<Option<FileRecord>, MetaError> {
    match file_of(txn, put) {
        Err(MetaError::FileGone(_)) => Ok(None),
        file => file.map(Some),
    }
}
