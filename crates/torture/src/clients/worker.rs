//! One client: its connection, its random ranges, and the time limits of its operations.

use super::load::Load;
use crate::cells::CELL_BYTES;
use crate::dice::Dice;
use crate::recorder::{Recorder, Span, UnderWay};
use gabion_client::{Client, ClientError, ClientOptions};
use gabion_layout::{ByteRange, StripeId};
use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Limit of an operation, whatever the clients' own deadlines are; a longer one hangs.
const HANG_LIMIT: Duration = Duration::from_mins(4);
/// Longest pause between operations, in milliseconds: the clients share two cores with the cluster.
const PAUSE_MS_MAX: u64 = 30;

/// One client.
pub(super) struct Worker {
    pub(super) load: Load,
    pub(super) number: u32,
    pub(super) dice: Dice,
    /// The last read if it failed, and the stripes that it knew.
    failed_read: Mutex<Option<(Span, Vec<StripeId>)>>,
}

impl Worker {
    pub(super) fn new(load: &Load, number: u32) -> Self {
        Self {
            load: load.clone(),
            number,
            dice: Dice::new(load.seed, 100 + u64::from(number)),
            failed_read: Mutex::default(),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.load.signals.is_over.load(Ordering::Acquire)
    }

    pub(super) async fn pause(&mut self) {
        let pause = Duration::from_millis(self.dice.below(PAUSE_MS_MAX));
        tokio::time::sleep(pause).await;
    }

    /// A new client; half of the clients have short deadlines.
    pub(super) async fn connect(&mut self, cache_bytes: u64) -> Client {
        let deadline = Duration::from_secs(self.dice.pick(&[8, 30]));
        loop {
            let options = ClientOptions {
                deadline,
                cache_bytes,
                read_ahead_bytes: 0,
                ..ClientOptions::default()
            };
            match gabion_wire::connect(&self.load.coordinator, self.load.security.clone(), options)
                .await
            {
                Ok(client) => return client,
                Err(error) => self.load.recorder.note_error(&error.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// A range of cells: mostly a few of a stripe's first ones, where clients meet; sometimes many,
    /// and sometimes across a border of stripes.
    pub(super) fn draw_span(&mut self) -> Span {
        let shared = self.load.files.iter().filter(|file| !file.is_owned);
        let count = shared.count() as u64;
        let file = self.dice.below(count) as u32;
        self.draw_span_of(file)
    }

    /// The same of a file that has stripes.
    pub(super) fn draw_span_in_stripes(&mut self) -> Span {
        loop {
            let span = self.draw_span();
            if !self.load.files[span.file as usize].is_inline {
                return span;
            }
        }
    }

    /// Whether a range lies within one stripe, so that a write of it needs no coordinator.
    pub(super) fn is_within_a_stripe(&self, span: &Span) -> bool {
        let file = &self.load.files[span.file as usize];
        let stripe_cells = file.stripe_cells;
        !file.is_inline && span.cells.start / stripe_cells == (span.cells.end - 1) / stripe_cells
    }

    /// Waits for a read, and records its bytes. `known` returns the stripes that the client knows for a range of the
    /// file. Returns the error in words.
    pub(super) async fn read(
        &self,
        operation: &UnderWay,
        known: impl Fn(ByteRange) -> Vec<StripeId>,
        reading: impl Future<Output = Result<Vec<u8>, ClientError>>,
    ) -> Result<(), String> {
        let before = known(range(&operation.span));
        let recorder = &self.load.recorder;
        let made = within_limit(recorder, "a read", reading).await;
        let mut failed = self
            .failed_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (span, before) = match failed.take() {
            Some(first) if first.0.file == operation.span.file => first,
            _ => (operation.span.clone(), before),
        };
        match made {
            Ok(bytes) => {
                // Bytes that are in no known stripe, or in another one by now, are looked up.
                let is_replaced = before.is_empty() || known(range(&span)) != before;
                recorder.found(operation, &bytes, is_replaced);
                Ok(())
            }
            Err(error) => {
                *failed = Some((span, before));
                Err(error)
            }
        }
    }

    /// A range of cells of one file.
    pub(super) fn draw_span_of(&mut self, file: u32) -> Span {
        let file = &self.load.files[file as usize];
        let stripe_count = file.cell_count.div_ceil(file.stripe_cells);
        let stripe = self.dice.below(stripe_count) * file.stripe_cells;
        let count = match self.dice.below(10) {
            0 => self.dice.between(17, 128),
            1..4 => self.dice.between(5, 16),
            _ => self.dice.between(1, 4),
        };
        let first = match self.dice.below(12) {
            0 => self.dice.below(file.cell_count),
            1 => stripe.saturating_sub(1 + self.dice.below(count)),
            _ => stripe + self.dice.below(48),
        };
        let first = first.min(file.cell_count - 1);
        Span {
            file: file.number,
            cells: first..(first + count).min(file.cell_count),
        }
    }
}

/// The bytes of cells.
pub(super) fn range(span: &Span) -> ByteRange {
    let count = span.cells.end - span.cells.start;
    ByteRange::new(span.cells.start * CELL_BYTES, count * CELL_BYTES)
}

/// Waits for an operation; one that does not end is a failure of the cluster.
pub(super) async fn within_limit<T>(
    recorder: &Recorder,
    what: &str,
    operation: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, String> {
    if let Ok(ended) = tokio::time::timeout(HANG_LIMIT, operation).await {
        return ended.map_err(|error| error.to_string());
    }
    let sentence = format!("{what} hangs: it has not ended after {HANG_LIMIT:?}");
    recorder.broken(sentence.clone());
    Err(sentence)
}
