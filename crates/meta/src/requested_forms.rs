//! Users' requests for files whose blocks are replicated at first: encode now, or replicate again.
//! A request is durable when it is answered, and carried out in the background. This file also
//! keeps the clock for files' ages.

use crate::error::MetaError;
use crate::files::file_of;
use crate::kv::KeyValue;
use crate::meta::Meta;
use crate::records::{PutId, RequestedForm};
use crate::schema::{Counter, REQUESTED_FORMS};

impl<K: KeyValue> Meta<K> {
    /// Records a request for a file; a new one replaces an older one.
    ///
    /// # Errors
    /// [`MetaError::FileGone`].
    pub fn request_form(&self, file: PutId, form: RequestedForm) -> Result<(), MetaError> {
        self.change(|txn| {
            file_of(txn, file)?;
            REQUESTED_FORMS.put(txn, &file, &form)
        })
    }

    /// Total run time of this cluster's coordinators in milliseconds, as last noted. A process's
    /// clock begins at zero; files' ages are counted by this.
    ///
    /// # Errors
    /// When the store fails.
    pub fn lifetime_ms(&self) -> Result<u64, MetaError> {
        self.store.read(|txn| Counter::LifetimeMs.value(txn))
    }

    /// Notes the total run time of coordinators.
    ///
    /// # Errors
    /// When the store fails.
    pub fn note_lifetime(&self, lifetime_ms: u64) -> Result<(), MetaError> {
        self.change(|txn| Counter::LifetimeMs.reach(txn, lifetime_ms).map(drop))
    }

    /// The request for a file, if any.
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn requested_form(&self, file: PutId) -> Result<Option<RequestedForm>, MetaError> {
        self.store.read(|txn| REQUESTED_FORMS.get(txn, &file))
    }
}
