//! Requirements on transactions for every engine. The tests of `sql` use this file too.

use gabion_meta::{KeyValue, MetaError};

/// Fails unless transactions are atomic, and see their own changes and those before. The store is empty.
pub(crate) fn keeps_transactions_whole(store: &impl KeyValue) {
    let put = |key: &'static [u8], value: &'static [u8]| store.write(|txn| txn.put(key, value));
    for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
        put(key, value).expect("a write");
    }
    let aborted: Result<(), _> = store.write(|txn| {
        txn.put(b"b", b"9")?;
        txn.put(b"bb", b"9")?;
        txn.delete(b"a")?;
        let seen = txn.scan(b"a", b"c", 9)?;
        assert_eq!(
            seen,
            rows(&[(b"b", b"9"), (b"bb", b"9")]),
            "its own changes"
        );
        assert_eq!(txn.get(b"a")?, None);
        let last =
            |end: &[u8]| -> Result<_, MetaError> { Ok(txn.last(b"a", end)?.map(|(key, _)| key)) };
        assert_eq!(last(b"c")?.as_deref(), Some(&b"bb"[..]), "its own rows");
        assert_eq!(last(b"bb")?.as_deref(), Some(&b"b"[..]));
        assert_eq!(last(b"b")?, None, "the row before is deleted");
        Err(MetaError::NoCluster)
    });
    assert_eq!(aborted, Err(MetaError::NoCluster));
    let all = rows(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]);
    store
        .read(|txn| {
            assert_eq!(txn.scan(b"", b"\xff", 9)?, all);
            assert_eq!(txn.scan(b"a", b"c", 9)?, all[..2], "the end is outside");
            assert_eq!(txn.scan(b"a\0", b"\xff", 1)?, all[1..2]);
            assert_eq!(txn.scan(b"c", b"a", 9)?, []);
            assert_eq!(txn.last(b"a", b"c")?, Some(all[1].clone()));
            assert_eq!(txn.last(b"d", b"\xff")?, None);
            assert_eq!(txn.last(b"c", b"a")?, None);
            assert_eq!(txn.get(b"b")?.as_deref(), Some(&b"2"[..]));
            Ok(())
        })
        .expect("a read");
    store
        .write(|txn| {
            txn.delete(b"a")?;
            txn.delete(b"not there")?;
            assert_eq!(
                txn.scan(b"", b"\xff", 1)?,
                all[1..2],
                "a deleted row frees its place"
            );
            Ok(())
        })
        .expect("a write");
    let left = store.read(|txn| txn.scan(b"", b"\xff", 9));
    assert_eq!(left, Ok(all[1..].to_vec()));
}

fn rows(rows: &[(&[u8], &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let owned = |(key, value): &(&[u8], &[u8])| (key.to_vec(), value.to_vec());
    rows.iter().map(owned).collect()
}
