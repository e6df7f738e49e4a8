//! `gabion cp`. The copy gets its name when it is complete, and has the holes of the original. Until then a copy with
//! holes is a temporary file of the root directory, which stays there if the process is killed.

use super::attributes::{copied_mode, kept};
use super::connect;
use super::files::existing;
use crate::arguments::{CopyOptions, Place};
use crate::failure::{Context as _, Failure};
use crate::output::{Format, Shown, bytes, print_json};
use gabion_client::{Client, ClientError, File, NewFile};
use gabion_layout::ByteRange;
use gabion_meta::{Existing, Inode, PoolRecord};
use gabion_protocol::message::Cause;
use gabion_wire::random_bytes;
use serde_json::json;
use std::time::Instant;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// Bytes that were read and are not stored yet.
const PIPE_BYTES: usize = 1 << 20;
/// Bytes of one step of the copy between holes.
const PIECE_BYTES: u64 = 8 << 20;

pub(crate) async fn cp(options: CopyOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let CopyOptions {
        name,
        to,
        pool,
        replace,
        preserve,
    } = options;
    let client = connect(place).await?;
    let original = client.open(&name).await?;
    check_target(&client, &original, &to, replace).await?;
    let begun = Instant::now();
    let known = original.attributes().await?;
    let attributes = if preserve {
        kept(&known)
    } else {
        copied_mode(known.mode)
    };
    let pool = pool.unwrap_or_else(|| original.pool().spec.name);
    let new = NewFile {
        existing: existing(replace),
        pool: Some(&pool),
        attributes,
        ..NewFile::named(&to)
    };
    let size = original.size_bytes();
    let stored = original.stored_within(ByteRange::new(0, size)).await?;
    let is_whole = stored.iter().map(|part| part.length).sum::<u64>() == size;
    // Files of such a pool have no holes.
    let has_lifecycle = |known: &PoolRecord| known.spec.name == pool && known.lifecycle.is_some();
    if is_whole || client.pools().await?.iter().any(has_lifecycle) {
        whole(&client, &original, new, size).await?;
    } else {
        let number = random_bytes().context("draw a random number")?;
        let unnamed = format!(".copy-{:016x}", u64::from_le_bytes(number));
        let unnamed = match quota_above(&client, &to).await? {
            Some(directory) => format!("{directory}/{unnamed}"),
            // In the root, whose path is never too long and never changes.
            None => unnamed,
        };
        let copying = sparse(&client, &original, (&unnamed, new), (size, &stored));
        let copied = tokio::select! {
            copied = copying => copied.map_err(Failure::from),
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("the copy was interrupted".to_owned())),
        };
        if copied.is_err() {
            // Nothing stays of it, unless the cluster cannot be reached.
            let _ = client.rm(&unnamed).await;
        }
        copied?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    if format == Format::Json {
        return print_json(&json!({
            "name": to, "copied_from": name, "bytes": size, "seconds": seconds,
        }));
    }
    println!("copied {name} to {to}: {}", bytes(size));
    Ok(())
}

/// The directory above a path whose quota counts what is made there, if it is not the root: no file moves there from
/// elsewhere.
async fn quota_above(client: &Client, path: &str) -> Result<Option<String>, Failure> {
    let ends = path.rmatch_indices('/').map(|(at, _)| &path[..at]);
    for above in ends {
        match client.inode(above).await {
            Ok(status) => {
                let quota = client.directory_quota(status.inode).await?;
                let path = quota.map(|quota| quota.path);
                return Ok(path.filter(|path| path != "/"));
            }
            Err(error) if error.cause() == Cause::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Refuses a target before anything is copied.
async fn check_target(
    client: &Client,
    original: &File,
    to: &str,
    replace: bool,
) -> Result<(), Failure> {
    let why = match client.inode(to).await.map(|status| status.inode) {
        Ok(Inode::Directory(_)) => format!("'{to}' is a directory; name a file"),
        Ok(Inode::File(put)) if put == original.put_id() => {
            return Err(Failure::usage(format!(
                "'{to}' is the source itself; choose another name"
            )));
        }
        Ok(_) if !replace => {
            format!(
                "'{to}' already exists; choose another name, or replace the file with --replace"
            )
        }
        // The cluster refuses what is wrong with it.
        _ => return Ok(()),
    };
    Err(Failure::failed(why))
}

/// Copies the first bytes of a file, with zeros for holes, as one put. The copy is visible only when it is complete.
async fn whole(
    client: &Client,
    original: &File,
    new: NewFile<'_>,
    size: u64,
) -> Result<(), ClientError> {
    let (sink, source) = tokio::io::duplex(PIPE_BYTES);
    let reading = original.copy(ByteRange::new(0, size), sink.compat_write(), &());
    let bar = Shown::bytes("");
    let storing = client.put_over(new, source.compat(), size, &bar);
    match futures::join!(reading, storing) {
        // The end of the pipe is the consequence of the other error.
        (Err(error), Err(ClientError::SourceTooShort { .. })) => Err(error),
        (_, stored) => stored.map(drop),
    }
}

/// Copies a file with holes under a temporary name, and renames the copy at the end.
async fn sparse(
    client: &Client,
    original: &File,
    (unnamed, new): (&str, NewFile<'_>),
    (size, stored): (u64, &[ByteRange]),
) -> Result<(), ClientError> {
    let begun = NewFile {
        name: unnamed,
        existing: Existing::Stays,
        ..new
    };
    client.put_over(begun, [].as_slice(), 0, &()).await?;
    let copy = client.open(unnamed).await?;
    copy.grow(size).await?;
    copy_parts(original, &copy, stored).await?;
    // Writing has set its times.
    copy.set_attributes(&new.attributes.into()).await?;
    copy.rename(new.name, new.existing).await
}

async fn copy_parts(original: &File, copy: &File, stored: &[ByteRange]) -> Result<(), ClientError> {
    let bar = Shown::bytes("");
    let total = stored.iter().map(|part| part.length).sum();
    let mut done = 0;
    for part in stored {
        for offset in (part.offset..part.end()).step_by(PIECE_BYTES as usize) {
            let piece = ByteRange::new(offset, PIECE_BYTES.min(part.end() - offset));
            bar.set_of(done, total);
            let bytes = original.read(piece).await.map_err(|error| match error {
                // It was within the file when the copy began.
                ClientError::Usage(_) => ClientError::Shrunk {
                    name: original.name().to_owned(),
                    size_bytes: original.size_bytes(),
                },
                other => other,
            })?;
            copy.write_pieces(offset, bytes.into()).await?;
            done += piece.length;
        }
    }
    Ok(())
}
