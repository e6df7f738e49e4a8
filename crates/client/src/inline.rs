//! Writes of inline bytes: those of a small file, which are in the metadata. One request does it. When the file
//! outgrows its pool's limit, a replacement brings a stripe that has them.

use crate::error::{ClientError, passing, without_outcome};
use crate::file::File;
use crate::open_runs::{Attempted, LastAttempt, OpenInlineWrite};
use crate::retry::AttemptError;
use crate::rewrite::plan_move;
use crate::write::LAST_CLOSE_MS;
use bytes::Bytes;
use gabion_layout::ByteRange;
use gabion_meta::{FileRecord, PoolRecord};
use gabion_protocol::message::{Cause, InlineWritten, ask};
use gabion_protocol::ports::{Ask as _, CoordinatorError};
use std::sync::{Arc, OnceLock};

impl File {
    /// Whether a write of this range leaves the file inline, as far as is known. Only then the write is worth trying:
    /// the coordinator decides.
    pub(crate) fn takes_inline(&self, range: ByteRange) -> bool {
        takes_inline(&self.pool(), &self.record(), range)
    }

    /// Whether the file has inline bytes, as far as is known.
    pub(crate) fn has_inline_bytes(&self) -> bool {
        let inline = self.record().inline;
        inline.is_some_and(|inline| inline.length_bytes > 0)
    }

    /// Writes bytes of an inline file if it stays one. Returns whether it did, and otherwise nothing was written.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub(crate) async fn write_inline(
        &self,
        range: ByteRange,
        bytes: &Bytes,
        last_attempt: &LastAttempt,
    ) -> Result<bool, ClientError> {
        let pool = self.pool();
        let new = |file: &FileRecord| {
            takes_inline(&pool, file, range).then(|| (range.offset, bytes.clone()))
        };
        let what = format!("writing {} at byte {}", self.name(), range.offset);
        self.change_inline(what, new, last_attempt).await
    }

    /// Writes zeros over the inline bytes of a range. If another client truncates the file before the write, it does
    /// not grow again.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub(crate) async fn zero_inline(&self, range: ByteRange) -> Result<(), ClientError> {
        let zeros = |file: &FileRecord| {
            let inline_bytes = file.inline?.length_bytes;
            let part = ByteRange::new(0, inline_bytes).intersect(range)?;
            Some((part.offset, Bytes::from(vec![0; part.length as usize])))
        };
        let what = format!("punching a hole into {}", self.name());
        let last_attempt = LastAttempt::default();
        let changed = self.change_inline(what, zeros, &last_attempt);
        changed.await.map(drop)
    }

    /// Writes the bytes that `new` makes of the present facts about the file, with their offset, until that is done or
    /// there are none. Returns whether they were written.
    async fn change_inline(
        &self,
        what: String,
        new: impl Fn(&FileRecord) -> Option<(u64, Bytes)>,
        last_attempt: &LastAttempt,
    ) -> Result<bool, ClientError> {
        if new(&self.record()).is_none() {
            return Ok(false);
        }
        let mut attempts = self.client.attempts(what, 0);
        // Each attempt has the number of the first: if an answer was lost, the coordinator knows it.
        let number = self.client.draw_change();
        loop {
            let deadline_ms = attempts.attempt_ms();
            let tried = self.try_inline(&new, number, last_attempt, deadline_ms);
            let missing = match tried.await {
                Ok(is_made) => return Ok(is_made),
                Err(AttemptError::Retry(missing)) => missing,
                Err(AttemptError::Final(error)) => {
                    return self.end_inline(last_attempt, error).await;
                }
            };
            if let Err(error) = attempts.pause(missing).await {
                return self.end_inline(last_attempt, error).await;
            }
            // A session that was superseded since finds out by the new facts.
            self.note_superseded().await;
        }
    }

    async fn try_inline(
        &self,
        new: &impl Fn(&FileRecord) -> Option<(u64, Bytes)>,
        number: u64,
        last_attempt: &LastAttempt,
        deadline_ms: u64,
    ) -> Result<bool, AttemptError> {
        let token = self.token().await?;
        let file = self.record();
        let (Some(inline), Some((offset, bytes))) = (file.inline, new(&file)) else {
            // An attempt whose answer was lost may have been made before the file got stripes.
            return match last_attempt.inline() {
                Some(open) => Ok(self.decide_inline(&open).await?),
                None => Ok(false),
            };
        };
        let open = Arc::new(OpenInlineWrite {
            request: ask::WriteInline {
                file: self.put_id(),
                version: inline.version,
                offset,
                bytes,
                token,
                number,
            },
            is_made: OnceLock::new(),
        });
        let earlier = last_attempt.inline();
        let is_in_doubt = earlier.is_some_and(|earlier| earlier.is_made.get().is_none());
        last_attempt.set(Attempted::Inline(Arc::clone(&open)));
        match self.ask_to_write(&open, deadline_ms).await {
            Ok(true) => Ok(true),
            Ok(false) => Err(AttemptError::Retry("others write the file".into())),
            // No other coordinator has got this write.
            Err(CoordinatorError::Refused(why)) if why.cause == Cause::Recovers && !is_in_doubt => {
                let _ = open.is_made.set(false);
                Err(AttemptError::Final(without_outcome(why)))
            }
            Err(error) => Err(AttemptError::Retry(passing(error)?)),
        }
    }

    /// Whether a write is made; it is final, because a version never comes back.
    async fn ask_to_write(
        &self,
        open: &OpenInlineWrite,
        deadline_ms: u64,
    ) -> Result<bool, CoordinatorError> {
        let request = open.request.clone();
        let asked = self.client.ports().ask_coordinator(request, deadline_ms);
        let written = asked.await?;
        let is_made = matches!(written, InlineWritten::Made(_));
        // A second answer is the same.
        let _ = open.is_made.set(is_made);
        if let InlineWritten::Made(Some(file)) = &written {
            self.note_record(file);
        }
        Ok(is_made)
    }

    /// Ends a write with an error, unless its last attempt turns out to be made.
    async fn end_inline(
        &self,
        last_attempt: &LastAttempt,
        error: ClientError,
    ) -> Result<bool, ClientError> {
        let Some(open) = last_attempt.inline() else {
            return Err(error);
        };
        if open.is_made.get() == Some(&false) {
            return Err(error);
        }
        match self.ask_to_write(&open, LAST_CLOSE_MS).await {
            Ok(true) => Ok(true),
            Ok(false) => Err(error),
            Err(refused) if is_decided(&refused) => Err(error),
            Err(_) => Err(ClientError::Undecided {
                source: Box::new(error),
            }),
        }
    }

    /// Whether a write that has ended with an unknown outcome is made. If it was not made before, it is made now,
    /// unless the file has changed since; it takes no effect after that.
    ///
    /// # Errors
    /// [`ClientError::Undecided`] when that cannot be determined in time.
    pub(crate) async fn decide_inline(&self, open: &OpenInlineWrite) -> Result<bool, ClientError> {
        if let Some(&is_made) = open.is_made.get() {
            return Ok(is_made);
        }
        let what = format!("finding the outcome of a write of {}", self.name());
        let mut attempts = self.client.attempts(what, 0);
        loop {
            let missing = match self.ask_to_write(open, attempts.attempt_ms()).await {
                Ok(is_made) => return Ok(is_made),
                Err(refused) if is_decided(&refused) => return Ok(false),
                Err(error) => error.to_string(),
            };
            let again = attempts.pause(missing).await;
            again.map_err(|source| ClientError::Undecided {
                source: Box::new(source),
            })?;
        }
    }

    /// Stores the file's inline bytes in a stripe, so that it is inline no more.
    ///
    /// # Errors
    /// Those of [`File::write`].
    pub(crate) async fn move_to_stripe(&self) -> Result<(), ClientError> {
        let first = ByteRange::new(0, 1);
        // The window of the inline bytes may be remembered from before they were written.
        self.refresh(first).await?;
        let what = format!("moving the inline bytes of {} to a stripe", self.name());
        let new = (&Bytes::new(), &LastAttempt::default());
        let moved = self.rewrite(what, first, plan_move, new);
        moved.await.map(drop)
    }
}

/// Whether a file of this pool stays inline when a range of it is written. Bytes that are inline already stay it,
/// whatever the file's size.
fn takes_inline(pool: &PoolRecord, file: &FileRecord, range: ByteRange) -> bool {
    let size_bytes = range.end().max(file.size_bytes);
    file.inline
        .is_some_and(|inline| range.end() <= inline.length_bytes || pool.keeps_inline(size_bytes))
}

/// Whether a refusal says that a write is not made: one that is made is never refused. A store that fails does not
/// know.
const fn is_decided(refused: &CoordinatorError) -> bool {
    match refused {
        CoordinatorError::Refused(why) => {
            !matches!(why.cause, Cause::Failure) && !why.cause.leaves_doubt()
        }
        _ => false,
    }
}
