//! The rows of inline bytes, in agreement with the records of their files and with the use of their pools.

use crate::error::MetaError;
use crate::kv::{ReadTxn, WriteTxn};
use crate::pool_spec::INLINE_BYTES_MAX;
use crate::pools::pool;
use crate::quotas::{check_more, count_bytes};
use crate::records::{FileRecord, Inline, PutId};
use crate::schema::{FILES, INLINE};

/// Rows that are read at a time.
const PAGE: usize = 256;

/// The inline bytes of a file, if it has any.
pub(crate) fn present_bytes(
    txn: &dyn ReadTxn,
    file: &FileRecord,
) -> Result<Option<Vec<u8>>, MetaError> {
    let inline = file.inline.filter(|inline| inline.length_bytes > 0);
    inline
        .map(|inline| bytes_of(txn, file.put, inline))
        .transpose()
}

/// The inline bytes of a file, as many as its record says.
pub(crate) fn bytes_of(
    txn: &dyn ReadTxn,
    put: PutId,
    inline: Inline,
) -> Result<Vec<u8>, MetaError> {
    let bytes = INLINE.get(txn, &put)?.unwrap_or_default();
    if bytes.len() as u64 == inline.length_bytes {
        return Ok(bytes);
    }
    let length = bytes.len();
    Err(INLINE.contradiction(&put, format!("{length} bytes contradict the file's row")))
}

/// Gives an inline file these bytes, and another version. The caller sets the file's row.
pub(crate) fn set_bytes(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    bytes: &[u8],
) -> Result<(), MetaError> {
    let present = file.inline.unwrap_or_default();
    let length_bytes = bytes.len() as u64;
    let more = length_bytes.saturating_sub(present.length_bytes);
    check_more(txn, &pool(txn, file.pool)?, more)?;
    count_bytes(
        txn,
        file.pool,
        (more, present.length_bytes.saturating_sub(length_bytes)),
    )?;
    if bytes.is_empty() {
        INLINE.delete(txn, &file.put)?;
    } else {
        INLINE.put(txn, &file.put, &bytes.to_vec())?;
    }
    file.inline = Some(Inline {
        version: FILES.recount(&file.put, present.version, (1, 0))?,
        length_bytes,
    });
    Ok(())
}

/// Notes that the size of a file changes, if it is inline: an append relies on the version. Bytes behind a smaller size
/// are lost. The caller sets the file's row.
pub(crate) fn note_resize(txn: &mut dyn WriteTxn, file: &mut FileRecord) -> Result<(), MetaError> {
    let Some(inline) = file.inline else {
        return Ok(());
    };
    let mut bytes = bytes_of(txn, file.put, inline)?;
    let size = usize::try_from(file.size_bytes).unwrap_or(usize::MAX);
    bytes.truncate(size);
    set_bytes(txn, file, &bytes)
}

/// Makes the hole at the end of an inline file inline bytes, if the pool keeps files of this size inline: a later
/// write to them takes nothing more from the quota. The caller sets the file's row.
pub(crate) fn fill_with_zeros(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
) -> Result<(), MetaError> {
    let Some(inline) = file
        .inline
        .filter(|inline| inline.length_bytes < file.size_bytes)
    else {
        return Ok(());
    };
    if !pool(txn, file.pool)?.keeps_inline(file.size_bytes) {
        return Ok(());
    }
    let mut bytes = bytes_of(txn, file.put, inline)?;
    bytes.resize(file.size_bytes as usize, 0);
    set_bytes(txn, file, &bytes)
}

/// Takes the inline bytes of a file, which gets stripes that have them. `seen` is the version of those that they have;
/// a file without bytes needs none. The caller sets the file's row.
///
/// # Errors
/// [`MetaError::FileChanged`].
pub(crate) fn move_to_stripes(
    txn: &mut dyn WriteTxn,
    file: &mut FileRecord,
    seen: Option<u64>,
) -> Result<(), MetaError> {
    check_seen(file, seen)?;
    forget(txn, file)?;
    file.inline = None;
    Ok(())
}

/// Refuses stripes for a file that has inline bytes of another version.
///
/// # Errors
/// [`MetaError::FileChanged`].
pub(crate) fn check_seen(file: &FileRecord, seen: Option<u64>) -> Result<(), MetaError> {
    let goes_together = match (file.inline, seen) {
        (None, None) => true,
        (Some(present), Some(version)) => present.version == version,
        (Some(present), None) => present.length_bytes == 0,
        (None, Some(_)) => false,
    };
    if goes_together {
        return Ok(());
    }
    Err(MetaError::FileChanged("its bytes have changed"))
}

/// Gives a copy of a file the same inline bytes. The caller sets the copy's row.
pub(crate) fn copy(
    txn: &mut dyn WriteTxn,
    file: &FileRecord,
    copy: &mut FileRecord,
) -> Result<(), MetaError> {
    if file.inline.is_none() {
        return Ok(());
    }
    let bytes = present_bytes(txn, file)?.unwrap_or_default();
    copy.inline = None;
    set_bytes(txn, copy, &bytes)
}

/// Removes the inline bytes of a file.
pub(crate) fn forget(txn: &mut dyn WriteTxn, file: &FileRecord) -> Result<(), MetaError> {
    let length_bytes = file.inline.map_or(0, |inline| inline.length_bytes);
    if length_bytes == 0 {
        return Ok(());
    }
    count_bytes(txn, file.pool, (0, length_bytes))?;
    INLINE.delete(txn, &file.put)
}

/// Whether the row of a file's inline bytes is as its record says. A file with extents has none.
pub(crate) fn agrees(
    txn: &dyn ReadTxn,
    file: &FileRecord,
    has_extents: bool,
) -> Result<bool, MetaError> {
    let row = INLINE.get(txn, &file.put)?;
    let is_alone = file.inline.is_none() || !has_extents && file.symlink.is_none();
    let length_bytes = row.as_ref().map_or(0, |bytes| bytes.len() as u64);
    let expected = file.inline.map_or(0, |inline| inline.length_bytes);
    let is_short = length_bytes <= file.size_bytes.min(INLINE_BYTES_MAX);
    let is_empty_row = row.is_some_and(|bytes| bytes.is_empty());
    Ok(is_alone && length_bytes == expected && is_short && !is_empty_row)
}

/// The files with rows of inline bytes.
pub(crate) fn inline_files(txn: &dyn ReadTxn) -> Result<Vec<PutId>, MetaError> {
    let mut files: Vec<PutId> = Vec::new();
    loop {
        let page = INLINE.scan(txn, &INLINE.after(files.last()), PAGE)?;
        if page.is_empty() {
            return Ok(files);
        }
        files.extend(page.into_iter().map(|(file, _)| file));
    }
}
