//! Appends: bytes at the end of a file, of which no other append gets any.
//!
//! The stripes for new segments are reserved before the file grows. So an append that a quota refuses, or for which
//! the disks are known to be too full, leaves the file as it is.

use crate::attempts::Attempts;
use crate::client::Client;
use crate::error::ClientError;
use crate::file::File;
use crate::layout::Layout;
use crate::open_runs::LastAttempt;
use crate::replace::Begun;
use crate::retry::AttemptError;
use crate::rewrite::{Rewrite, plan_write, split_stored};
use crate::write::check_size;
use bytes::Bytes;
use gabion_layout::ByteRange;
use gabion_protocol::message::Cause;

/// Causes for which an append waits.
const OTHERS: &str = "others append to the file or truncate it, or a snapshot of it is taken";

/// Reserved stripes for the last part of a range that is to be appended.
struct Room {
    /// The part.
    range: ByteRange,
    /// Bytes that are to be stored for it, without parity.
    moving_bytes: u64,
    rewrite: Rewrite,
    begun: Begun,
}

impl Client {
    /// Appends bytes to a file. See [`File::append`].
    ///
    /// # Errors
    /// Those of [`Client::open`] and [`File::append`].
    pub async fn append(&self, name: &str, bytes: Bytes) -> Result<u64, ClientError> {
        self.open(name).await?.append(bytes).await
    }
}

impl File {
    /// Appends bytes, and returns their offset. Appends of several clients do not mix: each gets a range of
    /// its own. When this returns without an error, the bytes survive every failure that the pool survives.
    ///
    /// The file grows by zeros, and then gets the bytes: first those that need room, all at once, and then those of
    /// stripes that are there, as by [`File::write_pieces`]. A reader may see the zeros until then, and after an error
    /// or a crash they may stay. An append that a quota refuses, or for which the disks are known to be too full,
    /// leaves the file as it is.
    ///
    /// # Errors
    /// Those of [`File::write_pieces`]; [`ClientError::Late`] also when others extend the file all the time.
    pub async fn append(&self, bytes: Bytes) -> Result<u64, ClientError> {
        self.append_first(bytes.len() as u64, bytes).await
    }

    /// The same, and gives the file further bytes up to `by_bytes`, which are zero until this caller writes them.
    /// There is no promise of room for these.
    ///
    /// # Errors
    /// Those of [`File::append`].
    ///
    /// # Panics
    /// If there are more than `by_bytes` bytes.
    pub async fn append_first(&self, by_bytes: u64, bytes: Bytes) -> Result<u64, ClientError> {
        let counts = (by_bytes, bytes.len() as u64);
        self.append_made(counts, |_| bytes).await
    }

    /// The same; `make` gets the offset and returns the bytes. The simulator's bytes depend on their offsets.
    ///
    /// # Errors
    /// Those of [`File::append`].
    ///
    /// # Panics
    /// If there are more than `by_bytes` bytes, or another number of them is made.
    pub async fn append_made(
        &self,
        (by_bytes, made_bytes): (u64, u64),
        make: impl FnOnce(u64) -> Bytes,
    ) -> Result<u64, ClientError> {
        assert!(made_bytes <= by_bytes, "not more than the file grows");
        let what = format!("appending to {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        let number = self.client.draw_change();
        let (offset, room) = loop {
            let from = self.size_bytes();
            check_size(from.checked_add(by_bytes))?;
            let counts = (by_bytes, made_bytes);
            match self.reserve_room(from, counts, &attempts).await {
                Ok(room) if self.claim(from, (by_bytes, number)).await? => break (from, room),
                Ok(room) => {
                    if let Some(room) = room {
                        room.begun.abort().await;
                    }
                    // Another client has been faster. That is progress, but not this client's.
                    attempts.pause(OTHERS).await?;
                }
                Err(AttemptError::Retry(missing)) => attempts.pause(missing).await?,
                Err(AttemptError::Final(error)) => {
                    if !self.ends_elsewhere(from, &error).await {
                        return Err(error);
                    }
                    attempts.pause(OTHERS).await?;
                }
            }
            self.refresh_record().await?;
        };
        let mut bytes = make(offset);
        assert_eq!(bytes.len() as u64, made_bytes, "as many as announced");
        if let Some(room) = room {
            let last = bytes.split_off((room.range.offset - offset) as usize);
            self.fill(room, last).await?;
        }
        if !bytes.is_empty() {
            self.write_pieces(offset, bytes).await?;
        }
        Ok(offset)
    }

    /// Whether too little room was found for a growth from a size that the file has no longer: the growth from its
    /// present size may be smaller.
    async fn ends_elsewhere(&self, from: u64, refused: &ClientError) -> bool {
        let is_for_room = matches!(refused.cause(), Cause::Quota | Cause::NoSpace);
        is_for_room && self.refresh_record().await.is_ok() && self.size_bytes() != from
    }

    /// Asks the coordinator to grow the file from size `from` by `by_bytes`. `number` identifies the append, so a
    /// repeated request grows the file once. Returns `false` if the size or the truncation count has changed.
    async fn claim(&self, from: u64, (by_bytes, number): (u64, u64)) -> Result<bool, ClientError> {
        let growth = self.ask_to_grow(from.saturating_add(by_bytes), Some((from, number)));
        Ok(growth.await?.is_done)
    }

    /// Reserves the stripes for the first bytes of an append at the end of the file; none if they lie in stripes that
    /// are there, or in the metadata.
    async fn reserve_room(
        &self,
        from: u64,
        (by_bytes, made_bytes): (u64, u64),
        attempts: &Attempts,
    ) -> Result<Option<Room>, AttemptError> {
        if self.changes_form() || self.takes_inline(ByteRange::new(from, by_bytes)) {
            // The coordinator refuses to let the former grow, and makes room for the latter when it grows.
            return Ok(None);
        }
        let range = ByteRange::new(from, made_bytes);
        if self.has_inline_bytes() {
            // The growth makes another version of the bytes, so they cannot be moved by the same change.
            self.move_to_stripe().await?;
        }
        let layout = self.layout_to_grow(range).await?;
        let (_, anew) = split_stored(&layout, range);
        if anew.is_empty() {
            return Ok(None);
        }
        let rewrite = plan_write(&layout, anew);
        let begun = self.begin_replace(&layout, &rewrite, attempts).await?;
        Ok(Some(Room {
            range: anew,
            moving_bytes: rewrite.stored_bytes(&layout),
            rewrite,
            begun,
        }))
    }

    /// Writes the bytes of the last part of an append. It has as much time as any write, however long the append waited
    /// for others.
    async fn fill(&self, room: Room, bytes: Bytes) -> Result<(), ClientError> {
        let what = format!("appending to {}", self.name());
        let mut attempts = self.client.attempts(what, room.moving_bytes);
        let plan = |_: &Layout| Some(room.rewrite.clone());
        let planned = (&room.rewrite, &plan);
        let last_attempt = LastAttempt::default();
        let new = (&bytes, &last_attempt);
        let filled = self.finish_replace(room.begun, planned, new, &mut attempts);
        match filled.await {
            Ok(()) => {
                // Without the new layout, the next operation finds that it needs one.
                let _ = self.refresh(room.range).await;
                Ok(())
            }
            Err(AttemptError::Retry(missing)) => {
                attempts.pause(missing).await?;
                self.replace(room.range, &bytes, &last_attempt).await
            }
            Err(AttemptError::Final(error)) => Err(error),
        }
    }
}
