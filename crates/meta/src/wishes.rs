//! What users want of files whose blocks are replicated at first: to be encoded now, or to be replicated
//! again. A wish is durable when it is answered; what it asks for is done when there is time. Beside them
//! the clock by which files are old.

use crate::files::file;
use crate::kv::KeyValue;
use crate::schema::{Counter, WISHES};
use crate::{Meta, MetaError, Wish, WishRecord};

impl<K: KeyValue> Meta<K> {
    /// Notes what is wanted of a file from now on; a new wish takes the place of an older one.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`].
    pub fn wish(&self, name: &str, wish: Wish) -> Result<(), MetaError> {
        self.store.write(|txn| {
            let file = file(txn, name)?.put;
            WISHES.put(txn, &name.to_owned(), &WishRecord { file, wish })
        })
    }

    /// For how many milliseconds coordinators of this cluster have run, as it was last noted. Clocks of
    /// processes begin anew with each; a file's age is counted by this.
    ///
    /// # Errors
    /// When the store fails.
    pub fn lifetime_ms(&self) -> Result<u64, MetaError> {
        self.store.read(|txn| Counter::LifetimeMs.value(txn))
    }

    /// Notes for how long coordinators have run.
    ///
    /// # Errors
    /// When the store fails.
    pub fn note_lifetime(&self, lifetime_ms: u64) -> Result<(), MetaError> {
        self.store
            .write(|txn| Counter::LifetimeMs.reach(txn, lifetime_ms))
    }

    /// What is wanted of a file, if anything is.
    ///
    /// # Errors
    /// [`MetaError::UnknownFile`].
    pub fn wish_of(&self, name: &str) -> Result<Option<Wish>, MetaError> {
        self.store.read(|txn| {
            let put = file(txn, name)?.put;
            let record = WISHES.get(txn, &name.to_owned())?;
            Ok(record
                .filter(|record| record.file == put)
                .map(|record| record.wish))
        })
    }
}
