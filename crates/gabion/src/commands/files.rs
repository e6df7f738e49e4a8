//! `gabion put`, `get`, `write`, `ls` and `mv`; `files/removal.rs` has `rm`, and `resize.rs` the commands that change
//! sizes.

mod removal;

pub(crate) use removal::rm;

use super::attributes::{
    copied_mode, new_directory, new_file, note_written, preserve, preserved, shown, time_json,
};
use super::connect;
use super::stat::printable;
use crate::arguments::{GetOptions, ListOptions, MoveOptions, Place, PutOptions, WriteOptions};
use crate::failure::{Context, Failure};
use crate::output::{Format, Shown, align_numbers, bytes, counted, print_json, table};
use crate::output_file::OutputFile;
use comfy_table::ContentArrangement;
use gabion_client::{Client, ClientError, NewFile, Progress, PutSummary};
use gabion_layout::ByteRange;
use gabion_meta::{Existing, Listing, Symlink};
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

/// Maximum bytes of one write, which are held in memory.
const WRITE_BYTES_MAX: u64 = 1 << 30;

pub(crate) async fn put(options: PutOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let PutOptions {
        file,
        name,
        pool,
        replace,
        preserve,
    } = options;
    let client = connect(place).await?;
    let begun = Instant::now();
    let new = NewFile {
        existing: existing(replace),
        pool: pool.as_deref(),
        attributes: new_file(),
        ..NewFile::named(&name)
    };
    let summary = store(&client, &file, new, preserve).await?;
    let size = summary.size_bytes;
    let seconds = begun.elapsed().as_secs_f64();
    if format == Format::Json {
        return print_json(&json!({
            "name": name, "bytes": size, "stripes": summary.stripe_count, "seconds": seconds,
            "chunks_left_out": summary.left_out_count,
        }));
    }
    let place = match summary.stripe_count {
        0 if size > 0 => "the metadata".to_owned(),
        count => counted(count, "stripe", "stripes"),
    };
    println!(
        "stored {name}: {} in {place}, {}/s",
        bytes(size),
        bytes((size as f64 / seconds) as u64)
    );
    if summary.left_out_count > 0 {
        println!(
            "{} chunks are not stored yet, because nodes have failed and too few others are up; each stripe survives \
            one more loss. Repairs store these chunks; see 'gabion repair status'",
            summary.left_out_count
        );
    }
    Ok(())
}

/// Stores a local file.
async fn store(
    client: &Client,
    file: &Path,
    new: NewFile<'_>,
    preserve: bool,
) -> Result<PutSummary, Failure> {
    let doing = || format!("read {}", file.display());
    let bar = bar();
    match LocalFile::open(file).await.context(doing())? {
        LocalFile::Directory => Err(is_directory(file)),
        LocalFile::Stream(_) if preserve => Err(Failure::usage(format!(
            "{} is not a regular file and has no mode and times to preserve; omit --preserve",
            file.display()
        ))),
        LocalFile::Stream(source) => {
            let put = client.put_stream(new, source.compat(), &bar);
            Ok(put.await?)
        }
        LocalFile::Regular(source, size) => {
            let metadata = source.metadata().await.context(doing())?;
            let attributes = if preserve {
                preserved(&metadata)
            } else {
                copied_mode(metadata.mode())
            };
            let new = NewFile { attributes, ..new };
            // A file that the kernel makes while it is read seems empty.
            if size == 0 {
                let put = client.put_stream(new, source.compat(), &bar);
                return Ok(put.await?);
            }
            let put = client.put_over(new, source.compat(), size, &bar);
            Ok(put.await?)
        }
    }
}

pub(crate) async fn get(options: GetOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let GetOptions {
        name,
        file,
        offset,
        length,
        preserve: preserves,
    } = options;
    let client = connect(place).await?;
    // A missing name or a wrong range must not leave a local file behind.
    let stored = client.open(&name).await?;
    let rest = stored.size_bytes().checked_sub(offset);
    let Some(rest) = rest.filter(|rest| length.is_none_or(|length| length <= *rest)) else {
        return Err(Failure::usage(format!(
            "{name} has {} bytes; choose --offset and --length within them",
            stored.size_bytes()
        )));
    };
    let range = ByteRange::new(offset, length.unwrap_or(rest));
    let begun = Instant::now();
    // Opening a FIFO waits for a reader.
    let opened = tokio::task::spawn_blocking(move || OutputFile::create(&file));
    let output = opened.await.context("open the local file")??;
    if preserves && !output.is_regular() {
        return Err(Failure::usage(
            "devices, FIFOs and stdout keep no mode and no times; omit --preserve",
        ));
    }
    // Before the bytes: a time may be too old for them, never too new.
    let kept = if preserves {
        Some(stored.attributes().await?)
    } else {
        None
    };
    let copy = output.file().try_clone().context("open the local file")?;
    let is_stdout = output.is_stdout();
    let bar = bar();
    let progress: &dyn Progress = if is_stdout { &() } else { &bar };
    let copy = tokio::fs::File::from_std(copy);
    let got = if output.is_regular() {
        copy_sparse(&stored, range, copy, progress).await
    } else {
        stored.copy(range, copy.compat_write(), progress).await
    };
    let size = got.map_err(|error| match &error {
        ClientError::Io { source, .. } => output.failure(source),
        _ => error.into(),
    })?;
    drop(bar);
    if let Some(kept) = kept {
        preserve(&kept, output.file())?;
    }
    output.finish()?;
    if is_stdout {
        return Ok(());
    }
    let seconds = begun.elapsed().as_secs_f64();
    if format == Format::Json {
        return print_json(&json!({ "name": name, "bytes": size, "seconds": seconds }));
    }
    println!(
        "read {name}: {}, {}/s",
        bytes(size),
        bytes((size as f64 / seconds) as u64)
    );
    Ok(())
}

/// Copies a range to a new local file, with the holes of the stored one. Returns the bytes of the range.
async fn copy_sparse(
    stored: &gabion_client::File,
    range: ByteRange,
    mut copy: tokio::fs::File,
    progress: &dyn Progress,
) -> Result<u64, ClientError> {
    let failed = |source| ClientError::Io {
        operation: "write the bytes that were read",
        source,
    };
    copy.set_len(range.length).await.map_err(failed)?;
    let parts = stored.stored_within(range).await?;
    let total_bytes = parts.iter().map(|part| part.length).sum();
    let mut done_bytes = 0;
    for part in parts {
        let at = io::SeekFrom::Start(part.offset - range.offset);
        copy.seek(at).await.map_err(failed)?;
        let so_far = Partial {
            whole: progress,
            before_bytes: done_bytes,
            total_bytes,
        };
        let sink = (&mut copy).compat_write();
        done_bytes += stored.copy(part, sink, &so_far).await?;
    }
    Ok(range.length)
}

/// Progress within a part of a file.
struct Partial<'a> {
    whole: &'a dyn Progress,
    before_bytes: u64,
    total_bytes: u64,
}

impl Progress for Partial<'_> {
    fn advanced(&self, done_bytes: u64, _: u64) {
        let done_bytes = self.before_bytes + done_bytes;
        self.whole.advanced(done_bytes, self.total_bytes);
    }
}

pub(crate) async fn write(
    options: WriteOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let WriteOptions { name, offset, file } = options;
    let doing = || format!("read {}", file.display());
    let source = match LocalFile::open(&file).await.context(doing())? {
        LocalFile::Directory => return Err(is_directory(&file)),
        LocalFile::Stream(source) => source,
        LocalFile::Regular(source, _) => Box::new(source),
    };
    // A missing name is reported before anything is read.
    let stored = connect(place).await?.open(&name).await?;
    let mut new = Vec::new();
    let read = source.take(WRITE_BYTES_MAX + 1).read_to_end(&mut new).await;
    read.context(doing())?;
    let size = new.len();
    if size as u64 > WRITE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "a write is atomic and has at most {}; write the bytes in several parts, or use 'gabion append' or \
             'gabion put --replace'",
            bytes(WRITE_BYTES_MAX)
        )));
    }
    let begun = Instant::now();
    stored.write(offset, new.into()).await?;
    note_written(&stored).await;
    report_write("wrote", &name, (offset, size as u64), begun, format)
}

/// Prints the written range of a file and the duration of the write.
pub(super) fn report_write(
    done: &str,
    name: &str,
    (offset, size): (u64, u64),
    begun: Instant,
    format: Format,
) -> Result<(), Failure> {
    let seconds = begun.elapsed().as_secs_f64();
    if format == Format::Json {
        return print_json(&json!({
            "name": name, "offset": offset, "bytes": size, "seconds": seconds,
        }));
    }
    println!(
        "{done} {} at {offset} of {name} in {:.1} ms",
        bytes(size),
        seconds * 1e3
    );
    Ok(())
}

/// A local file whose bytes are to be stored.
pub(super) enum LocalFile {
    /// The file cannot be read.
    Directory,
    /// Stdin, a FIFO or a device of unknown size.
    Stream(Box<dyn AsyncRead + Send + Unpin>),
    /// A regular file, and its size.
    Regular(tokio::fs::File, u64),
}

impl LocalFile {
    /// Opens the file; - is stdin.
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stream(Box::new(tokio::io::stdin())));
        }
        let file = tokio::fs::File::open(path).await?;
        let metadata = file.metadata().await?;
        Ok(if metadata.is_dir() {
            Self::Directory
        } else if metadata.is_file() {
            Self::Regular(file, metadata.len())
        } else {
            Self::Stream(Box::new(file))
        })
    }
}

pub(super) fn is_directory(path: &Path) -> Failure {
    let path = path.display();
    Failure::usage(format!("{path} is a directory; name a file"))
}

/// The treatment of an existing file of the same name.
pub(super) const fn existing(replaces: bool) -> Existing {
    if replaces {
        Existing::IsReplaced
    } else {
        Existing::Stays
    }
}

pub(crate) async fn ls(options: ListOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let client = connect(place).await?;
    let (after, delimiter) = (options.after.as_deref(), options.delimiter.as_deref());
    let limit = options.limit.unwrap_or(u64::MAX);
    let listed = client.list(&options.prefix, after, delimiter, limit);
    let Listing {
        files, prefixes, ..
    } = listed.await?;
    if format == Format::Json {
        let files = files.iter().map(|file| {
            let mut shown = json!({
                "name": file.name, "bytes": file.size_bytes, "stripes": file.stripe_count,
                "modified": time_json(file.attributes.modified),
            });
            if let Some(Symlink { target }) = &file.symlink {
                shown["symlink_to"] = json!(target);
            }
            shown
        });
        let prefixes = prefixes.iter().map(|prefix| json!({ "prefix": prefix }));
        let mut rows: Vec<Value> = files.chain(prefixes).collect();
        // The next page begins behind the last of them.
        rows.sort_by(|a, b| entry(a).cmp(&entry(b)));
        return print_json(&rows);
    }
    let mut table = table(&["file", "size", "stripes", "modified (UTC)"]);
    // Names stay unbroken, so that they can be searched and copied.
    table.set_content_arrangement(ContentArrangement::Disabled);
    let mut rows: Vec<[String; 4]> = prefixes
        .into_iter()
        .map(|prefix| [prefix, String::new(), String::new(), String::new()])
        .collect();
    rows.extend(files.into_iter().map(|file| {
        let stripes = file.stripe_count.to_string();
        let modified = shown(file.attributes.modified);
        let name = match file.symlink {
            Some(Symlink { target }) => format!("{} -> {}", file.name, printable(&target)),
            None => file.name,
        };
        [name, bytes(file.size_bytes), stripes, modified]
    }));
    rows.sort_unstable();
    table.add_rows(rows);
    align_numbers(&mut table);
    println!("{table}");
    Ok(())
}

/// The name or the common prefix of an entry of a list.
fn entry(row: &Value) -> Option<&str> {
    row.get("name").or(row.get("prefix"))?.as_str()
}

pub(crate) async fn mkdir(path: &str, place: &Place, format: Format) -> Result<(), Failure> {
    let attributes = new_directory();
    let client = connect(place).await?;
    client.make_directory(path, attributes).await?;
    if format == Format::Json {
        return print_json(&json!({ "made": path }));
    }
    println!("made directory {path}");
    Ok(())
}

pub(crate) async fn rmdir(path: &str, place: &Place, format: Format) -> Result<(), Failure> {
    connect(place).await?.remove_directory(path).await?;
    if format == Format::Json {
        return print_json(&json!({ "removed": path }));
    }
    println!("removed directory {path}");
    Ok(())
}

pub(crate) async fn mv(
    options: &MoveOptions,
    place: &Place,
    format: Format,
) -> Result<(), Failure> {
    let client = connect(place).await?;
    let MoveOptions { name, to, .. } = options;
    if options.exchange {
        if name == to {
            return Err(Failure::usage(format!(
                "{name} is named twice; name two files or directories to exchange"
            )));
        }
        client.exchange_names(name.as_str(), to.as_str()).await?;
        if format == Format::Json {
            return print_json(&json!({ "exchanged": [name, to] }));
        }
        println!("exchanged {name} and {to}");
        return Ok(());
    }
    let existing = existing(options.replace);
    client.rename(name.as_str(), to.as_str(), existing).await?;
    if format == Format::Json {
        return print_json(&json!({ "name": to, "renamed_from": name }));
    }
    println!("renamed {name} to {to}");
    Ok(())
}

fn bar() -> Shown {
    Shown::bytes("")
}
