//! The state that all rooms of the coordinator use: its metadata, ports and options, and whether it may
//! still decide.

use super::changes::Changes;
use super::client_sessions::ClientSessions;
use super::options::CoordinatorOptions;
use crate::event::Event;
use crate::measure::Measure;
use crate::message::{Cause, Denial};
use crate::ports::{CallError, NodeError, Ports, run_blocking};
use crate::wake_up::WakeUp;
use gabion_layout::{StripeId, StripeRecord};
use gabion_meta::{FileRecord, KeyValue, Meta, MetaError, PutId};
use std::sync::{Arc, Mutex, OnceLock};

pub(super) use super::rejection::{Answer, Rejection};
pub(super) use crate::locks::lock;

/// Stripes that are read in one transaction.
pub(super) const PAGE: usize = 512;

/// Time limit of a node's answer to a request without a plan. The stripe's primary waits for that answer.
pub(super) const SHORT_DEADLINE_MS: u64 = 5_000;

/// Time between two looks at whether work on the metadata hangs.
const METADATA_LOOK_MS: u64 = 1_000;
/// If a task sleeps longer by this, the whole process may have stood still, and has heard no client during that time.
const STOOD_STILL_MS: u64 = 1_000;

/// A node's reply to a request; none if the node refused, or sent the reply of another request.
///
/// # Errors
/// When the node has not answered.
pub(super) fn answered<T>(reply: Result<T, NodeError>) -> Result<Option<T>, CallError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(NodeError::Silent(error)) => Err(error),
        Err(NodeError::NotBegun(_) | NodeError::Refused(_) | NodeError::Misfit(_)) => Ok(None),
    }
}

/// Metadata, ports and options, shared by all rooms.
pub(super) struct Core<K> {
    pub(super) meta: Arc<Meta<K>>,
    pub(super) ports: Arc<dyn Ports>,
    pub(super) options: CoordinatorOptions,
    /// Changes of the metadata's last transactions.
    pub(super) changes: Arc<Changes>,
    /// Clients' sessions, and the files that they have open.
    pub(super) sessions: Arc<ClientSessions>,
    /// Set when the metadata store has failed (whether its last write is durable is unknown) or is a
    /// copy of another time: nothing may be decided before a restart.
    broken: OnceLock<MetaError>,
    /// Sent when `broken` is set.
    broken_wake_up: WakeUp,
    /// The total running time of earlier coordinators when this one started.
    lifetime_before_ms: u64,
    /// The clock at the start of this run.
    began_ms: u64,
    /// The last error that no request waited for.
    last_error: Mutex<Option<String>>,
}

impl<K: KeyValue + Send + Sync + 'static> Core<K> {
    /// Waits for the disk.
    ///
    /// # Errors
    /// When the metadata do not give the running time of earlier coordinators, or clients' sessions and orphans.
    pub(super) fn new(
        meta: Meta<K>,
        ports: Arc<dyn Ports>,
        options: CoordinatorOptions,
    ) -> Result<Self, MetaError> {
        let changes = Arc::new(Changes::new(&*ports));
        let (sessions, orphans) = (meta.client_sessions()?, meta.orphans(None, usize::MAX)?);
        let sessions = Arc::new(ClientSessions::new(sessions, orphans, ports.now_ms()));
        let meta = meta.observed_by(Arc::clone(&changes) as _);
        Ok(Self {
            lifetime_before_ms: meta.lifetime_ms()?,
            began_ms: ports.now_ms(),
            meta: Arc::new(meta.with_open_files(Arc::clone(&sessions) as _)),
            changes,
            sessions,
            ports,
            options,
            broken: OnceLock::new(),
            broken_wake_up: WakeUp::default(),
            last_error: Mutex::default(),
        })
    }

    /// Refuses changes that take space if the disk of the metadata is full.
    pub(super) fn check_metadata_disk(&self) -> Result<(), Denial> {
        match self.ports.full_metadata_disk() {
            Some(sentence) => Err(Denial::new(Cause::NoSpace, sentence)),
            None => Ok(()),
        }
    }

    /// Works on the metadata on a thread that may wait for the disk.
    pub(super) async fn with_meta<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Meta<K>) -> Result<R, MetaError> + Send + 'static,
    ) -> Result<R, MetaError> {
        let began_us = self.ports.now_us();
        let result = self.scan_meta(work).await;
        let took_us = self.ports.now_us().saturating_sub(began_us);
        self.ports.measure(&Measure::Transaction { took_us });
        result
    }

    /// The same for a count of all rows, whose time says nothing about transactions.
    pub(super) async fn scan_meta<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Meta<K>) -> Result<R, MetaError> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.check_whole()?;
        let meta = Arc::clone(&self.meta);
        let result = run_blocking(&*self.ports, move || work(&meta)).await;
        if let Err(error) = &result
            && error.ends_the_coordinator()
        {
            self.stop(error.clone());
        }
        result
    }

    /// Logs that work on the metadata hangs, and that it ends again. Runs until the metadata store fails.
    pub(super) async fn watch_metadata(self: Arc<Self>) {
        let mut hung = false;
        while !self.is_broken() {
            self.ports.sleep_ms(METADATA_LOOK_MS).await;
            let hangs = self.ports.disk_hangs();
            if hangs != hung {
                hung = hangs;
                self.ports.note_event(if hangs {
                    &Event::MetadataHang
                } else {
                    &Event::MetadataAnswer
                });
            }
        }
    }

    /// Sleeps. Returns for how much longer than that, if the whole process may have stood still; otherwise 0.
    pub(super) async fn sleep_late_ms(&self, ms: u64) -> u64 {
        let begun_ms = self.ports.now_ms();
        self.ports.sleep_ms(ms).await;
        let slept_ms = self.ports.now_ms().saturating_sub(begun_ms);
        let late_ms = slept_ms.saturating_sub(ms);
        if late_ms < STOOD_STILL_MS { 0 } else { late_ms }
    }

    /// Answers every request with this error from now on.
    pub(super) fn stop(&self, reason: MetaError) -> MetaError {
        // Later errors follow from the first one, so only that is kept.
        if self.broken.set(reason.clone()).is_ok() {
            self.broken_wake_up.wake();
        }
        reason
    }

    /// Waits until the metadata store has failed; returns the error.
    pub(super) async fn broken(&self) -> MetaError {
        loop {
            if let Some(error) = self.broken.get() {
                return error.clone();
            }
            self.broken_wake_up.woken().await;
        }
    }

    /// Refuses what this process may not promise: everything once the metadata store has failed, and for now also while
    /// another process may have taken its database over.
    ///
    /// # Errors
    /// [`MetaError::Away`] for now; errors that have stopped the coordinator.
    pub(super) fn check_leads(&self) -> Result<(), MetaError> {
        if let Some(error) = self.broken.get() {
            return Err(error.clone());
        }
        match self.meta.leads() {
            Err(error) if error.ends_the_coordinator() => Err(self.stop(error)),
            leads => leads,
        }
    }

    /// Rejects a request while this process may not promise anything.
    pub(super) fn check_may_answer(&self) -> Answer<()> {
        self.check_leads().map_err(Rejection::for_now)
    }

    /// Refuses everything once the metadata store has failed.
    pub(super) fn check_whole(&self) -> Result<(), MetaError> {
        match self.check_leads() {
            // Transactions wait for the database.
            Err(MetaError::Away { .. }) => Ok(()),
            whole => whole,
        }
    }

    /// Whether the metadata store has failed: the coordinator refuses all requests until a
    /// restart, and its background work ends.
    pub(super) fn is_broken(&self) -> bool {
        self.check_whole().is_err()
    }

    /// For how many milliseconds this run of the coordinator has lasted.
    pub(super) fn age_ms(&self) -> u64 {
        self.ports.now_ms().saturating_sub(self.began_ms)
    }

    /// Returns the milliseconds that coordinators of this cluster have run, up to the last note.
    pub(super) fn lifetime_ms(&self) -> u64 {
        self.lifetime_before_ms + self.age_ms()
    }

    /// Keeps an error that no request waits for, until a user asks for the status.
    pub(super) fn note_error(&self, sentence: String) {
        *lock(&self.last_error) = Some(sentence);
    }

    /// The last error that no request waited for.
    pub(super) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }
}

/// Visits all pages of a table, in its order. `page_after` reads the page behind a place, and `place` is that
/// of a row.
pub(super) fn each_page<T, P>(
    page_after: impl Fn(Option<&P>) -> Result<Vec<T>, MetaError>,
    place: impl Fn(&T) -> P,
    mut visit: impl FnMut(&[T]) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let mut after = None;
    loop {
        let page = page_after(after.as_ref())?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(place(last));
        visit(&page)?;
    }
}

/// Visits all files, in the order of their puts.
pub(super) fn each_file<K: KeyValue>(
    meta: &Meta<K>,
    mut visit: impl FnMut(&FileRecord) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let page_after = |after: Option<&PutId>| meta.files_by_put(after.copied(), PAGE);
    each_page(
        page_after,
        |file: &FileRecord| file.put,
        |files| files.iter().try_for_each(&mut visit),
    )
}

/// Visits all stripes of files, in the order of their ids.
pub(super) fn each_stripe<K: KeyValue>(
    meta: &Meta<K>,
    mut visit: impl FnMut(&StripeRecord) -> Result<(), MetaError>,
) -> Result<(), MetaError> {
    let page_after = |after: Option<&StripeId>| meta.stripes(after.copied(), PAGE);
    each_page(
        page_after,
        |stripe| stripe.id,
        |stripes| stripes.iter().try_for_each(&mut visit),
    )
}
