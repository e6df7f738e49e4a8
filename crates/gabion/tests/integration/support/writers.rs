//! Writers that update parts of one file until something is killed, and know afterwards what may be there.

use super::{TestCluster, path_text, pattern, wait_for};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The file that they write.
pub(crate) const FILE: &str = "disk";
/// The longest of their writes.
const WRITE_BYTES_MAX: u64 = 40 << 10;

/// A generator for tests: not good, but the same everywhere.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A number that the environment may set.
pub(crate) fn told(name: &str, otherwise: u64) -> u64 {
    let text = std::env::var(name);
    text.map_or(otherwise, |text| text.parse().expect("a number"))
}

/// One writer, and its knowledge of its part of the file.
pub(crate) struct Writer {
    number: usize,
    part_bytes: usize,
    /// As all acknowledged writes have left it.
    acknowledged: Vec<u8>,
    /// The same with the last write, of which nothing was heard.
    attempted: Option<Vec<u8>>,
    draw: Draw,
    acknowledgements: Acknowledgements,
}

/// The number of writes of all writers that were acknowledged.
#[derive(Clone, Default)]
pub(crate) struct Acknowledgements(Arc<AtomicU64>);

impl Acknowledgements {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Waits until another write is acknowledged: what is killed from then on is killed under load.
    pub(crate) fn wait_for_next(&self) {
        let before = self.count();
        wait_for("a write is acknowledged", || self.count() > before);
    }
}

impl Writer {
    /// A writer for each part of a file, which is as `initial` says.
    pub(crate) fn of_parts(initial: &[u8], part_bytes: usize, seed: u64) -> Vec<Self> {
        let acknowledgements = Acknowledgements::default();
        let parts = initial.chunks(part_bytes).enumerate();
        let writer = |(number, part): (usize, &[u8])| Self {
            number,
            part_bytes,
            acknowledged: part.to_vec(),
            attempted: None,
            draw: Draw(seed + number as u64),
            acknowledgements: acknowledgements.clone(),
        };
        parts.map(writer).collect()
    }

    /// Those of all writers.
    pub(crate) fn acknowledgements(&self) -> Acknowledgements {
        self.acknowledgements.clone()
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.number * self.part_bytes..(self.number + 1) * self.part_bytes
    }

    /// Writes until it is over, or a write fails.
    pub(crate) fn write(&mut self, cluster: &TestCluster, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            let length = 1 + self.draw.below(WRITE_BYTES_MAX) as usize;
            let offset = self.draw.below((self.part_bytes - length) as u64) as usize;
            let new = pattern(length, self.draw.below(u64::MAX));
            let file = cluster.path(&format!("new-{}", self.number));
            std::fs::write(&file, &new).expect("write a temporary file");
            let at = format!("--offset={}", self.range().start + offset);
            let mut attempted = self.acknowledged.clone();
            attempted[offset..offset + length].copy_from_slice(&new);
            let mut command = cluster.command(&["write", FILE, &at, path_text(&file)]);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            if !ends_well(command.spawn().expect("the binary runs"), is_over) {
                self.attempted = Some(attempted);
                return;
            }
            self.acknowledged = attempted;
            self.acknowledgements.0.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Compares its part of the file with what may be there, and takes over which of it is.
    pub(crate) fn check(&mut self, file: &[u8], when: &str) {
        let found = &file[self.range()];
        if let Some(attempted) = self.attempted.take()
            && found == attempted
        {
            self.acknowledged = attempted;
        }
        let is_right = found == self.acknowledged;
        assert!(is_right, "{when}: writer {} finds a mixture", self.number);
    }
}

/// Waits for a command. Whether it said that it was done, before it was over.
fn ends_well(mut child: Child, is_over: &AtomicBool) -> bool {
    loop {
        if let Some(status) = child.try_wait().expect("the child is ours") {
            return status.success();
        }
        if is_over.load(Ordering::Acquire) {
            child.kill().expect("the child is ours");
            // It may have ended between the two.
            return child.wait().expect("the child is ours").success();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
