//! The thread that writes the audit log. Orders that wait at the same time share a sync.

use super::file::AuditFiles;
use super::record::{AuditedOrder, AuditedOutcome, Became, Noted};
use crate::error::{ServerError, io_error};
use crate::events::{EventLog, Happening};
use gabion_wire::wall_time;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
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
    condition: Arc<Condition>,
}

/// Whether the log can be written. Operators learn of each change.
struct Condition {
    events: Arc<EventLog>,
    /// The cause if it cannot; none if the last attempt has not failed.
    failure: Mutex<Option<String>>,
}

impl Condition {
    /// The log can be written.
    fn new(events: Arc<EventLog>) -> Arc<Self> {
        let failure = Mutex::default();
        Arc::new(Self { events, failure })
    }

    /// Takes in that the log cannot be written, or that it can be.
    fn becomes(&self, failure: Option<String>) {
        // It is written in one step.
        let mut present = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *present, failure.clone());
        // Under the lock, so that the events have the order of the changes.
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

    fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

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
        let condition = Condition::new(events);
        let writer = Writer {
            files,
            condition: Arc::clone(&condition),
            unwritten: Vec::new(),
        };
        let spawned = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.write(&waiting));
        spawned.map_err(io_error("start a thread for the audit log in", &directory))?;
        let writer = sender;
        Ok(Self { writer, condition })
    }

    /// The cause if no order can be recorded now, so that all are refused; none if they can be.
    pub(crate) fn failure(&self) -> Option<String> {
        self.condition.failure()
    }

    /// Records an order. Its record is durable when this returns its number.
    ///
    /// # Errors
    /// [`NotRecorded`]: then the order must not be carried out.
    pub(crate) async fn order(&self, order: AuditedOrder) -> Result<u64, NotRecorded> {
        self.order_within(PATIENCE, order).await
    }

    async fn order_within(
        &self,
        patience: Duration,
        mut order: AuditedOrder,
    ) -> Result<u64, NotRecorded> {
        cut(&mut order.subject);
        order.to.iter_mut().for_each(cut);
        let (sender, written) = oneshot::channel();
        match self.writer.try_send(Waiting::Order(order, sender)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(NotRecorded::for_now(
                    "too many orders wait for the audit log",
                ));
            }
            Err(TrySendError::Disconnected(_)) => return Err(self.has_ended()),
        }
        let Ok(written) = timeout(patience, written).await else {
            let why = "the audit log's disk does not answer";
            // The thread cannot say so while it waits for the disk.
            self.condition.becomes(Some(why.to_owned()));
            return Err(NotRecorded::for_now(why));
        };
        let Ok(written) = written else {
            return Err(self.has_ended());
        };
        written.map_err(NotRecorded::for_good)
    }

    /// The refusal of an order after the thread has ended.
    fn has_ended(&self) -> NotRecorded {
        let why = "the audit log's thread has ended; this is a bug, please report it";
        self.condition.becomes(Some(why.to_owned()));
        NotRecorded::for_good(why.to_owned())
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

    fn for_good(why: String) -> Self {
        Self {
            why,
            may_repeat: false,
        }
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}

/// The thread's state.
struct Writer {
    files: AuditFiles,
    condition: Arc<Condition>,
    /// Outcomes that could not be written.
    unwritten: Vec<Noted>,
}

impl Writer {
    /// Writes until the log is dropped.
    fn write(mut self, waiting: &Receiver<Waiting>) {
        loop {
            let first = match waiting.recv_timeout(RETRY) {
                Ok(first) => Some(first),
                // An order may have found the log failed while this thread waited.
                Err(RecvTimeoutError::Timeout) if self.condition.failure().is_none() => continue,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
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
            let removed = Happening::warning(AUDIT_REMOVED, sentence);
            self.condition.events.note(removed);
        }
        let written = written.map_err(|error| format!("the audit log cannot be written: {error}"));
        if written.is_err() {
            let outcomes = noted.into_iter();
            let outcomes = outcomes.filter(|noted| matches!(noted, Noted::Outcome(_)));
            let room = WAITING_COUNT_MAX.saturating_sub(self.unwritten.len());
            self.unwritten.extend(outcomes.take(room));
        }
        self.condition.becomes(written.clone().err());
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::AuditedPeer;
    use super::*;
    use gabion_protocol::message::ask;

    fn order() -> AuditedOrder {
        AuditedOrder {
            peer: AuditedPeer {
                role: "operator".to_owned(),
                certificate: None,
                address: None,
            },
            operation: "remove".to_owned(),
            subject: "f".to_owned(),
            to: None,
        }
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_is_a_failure_until_the_next_record_is_written() {
        let data = tempfile::tempdir().unwrap();
        let events = Arc::new(EventLog::open(&data.path().join("events"), None).unwrap());
        let condition = Condition::new(Arc::clone(&events));
        let kinds = || {
            let asked = ask::Events {
                after: 0,
                since_ms: None,
                limit: 100,
            };
            let noted = events.page(&asked).events.into_iter();
            noted.map(|event| event.kind).collect::<Vec<_>>()
        };
        // The thread that would receive is within a write.
        let (writer, waiting) = sync_channel(WAITING_COUNT_MAX);
        let log = AuditLog {
            writer,
            condition: Arc::clone(&condition),
        };
        for _ in 0..2 {
            let late = log.order_within(Duration::ZERO, order()).await.unwrap_err();
            assert!(late.may_repeat && late.why.contains("does not answer"));
        }
        assert_eq!(
            log.failure(),
            Some("the audit log's disk does not answer".to_owned())
        );
        assert_eq!(kinds(), [AUDIT_FAILED]);
        let mut thread = Writer {
            files: AuditFiles::open(data.path().join(DIRECTORY)).unwrap(),
            condition,
            unwritten: Vec::new(),
        };
        thread.write_all(waiting.try_iter());
        assert_eq!(log.failure(), None);
        assert_eq!(kinds(), [AUDIT_FAILED, AUDIT_WORKS]);
        drop(waiting);
        let ended = log.order(order()).await.unwrap_err();
        assert!(!ended.may_repeat && ended.why.contains("thread has ended"));
        assert_eq!(log.failure(), Some(ended.why));
        assert_eq!(kinds(), [AUDIT_FAILED, AUDIT_WORKS, AUDIT_FAILED]);
    }
}
