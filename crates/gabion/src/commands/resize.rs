//! `gabion append`, `create`, `truncate` and `punch`.

use super::attributes::{new_file, note_written};
use super::connect;
use super::files::{LocalFile, is_directory, report_write};
use crate::arguments::{AppendOptions, CreateOptions, Place, PunchOptions};
use crate::failure::{Context, Failure};
use crate::output::{Format, Shown, bytes, print_json};
use gabion_client::{Client, ClientError, File, NewFile};
use gabion_layout::ByteRange;
use serde_json::json;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of one read and write.
const PIECE_BYTES: u64 = 8 << 20;

pub(crate) async fn append(
    options: AppendOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let AppendOptions { name, file } = options;
    let doing = || format!("read {}", file.display());
    let local = match LocalFile::open(&file).await.context(doing())? {
        // A file that the kernel makes while it is read seems empty.
        LocalFile::Regular(source, 0) => LocalFile::Stream(Box::new(source)),
        other => other,
    };
    let stored = connect(place).await?.open(&name).await?;
    let begun = Instant::now();
    let (offset, size) = match local {
        LocalFile::Directory => return Err(is_directory(&file)),
        LocalFile::Regular(mut source, size) => {
            let first = next_piece(&mut source, PIECE_BYTES.min(size)).await;
            let first = first.context(doing())?;
            let done = first.len() as u64;
            if done < PIECE_BYTES.min(size) {
                return Err(Failure::failed(format!(
                    "the local file ended after {done} of {size} bytes; nothing was appended"
                )));
            }
            // Its bytes stay together, even if other clients append at the same time.
            let end_before = stored.size_bytes();
            let appended = stored.append_first(size, first.into()).await;
            let offset = appended
                .map_err(|error| Failure::failed(trouble_of_append(&stored, end_before, &error)))?;
            let written = write_rest(&stored, source, (offset, done, size));
            written.await.context(doing())??;
            (offset, size)
        }
        LocalFile::Stream(mut source) => {
            let (mut first, mut size) = (None, 0);
            loop {
                let piece = next_piece(&mut source, PIECE_BYTES)
                    .await
                    .context(doing())?;
                if piece.is_empty() {
                    break (first.unwrap_or(stored.size_bytes()), size);
                }
                let piece_bytes = piece.len() as u64;
                size += piece_bytes;
                let end_before = stored.size_bytes();
                let appended = stored.append(piece.into()).await;
                let offset = appended.map_err(|error| {
                    let done = size - piece_bytes;
                    let trouble = trouble_of_append(&stored, end_before, &error);
                    format!("{trouble}; the first {done} bytes are appended")
                });
                first.get_or_insert(offset.map_err(Failure::failed)?);
            }
        }
    };
    note_written(&stored).await;
    report_write("appended", &name, (offset, size), begun, format)
}

/// The failure of an append. The file may have grown by bytes that it did not get.
fn trouble_of_append(stored: &File, end_before: u64, error: &ClientError) -> String {
    let end = stored.size_bytes();
    if end <= end_before {
        return error.to_string();
    }
    format!(
        "{error}. The append may be incomplete: the stored file has grown from {end_before} to {end} bytes, and missing \
         bytes are zeros"
    )
}

/// Writes a source of a known size to a range of a file, of which the first bytes are done. The outer error is the
/// source's.
async fn write_rest(
    stored: &File,
    mut source: impl AsyncRead + Unpin,
    (offset, mut done, size): (u64, u64, u64),
) -> std::io::Result<Result<(), Failure>> {
    let bar = Shown::bytes("");
    while done < size {
        bar.set_of(done, size);
        let piece = next_piece(&mut source, PIECE_BYTES.min(size - done)).await?;
        if piece.is_empty() {
            return Ok(Err(Failure::failed(format!(
                "the local file ended after {done} of {size} bytes; the stored file has zeros in place of the \
                 others"
            ))));
        }
        let length = piece.len() as u64;
        if let Err(error) = stored.write_pieces(offset + done, piece.into()).await {
            let (begin, end) = (offset + done, offset + size);
            return Ok(Err(Failure::failed(format!(
                "{error}; bytes {begin} to {end} of the stored file are zeros, except perhaps the first 8 MiB of them"
            ))));
        }
        done += length;
    }
    Ok(Ok(()))
}

/// The next bytes of a source, fewer than `limit` only at its end.
async fn next_piece(source: &mut (impl AsyncRead + Unpin), limit: u64) -> std::io::Result<Vec<u8>> {
    let mut piece = Vec::new();
    source.take(limit).read_to_end(&mut piece).await?;
    Ok(piece)
}

pub(crate) async fn create(
    options: CreateOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let CreateOptions { name, size, pool } = options;
    let client = connect(place).await?;
    create_file(&client, &name, size, pool.as_deref()).await?;
    if format == Format::Json {
        return print_json(&json!({ "name": name, "bytes": size }));
    }
    if size == 0 {
        println!("created {name}, an empty file");
    } else {
        println!("created {name}: {} that take no space", bytes(size));
    }
    Ok(())
}

/// Creates a file of this size that is one hole.
pub(super) async fn create_file(
    client: &Client,
    name: &str,
    size: u64,
    pool: Option<&str>,
) -> Result<(), Failure> {
    let new = NewFile {
        pool,
        attributes: new_file(),
        ..NewFile::named(name)
    };
    let file = client.create(new).await?;
    grow_new(&file, size).await
}

/// Gives a new file its size. A later file of its name stays as it is.
async fn grow_new(file: &File, size: u64) -> Result<(), Failure> {
    if size > 0
        && let Err(error) = file.grow(size).await
    {
        // A pool may not allow it. Nothing stays of the file.
        let _ = file.remove().await;
        return Err(error.into());
    }
    Ok(())
}

pub(crate) async fn truncate(
    name: &str,
    size: u64,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let file = connect(place).await?.open(name).await?;
    // Many stripes take a while, one step after another.
    let turning = Shown::spinner(&format!("truncating {name}"));
    let truncated = file.truncate(size).await;
    drop(turning);
    truncated?;
    if format == Format::Json {
        return print_json(&json!({ "name": name, "bytes": size }));
    }
    println!("{name} has {}", bytes(size));
    Ok(())
}

pub(crate) async fn punch(
    options: &PunchOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let (name, offset) = (&options.name, options.offset);
    let file = connect(place).await?.open(name).await?;
    let Some(behind) = file.size_bytes().checked_sub(offset) else {
        return Err(Failure::usage(format!(
            "{name} has {} bytes; choose --offset and --length within them",
            file.size_bytes()
        )));
    };
    // Nothing, where the file ends.
    let length = options.length.get().min(behind);
    let turning = Shown::spinner(&format!("punching a hole into {name}"));
    let punched = file.punch(ByteRange::new(offset, length)).await;
    drop(turning);
    punched?;
    note_written(&file).await;
    if format == Format::Json {
        return print_json(&json!({ "name": name, "offset": offset, "bytes": length }));
    }
    match length {
        0 => println!("{name} has no bytes from offset {offset} on"),
        _ => println!("{} from offset {offset} of {name} are zero", bytes(length)),
    }
    Ok(())
}
