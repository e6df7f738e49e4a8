//! Files that grow and shrink: writes in pieces, truncation and holes.

use crate::error::ClientError;
use crate::extent::{Piece, extents};
use crate::file::File;
use crate::open_runs::{Attempted, LastAttempt};
use crate::rewrite::{
    by_segment, last_stored_behind, plan_hole, plan_truncation, plan_zeros, split_stored,
};
use crate::write::{Updated, check_size};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use gabion_layout::ByteRange;
use gabion_meta::FencingToken;
use gabion_protocol::message::{Growth, ask};

/// Most zeros that are written over the edges of a hole at a time.
const ZEROS_BYTES: u64 = 1 << 20;

impl File {
    /// Writes bytes from `offset` on, stripe by stripe: within each stripe the write is atomic, and after an
    /// error or a crash some stripes may have the new bytes and others not. A write within stripes that are there is an
    /// update in place of each of them; only segments that are holes are stored.
    ///
    /// If the write reaches behind the end of the file, one change of the metadata stores the part that needs room and
    /// lets the file grow; the stripes before it follow. So a write that a quota refuses, or for which the disks are
    /// known to be too full, leaves the file as it is.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub async fn write_pieces(&self, offset: u64, bytes: Bytes) -> Result<(), ClientError> {
        let mut range = self.range_to_write(offset, &bytes)?;
        let none = LastAttempt::default();
        if range.is_empty() || self.write_inline(range, &bytes, &none).await? {
            return Ok(());
        }
        if self.has_inline_bytes() {
            // Once, and not by the write of each of its holes.
            self.move_to_stripe().await?;
        }
        let mut rest = bytes;
        if self.size_bytes() < range.end() {
            let layout = self.layout_to_grow(range).await?;
            let (stored, anew) = split_stored(&layout, range);
            let last = rest.split_off(stored.length as usize);
            if anew.is_empty() {
                // Any client may let the file grow, and this one must not if it may not write.
                self.token().await?;
                self.grow(range.end()).await?;
            } else {
                self.replace(anew, &last, &none).await?;
            }
            range = stored;
        }
        if range.is_empty() {
            return Ok(());
        }
        let layout = self.present_layout(range).await?;
        let in_flight_count = self.client.in_flight_count(layout.stripe_bytes_max());
        let mut writes = Vec::new();
        for (_, _, part) in by_segment(&layout, range) {
            let bytes = rest.split_to(part.length as usize);
            writes.push(self.write_segment(layout.pieces(part), part, bytes));
        }
        stream::iter(writes)
            .buffer_unordered(in_flight_count)
            .try_collect()
            .await
    }

    /// Writes bytes as [`File::write`] does. Returns whether that has changed the file's record, as a write into a
    /// hole or behind the end does: then the cluster has noted its time. An update in place changes the bytes alone.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub async fn write_timed(&self, offset: u64, bytes: Bytes) -> Result<bool, ClientError> {
        let last_attempt = LastAttempt::default();
        self.write_noted(offset, bytes, &last_attempt).await?;
        let last = last_attempt.take_doubt();
        Ok(matches!(
            last,
            Some(Attempted::Replacement(_) | Attempted::Inline(_))
        ))
    }

    /// Writes bytes to a range within one segment, which has these pieces.
    async fn write_segment(
        &self,
        pieces: Vec<Piece>,
        range: ByteRange,
        mut bytes: Bytes,
    ) -> Result<(), ClientError> {
        for piece in pieces {
            match piece {
                Piece::Inline(_) => {
                    // The file gets a stripe for them and for the rest of the segment.
                    let length = bytes.len() as u64;
                    let rest = ByteRange::new(range.end() - length, length);
                    return self.replace(rest, &bytes, &LastAttempt::default()).await;
                }
                Piece::Stored(extent) => {
                    let bytes = bytes.split_to(extent.range.length as usize);
                    let last_attempt = LastAttempt::default();
                    self.write_extents(&[extent], &bytes, &last_attempt).await?;
                }
                Piece::Hole(hole) => {
                    let bytes = bytes.split_to(hole.length as usize);
                    let none = LastAttempt::default();
                    self.replace(hole, &bytes, &none).await?;
                }
            }
        }
        Ok(())
    }

    /// Gives the file at least this many bytes; the new ones are zero and take no space.
    ///
    /// # Errors
    /// [`ClientError::TooLarge`] for more than 2^63 - 1 bytes; [`ClientError::Refused`] for a file whose blocks are
    /// replicated at first, and when the file is gone; [`ClientError::NoCoordinator`].
    pub async fn grow(&self, size_bytes: u64) -> Result<(), ClientError> {
        check_size(Some(size_bytes))?;
        let what = format!("growing {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        while !self.ask_to_grow(size_bytes, None).await?.is_done {
            attempts
                .pause("others truncate the file, or a snapshot of it is taken")
                .await?;
            self.refresh_record().await?;
        }
        Ok(())
    }

    /// Asks for a size of at least `size_bytes`; `from` is the present size that an append counts on, and its number.
    pub(crate) async fn ask_to_grow(
        &self,
        size_bytes: u64,
        from: Option<(u64, u64)>,
    ) -> Result<Growth, ClientError> {
        if self.is_read_only() {
            return Err(ClientError::ReadOnly(self.name().to_owned()));
        }
        // Any client may let a file grow by zeros; an append has bytes to write.
        let token = match from {
            Some(_) => self.token().await?,
            None => FencingToken::default(),
        };
        let truncation_count = self.record().truncation_count;
        let request = ask::Grow {
            file: self.put_id(),
            size_bytes,
            truncation_count,
            from,
            token,
        };
        let growth = self.client.ask(request).await?;
        self.note_growth(&growth);
        Ok(growth)
    }

    /// Gives the file this size. Bytes behind it are lost: if the file grows again, they are zero. A file
    /// that is larger by many stripes shrinks in steps, from its end; after an error it may have any size between
    /// both. Writes of others behind the new end, which have not been acknowledged, may make the file grow
    /// again.
    ///
    /// # Errors
    /// Those of [`File::grow`] and [`File::write`].
    pub async fn truncate(&self, size_bytes: u64) -> Result<(), ClientError> {
        self.refresh_record().await?;
        if self.size_bytes() <= size_bytes {
            return self.grow(size_bytes).await;
        }
        let none = Bytes::new();
        while self.size_bytes() > size_bytes {
            let what = format!("truncating {} to {size_bytes} bytes", self.name());
            let plan = |layout: &_| plan_truncation(layout, size_bytes);
            let mut last = self.look_up(self.size_bytes() - 1).await?;
            while let Some(stored) = last_stored_behind(&last, size_bytes) {
                last = self.look_up(stored).await?;
            }
            drop(
                self.rewrite(what, last.window(), plan, (&none, &LastAttempt::default()))
                    .await?,
            );
        }
        self.await_withdrawal().await
    }

    /// Waits until no node serves stripes that the file has lost, also by changes of others that have not ended yet:
    /// then no reader sees other bytes than zeros where the file has a hole now.
    ///
    /// # Errors
    /// [`ClientError::ReadOnly`]; [`ClientError::FileGone`]; [`ClientError::Late`] when nodes serve such stripes for
    /// the time limit of an operation; [`ClientError::NoCoordinator`].
    pub async fn await_withdrawal(&self) -> Result<(), ClientError> {
        self.ask_to_grow(0, None).await.map(drop)
    }

    /// Makes the bytes of a range zero, and frees the space of stripes that are within it. The size of the
    /// file stays; bytes behind its end are ignored. Stripe by stripe, like [`File::write_pieces`].
    ///
    /// # Errors
    /// Those of [`File::write`]; [`ClientError::Refused`] for a file whose blocks are replicated at first.
    pub async fn punch(&self, range: ByteRange) -> Result<(), ClientError> {
        self.refresh_record().await?;
        let end = range.offset.saturating_add(range.length);
        let end = end.min(self.size_bytes());
        let range = ByteRange::new(range.offset.min(end), end - range.offset.min(end));
        self.zero_inline(range).await?;
        let mut at = range.offset;
        while at < range.end() {
            at = self.punch_window(range, at).await?;
        }
        self.await_withdrawal().await
    }

    /// Makes the bytes of a range zero as far as they are in the window with the byte at an offset. Returns the offset
    /// of the next stripe behind it, or the end of the range.
    async fn punch_window(&self, range: ByteRange, at: u64) -> Result<u64, ClientError> {
        let (none, plan) = (Bytes::new(), |layout: &_| plan_hole(layout, range));
        let mut layout = self.look_up(at).await?;
        while plan(&layout).is_some() {
            let what = format!("punching a hole into {}", self.name());
            drop(
                self.rewrite(
                    what,
                    layout.window(),
                    plan,
                    (&none, &LastAttempt::default()),
                )
                .await?,
            );
            layout = self.look_up(at).await?;
        }
        let end = layout.window().end().min(range.end());
        self.zero_stored(ByteRange::new(at, end - at)).await?;
        let next = layout.file.behind.unwrap_or(u64::MAX);
        Ok(next.max(end).min(range.end()))
    }

    /// Writes zeros over the stored bytes of a range of one window. Those behind the end of the file are zero; if it is
    /// truncated in between, it must not grow again.
    async fn zero_stored(&self, range: ByteRange) -> Result<(), ClientError> {
        let mut at = range.offset;
        loop {
            let end = range.end().min(self.size_bytes());
            let rest = ByteRange::new(at, end.saturating_sub(at));
            let layout = self.layout_of(rest).await?;
            let Some(mut extent) = extents(layout.spans(), rest).into_iter().next() else {
                return Ok(());
            };
            extent.range.length = extent.range.length.min(ZEROS_BYTES);
            let zeros = Bytes::from(vec![0; extent.range.length as usize]);
            let last_attempt = LastAttempt::default();
            let part = extent.in_file();
            match self
                .update_extents(&[extent], &zeros, &last_attempt)
                .await?
            {
                Updated::Done(..) => at = part.end(),
                Updated::TooLarge | Updated::Shared => {
                    let what = format!("punching a hole into {}", self.name());
                    let plan = |layout: &_| plan_zeros(layout, part);
                    let new = (&zeros, &last_attempt);
                    let done = self.rewrite(what, part, plan, new).await?;
                    if done.has_changed {
                        at = part.end();
                    } else {
                        // The file ends within the part by now, so the part before the end is left.
                        self.refresh(rest).await?;
                    }
                }
                Updated::Moved => drop(self.refresh(rest).await?),
            }
        }
    }

    /// The parts of a range that are stored, in order, each as of a moment since this was called. All other bytes of
    /// the file are zero and take no space.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn stored_within(&self, range: ByteRange) -> Result<Vec<ByteRange>, ClientError> {
        let mut ranges: Vec<ByteRange> = Vec::new();
        let mut at = range.offset;
        while at < range.end() {
            let stored = self.stored_window(at).await?;
            at = stored.end;
            let within = stored.ranges.into_iter();
            for part in within.filter_map(|part| part.intersect(range)) {
                match ranges.last_mut() {
                    Some(last) if last.end() == part.offset => last.length += part.length,
                    _ => ranges.push(part),
                }
            }
        }
        Ok(ranges)
    }

    /// The stored parts of the layout window with the byte at an offset, by one look-up.
    ///
    /// # Errors
    /// Those of [`File::stored_within`].
    pub async fn stored_window(&self, offset: u64) -> Result<StoredWindow, ClientError> {
        let layout = self.look_past(offset).await?;
        let in_file = ByteRange::new(0, layout.file.file.size_bytes);
        let inline = ByteRange::new(0, layout.inline_bytes().len() as u64);
        let stored = std::iter::once(&inline).chain(layout.spans());
        Ok(StoredWindow {
            ranges: stored.filter_map(|part| part.intersect(in_file)).collect(),
            end: layout.file.behind.unwrap_or(u64::MAX),
        })
    }
}

/// The stored parts of a layout window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredWindow {
    /// The ranges of its stripes in the file, in order, or that of the inline bytes.
    pub ranges: Vec<ByteRange>,
    /// The offset of the first stripe behind the window; without one, the largest number. Between the last range and
    /// this is a hole.
    pub end: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientOptions};
    use crate::layout::sample;
    use crate::scripted_ports::{Script, ScriptedPorts};
    use futures::FutureExt;
    use gabion_layout::NodeId;
    use gabion_meta::FILE_BYTES_MAX;
    use gabion_protocol::message::{
        Cause, CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest,
    };
    use gabion_protocol::ports::CallError;
    use std::sync::Arc;

    /// A cluster with an empty file that is opened, and of which nothing else is asked.
    struct OneFile;

    impl Script for OneFile {
        fn ask_node(&self, _: NodeId, request: NodeRequest) -> Result<NodeReply, CallError> {
            panic!("{request:?}")
        }

        fn ask_coordinator(&self, request: CoordinatorRequest, _: &mut u64) -> CoordinatorReply {
            match request {
                CoordinatorRequest::Nodes => CoordinatorReply::Nodes(Vec::new()),
                CoordinatorRequest::Lookup { .. } => {
                    CoordinatorReply::File(Box::new(sample::layout()))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_size_beyond_the_limit_is_refused_as_too_large() {
        let refused = async {
            let ports = Arc::new(ScriptedPorts::new(OneFile));
            let client = Client::connect(ports, ClientOptions::default()).await?;
            let file = client.open("f").await?;
            let byte = Bytes::from_static(b"x");
            Ok::<_, ClientError>([
                file.grow(FILE_BYTES_MAX + 1).await,
                file.write(FILE_BYTES_MAX, byte.clone()).await,
                file.write(u64::MAX, byte.clone()).await,
                file.write_pieces(FILE_BYTES_MAX, byte.clone()).await,
                file.append_first(FILE_BYTES_MAX + 1, byte).await.map(drop),
            ])
        };
        let refused = refused
            .now_or_never()
            .expect("the script waits for nothing");
        for refused in refused.expect("the file is there") {
            let error = refused.expect_err("the file would be too large");
            assert_eq!(error.cause(), Cause::TooLarge, "{error}");
            assert!(error.is_usage(), "the command exits with 2");
        }
    }
}
