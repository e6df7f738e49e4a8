//! The last events, in memory, and the thread that writes them to files.

use super::file::EventFile;
use super::orders::STORE_FAILED;
use crate::error::ServerError;
use crate::metrics::CoordinatorWork;
use gabion_layout::{NodeId, StripeId};
use gabion_protocol::event::Event;
use gabion_protocol::message::{EventPage, LoggedEvent, ask};
use gabion_wire::wall_time;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Events that are kept of each share.
pub(super) const KEPT_COUNT: usize = 4096;
/// Events that may wait to be written. Further ones are kept in memory only.
const WAITING_COUNT_MAX: usize = 4096;
/// Longest sentence in bytes; the rest is cut off.
const SENTENCE_BYTES_MAX: usize = 1000;
/// Most events of one answer.
const PAGE_COUNT_MAX: usize = 1000;

/// An event to be noted.
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

    /// A warning without a node and a stripe.
    pub(crate) fn warning(kind: &'static str, sentence: impl Into<String>) -> Self {
        Self {
            is_warning: true,
            ..Self::plain(kind, sentence)
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
    /// Counts the events.
    work: Option<Arc<CoordinatorWork>>,
}

/// The last events of each share, oldest first.
struct Recent {
    shares: [VecDeque<LoggedEvent>; SHARE_NAMES.len()],
    next: u64,
}

/// The shares: what operators must know, the many events of single stripes, and what peers can provoke.
const SHARE_NAMES: [&str; 3] = ["notable", "routine", "refused"];
const NOTABLE: usize = 0;
const ROUTINE: usize = 1;
const REFUSED: usize = 2;

/// The share of a kind of events.
fn share_of(kind: &str) -> usize {
    match kind {
        "repair_began" | "repair_ended" | "repair_failed" | "encoded" | "promoted" => ROUTINE,
        "turned_away" | "request_refused" => REFUSED,
        _ => NOTABLE,
    }
}

/// A node says until it is answered that its store has failed. Repetitions within this time are one event.
const REPEATED_MS: i64 = 60_000;

impl EventLog {
    /// Reads the events that earlier coordinators have kept in a directory, and goes on there. Blocks. Files that
    /// cannot be used are named in the process's log, and events are kept in memory.
    ///
    /// # Errors
    /// When there can be no thread for the files.
    pub(crate) fn open(
        directory: &Path,
        work: Option<Arc<CoordinatorWork>>,
    ) -> Result<Self, ServerError> {
        let mut shares: [VecDeque<LoggedEvent>; SHARE_NAMES.len()] = Default::default();
        let mut files = Vec::new();
        for (share, name) in shares.iter_mut().zip(SHARE_NAMES) {
            match EventFile::open(directory.join(format!("{name}.jsonl"))) {
                Ok((file, kept)) => {
                    *share = kept;
                    files.push(Some(file));
                }
                Err(error) => {
                    tracing::warn!(%error, "events are kept in memory only");
                    files.push(None);
                }
            }
        }
        let last = shares.iter().filter_map(|events| events.back());
        let last = last.map(|event| event.number).max().unwrap_or(0);
        // Events that an earlier coordinator kept in memory only have had numbers, too; there is not one each
        // millisecond.
        let now_ms = u64::try_from(now_ms()).unwrap_or(0);
        let (writer, written) = sync_channel(WAITING_COUNT_MAX);
        let spawned = thread::Builder::new()
            .name("events".to_owned())
            .spawn(move || write(files, &written));
        spawned.map_err(|source| ServerError::Io {
            operation: "start a thread for the events in",
            path: directory.to_owned(),
            source,
        })?;
        let next = now_ms.max(last + 1);
        Ok(Self {
            recent: Mutex::new(Recent { shares, next }),
            writer,
            work,
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
        let time_ms = now_ms();
        let mut recent = self.lock();
        let share = share_of(kind);
        let is_repeated = |event: &LoggedEvent| event.kind == kind && event.node == node;
        let known = recent.shares[share].iter().rev();
        let mut known = known.take_while(|event| event.time_ms > time_ms - REPEATED_MS);
        if kind == STORE_FAILED && known.any(is_repeated) {
            return;
        }
        if let Some(work) = &self.work {
            work.happened(kind);
        }
        let event = LoggedEvent {
            number: recent.next,
            time_ms,
            kind: kind.to_owned(),
            is_warning,
            node,
            stripe,
            sentence,
        };
        recent.next += 1;
        let share = &mut recent.shares[share];
        if share.len() == KEPT_COUNT {
            share.pop_front();
        }
        share.push_back(event.clone());
        // Under the lock, so that files have the events in their order. If too many wait, this one is in memory
        // only.
        let _ = self.writer.try_send(event);
    }

    /// A page of the events.
    pub(crate) fn page(&self, asked: &ask::Events) -> EventPage {
        let recent = self.lock();
        let is_asked = |event: &&LoggedEvent| {
            event.number > asked.after && event.time_ms >= asked.since_ms.unwrap_or(i64::MIN)
        };
        let all = recent.shares.iter().flatten();
        let mut events: Vec<&LoggedEvent> = all.filter(is_asked).collect();
        events.sort_unstable_by_key(|event| event.number);
        let limit = (asked.limit as usize).min(PAGE_COUNT_MAX);
        let is_cut = events.len() > limit;
        events.truncate(limit);
        EventPage {
            last: match events.last() {
                Some(last) if is_cut => last.number,
                _ => asked.after.max(recent.next - 1),
            },
            is_cut,
            events: events.into_iter().cloned().collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        // Its lists are whole after every step.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now_ms() -> i64 {
    let now = wall_time();
    now.seconds * 1000 + i64::from(now.nanoseconds / 1_000_000)
}

/// The writer, until the log is dropped. If a write to a file fails, its events wait for the next event.
fn write(mut files: Vec<Option<EventFile>>, written: &Receiver<LoggedEvent>) {
    let mut last_error = String::new();
    while let Ok(event) = written.recv() {
        // All that wait share a sync.
        for event in std::iter::once(event).chain(written.try_iter()) {
            if let Some(file) = &mut files[share_of(&event.kind)] {
                file.add(&event);
            }
        }
        for file in files.iter_mut().flatten() {
            if let Err(error) = file.flush() {
                let error = error.to_string();
                if error != last_error {
                    tracing::warn!(error, "cannot write events now");
                    last_error = error;
                }
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
        let log = EventLog::open(directory.path(), None).unwrap();
        log.note(Happening::plain("a", "first"));
        log.note(Happening::of(&Event::Failed(NodeId(3))));
        until_written(directory.path(), "\"failed\"");
        let before = log.lock().next;
        // A coordinator that is killed leaves a cut line.
        let path = directory.path().join("notable.jsonl");
        let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"number\":7").unwrap();
        drop(log);
        let log = EventLog::open(directory.path(), None).unwrap();
        log.note(Happening::plain("b", "second"));
        let failed = "node 3 has failed: its chunks count as lost";
        assert_eq!(all(&log), ["first", failed, "second"]);
        let recent = log.lock();
        assert!(recent.shares[NOTABLE].back().unwrap().number >= before);
    }

    #[test]
    fn repairs_and_refusals_displace_only_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path(), None).unwrap();
        log.note(Happening::of(&Event::Failed(NodeId(3))));
        for stripe in (0..KEPT_COUNT as u64).map(StripeId) {
            log.note(Happening::of(&Event::RepairBegan(stripe)));
            log.note(Happening::of(&Event::RepairFailed(
                stripe,
                "why".to_owned(),
            )));
            log.note(Happening::plain("turned_away", "a peer"));
        }
        let recent = log.lock();
        assert_eq!(recent.shares[ROUTINE].len(), KEPT_COUNT);
        assert_eq!(recent.shares[REFUSED].len(), KEPT_COUNT);
        assert_eq!(recent.shares[NOTABLE].len(), 1);
    }

    #[test]
    fn a_store_that_says_again_that_it_has_failed_is_one_event() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path(), None).unwrap();
        for node in [3, 3, 4, 3] {
            let node = Some(NodeId(node));
            log.note(Happening {
                node,
                ..Happening::plain(STORE_FAILED, format!("{node:?}"))
            });
        }
        assert_eq!(all(&log).len(), 2);
    }

    #[test]
    fn a_directory_that_cannot_be_used_leaves_events_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("events");
        std::fs::write(&path, "no directory").unwrap();
        let log = EventLog::open(&path, None).unwrap();
        log.note(Happening::plain("a", "first"));
        assert_eq!(all(&log), ["first"]);
    }

    #[test]
    fn pages_go_forward() {
        let directory = tempfile::tempdir().unwrap();
        let log = EventLog::open(directory.path(), None).unwrap();
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
        // Nothing since a time is no reason to begin with the first one.
        let asked = ask::Events {
            after: 0,
            since_ms: Some(i64::MAX),
            limit: 2,
        };
        assert_eq!(log.page(&asked).last, last);
    }
}
