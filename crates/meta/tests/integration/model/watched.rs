//! The rows that clients cache, beside what an observer is told of them: no change may be left out.

use gabion_meta::{Changed, DirectoryId, Inode, KeyValue, Meta, Observer, PutId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The tags of the tables of files, names and directories.
const FILES: u8 = 6;
const NAMES: u8 = 33;
const DIRECTORIES: u8 = 40;

/// What was told since the last look.
#[derive(Debug, Default)]
struct Told(Mutex<BTreeSet<Changed>>);

impl Observer for Told {
    fn changed(&self, _: Option<u64>, changed: BTreeSet<Changed>) {
        self.0.lock().expect("no panic").extend(changed);
    }
}

/// The rows as of the last look.
#[derive(Default)]
pub(crate) struct Watched {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    told: Arc<Told>,
}

impl Watched {
    /// The cluster under watch.
    pub(crate) fn watch<K: KeyValue>(&mut self, meta: Meta<K>) -> Meta<K> {
        self.rows = rows(&meta);
        meta.observed_by(Arc::clone(&self.told) as _)
    }

    /// Compares what was told since the last look with the rows.
    pub(crate) fn look<K: KeyValue>(&mut self, meta: &Meta<K>) {
        let (before, now) = (std::mem::take(&mut self.rows), rows(meta));
        let told = std::mem::take(&mut *self.told.0.lock().expect("no panic"));
        let keys: BTreeSet<&Vec<u8>> = before.keys().chain(now.keys()).collect();
        for key in keys {
            let (old, new) = (before.get(key), now.get(key));
            // A name that was missing is in no cache.
            if old == new || key[0] == NAMES && old.is_none() {
                continue;
            }
            let changed = changed(key);
            assert!(told.contains(&changed), "{changed:?} is not in {told:?}");
        }
        self.rows = now;
    }
}

fn changed(key: &[u8]) -> Changed {
    let number = u64::from_be_bytes(key[1..9].try_into().expect("eight bytes"));
    match key[0] {
        FILES => Changed::Inode(Inode::File(PutId(number))),
        DIRECTORIES => Changed::Inode(Inode::Directory(DirectoryId(number))),
        _ => {
            let name = std::str::from_utf8(&key[9..]).expect("a text");
            Changed::Name {
                directory: DirectoryId(number),
                name: name.trim_end_matches('/').to_owned(),
            }
        }
    }
}

fn rows<K: KeyValue>(meta: &Meta<K>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let read = meta.store().read(|txn| {
        let mut rows = BTreeMap::new();
        for table in [FILES, NAMES, DIRECTORIES] {
            rows.extend(txn.scan(&[table], &[table + 1], usize::MAX)?);
        }
        Ok(rows)
    });
    read.expect("the store is whole")
}
