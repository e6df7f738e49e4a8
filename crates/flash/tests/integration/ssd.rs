//! The SSD model against a naive oracle that searches all blocks each time.

use gabion_flash::{Device as _, ModelDevice, Ssd, SsdCounts, SsdSpec};
use proptest::prelude::*;

/// A block as the list of its programmed pages, and its erase count.
#[derive(Clone, Default)]
struct Block {
    pages: Vec<Option<u32>>,
    erase_count: u32,
}

/// The same SSD without any index: every query searches all blocks.
struct Oracle {
    spec: SsdSpec,
    blocks: Vec<Block>,
    host: Option<usize>,
    moved: Option<usize>,
    counts: SsdCounts,
}

impl Oracle {
    fn new(spec: SsdSpec) -> Self {
        Self {
            spec,
            blocks: vec![Block::default(); spec.block_count() as usize],
            host: None,
            moved: None,
            counts: SsdCounts::default(),
        }
    }

    fn forget(&mut self, logical: u32) -> u64 {
        let all = self.blocks.iter_mut().flat_map(|block| &mut block.pages);
        all.filter(|page| **page == Some(logical))
            .map(|page| *page = None)
            .count() as u64
    }

    fn free(&self) -> Vec<usize> {
        (0..self.blocks.len())
            .filter(|&at| {
                self.blocks[at].pages.is_empty() && Some(at) != self.host && Some(at) != self.moved
            })
            .collect()
    }

    fn fresh(&self) -> usize {
        let free = self.free();
        let least = free.iter().min_by_key(|&&at| self.blocks[at].erase_count);
        *least.expect("there are free blocks")
    }

    fn live(&self, at: usize) -> usize {
        self.blocks[at].pages.iter().flatten().count()
    }

    fn collect(&mut self) {
        let full = |at: &usize| self.blocks[*at].pages.len() == self.spec.pages_per_block as usize;
        let victim = (0..self.blocks.len())
            .filter(full)
            .min_by_key(|&at| self.live(at))
            .expect("a block is full");
        let pages = std::mem::take(&mut self.blocks[victim].pages);
        // Until the block is erased, it is not available.
        self.blocks[victim].pages = vec![None; pages.len()];
        for logical in pages.into_iter().flatten() {
            let at = self.moved.unwrap_or_else(|| self.fresh());
            self.blocks[at].pages.push(Some(logical));
            let is_full = self.blocks[at].pages.len() == self.spec.pages_per_block as usize;
            self.moved = (!is_full).then_some(at);
            self.counts.flash_written_pages += 1;
        }
        self.blocks[victim].pages.clear();
        self.blocks[victim].erase_count += 1;
        self.counts.erase_count += 1;
    }

    fn write(&mut self, logical: u32) {
        self.forget(logical);
        if self.host.is_none() {
            while self.free().len() <= 2 {
                self.collect();
            }
            self.host = Some(self.fresh());
        }
        let at = self.host.expect("it was just opened");
        self.blocks[at].pages.push(Some(logical));
        let is_full = self.blocks[at].pages.len() == self.spec.pages_per_block as usize;
        self.host = (!is_full).then_some(at);
        self.counts.host_written_pages += 1;
        self.counts.flash_written_pages += 1;
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Write(u32, u32),
    Discard(u32, u32),
}

fn operations(pages: u32) -> impl Strategy<Value = Vec<Operation>> {
    let range = (0..pages, 1_u32..12).prop_map(move |(at, count)| (at, count.min(pages - at)));
    let one = (range, 0..10_u32).prop_map(|((first, count), kind)| {
        if kind == 0 {
            Operation::Discard(first, count)
        } else {
            Operation::Write(first, count)
        }
    });
    prop::collection::vec(one, 1..400)
}

fn spec() -> SsdSpec {
    SsdSpec {
        pages_per_block: 8,
        logical_pages: 96,
        over_provisioning_permille: 100,
        ..SsdSpec::new(96)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn counts_as_the_oracle_does(operations in operations(96)) {
        let mut ssd = Ssd::new(spec());
        let mut oracle = Oracle::new(spec());
        for operation in operations {
            match operation {
                Operation::Write(first, count) => {
                    ssd.write(first, count);
                    (first..first + count).for_each(|page| oracle.write(page));
                }
                Operation::Discard(first, count) => {
                    ssd.discard(first, count);
                    let gone: u64 = (first..first + count).map(|page| oracle.forget(page)).sum();
                    oracle.counts.discarded_pages += gone;
                }
            }
            let counts = SsdCounts { busy_ns: 0, partial_block_writes: 0, ..ssd.counts() };
            prop_assert_eq!(counts, oracle.counts);
            let erases: Vec<u32> = oracle.blocks.iter().map(|block| block.erase_count).collect();
            prop_assert_eq!(ssd.wear().most, *erases.iter().max().expect("blocks"));
            prop_assert_eq!(ssd.wear().least, *erases.iter().min().expect("blocks"));
        }
    }
}

#[test]
fn whole_blocks_are_never_copied() {
    let spec = spec();
    let mut ssd = Ssd::new(spec);
    let block_count = spec.logical_pages / spec.pages_per_block;
    for round in 0..500_u32 {
        let block = round.wrapping_mul(2_654_435_761) % block_count;
        ssd.write(block * spec.pages_per_block, spec.pages_per_block);
    }
    assert!((ssd.counts().write_amplification() - 1.0).abs() < f64::EPSILON);
    assert_eq!(ssd.counts().partial_block_writes, 0);
    assert!(ssd.counts().erase_count > 400);
}

#[test]
fn random_pages_of_a_full_ssd_are_copied_again_and_again() {
    let spec = spec();
    let mut ssd = Ssd::new(spec);
    ssd.write(0, spec.logical_pages);
    ssd.reset_counts();
    for round in 0..5_000_u32 {
        ssd.write(round.wrapping_mul(2_654_435_761) % spec.logical_pages, 1);
    }
    let counts = ssd.counts();
    assert!(counts.write_amplification() > 1.3, "{counts:?}");
    assert_eq!(counts.partial_block_writes, 5_000);
    assert!(
        counts.busy_ns >= 5_000 * spec.program_ns,
        "no request is quicker than a page"
    );
}

#[test]
fn a_large_page_is_programmed_whole_for_a_part_of_it() {
    let spec = SsdSpec {
        page_bytes: 16 << 10,
        ..spec()
    };
    let device = ModelDevice::new(spec);
    assert_eq!(device.capacity_bytes().unwrap(), 96 * (16 << 10));
    device.write_at(0, &vec![1; 32 << 10]).unwrap();
    device.write_at(4 << 10, &[2; 4 << 10]).unwrap();
    device.write_at(12 << 10, &[3; 8 << 10]).unwrap();
    let counts = device.counts();
    assert_eq!(counts.host_written_pages, 2 + 1 + 2);
    assert_eq!(counts.host_read_pages, 1 + 2);
    assert!(counts.busy_ns > 0);
    assert_eq!(device.busy_ns(), counts.busy_ns);
    let mut found = vec![0; 32 << 10];
    device.read_at(0, &mut found).unwrap();
    let expected = [1, 2, 1, 3, 3, 1, 1, 1];
    for (page, byte) in found.chunks(4 << 10).zip(expected) {
        assert!(page.iter().all(|&found| found == byte), "{byte}");
    }
    assert!(
        device.discard(4 << 10, 16 << 10).is_err(),
        "only whole pages are discarded"
    );
}
