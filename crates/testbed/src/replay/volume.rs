//! The file in place of a trace's volume: stored at the offsets that the trace touches, and a hole elsewhere. So every
//! write of the trace updates existing bytes, and untouched bytes take no space.

use super::run::Setting;
use crate::contents::{Contents, INITIAL, Initial, Piece, bytes_of};
use crate::error::TestbedError;
use crate::progress::{Bars, Unit};
use crate::size::bytes;
use crate::space::require_free;
use futures::io::AllowStdIo;
use gabion_client::{Client, Existing, TakeOver};
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

/// The places that a trace touches.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Ends by starts, in blocks. They do not touch each other.
    parts: BTreeMap<u64, u64>,
}

impl Touched {
    /// Adds the bytes of a request.
    pub fn add(&mut self, range: ByteRange) {
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

/// Stores a new file of this size, and returns what it contains. Files of a pool whose blocks are replicated at
/// first cannot have holes: they are stored as a whole.
pub(super) async fn store(
    client: &Client,
    setting: &Setting,
    (size, touched): (NonZeroU64, &Touched),
    bars: &Bars,
) -> Result<Contents, TestbedError> {
    let (name, size) = (&setting.name, size.get());
    let whole = ByteRange::new(0, size);
    // The put is refused without such a pool.
    let pool = pool_of(client, setting).await?;
    let parts = match pool {
        Some((shape, true)) => touched.segments(shape.stripe_bytes(), size),
        _ => vec![whole],
    };
    let stored_bytes = parts.iter().map(|part| part.length).sum();
    // A file with holes gets its name when it is whole, so that no replay uses what an interrupted one has stored.
    let unfinished = format!("{name}{UNFINISHED}");
    if client.find(&unfinished).await?.is_some() {
        client.rm(unfinished.as_str()).await?;
    }
    check_room(setting, pool.map(|(shape, _)| shape), stored_bytes)?;
    let progress = bars(&format!("storing {name}"), Unit::Bytes);
    let mut contents = Contents::default();
    if parts == [whole] {
        let source = AllowStdIo::new(Initial::new(size));
        let pool = setting.pool.as_deref();
        client.put(name, pool, source, size, &*progress).await?;
        contents.overwrite(whole, INITIAL);
        return Ok(contents);
    }
    let nothing = AllowStdIo::new(Initial::new(0));
    client
        .put(&unfinished, setting.pool.as_deref(), nothing, 0, &())
        .await?;
    // Another replay cannot remove a file that this one has open exclusively.
    let file = client
        .open_exclusive(&unfinished, TakeOver::IfAbandoned)
        .await?;
    file.grow(size).await?;
    let segment_bytes = pool.map_or(WRITE_BYTES, |(shape, _)| shape.stripe_bytes());
    let step = (WRITE_BYTES / segment_bytes).clamp(1, WRITE_STRIPES) * segment_bytes;
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
    file.rename(name, Existing::Stays).await?;
    file.end_session().await?;
    Ok(contents)
}

/// The shape of the file's stripes, and whether it may have holes.
async fn pool_of(
    client: &Client,
    setting: &Setting,
) -> Result<Option<(Geometry, bool)>, TestbedError> {
    let pools = client.pools().await?.into_iter();
    let is_meant = |name: &str| setting.pool.as_ref().is_none_or(|wanted| wanted == name);
    let mut meant = pools.filter(|pool| is_meant(&pool.spec.name));
    Ok(meant.next().and_then(|pool| {
        let geometry = pool.spec.geometry().ok()?;
        Some((geometry, pool.lifecycle.is_none()))
    }))
}

/// Refuses a new file whose stored bytes do not fit on the disk of the nodes.
fn check_room(
    setting: &Setting,
    geometry: Option<Geometry>,
    stored_bytes: u64,
) -> Result<(), TestbedError> {
    let (Some(disk), Some(geometry)) = (&setting.disk, geometry) else {
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
    fn segments_cover_what_was_touched_and_little_more() {
        let mut touched = Touched::default();
        for (offset, length) in [
            (5 << 20, 4096),
            (0, 1),
            (370 << 10, 1),
            (300 << 10, 10),
            (9, 1),
        ] {
            touched.add(ByteRange::new(offset, length));
        }
        let segments = |segment_bytes, size_bytes| {
            let segments = touched.segments(segment_bytes, size_bytes);
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
