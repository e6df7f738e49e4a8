//! What all rooms of the coordinator stand on: its metadata, its ports and its options, and whether it
//! still may decide anything.

use super::options::CoordinatorOptions;
use super::wake_up::WakeUp;
use crate::message::CoordinatorReply;
use crate::ports::{CallError, NodeError, Ports, run_blocking};
use gabion_meta::{KeyValue, Meta, MetaError};
use std::sync::{Arc, Mutex, OnceLock};

pub(super) use crate::locks::lock;

/// Stripes that are read in one transaction.
pub(super) const PAGE: usize = 512;

/// How long a node may take for what needs no plan: the stripe's primary waits meanwhile.
pub(super) const SHORT_DEADLINE_MS: u64 = 5_000;

/// Why a request is not granted: one plain sentence for the user.
#[derive(Debug)]
pub(super) struct Denied(pub(super) String);

impl<E: std::error::Error> From<E> for Denied {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// What a request comes to.
pub(super) type Answer = Result<CoordinatorReply, Denied>;

/// What a node says that has done what it was asked; none where it has answered something else.
///
/// # Errors
/// When it has not answered.
pub(super) fn answered<T>(reply: Result<T, NodeError>) -> Result<Option<T>, CallError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(NodeError::Silent(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Metadata, ports and options, which every room has a share of.
pub(super) struct Core<K> {
    pub(super) meta: Arc<Meta<K>>,
    pub(super) ports: Arc<dyn Ports>,
    pub(super) options: CoordinatorOptions,
    /// Set when the metadata store has failed (whether its last write is durable is unknown) or is a
    /// copy of another time: nothing may be decided before a restart.
    broken: OnceLock<MetaError>,
    /// Sent when `broken` is set.
    broken_wake_up: WakeUp,
    /// For how long coordinators had run when this one began.
    lifetime_before_ms: u64,
    /// The clock then.
    began_ms: u64,
    /// What went wrong last where no user waited for an answer.
    last_error: Mutex<Option<String>>,
}

impl<K: KeyValue + Send + Sync + 'static> Core<K> {
    /// Waits for the disk.
    ///
    /// # Errors
    /// When the metadata do not say for how long coordinators have run.
    pub(super) fn new(
        meta: Meta<K>,
        ports: Arc<dyn Ports>,
        options: CoordinatorOptions,
    ) -> Result<Self, MetaError> {
        Ok(Self {
            lifetime_before_ms: meta.lifetime_ms()?,
            began_ms: ports.now_ms(),
            meta: Arc::new(meta),
            ports,
            options,
            broken: OnceLock::new(),
            broken_wake_up: WakeUp::default(),
            last_error: Mutex::default(),
        })
    }

    /// Works on the metadata where waiting for the disk holds up nothing else.
    pub(super) async fn with_meta<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Meta<K>) -> Result<R, MetaError> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.check_whole()?;
        let meta = Arc::clone(&self.meta);
        let result = run_blocking(&*self.ports, move || work(&meta)).await;
        if let Err(error @ (MetaError::Storage { .. } | MetaError::WentBack { .. })) = &result {
            self.stop(error.clone());
        }
        result
    }

    /// Answers nothing but this from now on.
    pub(super) fn stop(&self, reason: MetaError) -> MetaError {
        // The first reason says most; later ones follow from it.
        if self.broken.set(reason.clone()).is_ok() {
            self.broken_wake_up.wake();
        }
        reason
    }

    /// Waits until the metadata store has failed, and says how.
    pub(super) async fn broken(&self) -> MetaError {
        loop {
            if let Some(error) = self.broken.get() {
                return error.clone();
            }
            self.broken_wake_up.woken().await;
        }
    }

    /// Refuses everything once the metadata store has failed.
    pub(super) fn check_whole(&self) -> Result<(), MetaError> {
        self.broken.get().cloned().map_or(Ok(()), Err)
    }

    /// Whether the metadata store has failed: the coordinator refuses all requests until a
    /// restart, and its background work ends.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.get().is_some()
    }

    /// For how many milliseconds this run of the coordinator has lasted.
    pub(super) fn age_ms(&self) -> u64 {
        self.ports.now_ms().saturating_sub(self.began_ms)
    }

    /// For how many milliseconds coordinators of this cluster have run, as far as it was noted.
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
