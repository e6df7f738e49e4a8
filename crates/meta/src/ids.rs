//! Ids of puts, stripes and directories. A run of the coordinator leases blocks of them: one change of a counter's row
//! for some thousand ids, durable before the first of them is used. The ids in between are counted in memory, so a
//! transaction that uses ids changes no row of them. The rest of a block is lost at the end of a run, and so are the
//! ids of a transaction that fails: no id is used again.

use crate::changed::{Changed, note_inode, note_name};
use crate::error::MetaError;
use crate::kv::{KeyValue, ReadTxn, Row, WriteTxn};
use crate::open_files::Asked;
use crate::records::PutId;
use crate::schema::{Counter, DIRECTORIES, FILES, GARBAGE, MAPS, PENDING, PUTS, STRIPES};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ids of a block.
const BLOCK_COUNT: u64 = 4096;

/// Kinds of ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leased {
    /// Puts, and the maps that later changes of their files make.
    Put,
    /// Stripes.
    Stripe,
    /// Directories.
    Directory,
}

impl Leased {
    const ALL: [Self; 3] = [Self::Put, Self::Stripe, Self::Directory];

    /// The counter of the ids that were leased.
    fn counter(self) -> Counter {
        match self {
            Self::Put => Counter::LeasedPuts,
            Self::Stripe => Counter::LeasedStripes,
            Self::Directory => Counter::LeasedDirectories,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Stripe => "stripe",
            Self::Directory => "directory",
        }
    }

    fn exhausted(self) -> MetaError {
        MetaError::IdsExhausted(self.name())
    }
}

/// The ids that this run may use.
#[derive(Debug)]
pub(crate) struct Ids {
    /// Of each kind: from the next one to the end of the block, which is what the counter's row says.
    blocks: Mutex<[Range<u64>; Leased::ALL.len()]>,
    /// Held by the thread that leases a block: the others wait, and find it.
    leasing: Mutex<()>,
    /// Earlier runs issued no stripe id from here on. They may have leased some.
    stripes_before: u64,
    /// The first stripe id that this run may issue.
    first_stripe: u64,
}

impl Ids {
    /// Those of a new run, which has no block yet.
    pub(crate) fn new(txn: &dyn ReadTxn) -> Result<Self, MetaError> {
        let mut blocks = [const { 0..0 }; Leased::ALL.len()];
        for (block, kind) in blocks.iter_mut().zip(Leased::ALL) {
            let end = kind.counter().value(txn)?;
            *block = end..end;
        }
        Ok(Self {
            first_stripe: blocks[Leased::Stripe as usize].start,
            stripes_before: issued_stripes(txn)?,
            blocks: Mutex::new(blocks),
            leasing: Mutex::new(()),
        })
    }

    /// The next id: this run has used none from there on.
    pub(crate) fn next(&self, kind: Leased) -> u64 {
        self.lock()[kind as usize].start
    }

    /// Whether this run or an earlier one may have issued a stripe id.
    pub(crate) fn was_issued(&self, stripe: u64) -> bool {
        stripe < self.stripes_before
            || (self.first_stripe..self.next(Leased::Stripe)).contains(&stripe)
    }

    /// Leases blocks until there are at least `count` ids of a kind. Other kinds that have none left get a block, too.
    fn lease(&self, store: &impl KeyValue, wanted: Leased, count: u64) -> Result<(), MetaError> {
        let turn = self.leasing.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        let blocks = self.lock().clone();
        let is_short = |kind: &Leased| {
            let needed = if *kind == wanted { count } else { 1 };
            let block = &blocks[*kind as usize];
            block.end - block.start < needed
        };
        let short: Vec<Leased> = Leased::ALL.into_iter().filter(is_short).collect();
        if !short.contains(&wanted) {
            return Ok(());
        }
        // No change that nodes could miss: those that use the ids are counted.
        let ends = store.write(|txn| {
            let lease = |&kind: &Leased| {
                let counter = kind.counter();
                let leased = counter.value(txn)?.checked_add(count.max(BLOCK_COUNT));
                counter.reach(txn, leased.ok_or_else(|| kind.exhausted())?)
            };
            short.iter().map(lease).collect::<Result<Vec<u64>, _>>()
        })?;
        for (kind, end) in short.into_iter().zip(ends) {
            self.lock()[kind as usize].end = end;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, [Range<u64>; Leased::ALL.len()]> {
        // The blocks are consistent after every step, even if a caller panics.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number above each stripe id that was ever issued: it has a row, or had one until it was reclaimed.
fn issued_stripes(txn: &dyn ReadTxn) -> Result<u64, MetaError> {
    let mut bound = Counter::ReclaimedStripes.value(txn)?;
    for table in [&PENDING, &STRIPES, &GARBAGE] {
        if let Some((id, _)) = table.last(txn, &table.all())? {
            bound = bound.max(id.0.saturating_add(1));
        }
    }
    Ok(bound)
}

/// A sentence for each kind of which a row has an id that was not leased.
pub(crate) fn contradictions(txn: &dyn ReadTxn) -> Result<Vec<String>, MetaError> {
    let put = PUTS.last(txn, &PUTS.all())?.map(|(put, _)| put.0);
    let file = FILES.last(txn, &FILES.all())?.map(|(put, _)| put.0);
    let map = MAPS.last(txn, &MAPS.all())?.map(|(map, _)| map.0);
    let directory = DIRECTORIES.last(txn, &DIRECTORIES.all())?;
    let highest = [
        (Leased::Put, put.max(file).max(map)),
        (Leased::Stripe, issued_stripes(txn)?.checked_sub(1)),
        (Leased::Directory, directory.map(|(id, _)| id.0)),
    ];
    let mut faults = Vec::new();
    for (kind, id) in highest {
        let leased = kind.counter().value(txn)?;
        if let Some(id) = id.filter(|&id| id >= leased) {
            faults.push(format!("{} {id} was never leased", kind.name()));
        }
    }
    Ok(faults)
}

/// A transaction that changes the metadata, with the ids that it may use and what it has changed.
pub(crate) struct Change<'t> {
    txn: &'t mut dyn WriteTxn,
    ids: &'t Ids,
    /// The ids that the block lacked.
    missing: &'t Cell<Option<(Leased, u64)>>,
    changed: BTreeSet<Changed>,
    asked: &'t Asked<'t>,
}

impl Change<'_> {
    /// Whether a client has a file open that loses its last name. If not, no client opens it until this transaction has
    /// ended.
    pub(crate) fn keeps(&self, file: PutId) -> bool {
        self.asked.keeps(file)
    }

    /// It makes a file for the put with this number, whose client may have it open from then on.
    pub(crate) fn made(&self, number: u64, file: PutId) {
        self.asked.made(number, file);
    }

    /// Takes `count` ids, and returns the first. They are lost if the transaction fails.
    ///
    /// # Errors
    /// [`MetaError::IdsExhausted`]; also if the block has too few: the transaction is made again with another one.
    pub(crate) fn take(&mut self, kind: Leased, count: u64) -> Result<u64, MetaError> {
        let mut blocks = self.ids.lock();
        let block = &mut blocks[kind as usize];
        if block.end - block.start < count {
            self.missing.set(Some((kind, count)));
            return Err(kind.exhausted());
        }
        let first = block.start;
        block.start += count;
        Ok(first)
    }

    /// Names and inodes that it has changed until now and clients may have cached.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<Changed> {
        std::mem::take(&mut self.changed)
    }

    /// The next id, which is not taken.
    pub(crate) fn next(&self, kind: Leased) -> u64 {
        self.ids.next(kind)
    }
}

/// Runs a transaction that may use ids. Leases a block before it runs again if there were too few.
///
/// # Errors
/// Those of `body` and of the store.
pub(crate) fn write_with_ids<T>(
    store: &impl KeyValue,
    (ids, asked): (&Ids, &Asked<'_>),
    body: impl Fn(&mut Change<'_>) -> Result<T, MetaError>,
) -> Result<T, MetaError> {
    let missing = Cell::new(None);
    loop {
        let written = store.write(|txn| {
            let missing = &missing;
            let changed = BTreeSet::new();
            body(&mut Change {
                txn,
                ids,
                missing,
                changed,
                asked,
            })
        });
        match missing.take() {
            Some((kind, count)) if written.is_err() => ids.lease(store, kind, count)?,
            _ => return written,
        }
    }
}

impl ReadTxn for Change<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        self.txn.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Row>, MetaError> {
        self.txn.scan(start, end, limit)
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<Row>, MetaError> {
        self.txn.last(start, end)
    }
}

impl WriteTxn for Change<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), MetaError> {
        note_inode(&mut self.changed, key);
        self.txn.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), MetaError> {
        note_inode(&mut self.changed, key);
        note_name(&mut self.changed, key);
        self.txn.delete(key)
    }
}
