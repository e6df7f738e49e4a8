//! A file: atomic blocks of cells, and writes that span them.
//!
//! An operation on several blocks is one operation in each of them, and these may take effect at
//! different instants. A write has two further guarantees, those of the client's `File::write`:
//!
//! - It is atomic once it is over: wholly there or not at all. So a failed write that any read
//!   shows, sooner or later, took effect in all of its blocks by the time of its end.
//! - Before its acknowledgement, a reader may see the earlier state even though others have seen
//!   the write: stripes are replaced, and a reader with the old layout reads the old ones until
//!   then. So a read of one of its blocks may be as of any instant since its call. This also holds
//!   for a write of one block that may replace its stripe.

use crate::block::Block;
use crate::contradiction::Contradiction;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

/// A write of several blocks, or of one that it may store anew.
#[derive(Clone, Debug)]
struct Spanning {
    blocks: Vec<u64>,
    called: u64,
    /// Time until which readers may miss it though others have seen it.
    until: u64,
    /// When it was over, if its outcome is unknown to its client.
    ended: Option<u64>,
}

impl Spanning {
    const fn new(blocks: Vec<u64>, called: u64) -> Self {
        Self {
            blocks,
            called,
            until: u64::MAX,
            ended: None,
        }
    }
}

/// The operations on one file. Times are of one clock, in any unit.
#[derive(Clone, Debug)]
pub struct Blocks<W: Debug> {
    cells_per_block: u64,
    by_number: BTreeMap<u64, Block<W>>,
    /// The blocks of each write.
    places: BTreeMap<W, Vec<u64>>,
    spanning: BTreeMap<W, Spanning>,
}

impl<W: Copy + Ord + Debug> Blocks<W> {
    /// A file with blocks of `cells_per_block` cells. The last block may have fewer.
    ///
    /// # Panics
    /// If the number is zero.
    pub fn new(cells_per_block: u64) -> Self {
        assert!(cells_per_block > 0, "blocks have cells");
        Self {
            cells_per_block,
            by_number: BTreeMap::new(),
            places: BTreeMap::new(),
            spanning: BTreeMap::new(),
        }
    }

    /// See [`Block::called`]. Cells are counted from the file's start.
    pub fn called(&mut self, write: W, cells: &[Range<u64>], at: u64) {
        self.call(write, cells, at, false);
    }

    /// As [`Blocks::called`], for a write that may store its block anew: readers may miss it until
    /// its acknowledgement even if it is of one block.
    pub fn called_anew(&mut self, write: W, cells: &[Range<u64>], at: u64) {
        self.call(write, cells, at, true);
    }

    /// All writes that are under way may store their blocks anew, as if [`Blocks::called_anew`] had been called.
    pub fn may_store_anew(&mut self) {
        for (&write, blocks) in &self.places {
            let called = blocks
                .iter()
                .find_map(|number| self.by_number[number].open_since(write));
            if let Some(called) = called {
                self.spanning
                    .entry(write)
                    .or_insert_with(|| Spanning::new(blocks.clone(), called));
            }
        }
    }

    fn call(&mut self, write: W, cells: &[Range<u64>], at: u64, is_anew: bool) {
        let mut parts: BTreeMap<u64, Vec<Range<u64>>> = BTreeMap::new();
        for range in cells {
            for (block, part) in self.parts(range) {
                parts.entry(block).or_default().push(part);
            }
        }
        let blocks: Vec<u64> = parts.keys().copied().collect();
        for (block, cells) in &parts {
            let block = self.by_number.entry(*block).or_default();
            block.called(write, cells, at);
        }
        if blocks.len() > 1 || is_anew {
            let spanning = Spanning::new(blocks.clone(), at);
            let is_made = |number: &u64| self.by_number[number].is_made(write);
            let known = self.spanning.entry(write).or_insert(spanning);
            if !blocks.iter().any(is_made) {
                (known.until, known.ended) = (u64::MAX, None);
            }
        }
        self.places.insert(write, blocks);
    }

    /// See [`Block::answered`].
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn answered(&mut self, write: W, at: u64) -> Result<(), Contradiction<W>> {
        if let Some(spanning) = self.spanning.get_mut(&write) {
            spanning.until = spanning.until.min(at);
            spanning.ended = None;
        }
        self.in_all(write, |block| block.answered(write, at))
    }

    /// See [`Block::ended`]. A write that any read shows took effect in all of its blocks by then.
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn ended(&mut self, write: W, at: u64) -> Result<(), Contradiction<W>> {
        let blocks = self.blocks_of(write);
        let is_made = |number: &u64| self.by_number[number].is_made(write);
        if blocks.iter().any(is_made) {
            return self.answered(write, at);
        }
        if let Some(spanning) = self.spanning.get_mut(&write) {
            spanning.until = spanning.until.min(at);
            spanning.ended.get_or_insert(at);
        }
        self.in_all(write, |block| block.ended(write, at))
    }

    /// Notes that a client no longer waits for a write, which may still take effect. From `until`
    /// on, readers may not miss it once others have seen it.
    pub fn left(&mut self, write: W, until: u64) {
        if let Some(spanning) = self.spanning.get_mut(&write) {
            spanning.until = spanning.until.min(until);
        }
    }

    /// See [`Block::denied`].
    ///
    /// # Errors
    /// See [`Contradiction`].
    ///
    /// # Panics
    /// If it was not called.
    pub fn denied(&mut self, write: W) -> Result<(), Contradiction<W>> {
        self.spanning.remove(&write);
        self.in_all(write, |block| block.denied(write))
    }

    /// See [`Block::read`]: one read in each block.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn read(
        &mut self,
        seen: &[(Range<u64>, W)],
        called: u64,
        answered: u64,
    ) -> Result<(), Contradiction<W>> {
        for (number, pieces) in self.pieces(seen) {
            let since = self.since(number, called, answered);
            let block = self.by_number.entry(number).or_default();
            block.read(&pieces, since, answered)?;
            for (_, write) in pieces {
                let ended = self.spanning.get(&write).and_then(|write| write.ended);
                if let Some(at) = ended {
                    self.answered(write, at)?;
                }
            }
        }
        Ok(())
    }

    /// Whether a read could have this answer; it does not affect later ones.
    ///
    /// # Errors
    /// See [`Contradiction`].
    pub fn check(
        &self,
        seen: &[(Range<u64>, W)],
        called: u64,
        answered: u64,
    ) -> Result<(), Contradiction<W>> {
        for (number, pieces) in self.pieces(seen) {
            let since = self.since(number, called, answered);
            let block = self.by_number.get(&number).cloned();
            block.unwrap_or_default().read(&pieces, since, answered)?;
        }
        Ok(())
    }

    /// The earliest instant as of which a read of a block may be.
    fn since(&self, block: u64, called: u64, answered: u64) -> u64 {
        let under_way = self.spanning.values().filter(|write| {
            write.called <= answered && called <= write.until && write.blocks.contains(&block)
        });
        under_way.fold(called, |since, write| since.min(write.called))
    }

    fn pieces(&self, seen: &[(Range<u64>, W)]) -> BTreeMap<u64, Vec<(Range<u64>, W)>> {
        let mut pieces: BTreeMap<u64, Vec<(Range<u64>, W)>> = BTreeMap::new();
        for &(ref range, write) in seen {
            for (block, part) in self.parts(range) {
                pieces.entry(block).or_default().push((part, write));
            }
        }
        pieces
    }

    /// The parts of a range by block.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<W> {
        let (size, Range { start, end }) = (self.cells_per_block, range.clone());
        let blocks = start / size..end.div_ceil(size);
        let part = move |block| start.max(block * size)..end.min((block + 1) * size);
        blocks.map(move |block| (block, part(block)))
    }

    fn blocks_of(&self, write: W) -> Vec<u64> {
        let blocks = self.places.get(&write);
        let blocks = blocks.expect("a write is called before its other reports");
        blocks.clone()
    }

    fn in_all(
        &mut self,
        write: W,
        mut tell: impl FnMut(&mut Block<W>) -> Result<(), Contradiction<W>>,
    ) -> Result<(), Contradiction<W>> {
        let blocks = self.blocks_of(write);
        let mut told = blocks
            .into_iter()
            .map(|number| tell(self.by_number.entry(number).or_default()));
        told.try_for_each(|told| told)
    }
}
