//! Which files clients have open. The coordinator knows it in memory, and a transaction asks when a file loses its last
//! name.

use crate::records::PutId;
use std::cell::RefCell;
use std::fmt::Debug;

/// Knows which files clients have open.
///
/// A removal and an open at the same time must agree. A transaction that ends a file is durable only some time after it
/// has asked, and until then a look-up finds the file. So no client opens the file from the question on until the
/// transaction has ended.
pub trait OpenFiles: Debug + Send + Sync {
    /// Whether a client has the file open, or may have it open, so that the file must stay. If not, no client opens it
    /// until [`OpenFiles::settled`]. It must not wait.
    fn keeps(&self, file: PutId) -> bool;

    /// A put with this number, which its client has drawn, is making the file: from now on the client may have it open.
    /// It must not wait.
    fn made(&self, number: u64, file: PutId);

    /// The transactions have ended for which [`OpenFiles::keeps`] has denied these files, one for each mention.
    fn settled(&self, files: Vec<PutId>);
}

/// The questions of one transaction, until it has ended.
pub(crate) struct Asked<'o> {
    open: Option<&'o dyn OpenFiles>,
    /// The files that no client has open.
    denied: RefCell<Vec<PutId>>,
}

impl<'o> Asked<'o> {
    /// The questions of a transaction. Without a table of open files, no file is open.
    pub(crate) fn new(open: Option<&'o dyn OpenFiles>) -> Self {
        Self {
            open,
            denied: RefCell::default(),
        }
    }

    /// Whether a client has the file open.
    pub(crate) fn keeps(&self, file: PutId) -> bool {
        let Some(open) = self.open else {
            return false;
        };
        let is_kept = open.keeps(file);
        if !is_kept {
            self.denied.borrow_mut().push(file);
        }
        is_kept
    }

    /// A put with this number is making the file.
    pub(crate) fn made(&self, number: u64, file: PutId) {
        if let Some(open) = self.open {
            open.made(number, file);
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let denied = self.denied.take();
        if let Some(open) = self.open.filter(|_| !denied.is_empty()) {
            open.settled(denied);
        }
    }
}
