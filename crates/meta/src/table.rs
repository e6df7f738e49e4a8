//! Typed tables over byte rows: keys keep their order as bytes, values carry a version, and a row
//! that cannot be decoded is [`MetaError::Corrupt`], never a panic.

use crate::error::MetaError;
use crate::kv::{ReadTxn, Row, WriteTxn};
use crate::paths::DirectoryId;
use crate::records::{ClientSessionId, Inode, MapId, PutId};
use gabion_layout::{NodeId, PoolId, StripeId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::marker::PhantomData;

/// A key whose encoding keeps its order.
pub(crate) trait Key: Sized {
    /// Appends the key's bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes the key from all of `bytes`.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

impl Key for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl Key for u64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::from_be_bytes)
    }
}

impl Key for String {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

/// A key whose encoding has a fixed length, so that another one may follow it.
pub(crate) trait FixedKey: Key {
    /// Bytes of the encoding.
    const BYTES: usize;
}

macro_rules! big_endian_key {
    ($($id:ident),*) => {$(
        impl Key for $id {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.0.to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(|bytes| Self(FromBytes::from_be(bytes)))
            }
        }

        impl FixedKey for $id {
            const BYTES: usize = size_of::<$id>();
        }
    )*};
}

/// Lets the macro above call `from_be_bytes` without naming the integer.
trait FromBytes<const N: usize> {
    fn from_be(bytes: [u8; N]) -> Self;
}

impl FromBytes<4> for u32 {
    fn from_be(bytes: [u8; 4]) -> Self {
        Self::from_be_bytes(bytes)
    }
}

impl FromBytes<8> for u64 {
    fn from_be(bytes: [u8; 8]) -> Self {
        Self::from_be_bytes(bytes)
    }
}

big_endian_key!(
    NodeId,
    PoolId,
    StripeId,
    PutId,
    MapId,
    DirectoryId,
    ClientSessionId
);

impl<A: FixedKey, B: Key> Key for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (first, second) = bytes.split_at_checked(A::BYTES)?;
        Some((A::decode(first)?, B::decode(second)?))
    }
}

impl Key for Inode {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::File(put) => {
                out.push(0);
                put.encode(out);
            }
            Self::Directory(id) => {
                out.push(1);
                id.encode(out);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, rest) => PutId::decode(rest).map(Self::File),
            (1, rest) => DirectoryId::decode(rest).map(Self::Directory),
            _ => None,
        }
    }
}

/// A table: the rows whose keys start with `tag`.
pub(crate) struct Table<K, V> {
    name: &'static str,
    tag: u8,
    /// First byte of each value. Raised when the value's fields change.
    version: u8,
    types: PhantomData<fn() -> (K, V)>,
}

/// Keys from `start` on and below `end`.
pub(crate) struct Span {
    start: Vec<u8>,
    end: Vec<u8>,
}

impl<K: Key, V: Serialize + DeserializeOwned> Table<K, V> {
    /// A table. Tags must differ and be below 255: a span ends at the next tag.
    pub(crate) const fn new(name: &'static str, tag: u8, version: u8) -> Self {
        assert!(tag < u8::MAX);
        Self {
            name,
            tag,
            version,
            types: PhantomData,
        }
    }

    /// The row of `key`, if there is one.
    pub(crate) fn get(&self, txn: &dyn ReadTxn, key: &K) -> Result<Option<V>, MetaError> {
        let key = self.key_bytes(key);
        let value = txn.get(&key)?;
        value.map(|value| self.value(&key, &value)).transpose()
    }

    /// Sets the row of `key`.
    pub(crate) fn put(&self, txn: &mut dyn WriteTxn, key: &K, value: &V) -> Result<(), MetaError> {
        let bytes = postcard::to_extend(value, vec![self.version])
            .expect("postcard can encode every record");
        txn.put(&self.key_bytes(key), &bytes)
    }

    /// Removes the row of `key`, if there is one.
    pub(crate) fn delete(&self, txn: &mut dyn WriteTxn, key: &K) -> Result<(), MetaError> {
        txn.delete(&self.key_bytes(key))
    }

    /// At most `limit` rows of `span`, in order.
    pub(crate) fn scan(
        &self,
        txn: &dyn ReadTxn,
        span: &Span,
        limit: usize,
    ) -> Result<Vec<(K, V)>, MetaError> {
        let rows = txn.scan(&span.start, &span.end, limit)?;
        rows.into_iter().map(|row| self.decode(&row)).collect()
    }

    /// The last row of `span`, if it has any.
    pub(crate) fn last(&self, txn: &dyn ReadTxn, span: &Span) -> Result<Option<(K, V)>, MetaError> {
        let last = txn.last(&span.start, &span.end)?;
        last.map(|row| self.decode(&row)).transpose()
    }

    fn decode(&self, (key, value): &Row) -> Result<(K, V), MetaError> {
        let typed = K::decode(&key[1..])
            .ok_or_else(|| self.corrupt(key, "the key has another table's shape"))?;
        Ok((typed, self.value(key, value)?))
    }

    /// All rows.
    pub(crate) fn all(&self) -> Span {
        Span {
            start: vec![self.tag],
            end: vec![self.tag + 1],
        }
    }

    /// All rows, or only those behind `key`.
    pub(crate) fn after(&self, key: Option<&K>) -> Span {
        let mut span = self.all();
        if let Some(key) = key {
            span.start = self.key_bytes(key);
            span.start.push(0);
        }
        span
    }

    /// The rows from `first` up to but without `end`.
    pub(crate) fn between(&self, first: &K, end: &K) -> Span {
        Span {
            start: self.key_bytes(first),
            end: self.key_bytes(end),
        }
    }

    /// The error for a row of this table that contradicts others.
    pub(crate) fn contradiction(&self, key: &K, reason: impl Into<String>) -> MetaError {
        self.corrupt(&self.key_bytes(key), reason)
    }

    /// A number in the row of `key`, with `more` added and then `fewer` taken away. A damaged row may have any number.
    pub(crate) fn recount(
        &self,
        key: &K,
        number: u64,
        (more, fewer): (u64, u64),
    ) -> Result<u64, MetaError> {
        let sum = number.checked_add(more);
        let result = sum.and_then(|sum| sum.checked_sub(fewer));
        result.ok_or_else(|| self.contradiction(key, "a number does not match the other rows"))
    }

    /// The key of a row, if it is one of this table.
    pub(crate) fn key_of(&self, bytes: &[u8]) -> Option<K> {
        let (&tag, key) = bytes.split_first()?;
        (tag == self.tag).then(|| K::decode(key)).flatten()
    }

    fn key_bytes(&self, key: &K) -> Vec<u8> {
        let mut bytes = vec![self.tag];
        key.encode(&mut bytes);
        bytes
    }

    fn value(&self, key: &[u8], bytes: &[u8]) -> Result<V, MetaError> {
        let Some((&version, body)) = bytes.split_first() else {
            return Err(self.corrupt(key, "the value is empty"));
        };
        if version != self.version {
            let reason = format!("version {version} of the value is unknown");
            return Err(self.corrupt(key, reason));
        }
        match postcard::take_from_bytes(body) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => {
                let reason = format!("{} bytes follow the value", rest.len());
                Err(self.corrupt(key, reason))
            }
            Err(error) => Err(self.corrupt(key, error.to_string())),
        }
    }

    fn corrupt(&self, key: &[u8], reason: impl Into<String>) -> MetaError {
        MetaError::Corrupt {
            table: self.name,
            key: hexadecimal(key),
            reason: reason.into(),
        }
    }
}

/// A key for people.
pub(crate) fn hexadecimal(key: &[u8]) -> String {
    let mut text = String::new();
    for byte in key {
        write!(text, "{byte:02x}").expect("writes to a string succeed");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::kv::KeyValue;
    use proptest::prelude::*;

    const NUMBERS: Table<StripeId, Vec<u32>> = Table::new("numbers", 7, 3);

    proptest! {
        #[test]
        fn keys_keep_their_order(a: (u32, u64), b: (u32, u64)) {
            let bytes = |(node, stripe)| {
                let mut out = Vec::new();
                (NodeId(node), StripeId(stripe)).encode(&mut out);
                out
            };
            prop_assert_eq!(a.cmp(&b), bytes(a).cmp(&bytes(b)));
            let key = (NodeId(a.0), StripeId(a.1));
            prop_assert_eq!(<(NodeId, StripeId)>::decode(&bytes(a)), Some(key));
        }

        #[test]
        fn any_bytes_decode_or_are_corrupt(value: Vec<u8>, key: Vec<u8>) {
            let store = MemoryStore::new();
            let mut row = vec![7];
            row.extend_from_slice(&key);
            store.write(|txn| txn.put(&row, &value)).unwrap();
            let rows = store.read(|txn| NUMBERS.scan(txn, &NUMBERS.all(), 10));
            match rows {
                Ok(rows) => prop_assert!(rows.len() == 1 && key.len() == 8 && value[0] == 3),
                Err(MetaError::Corrupt { table, .. }) => prop_assert_eq!(table, "numbers"),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn damaged_values_are_named() {
        let store = MemoryStore::new();
        let damaged = |value: &[u8]| {
            let row = [&[7][..], &5u64.to_be_bytes()].concat();
            store.write(|txn| txn.put(&row, value)).unwrap();
            store.read(|txn| NUMBERS.get(txn, &StripeId(5)))
        };
        assert_eq!(damaged(&[3, 1, 9]), Ok(Some(vec![9])));
        for value in [&[][..], &[3], &[2, 1, 9], &[3, 1, 9, 0], &[3, 2, 9]] {
            let error = damaged(value).unwrap_err();
            let MetaError::Corrupt { table, key, .. } = error else {
                panic!("{error}");
            };
            assert_eq!((table, key.as_str()), ("numbers", "070000000000000005"));
        }
    }
}
