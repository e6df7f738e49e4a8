//! Devices and non-volatile memory of one machine that loses power on request, reproducibly from a
//! seed.
//!
//! Every write and sync is an operation, and the power may fail at any. A crash keeps everything
//! synced. Each granule (a sector of a device, a sector or a word of the memory) with unsynced
//! writes has the contents after some number of these, drawn independently for each granule. So
//! writes tear, and later ones may be durable before earlier ones. The operation during which the
//! power fails is torn in the same way. A failed persist ([`SimNvram::fail_persist`]) loses the bytes
//! that it should have made durable, while reads still see them, as with page caches.
//!
//! Not modelled: latencies and bit rot.

use crate::device::Device;
use crate::geometry::PAGE_BYTES;
use crate::nvram::Nvram;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a device writes atomically.
const SECTOR_BYTES: usize = 512;

/// The power supply of a simulated machine, and the clock of its crashes. Clones share it.
#[derive(Clone, Debug)]
pub struct Power {
    state: Arc<Mutex<Supply>>,
}

#[derive(Debug)]
struct Supply {
    operation_count: u64,
    off_at: Option<u64>,
    is_off: bool,
}

impl Power {
    /// A supply that stays on.
    pub fn on() -> Self {
        let state = Supply {
            operation_count: 0,
            off_at: None,
            is_off: false,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Cuts the power during the operation that raises the count to `number`.
    pub fn off_at(&self, number: u64) {
        self.lock().off_at = Some(number);
    }

    /// Writes and syncs so far.
    pub fn operation_count(&self) -> u64 {
        self.lock().operation_count
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    fn lock(&self) -> MutexGuard<'_, Supply> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation. Returns whether the power fails during it.
    fn operate(&self) -> io::Result<bool> {
        let mut supply = self.lock();
        if supply.is_off {
            return Err(powered_off());
        }
        supply.operation_count += 1;
        supply.is_off = supply.off_at == Some(supply.operation_count);
        Ok(supply.is_off)
    }

    fn check(&self) -> io::Result<()> {
        if self.is_off() {
            return Err(powered_off());
        }
        Ok(())
    }
}

fn powered_off() -> io::Error {
    io::Error::other("the power is out")
}

/// Bytes, and which of them are not durable yet.
#[derive(Clone, Debug)]
struct Contents {
    current: Vec<u8>,
    granule_bytes: usize,
    /// For each granule with unsynced writes: its durable contents, and those after each write but
    /// the last.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The durable contents of granules that a failed sync has lost: nothing writes them any more.
    forgotten: BTreeMap<usize, Vec<u8>>,
    /// Syncs until one fails.
    fails_in: Option<u64>,
    /// The file system below, where the bytes are a file with holes.
    below: Option<Below>,
    /// Granules whose reads fail until they are written.
    bad: BTreeSet<usize>,
}

/// The file system below a file with holes.
#[derive(Clone, Debug)]
struct Below {
    /// Pages of the file that are not holes.
    filled: BTreeSet<usize>,
    /// Pages for which it still has space.
    left: usize,
}

impl Below {
    /// Fills holes, as far as there is space.
    fn fill(&mut self, range: &Range<usize>) -> io::Result<()> {
        for page in range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES) {
            if self.filled.contains(&page) {
                continue;
            }
            if self.left == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.left -= 1;
            self.filled.insert(page);
        }
        Ok(())
    }
}

impl Contents {
    fn new(bytes: usize, granule_bytes: usize) -> Self {
        Self {
            current: vec![0; bytes],
            granule_bytes,
            unsynced: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            fails_in: None,
            below: None,
            bad: BTreeSet::new(),
        }
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        let range = self.range(offset, output.len())?;
        let granules = range.start / self.granule_bytes..range.end.div_ceil(self.granule_bytes);
        if self.bad.range(granules).next().is_some() {
            return Err(io::Error::other("injected bad sector"));
        }
        output.copy_from_slice(&self.current[range]);
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.range(offset, bytes.len())?;
        if range.is_empty() {
            return Ok(());
        }
        if let Some(below) = &mut self.below {
            below.fill(&range)?;
        }
        for granule in range.start / self.granule_bytes..=(range.end - 1) / self.granule_bytes {
            let start = granule * self.granule_bytes;
            let end = (start + self.granule_bytes).min(self.current.len());
            let before = self.current[start..end].to_vec();
            self.bad.remove(&granule);
            let older = self.unsynced.entry(granule).or_default();
            // A lost granule that changes is written as it is cached.
            older.extend(self.forgotten.remove(&granule));
            older.push(before);
        }
        self.current[range].copy_from_slice(bytes);
        Ok(())
    }

    fn range(&self, offset: u64, bytes: usize) -> io::Result<Range<usize>> {
        let start = usize::try_from(offset).ok();
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.current.len() => Ok(start..end),
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    /// Takes a range's unsynced granules, which are durable or lost from then on.
    fn take_unsynced(&mut self, range: &Range<u64>) -> BTreeMap<usize, Vec<Vec<u8>>> {
        let first = range.start as usize / self.granule_bytes;
        let end = (range.end as usize).div_ceil(self.granule_bytes);
        let mut taken = self.unsynced.split_off(&first);
        let mut rest = taken.split_off(&end);
        self.unsynced.append(&mut rest);
        taken
    }

    /// Whether the next sync fails.
    fn is_failing(&mut self) -> bool {
        self.fails_in = self.fails_in.and_then(|count| count.checked_sub(1));
        let fails = self.fails_in == Some(0);
        if fails {
            self.fails_in = None;
        }
        fails
    }

    fn persist(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        let fails = self.is_failing();
        for range in ranges {
            for (granule, older) in self.take_unsynced(range) {
                if fails && let Some(durable) = older.into_iter().next() {
                    self.forgotten.insert(granule, durable);
                }
            }
        }
        if fails {
            return Err(io::Error::other("injected failure"));
        }
        Ok(())
    }

    /// Drops what only the cache has.
    fn forget_cached(&mut self) {
        for (granule, bytes) in std::mem::take(&mut self.forgotten) {
            let start = granule * self.granule_bytes;
            self.current[start..start + bytes.len()].copy_from_slice(&bytes);
        }
    }

    /// Loses power: each granule has its contents at some moment since its last sync.
    fn crash(&mut self, random: &mut impl FnMut(u64) -> u64) {
        self.forget_cached();
        self.fails_in = None;
        for (granule, older) in std::mem::take(&mut self.unsynced) {
            let pick = random(older.len() as u64 + 1) as usize;
            if let Some(bytes) = older.get(pick) {
                let start = granule * self.granule_bytes;
                self.current[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

/// Draws below a bound from a seed: `SplitMix64`, which suffices for the fates of sectors.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// A device in memory on a [`Power`] supply. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct SimDevice {
    contents: Arc<Mutex<Contents>>,
    power: Power,
}

impl SimDevice {
    /// A device of `capacity_bytes` zeros.
    pub fn new(power: &Power, capacity_bytes: usize) -> Self {
        Self {
            contents: Arc::new(Mutex::new(Contents::new(capacity_bytes, SECTOR_BYTES))),
            power: power.clone(),
        }
    }

    /// A copy after a crash now, on another supply. The original keeps its contents.
    #[must_use]
    pub fn after_crash(&self, power: &Power, seed: u64) -> Self {
        let contents = survivor(&self.contents, seed);
        Self {
            contents,
            power: power.clone(),
        }
    }

    /// Makes it a file with holes, on a file system with space for `pages` more pages.
    pub fn leave_room(&self, pages: usize) {
        let mut contents = lock(&self.contents);
        let filled = contents
            .below
            .take()
            .map_or_else(BTreeSet::new, |below| below.filled);
        contents.below = Some(Below {
            filled,
            left: pages,
        });
    }

    /// Changes a byte durably, without the store's knowledge.
    ///
    /// # Panics
    /// If the device has no such byte.
    pub fn rot(&self, offset: u64) {
        lock(&self.contents).current[offset as usize] ^= 0x55;
    }

    /// Makes reads of the sector with this byte fail, until it is written.
    pub fn spoil(&self, offset: u64) {
        let mut contents = lock(&self.contents);
        let sector = offset as usize / SECTOR_BYTES;
        contents.bad.insert(sector);
    }

    /// Makes all sectors readable again, with their bytes.
    pub fn mend(&self) {
        lock(&self.contents).bad.clear();
    }
}

fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}

fn survivor(contents: &Mutex<Contents>, seed: u64) -> Arc<Mutex<Contents>> {
    let mut copy = lock(contents).clone();
    copy.crash(&mut draws(seed));
    Arc::new(Mutex::new(copy))
}

impl Device for SimDevice {
    fn capacity_bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.contents).current.len() as u64)
    }

    fn read_at(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        self.power.check()?;
        lock(&self.contents).read(offset, output)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let goes_out = self.power.operate()?;
        lock(&self.contents).write(offset, bytes)?;
        if goes_out {
            return Err(powered_off());
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        // The bytes written by an interrupted sync are as undecided as before it.
        if self.power.operate()? {
            return Err(powered_off());
        }
        lock(&self.contents).unsynced.clear();
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        // The strictest reading of a discard: the bytes change at once.
        let goes_out = self.power.operate()?;
        lock(&self.contents).write(offset, &vec![0xdd; bytes as usize])?;
        if goes_out {
            return Err(powered_off());
        }
        Ok(())
    }

    fn is_sparse(&self) -> io::Result<bool> {
        Ok(lock(&self.contents).below.is_some())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        match &mut lock(&self.contents).below {
            Some(below) => below.fill(&(0..bytes as usize)),
            None => Ok(()),
        }
    }
}

/// Non-volatile memory on a [`Power`] supply. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct SimNvram {
    contents: Arc<Mutex<Contents>>,
    power: Power,
}

impl SimNvram {
    /// Memory of `length_bytes` zeros that tears between granules: 8 bytes as in mapped persistent
    /// memory, or a disk's sector as in a mapped file.
    pub fn new(power: &Power, length_bytes: usize, granule_bytes: usize) -> Self {
        Self {
            contents: Arc::new(Mutex::new(Contents::new(length_bytes, granule_bytes))),
            power: power.clone(),
        }
    }

    /// Makes the `number`-th persist from now fail. Later ones work again.
    pub fn fail_persist(&self, number: u64) {
        lock(&self.contents).fails_in = Some(number);
    }

    /// A copy after a crash now, on another supply. The original keeps its contents.
    #[must_use]
    pub fn after_crash(&self, power: &Power, seed: u64) -> Self {
        let contents = survivor(&self.contents, seed);
        Self {
            contents,
            power: power.clone(),
        }
    }
}

impl Nvram for SimNvram {
    fn length_bytes(&self) -> u64 {
        lock(&self.contents).current.len() as u64
    }

    fn read(&self, offset: u64, output: &mut [u8]) -> io::Result<()> {
        self.power.check()?;
        lock(&self.contents).read(offset, output)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let goes_out = self.power.operate()?;
        lock(&self.contents).write(offset, bytes)?;
        if goes_out {
            return Err(powered_off());
        }
        Ok(())
    }

    fn persist(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        if self.power.operate()? {
            return Err(powered_off());
        }
        lock(&self.contents).persist(ranges)
    }

    fn forget_cached(&self) -> io::Result<()> {
        lock(&self.contents).forget_cached();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_synced_stays_and_the_rest_tears_between_granules() {
        let power = Power::on();
        let memory = SimNvram::new(&power, 64, 8);
        memory.write(0, &[1; 32]).unwrap();
        memory.persist(std::slice::from_ref(&(0..16))).unwrap();
        memory.write(0, &[2; 32]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let after = memory.after_crash(&Power::on(), seed);
            let mut bytes = [0; 32];
            after.read(0, &mut bytes).unwrap();
            for (at, word) in bytes.chunks(8).enumerate() {
                assert!(word.iter().all(|byte| *byte == word[0]), "words are whole");
                assert!(word[0] > 0 || at >= 2, "the first two words were synced");
            }
            seen.insert(bytes);
        }
        // Two words with two outcomes each, and two with three.
        assert!(seen.len() > 20, "{} outcomes", seen.len());
    }

    #[test]
    fn nothing_works_once_the_power_is_out() {
        let power = Power::on();
        let device = SimDevice::new(&power, 1024);
        power.off_at(2);
        device.write_at(0, &[1; 1024]).unwrap();
        device.write_at(0, &[2; 1024]).unwrap_err();
        device.sync().unwrap_err();
        device.read_at(0, &mut [0; 8]).unwrap_err();
        assert!(power.is_off());
        assert_eq!(power.operation_count(), 2);
    }
}
