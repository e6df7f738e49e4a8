//! Snapshots and clones of directories under all faults, with two files that one client changes in turn. All changes up
//! to an instant are in a snapshot, and none behind it: never a later one without an earlier one. It has those that
//! were acknowledged before it was asked for, and none that begins behind its answer. From then on it keeps its bytes.

use crate::cells::CELL_BYTES;
use crate::client::SimClient;
use crate::cluster::Cluster;
use crate::names::SNAPSHOTS;
use futures::future::join;
use gabion_client::{Cause, ClientError, File};
use gabion_layout::ByteRange;
use gabion_meta::NewAttributes;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The names of the files, below the directory.
const NAMES: [&str; 2] = ["one", "below/two"];

/// Two files below a directory that no other client knows.
pub(crate) struct Pair<'a> {
    cluster: &'a Cluster,
    client: &'a SimClient,
    /// Writes that are refused for want of nodes are made again for this time.
    patience_us: u64,
    /// The directory in which all of it lies.
    base: String,
    /// Changes that have begun, numbered from 1 on. An odd one is one of the first file.
    begun: AtomicU64,
    /// Changes that were acknowledged.
    pub(crate) done: AtomicU64,
    /// No more changes begin.
    pub(crate) is_over: AtomicBool,
}

/// Pause before a write is made again that was refused for want of nodes.
const PAUSE_US: u64 = 100_000;

/// The last change that each file shows.
pub(crate) type Shown = [u64; 2];

/// Takes a snapshot or a clone of a directory while the files below it change, and removes all.
pub(crate) async fn work_with_trees(
    cluster: &Cluster,
    client: &SimClient,
) -> Result<(), ClientError> {
    let world = &cluster.world;
    let (is_small, count, wait_us) =
        world.roll(|dice| (dice.one_in(3), dice.between(1, 12), dice.below(100_000)));
    let pair = Pair::make(cluster, client, (is_small, 0)).await?;
    let sharing = async {
        world.sleep(wait_us).await;
        pair.share().await
    };
    // After an error, the last change is in doubt and none follows.
    let (_, shared) = join(pair.write(count), sharing).await;
    shared?;
    pair.remove().await
}

impl<'a> Pair<'a> {
    pub(crate) async fn make(
        cluster: &'a Cluster,
        client: &'a SimClient,
        (is_small, patience_us): (bool, u64),
    ) -> Result<Self, ClientError> {
        let pair = Self {
            cluster,
            client,
            patience_us,
            base: format!("{SNAPSHOTS}trees/{}", cluster.world.fresh()),
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        };
        let size = if is_small {
            CELL_BYTES
        } else {
            cluster.shape.stripe_bytes + CELL_BYTES
        };
        let zeros = vec![0; size as usize];
        for path in pair.files("now") {
            let put = client.client.put(&path, None, &zeros[..], size, &());
            put.await?;
        }
        Ok(pair)
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    fn files(&self, directory: &str) -> [String; 2] {
        NAMES.map(|name| self.path(&format!("{directory}/{name}")))
    }

    /// Changes the files in turn, each change behind the answer to the one before.
    pub(crate) async fn write(&self, count: u64) -> Result<(), ClientError> {
        let mut files: Vec<File> = Vec::new();
        for path in self.files("now") {
            files.push(self.client.client.open(&path).await?);
        }
        for number in 1..=count {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            self.begun.store(number, Ordering::Relaxed);
            let file = &files[usize::from(number.is_multiple_of(2))];
            self.write_number(file, number).await?;
            self.done.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) async fn read(&self, directory: &str) -> Result<Shown, ClientError> {
        let mut shown = [0; 2];
        for (path, shown) in self.files(directory).iter().zip(&mut shown) {
            let file = self.client.client.open(path).await?;
            let read = file.read(ByteRange::new(0, 8)).await?;
            *shown = u64::from_le_bytes(read.try_into().expect("eight bytes"));
        }
        Ok(shown)
    }

    /// Makes a snapshot or a clone, and checks that it is of one instant and stays as it is.
    pub(crate) async fn share(&self) -> Result<(), ClientError> {
        let client = &self.client.client;
        let is_read_only = self.cluster.world.roll(|dice| dice.one_in(2));
        let source = client.inode(self.path("now")).await?.inode;
        let before = self.done.load(Ordering::Relaxed);
        let made = client.snapshot(source, self.path("then"), is_read_only);
        made.await?;
        let behind = self.begun.load(Ordering::Relaxed);
        self.client.count(|coverage| coverage.tree_count += 1);
        let shown = self.read("then").await?;
        let last = shown[0].max(shown[1]);
        let expected = if last.is_multiple_of(2) {
            [last.saturating_sub(1), last]
        } else {
            [last, last - 1]
        };
        if shown != expected || last < before || last > behind {
            self.client.fail(format!(
                "{} shows the changes {shown:?}, which are of no instant between {before} and {behind}",
                self.base
            ));
        }
        self.change(is_read_only, shown).await
    }

    /// Writes a number to the begin of a file.
    async fn write_number(&self, file: &File, number: u64) -> Result<(), ClientError> {
        let until_us = self.client.now_us() + self.patience_us;
        loop {
            let written = file.write(0, number.to_le_bytes().to_vec().into()).await;
            match written {
                // If it is unknown whether the bytes were written, it does no harm to write the same ones again.
                Err(ClientError::Forgotten(_)) => {}
                Err(error)
                    if error.cause() == Cause::Failure && self.client.now_us() < until_us =>
                {
                    self.cluster.world.sleep(PAUSE_US).await;
                }
                written => return written,
            }
        }
    }

    /// Changes a clone, or tries to change a snapshot.
    async fn change(&self, is_read_only: bool, shown: Shown) -> Result<(), ClientError> {
        let client = &self.client.client;
        let [one, _] = self.files("then");
        let file = client.open(&one).await?;
        let written = self.write_number(&file, u64::MAX).await;
        let below = self.path("then/below/new");
        let made = client.make_directory(&below, NewAttributes::DIRECTORY);
        let made = made.await;
        let mut expected = shown;
        if is_read_only {
            for done in [written, made] {
                if done.as_ref().err().map(ClientError::cause) != Some(Cause::ReadOnly)
                    && done.as_ref().err().is_none_or(is_decided)
                {
                    self.client
                        .fail(format!("a change of a snapshot ends with {done:?}"));
                }
            }
        } else {
            written?;
            made?;
            client.remove_directory(below).await?;
            expected[0] = u64::MAX;
        }
        let now = self.read("then").await?;
        if now != expected {
            self.client.fail(format!(
                "{} shows {now:?} instead of {expected:?}",
                self.base
            ));
        }
        Ok(())
    }

    /// Removes all, in any order.
    pub(crate) async fn remove(&self) -> Result<(), ClientError> {
        let client = &self.client.client;
        let mut trees = ["now", "then"];
        if self.cluster.world.roll(|dice| dice.one_in(2)) {
            trees.reverse();
        }
        for tree in trees {
            for path in self.files(tree) {
                client.rm(&path).await?;
            }
            for directory in [format!("{tree}/below"), tree.to_owned()] {
                client.remove_directory(self.path(&directory)).await?;
            }
        }
        client.remove_directory(&*self.base).await
    }
}

/// Whether an error is the answer of the cluster, and not the lack of one.
fn is_decided(error: &ClientError) -> bool {
    !matches!(
        error,
        ClientError::Late { .. } | ClientError::NoCoordinator(_)
    )
}
