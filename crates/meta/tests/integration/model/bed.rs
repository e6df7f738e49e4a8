//! A store to test on, with its failures.

use gabion_meta::{KeyValue, Meta, MetaError};

/// A store and its failures.
pub(crate) trait Bed {
    type Store: KeyValue;

    fn create(&mut self) -> Self::Store;

    /// The store that the coordinator finds after it was stopped, or killed.
    fn reopen(&mut self, store: Self::Store, killed: bool) -> Self::Store;

    /// Performs an operation, perhaps after a failure that must leave no trace.
    fn perform<T>(
        &mut self,
        meta: &Meta<Self::Store>,
        operation: impl Fn() -> Result<T, MetaError>,
    ) -> Result<T, MetaError>;
}
