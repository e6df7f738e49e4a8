//! The thread that writes the audit log. Orders that wait at the same time share a sync.

use super::file::AuditFiles;
use super::record::{AuditedOrder, AuditedOutcome, Became, Noted};
use crate::error::{ServerError, io_error};
use crate::events::{EventLog, Happening};
use gabion_wire::wall_time;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The directory of the files, in the coordinator's.
pub(super) const DIRECTORY: &str = "audit";
/// Records that may wait to be written.
const WAITING_COUNT_MAX: usize = 4096;
/// Maximum wait of an order for its record.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest subject or reason in bytes; the rest is cut off.
const TEXT_BYTES_MAX: usize = 8192;

/// Period of attempts to write after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// The events of a log that cannot be written, that can be again, and of a file that is gone.
const AUDIT_FAILED: &str = "audit_failed";
const AUDIT_WORKS: &str = "audit_works";
const AUDIT_REMOVED: &str = "audit_removed";

/// The audit log.
pub(crate) struct AuditLog {
    writer: SyncSender<Waiting>,
    failure: Failure,
}

/// The error of the last attempt to write; none if it has not failed.
type Failure = Arc<Mutex<Option<String>>>;

/// A record that waits to be written.
enum Waiting {
    Order(AuditedOrder, oneshot::Sender<Result<u64, String>>),
    Outcome(AuditedOutcome),
}

impl AuditLog {
    /// Goes on behind the records in a coordinator's directory. Blocks.
    ///
    /// # Errors
    /// When the files cannot be read, or there can be no thread for them.
    pub(crate) fn open(data: &Path, events: Arc<EventLog>) -> Result<Self, ServerError> {
        let directory = data.join(DIRECTORY);
        let files = AuditFiles::open(directory.clone());
        let files = files.map_err(io_error("open the audit log in", &directory))?;
        let (sender, waiting) = sync_channel(WAITING_COUNT_MAX);
        let failure = Failure::default();
        let writer = Writer {
            files,
            events,
            failure: Arc::clone(&failure),
            unwritten: Vec::new(),
        };
        let spawned = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.write(&waiting));
        spawned.map_err(io_error("start a thread for the audit log in", &directory))?;
        let writer = sender;
        Ok(Self { writer, failure })
    }

    /// The cause if no order can be recorded now, so that all are refused; none if they can be.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }

    /// Records an order. Its record is durable when this returns its number.
    ///
    /// # Errors
    /// [`NotRecorded`]: then the order must not be carried out.
    pub(crate) async fn order(&self, mut order: AuditedOrder) -> Result<u64, NotRecorded> {
        cut(&mut order.subject);
        order.to.iter_mut().for_each(cut);
        let (sender, written) = oneshot::channel();
        let is_waiting = self.writer.try_send(Waiting::Order(order, sender));
        is_waiting.map_err(|_| NotRecorded::for_now("too many orders wait for the audit log"))?;
        let Ok(written) = timeout(PATIENCE, written).await else {
            return Err(NotRecorded::for_now("the audit log's disk does not answer"));
        };
        let ended =
            |_| Err("the audit log's thread has ended; this is a bug, please report it".to_owned());
        written.unwrap_or_else(ended).map_err(|why| NotRecorded {
            why,
            may_repeat: false,
        })
    }

    /// Records what became of an order, soon. If too many records wait, the order has no outcome on record.
    pub(crate) fn outcome(&self, order: u64, mut became: Became) {
        match &mut became {
            Became::Done => {}
            Became::Refused(why) | Became::Unknown(why) => cut(why),
        }
        let _ = self
            .writer
            .try_send(Waiting::Outcome(AuditedOutcome { order, became }));
    }
}

/// Errors of recording an order.
#[derive(Debug)]
pub(crate) struct NotRecorded {
    pub(crate) why: String,
    /// Whether a repetition may succeed soon.
    pub(crate) may_repeat: bool,
}

impl NotRecorded {
    fn for_now(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            may_repeat: true,
        }
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}

fn lock(failure: &Failure) -> MutexGuard<'_, Option<String>> {
    // It is written in one step.
    failure.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's state.
struct Writer {
    files: AuditFiles,
    events: Arc<EventLog>,
    failure: Failure,
    /// Outcomes that could not be written.
    unwritten: Vec<Noted>,
}

impl Writer {
    /// Writes until the log is dropped.
    fn write(mut self, waiting: &Receiver<Waiting>) {
        loop {
            let first = if lock(&self.failure).is_some() {
                match waiting.recv_timeout(RETRY) {
                    Ok(first) => Some(first),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                let Ok(first) = waiting.recv() else { return };
                Some(first)
            };
            self.write_all(first.into_iter().chain(waiting.try_iter()));
        }
    }

    /// Writes records that wait, after those that could not be written before.
    fn write_all(&mut self, waiting: impl Iterator<Item = Waiting>) {
        let (mut noted, mut askers) = (std::mem::take(&mut self.unwritten), Vec::new());
        for one in waiting {
            match one {
                Waiting::Order(order, asker) => {
                    askers.push((noted.len() as u64, asker));
                    noted.push(Noted::Order(order));
                }
                Waiting::Outcome(outcome) => noted.push(Noted::Outcome(outcome)),
            }
        }
        let written = self.append(noted);
        let mut late = Vec::new();
        for (at, asker) in askers {
            let number = written.clone().map(|first| first + at);
            if let Err(Ok(order)) = asker.send(number) {
                let became = Became::Refused("its record was late".to_owned());
                late.push(Noted::Outcome(AuditedOutcome { order, became }));
            }
        }
        if !late.is_empty() {
            // These orders have their answers, so none waits for this.
            let _ = self.append(late);
        }
    }

    fn append(&mut self, noted: Vec<Noted>) -> Result<u64, String> {
        let now = wall_time();
        let time_ms = now.seconds * 1000 + i64::from(now.nanoseconds / 1_000_000);
        let written = self.files.append(time_ms, &noted);
        if let Some(gone) = self.files.take_vanished() {
            let path = gone.display();
            let sentence = format!(
                "{path} was removed or replaced while the audit log was writing it; its records are lost, and a \
                 new file begins"
            );
            self.events
                .note(Happening::warning(AUDIT_REMOVED, sentence));
        }
        let written = written.map_err(|error| format!("the audit log cannot be written: {error}"));
        if written.is_err() {
            let outcomes = noted.into_iter();
            let outcomes = outcomes.filter(|noted| matches!(noted, Noted::Outcome(_)));
            let room = WAITING_COUNT_MAX.saturating_sub(self.unwritten.len());
            self.unwritten.extend(outcomes.take(room));
        }
        self.note_change(written.clone().err());
        written
    }

    /// Tells operators when the log cannot be written any more, and when it can be again.
    fn note_change(&self, failure: Option<String>) {
        let before = std::mem::replace(&mut *lock(&self.failure), failure.clone());
        match (before, failure) {
            (None, Some(why)) => {
                let sentence = format!("{why}; deletions and settings are refused until it can be");
                self.events.note(Happening::warning(AUDIT_FAILED, sentence));
            }
            (Some(_), None) => {
                let sentence = "the audit log can be written again";
                self.events.note(Happening::plain(AUDIT_WORKS, sentence));
            }
            _ => {}
        }
    }
}
