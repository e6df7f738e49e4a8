//! The state that the clients share: the files, the signals of the fault driver, and the limits of an
//! operation.

use crate::recorder::Recorder;
use gabion_wire::trust::Security;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A file that clients share.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) cell_count: u64,
    /// Cells of a full stripe.
    pub(crate) stripe_cells: u64,
    /// Whether it is so small that its bytes are in the metadata.
    pub(crate) is_inline: bool,
    /// Whether clients write it only after an exclusive open. Such a file is the last one.
    pub(crate) is_owned: bool,
}

/// The work of the clients.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) coordinator: String,
    /// The clients' proof that they belong to the cluster.
    pub(crate) security: Security,
    pub(crate) files: Vec<SharedFile>,
    /// The pool for whole files.
    pub(crate) pool: String,
    pub(crate) seed: u64,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) signals: Arc<Signals>,
}

/// Signals from the fault driver to the clients.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) is_over: AtomicBool,
    /// Whether whole files must not be stored, removed or opened exclusively: an old database is in use, which will be
    /// replaced again.
    pub(crate) names_rest: AtomicBool,
    /// The client of whole files has acknowledged that, and has no operation in flight.
    pub(crate) names_are_at_rest: AtomicBool,
    /// Operations on inline files in flight. They rest like those on whole files.
    inline_count: AtomicUsize,
}

/// An operation that is in flight, on an inline file if it is counted.
pub(crate) struct InFlight<'a>(Option<&'a AtomicUsize>);

impl Signals {
    /// Begins an operation; none if it is on an inline file and must rest.
    pub(crate) fn begin_inline(&self, is_inline: bool) -> Option<InFlight<'_>> {
        if !is_inline {
            return Some(InFlight(None));
        }
        self.inline_count.fetch_add(1, Ordering::SeqCst);
        let begun = InFlight(Some(&self.inline_count));
        (!self.names_rest.load(Ordering::SeqCst)).then_some(begun)
    }

    /// Whether all operations that rest are over.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.names_are_at_rest.load(Ordering::SeqCst)
            && self.inline_count.load(Ordering::SeqCst) == 0
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.0 {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }
}
