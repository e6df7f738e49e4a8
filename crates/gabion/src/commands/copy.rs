//! `gabion cp`. The copy gets its name when it is complete, and has holes where the original has them.

use super::attributes::{copied_mode, kept};
use super::connect;
use super::files::existing;
use crate::arguments::{CopyOptions, Place};
use crate::failure::{Context as _, Failure};
use crate::output::{Format, Shown, bytes, print_json};
use gabion_client::{Client, ClientError, File, NewFile};
use gabion_layout::ByteRange;
use gabion_meta::Existing;
use gabion_wire::random_bytes;
use serde_json::json;
use std::time::Instant;
use tokio_util::compat::{TokioAsyncReadCompatExt as _, TokioAsyncWriteCompatExt as _};

/// Bytes that are read and not stored yet.
const PIPE_BYTES: usize = 1 << 20;
/// Bytes that are copied at a time between holes.
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
    if !replace && client.inode(&to).await.is_ok() {
        return Err(Failure::failed(format!(
            "'{to}' already exists; choose another name, or replace the file with --replace"
        )));
    }
    let begun = Instant::now();
    let known = original.attributes().await?;
    let attributes = if preserve {
        kept(&known)
    } else {
        copied_mode(known.mode)
    };
    let pool = pool.unwrap_or_else(|| original.pool().spec.name);
    let new = NewFile {
        name: &to,
        existing: existing(replace),
        pool: Some(&pool),
        attributes,
    };
    let size = original.size_bytes();
    let stored = original.stored_within(ByteRange::new(0, size)).await?;
    if stored.iter().map(|part| part.length).sum::<u64>() == size {
        whole(&client, &original, new).await?;
    } else {
        let directory = to.rfind('/').map_or("", |at| &to[..=at]);
        let number = random_bytes().context("draw a random number")?;
        let unnamed = format!("{directory}.copy-{:016x}", u64::from_le_bytes(number));
        sparse(&client, &original, (&unnamed, new), &stored).await?;
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

/// Copies a file without holes: a put, of which nothing is seen before its end.
async fn whole(client: &Client, original: &File, new: NewFile<'_>) -> Result<(), ClientError> {
    let size = original.size_bytes();
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

/// Copies a file with holes under another name, which is exchanged for the right one at the end.
async fn sparse(
    client: &Client,
    original: &File,
    (unnamed, new): (&str, NewFile<'_>),
    stored: &[ByteRange],
) -> Result<(), ClientError> {
    let begun = NewFile {
        name: unnamed,
        existing: Existing::Stays,
        ..new
    };
    client.put_over(begun, [].as_slice(), 0, &()).await?;
    let copied = async {
        let copy = client.open(unnamed).await?;
        copy.grow(original.size_bytes()).await?;
        copy_parts(original, &copy, stored).await?;
        // Writing has set its times.
        copy.set_attributes(&new.attributes.into()).await?;
        copy.rename(new.name, new.existing).await
    };
    let copied = copied.await;
    if copied.is_err() {
        // Nothing stays of it, unless the cluster cannot be reached.
        let _ = client.rm(unnamed).await;
    }
    copied
}

async fn copy_parts(original: &File, copy: &File, stored: &[ByteRange]) -> Result<(), ClientError> {
    let bar = Shown::bytes("");
    let total = stored.iter().map(|part| part.length).sum();
    let mut done = 0;
    for part in stored {
        for offset in (part.offset..part.end()).step_by(PIECE_BYTES as usize) {
            let piece = ByteRange::new(offset, PIECE_BYTES.min(part.end() - offset));
            bar.set_of(done, total);
            let bytes = original.read(piece).await?;
            copy.write_pieces(offset, bytes.into()).await?;
            done += piece.length;
        }
    }
    Ok(())
}
