//! The last events, in memory, and the thread that writes them to files.

use super::file::EventFile;
use crate::error::ServerError;
use gabion_layout::{NodeId, StripeId};
use gabion_protocol::event::Event;
use gabion_protocol::message::{EventPage, LoggedEvent, ask};
use gabion_wire::wall_time;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Events that are kept of each share.
pub(super) const KEPT_COUNT: usize = 4096;
/// Events that may wait to be written. Further ones are kept in memory only.
const WAITING_COUNT_MAX: usize = 4096;
/// Longest sentence in bytes; the rest is cut off.
const SENTENCE_BYTES_MAX: usize = 1000;
/// Most events of one answer.
const PAGE_COUNT_MAX: usize = 1000;

/// What is to be noted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Happening {
    pub(crate) kind: &'static str,
    pub(crate) is_warning: bool,
    pub(crate) node: Option<NodeId>,
    pub(crate) stripe: Option<StripeId>,
    pub(crate) sentence: String,
}

impl Happening {
    /// An event of the coordinator's role.
    pub(crate) fn of(event: &Event) -> Self {
        Self {
            kind: event.name(),
            is_warning: event.is_warning(),
            node: event.node(),
            stripe: event.stripe(),
            sentence: event.to_string(),
        }
    }

    /// An event without a node and a stripe, which is no warning.
    pub(crate) fn plain(kind: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            kind,
            is_warning: false,
            node: None,
            stripe: None,
            sentence: sentence.into(),
        }
    }
}

/// The event log.
pub(crate) struct EventLog {
    recent: Mutex<Recent>,
    writer: SyncSender<LoggedEvent>,
}

/// The last events of each share, oldest first.
struct Recent {
    notable: VecDeque<LoggedEvent>,
    routine: VecDeque<LoggedEvent>,
    next: u64,
}

/// Whether an event is one of the many of single stripes.
pub(super) fn is_routine(event: &LoggedEvent) -> bool {
    matches!(
        event.kind.as_str(),
        "repair_began" | "repair_ended" | "encoded" | "promoted"
    )
}

impl EventLog {
    /// Reads the events that earlier coordinators have kept in a directory, and goes on there. Blocks.
    pub(crate) fn open(directory: &Path) -> Result<Self, ServerError> {
        let (notable, kept) = EventFile::open(directory.join("notable.jsonl"))?;
        let (routine, kept_routine) = EventFile::open(directory.join("routine.jsonl"))?;
        let last = |events: &VecDeque<LoggedEvent>| events.back().map_or(0, |event| event.number);
        // Events that an earlier coordinator kept in memory only have had numbers, too.
        let next = last(&kept).max(last(&kept_routine)) + WAITING_COUNT_MAX as u64 + 1;
        let (writer, written) = sync_channel(WAITING_COUNT_MAX);
        let spawned = thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || write(notable, routine, &written));
        spawned.map_err(|source| ServerError::Io {
            operation: "start a thread for the events in",
            path: directory.to_owned(),
            source,
        })?;
        Ok(Self {
            recent: Mutex::new(Recent {
                notable: kept,
                routine: kept_routine,
                next,
            }),
            writer,
        })
    }

    /// Notes an event. Never waits for a disk.
    pub(crate) fn note(&self, happening: Happening) {
        let Happening {
            kind,
            is_warning,
            node,
            stripe,
            mut sentence,
        } = happening;
        let end = sentence.floor_char_boundary(SENTENCE_BYTES_MAX);
        sentence.truncate(end);
        let now = wall_time();
        let mut recent = self.lock();
        let event = LoggedEvent {
            number: recent.next,
            time_ms: now.seconds * 1000 + i64::from(now.nanoseconds / 1_000_000),
            kind: kind.to_owned(),
            is_warning,
            node,
            stripe,
            sentence,
        };
        recent.next += 1;
        let share = if is_routine(&event) {
            &mut recent.routine
        } else {
            &mut recent.notable
        };
        if share.len() == KEPT_COUNT {
            share.pop_front();
        }
        share.push_back(event.clone());
        // Under the lock, so that files have the events in their order. If too many wait, or the thread has ended
        // because the disk fails, this one is in memory only.
        let _ = self.writer.try_send(event);
    }

    /// A page of the events.
    pub(crate) fn page(&self, asked: &ask::Events) -> EventPage {
        let recent = self.lock();
        let is_asked = |event: &&LoggedEvent| {
            event.number > asked.after && event.time_ms >= asked.since_ms.unwrap_or(i64::MIN)
        };
        let all = recent.notable.iter().chain(&recent.routine);
        let mut events: Vec<&LoggedEvent> = all.filter(is_asked).collect();
        events.sort_unstable_by_key(|event| event.number);
        let limit = (asked.limit as usize).min(PAGE_COUNT_MAX);
        let is_cut = events.len() > limit;
        events.truncate(limit);
        EventPage {
            last: events.last().map_or(asked.after, |event| event.number),
            is_cut,
            events: events.into_iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        // Its lists are whole after every step.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writer: until the log is dropped, or a file fails.
fn write(mut notable: EventFile, mut routine: EventFile, written: &Receiver<LoggedEvent>) {
    while let Ok(event) = written.recv() {
        // All that wait share a sync.
        for event in std::iter::once(event).chain(written.try_iter()) {
            let file = if is_routine(&event) {
                &mut routine
            } else {
                &mut notable
            };
            file.add(&event);
        }
        for file in [&mut notable, &mut routine] {
            if let Err(error) = file.flush() {
                tracing::warn!(%error, "events are kept in memory only from now on");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &EventLog) -> Vec<String> {
        let asked = ask::Events {
            after: 0,
            since_ms: None,
            limit: 1000,
        };
        let page = log.page(&asked);
        page.events
            .into_iter()
            .map(|event| event.sentence)
            .collect()
    }

    /// Waits until a file has a line with this text.
    fn until_written(directory: &Path, text: &str) {
        let begun = std::time::Instant::now();
        loop {
            let file = std::fs::read_to_string(directory.join("notable.jsonl"));
            if file.is_ok_and(|lines| lines.contains(text)) {
                return;
            }
            assert!(begun.elapsed().as_secs() < 30, "{text} is not written");
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn events_outlive_their_coordinator_and_their_numbers_grow() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path()).unwrap();
        log.note(Happening::plain("a", "first"));
        log.note(Happening::of(&Event::Failed(NodeId(3))));
        until_written(directory.path(), "\"failed\"");
        let before = log.lock().next;
        // A coordinator that is killed leaves a cut line.
        let path = directory.path().join("notable.jsonl");
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"number\":7").unwrap();
        drop(log);
        let log = EventLog::open(directory.path()).unwrap();
        log.note(Happening::plain("b", "second"));
        let failed = "node 3 has failed: its chunks count as lost";
        assert_eq!(all(&log), ["first", failed, "second"]);
        let recent = log.lock();
        assert!(recent.notable.back().unwrap().number > before);
    }

    #[test]
    fn repairs_displace_only_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path()).unwrap();
        log.note(Happening::of(&Event::Failed(NodeId(3))));
        for stripe in 0..2 * KEPT_COUNT as u64 {
            log.note(Happening::of(&Event::RepairBegan(StripeId(stripe))));
        }
        let recent = log.lock();
        assert_eq!(recent.routine.len(), KEPT_COUNT);
        assert_eq!(recent.notable.len(), 1);
    }

    #[test]
    fn pages_go_forward() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path()).unwrap();
        for sentence in ["one", "two", "three"] {
            log.note(Happening::plain("a", sentence));
        }
        let page = |after| {
            let asked = ask::Events {
                after,
                since_ms: None,
                limit: 2,
            };
            let page = log.page(&asked);
            let sentences = page.events.iter().map(|event| event.sentence.clone());
            (sentences.collect::<Vec<_>>(), page.last, page.is_cut)
        };
        let (first, last, is_cut) = page(0);
        assert_eq!(
            (first, is_cut),
            (vec!["one".to_owned(), "two".to_owned()], true)
        );
        let (rest, last, is_cut) = page(last);
        assert_eq!((rest, is_cut), (vec!["three".to_owned()], false));
        assert_eq!(page(last), (Vec::new(), last, false));
    }
}
