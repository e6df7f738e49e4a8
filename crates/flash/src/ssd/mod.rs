//! A model of one SSD: pages, erase blocks, a page-mapped translation layer, greedy garbage collection,
//! over-provisioning, wear, TRIM and latencies.
//!
//! It keeps no bytes, only the place of each logical page; [`ModelDevice`](crate::ModelDevice) adds
//! bytes. It follows the thesis's description of an SSD (section 6.1.1: out-of-place writes, blocks
//! that mix live and stale pages, live pages copied before an erase). Wear levelling is dynamic:
//! the least worn free block is taken next. Static wear levelling, bad blocks, read disturbance and
//! a write cache of the device are not modelled; a cache would speed up in-place writes to
//! neighbouring pages a little.
//!
//! Times are the sum over the flash operations, divided by the parallel channels. A write that has
//! to collect first includes that time, which makes the slowest writes of an SSD slow.

mod block_set;
mod blocks;
mod wear;

pub use wear::Wear;

use crate::geometry::PAGE_BYTES;
use blocks::{Blocks, NONE};

/// Sizes and speeds of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SsdSpec {
    /// Bytes of a page of flash, which is programmed as a whole: a multiple of 4 KiB.
    pub page_bytes: u64,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Pages that the host sees.
    pub logical_pages: u32,
    /// Flash beyond the logical pages, in per mille of them.
    pub over_provisioning_permille: u32,
    /// Time to read a page from flash and transfer it.
    pub read_ns: u64,
    /// Time to transfer a page and program it.
    pub program_ns: u64,
    /// Time to erase a block.
    pub erase_ns: u64,
    /// Pages read or programmed in parallel.
    pub channel_count: u32,
}

impl SsdSpec {
    /// An SSD of `logical_pages` pages of 4 KiB: blocks of 1 MiB, 7 % over-provisioning, 50 us to
    /// read a page, 200 us to program one (the thesis's figure for NAND flash, section 6.2.1), 1.5
    /// ms to erase a block, 8 channels.
    pub fn new(logical_pages: u32) -> Self {
        Self {
            page_bytes: PAGE_BYTES as u64,
            pages_per_block: 256,
            logical_pages,
            over_provisioning_permille: 70,
            read_ns: 50_000,
            program_ns: 200_000,
            erase_ns: 1_500_000,
            channel_count: 8,
        }
    }

    /// Blocks of flash: those of the logical pages, the over-provisioned ones, and at least the two
    /// frontiers and the block that collection needs.
    pub fn block_count(&self) -> u32 {
        let logical = self.logical_pages.div_ceil(self.pages_per_block);
        let extra = u64::from(logical) * u64::from(self.over_provisioning_permille) / 1000;
        logical + (extra as u32).max(FREE_BLOCKS_LEAST + 2)
    }
}

/// Collection starts when no more blocks than this are erased.
const FREE_BLOCKS_LEAST: u32 = 2;

/// Counters of an SSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SsdCounts {
    /// Pages that the host read.
    pub host_read_pages: u64,
    /// Pages that the host wrote.
    pub host_written_pages: u64,
    /// Pages programmed, including those moved by collection.
    pub flash_written_pages: u64,
    /// Mapped pages that the host discarded.
    pub discarded_pages: u64,
    /// Blocks erased.
    pub erase_count: u64,
    /// Writes of the host that were not aligned to erase blocks.
    pub partial_block_writes: u64,
    /// Time during which the flash was busy.
    pub busy_ns: u64,
}

impl SsdCounts {
    /// Pages programmed for each page that the host wrote; 1 when it wrote none.
    pub fn write_amplification(&self) -> f64 {
        if self.host_written_pages == 0 {
            return 1.0;
        }
        self.flash_written_pages as f64 / self.host_written_pages as f64
    }
}

/// The next free pages for one kind of write.
#[derive(Clone, Copy, Debug, Default)]
struct Frontier {
    block: u32,
    next: u32,
    is_open: bool,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: SsdSpec,
    blocks: Blocks,
    /// Physical page of each logical page, or [`NONE`].
    mapping: Vec<u32>,
    /// Pages from the host and pages moved by collection go to separate blocks.
    host: Frontier,
    moved: Frontier,
    counts: SsdCounts,
    /// Cost of the current request, before division by the channels.
    programs: u64,
    reads: u64,
    erases: u64,
}

impl Ssd {
    /// A fresh SSD, all erased.
    ///
    /// # Panics
    /// If there are no pages, channels or pages of a block, or more pages than 32 bits can number.
    pub fn new(spec: SsdSpec) -> Self {
        assert!(
            spec.logical_pages > 0 && spec.pages_per_block > 0 && spec.channel_count > 0,
            "an SSD has pages, blocks and channels"
        );
        let physical = u64::from(spec.block_count()) * u64::from(spec.pages_per_block);
        assert!(physical < u64::from(NONE), "pages are numbered by 32 bits");
        Self {
            spec,
            blocks: Blocks::new(spec.block_count(), spec.pages_per_block),
            mapping: vec![NONE; spec.logical_pages as usize],
            host: Frontier::default(),
            moved: Frontier::default(),
            counts: SsdCounts::default(),
            programs: 0,
            reads: 0,
            erases: 0,
        }
    }

    /// Its sizes and speeds.
    pub fn spec(&self) -> &SsdSpec {
        &self.spec
    }

    /// Its counters.
    pub fn counts(&self) -> SsdCounts {
        self.counts
    }

    /// Resets the counters, wear included, and keeps the state: for measurements after a warm-up.
    pub fn reset_counts(&mut self) {
        self.counts = SsdCounts::default();
        self.blocks.reset_wear();
    }

    /// Erases by block.
    pub fn wear(&self) -> Wear {
        Wear::of(self.blocks.erases())
    }

    /// Reads pages, and returns the time. Pages that were never written also cost a transfer.
    ///
    /// # Panics
    /// If a page does not exist.
    pub fn read(&mut self, first: u32, count: u32) -> u64 {
        self.check(first, count);
        self.counts.host_read_pages += u64::from(count);
        self.reads += u64::from(count);
        self.settle_time()
    }

    /// Writes pages, and returns the time, collection included.
    ///
    /// # Panics
    /// If a page does not exist.
    pub fn write(&mut self, first: u32, count: u32) -> u64 {
        self.check(first, count);
        let block = self.spec.pages_per_block;
        let is_whole = first.is_multiple_of(block) && count.is_multiple_of(block);
        self.counts.partial_block_writes += u64::from(!is_whole);
        for logical in first..first + count {
            self.unmap(logical);
            self.open_host_frontier();
            self.counts.host_written_pages += 1;
            Self::program(
                &mut self.host,
                &mut self.blocks,
                &mut self.mapping,
                self.spec.pages_per_block,
                logical,
            );
            self.counts.flash_written_pages += 1;
            self.programs += 1;
        }
        self.settle_time()
    }

    /// Discards pages (TRIM).
    ///
    /// # Panics
    /// When a page does not exist.
    pub fn discard(&mut self, first: u32, count: u32) {
        self.check(first, count);
        for logical in first..first + count {
            self.counts.discarded_pages += u64::from(self.unmap(logical));
        }
    }

    fn check(&self, first: u32, count: u32) {
        let end = u64::from(first) + u64::from(count);
        assert!(
            end <= u64::from(self.spec.logical_pages),
            "pages {first}..{end} exist"
        );
    }

    fn unmap(&mut self, logical: u32) -> bool {
        let physical = std::mem::replace(&mut self.mapping[logical as usize], NONE);
        if physical == NONE {
            return false;
        }
        self.blocks.invalidate(physical);
        true
    }

    fn open_host_frontier(&mut self) {
        if self.host.is_open {
            return;
        }
        while self.blocks.free_count() <= FREE_BLOCKS_LEAST {
            self.collect();
        }
        self.host = self.fresh_frontier();
    }

    fn fresh_frontier(&mut self) -> Frontier {
        Frontier {
            block: self.blocks.take_least_worn(),
            next: 0,
            is_open: true,
        }
    }

    /// Moves the live pages of the full block with the fewest of them, and erases it.
    fn collect(&mut self) {
        let victim = self.blocks.emptiest();
        for physical in self.blocks.pages_of(victim) {
            let logical = self.blocks.owner(physical);
            if logical == NONE {
                continue;
            }
            if !self.moved.is_open {
                self.moved = self.fresh_frontier();
            }
            self.blocks.invalidate(physical);
            Self::program(
                &mut self.moved,
                &mut self.blocks,
                &mut self.mapping,
                self.spec.pages_per_block,
                logical,
            );
            self.counts.flash_written_pages += 1;
            self.reads += 1;
            self.programs += 1;
        }
        self.blocks.erase(victim);
        self.counts.erase_count += 1;
        self.erases += 1;
    }

    fn program(
        frontier: &mut Frontier,
        blocks: &mut Blocks,
        mapping: &mut [u32],
        pages_per_block: u32,
        logical: u32,
    ) {
        let physical = frontier.block * pages_per_block + frontier.next;
        blocks.occupy(physical, logical);
        mapping[logical as usize] = physical;
        frontier.next += 1;
        if frontier.next == pages_per_block {
            frontier.is_open = false;
            blocks.close(frontier.block);
        }
    }

    /// The time of the operations since the last call. Chips work in parallel: a request of few
    /// pages takes as long as one, and a request that has to collect waits for it.
    fn settle_time(&mut self) -> u64 {
        let channels = u64::from(self.spec.channel_count);
        let ns = self.reads.div_ceil(channels) * self.spec.read_ns
            + self.programs.div_ceil(channels) * self.spec.program_ns
            + self.erases * self.spec.erase_ns / channels;
        (self.reads, self.programs, self.erases) = (0, 0, 0);
        self.counts.busy_ns += ns;
        ns
    }
}
