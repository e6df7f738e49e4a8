//! The files that this client has open, and what the coordinator does not know of them yet.

use gabion_meta::PutId;
use gabion_protocol::locks::lock;
use gabion_protocol::message::OpenedFile;
use gabion_protocol::wake_up::WakeUp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// The open files of a client.
#[derive(Debug, Default)]
pub(crate) struct OpenTable {
    state: Mutex<State>,
    /// Sent when the coordinator is to be told something.
    told: WakeUp,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PutId, Entry>,
    owed: Owed,
}

#[derive(Debug, Default)]
struct Entry {
    /// Number of handles.
    count: u64,
    /// The number of the last request that was to open it.
    number: u64,
    /// Whether the coordinator has granted such a request.
    was_opened: bool,
}

/// Closes and opens that are not reported yet.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Files that were closed.
    pub(super) closed: Vec<OpenedFile>,
    /// Requests that may have made and opened a file that this client does not know.
    pub(super) abandoned: Vec<u64>,
}

impl Owed {
    pub(super) const fn is_empty(&self) -> bool {
        self.closed.is_empty() && self.abandoned.is_empty()
    }
}

/// A file that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    table: Arc<OpenTable>,
    file: PutId,
}

impl OpenTable {
    /// A file is open, or about to be opened.
    pub(super) fn hold(self: &Arc<Self>, file: PutId) -> Held {
        lock(&self.state).files.entry(file).or_default().count += 1;
        Held {
            table: Arc::clone(self),
            file,
        }
    }

    /// A request with this number is to make a file, and to open it.
    pub(super) fn begin_making(self: &Arc<Self>, number: u64) -> Making {
        Making {
            table: Arc::clone(self),
            number: Some(number),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.state).files.is_empty()
    }

    /// Whether the coordinator has granted that a file is open.
    pub(super) fn has_opened(&self) -> bool {
        let state = lock(&self.state);
        state.files.values().any(|entry| entry.was_opened)
    }

    /// All open files.
    pub(super) fn all(&self) -> Vec<OpenedFile> {
        let state = lock(&self.state);
        let files = state.files.iter();
        let opened = files.map(|(&file, entry)| OpenedFile {
            file,
            number: entry.number,
        });
        opened.collect()
    }

    /// Takes what the coordinator is to be told, at most `limit` of each kind.
    pub(super) fn take_owed(&self, limit: usize) -> Owed {
        let owed = &mut lock(&self.state).owed;
        let (closed, abandoned) = (owed.closed.len(), owed.abandoned.len());
        Owed {
            closed: owed.closed.drain(..closed.min(limit)).collect(),
            abandoned: owed.abandoned.drain(..abandoned.min(limit)).collect(),
        }
    }

    /// Whether the coordinator is to be told more.
    pub(super) fn owes(&self) -> bool {
        !lock(&self.state).owed.is_empty()
    }

    /// Gives back what the coordinator may not know.
    pub(super) fn owe(&self, mut owed: Owed) {
        let state = &mut *lock(&self.state);
        state.owed.closed.append(&mut owed.closed);
        state.owed.abandoned.append(&mut owed.abandoned);
    }

    /// A session begins, which knows of no file.
    pub(super) fn forget_owed(&self) {
        lock(&self.state).owed = Owed::default();
    }

    /// Wakes the task that tells the coordinator.
    pub(super) fn wake(&self) {
        self.told.wake();
    }

    /// Waits until the coordinator is to be told something.
    pub(super) async fn woken(&self) {
        self.told.woken().await;
    }
}

impl Held {
    /// A request with this number is to open it.
    pub(super) fn note_number(&self, number: u64) {
        if let Some(entry) = lock(&self.table.state).files.get_mut(&self.file) {
            entry.number = entry.number.max(number);
        }
    }

    /// The coordinator has granted such a request.
    pub(super) fn note_opened(&self) {
        if let Some(entry) = lock(&self.table.state).files.get_mut(&self.file) {
            entry.was_opened = true;
        }
    }
}

/// A request that makes a file. If this is dropped before its answer is known, the file may be made, or be made yet.
pub(super) struct Making {
    table: Arc<OpenTable>,
    number: Option<u64>,
}

impl Making {
    /// The answer is known.
    pub(super) fn end(mut self) {
        self.number = None;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            lock(&self.table.state).owed.abandoned.push(number);
            self.table.told.wake();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let state = &mut *lock(&self.table.state);
        let Some(entry) = state.files.get_mut(&self.file) else {
            return;
        };
        entry.count -= 1;
        if entry.count > 0 {
            return;
        }
        let number = entry.number;
        state.files.remove(&self.file);
        let file = self.file;
        state.owed.closed.push(OpenedFile { file, number });
        self.table.told.wake();
    }
}
