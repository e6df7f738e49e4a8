//! The thread that writes the audit log. Orders that wait at the same time share a sync.

use super::file::AuditFiles;
use super::record::{AuditedOrder, AuditedOutcome, Became, Noted};
use crate::error::{ServerError, io_error};
use gabion_wire::wall_time;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The directory of the files, in the coordinator's.
pub(super) const DIRECTORY: &str = "audit";
/// Records that may wait to be written.
const WAITING_COUNT_MAX: usize = 4096;
/// How long an order waits for its record.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest subject or reason in bytes; the rest is cut off.
const TEXT_BYTES_MAX: usize = 8192;

/// The audit log.
pub(crate) struct AuditLog {
    writer: SyncSender<Waiting>,
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
    pub(crate) fn open(data: &Path) -> Result<Self, ServerError> {
        let directory = data.join(DIRECTORY);
        let files = AuditFiles::open(directory.clone());
        let files = files.map_err(io_error("open the audit log in", &directory))?;
        let (writer, waiting) = sync_channel(WAITING_COUNT_MAX);
        let spawned = thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(files, &waiting));
        spawned.map_err(io_error("start a thread for the audit log in", &directory))?;
        Ok(Self { writer })
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

/// Why an order is not on record.
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

/// The writer, until the log is dropped.
fn write(mut files: AuditFiles, waiting: &Receiver<Waiting>) {
    while let Ok(first) = waiting.recv() {
        let (mut noted, mut askers) = (Vec::new(), Vec::new());
        for one in std::iter::once(first).chain(waiting.try_iter()) {
            match one {
                Waiting::Order(order, asker) => {
                    askers.push((noted.len() as u64, asker));
                    noted.push(Noted::Order(order));
                }
                Waiting::Outcome(outcome) => noted.push(Noted::Outcome(outcome)),
            }
        }
        let written = append(&mut files, noted);
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
            let _ = append(&mut files, late);
        }
    }
}

fn append(files: &mut AuditFiles, noted: Vec<Noted>) -> Result<u64, String> {
    let now = wall_time();
    let time_ms = now.seconds * 1000 + i64::from(now.nanoseconds / 1_000_000);
    let written = files.append(time_ms, noted);
    written.map_err(|error: io::Error| {
        let sentence = format!("the audit log cannot be written: {error}");
        tracing::warn!("{sentence}");
        sentence
    })
}
