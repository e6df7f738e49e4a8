//! The erase blocks of a modelled SSD: the owner of each page, the live pages and the wear of each
//! block, and which blocks are erased.

use super::block_set::BlockSet;
use std::collections::BTreeSet;
use std::ops::Range;

/// No page.
pub(super) const NONE: u32 = u32::MAX;

/// The use of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Erased.
    Free,
    /// Being written to.
    Open,
    /// Written to its end.
    Full,
}

#[derive(Clone, Debug)]
pub(super) struct Blocks {
    pages_per_block: u32,
    /// Logical page in each physical page, or [`NONE`].
    owners: Vec<u32>,
    states: Vec<State>,
    live: Vec<u32>,
    erases: Vec<u32>,
    /// Erased blocks by wear.
    free: BTreeSet<(u32, u32)>,
    /// Full blocks by live pages.
    full: Vec<BlockSet>,
    /// Invariant: no full block has fewer live pages than this.
    emptiest: usize,
}

impl Blocks {
    pub(super) fn new(block_count: u32, pages_per_block: u32) -> Self {
        let count = block_count as usize;
        Self {
            pages_per_block,
            owners: vec![NONE; count * pages_per_block as usize],
            states: vec![State::Free; count],
            live: vec![0; count],
            erases: vec![0; count],
            free: (0..block_count).map(|block| (0, block)).collect(),
            full: vec![BlockSet::new(block_count); pages_per_block as usize + 1],
            emptiest: 0,
        }
    }

    pub(super) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    pub(super) fn erases(&self) -> &[u32] {
        &self.erases
    }

    pub(super) fn reset_wear(&mut self) {
        // The order of equally worn blocks is by number, as in a fresh SSD.
        self.free = self.free.iter().map(|&(_, block)| (0, block)).collect();
        self.erases.fill(0);
    }

    pub(super) fn owner(&self, physical: u32) -> u32 {
        self.owners[physical as usize]
    }

    pub(super) fn pages_of(&self, block: u32) -> Range<u32> {
        block * self.pages_per_block..(block + 1) * self.pages_per_block
    }

    /// Takes the least worn erased block and opens it.
    pub(super) fn take_least_worn(&mut self) -> u32 {
        let (_, block) = self
            .free
            .pop_first()
            .expect("collection leaves erased blocks");
        self.states[block as usize] = State::Open;
        block
    }

    pub(super) fn occupy(&mut self, physical: u32, logical: u32) {
        self.owners[physical as usize] = logical;
        self.live[(physical / self.pages_per_block) as usize] += 1;
    }

    /// Notes that the block is full.
    pub(super) fn close(&mut self, block: u32) {
        self.states[block as usize] = State::Full;
        let live = self.live[block as usize] as usize;
        self.full[live].insert(block);
        self.emptiest = self.emptiest.min(live);
    }

    /// Marks the page as stale.
    pub(super) fn invalidate(&mut self, physical: u32) {
        self.owners[physical as usize] = NONE;
        let block = physical / self.pages_per_block;
        let live = &mut self.live[block as usize];
        *live -= 1;
        let live = *live as usize;
        if self.states[block as usize] == State::Full {
            self.full[live + 1].remove(block);
            self.full[live].insert(block);
            self.emptiest = self.emptiest.min(live);
        }
    }

    /// The full block with the fewest live pages, the first of them.
    pub(super) fn emptiest(&mut self) -> u32 {
        let block = loop {
            if let Some(block) = self.full[self.emptiest].first() {
                break block;
            }
            self.emptiest += 1;
        };
        assert!(
            self.live[block as usize] < self.pages_per_block,
            "over-provisioning leaves a stale page in some full block"
        );
        block
    }

    /// Erases a full block without live pages.
    pub(super) fn erase(&mut self, block: u32) {
        assert_eq!(self.live[block as usize], 0, "live pages were moved away");
        self.full[0].remove(block);
        self.states[block as usize] = State::Free;
        self.erases[block as usize] += 1;
        self.free.insert((self.erases[block as usize], block));
    }
}
