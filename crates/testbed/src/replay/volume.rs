//! The file in place of a trace's volume: stored in the segments that the trace writes, and a hole elsewhere. So every
//! write of the trace updates existing bytes, and all other bytes take no space. A read of them gets zeros.

use super::Access;
use super::run::Setting;
use crate::contents::{Contents, HOLE, INITIAL, Initial, Piece, bytes_of};
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::signals::EndSignals;
use crate::size::bytes;
use crate::space::require_free;
use futures::io::AllowStdIo;
use gabion_client::{Cause, Client, ClientError, Existing, File, Progress, TakeOver};
use gabion_layout::{ByteRange, Geometry};
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Granularity in which a trace's places are remembered, in bytes.
const BLOCK_BYTES: u64 = 64 << 10;
/// Most bytes of a write that stores a part of the volume.
const WRITE_BYTES: u64 = 64 << 20;
/// Most stripes of one.
const WRITE_STRIPES: u64 = 128;
/// Ends the name of a file until it is stored as a whole.
const UNFINISHED: &str = ".unfinished";

/// The places that a trace writes.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Ends by starts, in blocks. They do not touch each other.
    parts: BTreeMap<u64, u64>,
}

impl Written {
    /// Adds the bytes of a request. Reads count nothing: they need no space.
    pub fn add(&mut self, access: Access, range: ByteRange) {
        if access == Access::Read {
            return;
        }
        let mut start = range.offset / BLOCK_BYTES;
        let mut end = range.end().div_ceil(BLOCK_BYTES).max(start + 1);
        while let Some((&first, &last)) = self.parts.range(..=end).next_back()
            && start <= last
        {
            (start, end) = (start.min(first), end.max(last));
            self.parts.remove(&first);
        }
        self.parts.insert(start, end);
    }

    /// The segments of a file that have these places, joined where they follow each other.
    fn segments(&self, segment_bytes: u64, size_bytes: u64) -> Vec<ByteRange> {
        let mut joined: Vec<ByteRange> = Vec::new();
        for (start, end) in &self.parts {
            let start = start * BLOCK_BYTES / segment_bytes * segment_bytes;
            let end = (end * BLOCK_BYTES).div_ceil(segment_bytes);
            let end = end.saturating_mul(segment_bytes).min(size_bytes);
            match joined.last_mut() {
                Some(last) if start <= last.end() => {
                    last.length = last.length.max(end.saturating_sub(last.offset));
                }
                _ if start < end => joined.push(ByteRange::new(start, end - start)),
                _ => {}
            }
        }
        joined
    }
}

/// The place of a new file, checked before anything is stored.
pub(super) struct Place {
    pool: String,
    geometry: Geometry,
    /// Files of a pool whose blocks are replicated at first have none.
    may_have_holes: bool,
}

impl Place {
    /// Refuses the name of a directory, a pool that does not exist, and the choice among several pools.
    pub(super) async fn check(client: &Client, setting: &Setting) -> Result<Self, TestbedError> {
        match client.open(&setting.name).await {
            Err(ClientError::Refused(denial)) if denial.cause == Cause::NotFound => {}
            found => drop(found?),
        }
        let pools = client.pools().await?;
        let encoded: Vec<_> = pools
            .iter()
            .filter_map(|pool| Some(pool.lifecycle?.encoded))
            .collect();
        let mut meant = pools.iter().filter(|pool| match &setting.pool {
            Some(wanted) => *wanted == pool.spec.name,
            None => !encoded.contains(&pool.id),
        });
        let (Some(pool), None) = (meant.next(), meant.next()) else {
            let names = pools.iter().map(|pool| &*pool.spec.name);
            return Err(no_pool(setting, &names.collect::<Vec<_>>()).into());
        };
        let geometry = pool.spec.geometry();
        Ok(Self {
            pool: pool.spec.name.clone(),
            geometry: geometry.map_err(|error| TestbedError::Wrong(error.to_string()))?,
            may_have_holes: pool.lifecycle.is_none(),
        })
    }
}

/// The refusal of a setting that does not choose one of these pools.
fn no_pool(setting: &Setting, names: &[&str]) -> ClientError {
    let listed = names.join(", ");
    ClientError::Usage(match (&setting.pool, names) {
        (_, []) => "there is no pool; create the first one with 'gabion pool create'".to_owned(),
        (Some(wanted), _) => {
            format!("there is no pool '{wanted}'; choose one of {listed} with --pool")
        }
        (None, _) => format!(
            "there are {} pools ({listed}); choose one with --pool",
            names.len()
        ),
    })
}

/// Stores a new file of this size at its place, and returns what it contains. Files that cannot have holes are stored
/// as a whole. After a signal or another failure it removes what it has stored.
pub(super) async fn store(
    (client, place): (&Client, &Place),
    setting: &Setting,
    (size, written): (NonZeroU64, &Written),
    bars: &Bars,
    signals: &mut EndSignals,
) -> Result<Contents, TestbedError> {
    let (name, size) = (&setting.name, size.get());
    let whole = ByteRange::new(0, size);
    let parts = if place.may_have_holes {
        written.segments(place.geometry.stripe_bytes(), size)
    } else {
        vec![whole]
    };
    let stored_bytes = parts.iter().map(|part| part.length).sum();
    // A file with holes gets its name when it is whole, so that no replay uses what an interrupted one has stored.
    let unfinished = format!("{name}{UNFINISHED}");
    if client.find(&unfinished).await?.is_some() {
        client.rm(unfinished.as_str()).await?;
    }
    check_room(setting, place.geometry, stored_bytes)?;
    let progress = bars(&format!("storing {name}"), Unit::Bytes);
    let pool = Some(&*place.pool);
    if parts == [whole] {
        let mut contents = Contents::default();
        let source = AllowStdIo::new(Initial::new(size));
        tokio::select! {
            put = client.put(name, pool, source, size, &*progress) => drop(put?),
            () = signals.recv() => return Err(TestbedError::ReplayInterrupted),
        }
        contents.overwrite(whole, INITIAL);
        return Ok(contents);
    }
    let nothing = AllowStdIo::new(Initial::new(0));
    client.put(&unfinished, pool, nothing, 0, &()).await?;
    // Another replay cannot remove a file that this one has open exclusively.
    let file = client
        .open_exclusive(&unfinished, TakeOver::IfAbandoned)
        .await?;
    let filled = tokio::select! {
        filled = fill(&file, (size, parts), place, &*progress) => filled,
        () = signals.recv() => Err(TestbedError::ReplayInterrupted),
    };
    let named = match filled {
        Ok(contents) => {
            let named = file.rename(name, Existing::Stays).await;
            named.map(|()| contents).map_err(TestbedError::from)
        }
        Err(error) => Err(error),
    };
    let is_named = named.is_ok();
    let end = async {
        let ended = file.end_session().await;
        if !is_named {
            // The first error is the one to tell. The name is gone already if the renaming was made.
            let _ = client.rm(unfinished.as_str()).await;
        }
        ended
    };
    let ended = tokio::select! {
        ended = end => ended,
        // The next replay removes the file.
        () = signals.recv() => return Err(TestbedError::ReplayInterrupted),
    };
    let contents = named?;
    ended?;
    Ok(contents)
}

/// Writes these parts of an empty file, and returns what it contains.
async fn fill(
    file: &File,
    (size, parts): (u64, Vec<ByteRange>),
    place: &Place,
    progress: &dyn Progress,
) -> Result<Contents, TestbedError> {
    let mut contents = Contents::default();
    contents.overwrite(ByteRange::new(0, size), HOLE);
    file.grow(size).await?;
    let segment_bytes = place.geometry.stripe_bytes();
    let step = (WRITE_BYTES / segment_bytes).clamp(1, WRITE_STRIPES) * segment_bytes;
    let stored_bytes = parts.iter().map(|part| part.length).sum();
    let mut done_bytes = 0;
    for part in parts {
        let mut at = part.offset;
        while at < part.end() {
            let range = ByteRange::new(at, step.min(part.end() - at));
            let write = INITIAL;
            file.write(at, bytes_of(Piece { range, write }).into())
                .await?;
            contents.overwrite(range, INITIAL);
            done_bytes += range.length;
            progress.advanced(done_bytes, stored_bytes);
            at = range.end();
        }
    }
    Ok(contents)
}

/// Refuses a new file whose stored bytes do not fit on the disk of the nodes.
fn check_room(
    setting: &Setting,
    geometry: Geometry,
    stored_bytes: u64,
) -> Result<(), TestbedError> {
    let Some(disk) = &setting.disk else {
        return Ok(());
    };
    let stripe_bytes = geometry.chunk_bytes().saturating_mul(geometry.n() as u64);
    let needed = stored_bytes
        .div_ceil(geometry.stripe_bytes())
        .saturating_mul(stripe_bytes);
    let what = format!("a file of {} for {}", bytes(stored_bytes), setting.trace);
    require_free(
        disk,
        needed,
        what,
        "fold the trace into a smaller file with --size",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_cover_what_was_written_and_little_more() {
        let mut written = Written::default();
        for (offset, length) in [
            (5 << 20, 4096),
            (0, 1),
            (370 << 10, 1),
            (300 << 10, 10),
            (9, 1),
        ] {
            written.add(Access::Write, ByteRange::new(offset, length));
        }
        written.add(Access::Read, ByteRange::new(1 << 20, 2 << 20));
        let segments = |segment_bytes, size_bytes| {
            let segments = written.segments(segment_bytes, size_bytes);
            let ends = segments.into_iter().map(|part| (part.offset, part.end()));
            ends.collect::<Vec<_>>()
        };
        let kib = |from: u64, to: u64| (from << 10, to << 10);
        let size = (5 << 20) + 5000;
        assert_eq!(
            segments(128 << 10, size),
            [kib(0, 128), kib(256, 384), (5 << 20, size)]
        );
        assert_eq!(
            segments(32 << 10, size),
            [kib(0, 64), kib(256, 384), (5 << 20, size)]
        );
        assert_eq!(segments(8 << 20, size), [(0, size)]);
    }
}
