//! The ordered, transactional key-value engine that metadata needs: small enough for an embedded
//! engine, a map in memory or a distributed store. It deals in bytes only; `table.rs` adds types.

use crate::error::MetaError;

/// A row: key and value.
pub type Row = (Vec<u8>, Vec<u8>);

/// A consistent view of all rows.
pub trait ReadTxn {
    /// The value of `key`, if there is one.
    ///
    /// # Errors
    /// When the engine fails.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError>;

    /// At most `limit` rows with `start <= key < end`, in the order of their keys' bytes.
    ///
    /// # Errors
    /// When the engine fails.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError>;

    /// The last row with `start <= key < end`, if there is one.
    ///
    /// # Errors
    /// When the engine fails.
    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError>;
}

/// A view that also shows the transaction's own changes.
pub trait WriteTxn: ReadTxn {
    /// Sets the value of `key`.
    ///
    /// # Errors
    /// When the engine fails.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError>;

    /// Removes `key`; does nothing if it is missing.
    ///
    /// # Errors
    /// When the engine fails.
    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError>;
}

/// An engine. Transactions are serialisable, and a transaction's closure must not start another.
pub trait KeyValue {
    /// Runs `body` on one consistent view.
    ///
    /// # Errors
    /// The result of `body`, or [`MetaError::Storage`] when the engine fails.
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError>;

    /// Runs `body` and commits: when this returns `Ok`, all its changes are durable. An error from
    /// `body` drops all of them. An engine with optimistic transactions may run `body` again after
    /// a conflict, so it is `Fn`.
    ///
    /// # Errors
    /// The error of `body`, or [`MetaError::Storage`] when the engine fails; it is unknown then
    /// whether the changes are durable.
    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError>;

    /// Whether this process may act on what it knows of the rows without a transaction. An engine that one process
    /// has to itself always says yes. It does not wait.
    ///
    /// # Errors
    /// [`MetaError::Away`] while the engine cannot tell, and a transaction might wait; an error that ends the store,
    /// such as [`MetaError::Deposed`].
    fn leads(&self) -> Result<(), MetaError> {
        Ok(())
    }
}

impl<K: KeyValue> KeyValue for &K {
    fn read<T>(
        &self,
        body: impl FnOnce(&dyn ReadTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        (**self).read(body)
    }

    fn write<T>(
        &self,
        body: impl Fn(&mut dyn WriteTxn) -> Result<T, MetaError>,
    ) -> Result<T, MetaError> {
        (**self).write(body)
    }

    fn leads(&self) -> Result<(), MetaError> {
        (**self).leads()
    }
}
