//! Snapshots under a load that shows of which instant each one is.

use super::{Load, TestCluster};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A load that writes the number of its round to one place after another.
pub(crate) struct Rounds<W, R> {
    pub(crate) place_count: usize,
    /// Writes a number to a place.
    pub(crate) write: W,
    /// The number of each place in a file or directory with this name.
    pub(crate) read: R,
}

/// Snapshots with the numbers that they have shown.
pub(crate) type Taken = Vec<(String, Vec<u64>)>;

impl<W: Fn(usize, u64) + Sync, R: Fn(&str) -> Vec<u64>> Rounds<W, R> {
    /// Takes snapshots of `source` under the load, while a node is killed and started again. Each has all writes up to
    /// an instant and none behind it. Returns them with the number of writes.
    pub(crate) fn snapshots(
        &self,
        cluster: &TestCluster,
        source: &str,
        count: u64,
    ) -> (Taken, u64) {
        let (begun_count, done_count) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_over = AtomicBool::new(false);
        let (write, place_count) = (&self.write, self.place_count as u64);
        let work = || {
            while !is_over.load(Ordering::Acquire) {
                let number = begun_count.fetch_add(1, Ordering::AcqRel);
                write((number % place_count) as usize, number / place_count + 1);
                done_count.fetch_add(1, Ordering::AcqRel);
            }
        };
        let mut taken = Taken::new();
        std::thread::scope(|scope| {
            let _load = Load::until_dropped(&is_over);
            scope.spawn(work);
            for number in 0..count {
                match number {
                    2 => drop(cluster.run(&["chaos", "kill-node", "1"])),
                    4 => drop(cluster.run(&["chaos", "start-node", "1"])),
                    _ => {}
                }
                let name = format!("{source}@{number}");
                let before = done_count.load(Ordering::Acquire);
                cluster.run(&["snapshot", source, &name]);
                let behind = begun_count.load(Ordering::Acquire);
                let rounds = (self.read)(&name);
                let written: u64 = rounds.iter().sum();
                assert!(
                    before <= written && written <= behind,
                    "{name}: {written} of {before} to {behind} writes"
                );
                let is_prefix = rounds.is_sorted_by(|a, b| a >= b)
                    && rounds[0] - rounds[self.place_count - 1] <= 1;
                assert!(is_prefix, "{name} is of no instant: {rounds:?}");
                taken.push((name, rounds));
            }
        });
        (taken, done_count.into_inner())
    }
}
