//! The demo's step with a database on a mount: its commits go on while a node is killed, and a new mount has every row.

use super::report::{Database, DatabaseStep};
use super::steps::{Demo, pool};
use crate::error::{Context, TestbedError};
use crate::progress::Unit;
use gabion_planner::repair::Scheme;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const POOL: &str = "files";
/// Small segments, since a database writes pages.
const CHUNK_BYTES: u64 = 64 << 10;
const FILE: &str = "rows.redb";
const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");
const TRANSACTION_COUNT: u64 = 300;
const ROWS_PER_TRANSACTION: u64 = 5;
const ROW_BYTES: usize = 1000;
/// Commits before the node is killed.
const COMMITS_BEFORE: u64 = 100;

impl Demo<'_> {
    /// Mounts the cluster, runs transactions of a database on the mount while a node is killed, mounts the cluster
    /// anew, and compares every row. Where this machine has no mounts, the report says so.
    pub(super) async fn run_database(&mut self) -> Result<(), TestbedError> {
        if let Some(lack) = self.cluster.lack_of_mounts()? {
            self.report.database = DatabaseStep::NotRun(lack);
            return Ok(());
        }
        let request = pool(POOL, Some(self.report.code.clone()), CHUNK_BYTES);
        self.client.create_pool(request).await?;
        let waiting = (self.bars)("mounting the cluster", Unit::Unknown);
        let mounted = self.cluster.mount(POOL).await;
        drop(waiting);
        let mount = match mounted {
            // A container may forbid mounts in other ways.
            Err(TestbedError::Gone { why, .. }) => {
                self.report.database = DatabaseStep::NotRun(why);
                return Ok(());
            }
            mount => mount?,
        };
        let (commits, committed) = mpsc::unbounded_channel();
        let path = mount.directory().join(FILE);
        let written = tokio::task::spawn_blocking(move || write_rows(&path, &commits));
        let (node, seconds, longest) = self.watch(committed).await?;
        written.await.expect("the writer does not panic")?;
        mount.end().await?;
        let waiting = (self.bars)("comparing the database on a new mount", Unit::Unknown);
        let mount = self.cluster.mount(POOL).await?;
        let path = mount.directory().join(FILE);
        let read = tokio::task::spawn_blocking(move || compare_rows(&path));
        let row_count = read.await.expect("the reader does not panic")?;
        mount.end().await?;
        drop(waiting);
        let waiting = (self.bars)(&format!("starting node {node} again"), Unit::Unknown);
        self.cluster.start_node(node).await?;
        drop(waiting);
        self.repair(Scheme::default()).await?;
        self.report.database = DatabaseStep::Done(Database {
            node,
            transaction_count: TRANSACTION_COUNT,
            row_count,
            seconds,
            longest_commit_ms: longest.as_secs_f64() * 1e3,
        });
        Ok(())
    }

    /// Kills the node with most of the database's chunks after some commits, and waits for the others. Returns the
    /// node, the time of all commits in seconds, and the longest of one.
    async fn watch(
        &self,
        mut committed: mpsc::UnboundedReceiver<Duration>,
    ) -> Result<(u32, f64, Duration), TestbedError> {
        let progress = (self.bars)("committing to a database on a mount", Unit::Items);
        let (mut count, mut longest, mut killed) = (0, Duration::ZERO, None);
        let begun = Instant::now();
        while let Some(took) = committed.recv().await {
            count += 1;
            longest = longest.max(took);
            progress.advanced(count, TRANSACTION_COUNT);
            if count == COMMITS_BEFORE {
                let node = self.fullest_node(FILE).await?;
                self.cluster.kill_node(node).await?;
                killed = Some(node);
            }
        }
        // A writer that has failed says why itself.
        let node = killed.unwrap_or_default();
        Ok((node, begun.elapsed().as_secs_f64(), longest))
    }
}

/// The bytes of a row.
fn row(key: u64) -> [u8; ROW_BYTES] {
    let mut bytes = [0; ROW_BYTES];
    ChaCha8Rng::seed_from_u64(key).fill_bytes(&mut bytes);
    bytes
}

/// Makes the database and commits all transactions, one after another. Sends the time of each commit.
fn write_rows(path: &Path, commits: &mpsc::UnboundedSender<Duration>) -> Result<(), TestbedError> {
    let write = || -> Result<(), redb::Error> {
        if commits.is_closed() {
            return Ok(());
        }
        let database = redb::Database::create(path)?;
        for number in 0..TRANSACTION_COUNT {
            let begun = Instant::now();
            let transaction = database.begin_write()?;
            let mut rows = transaction.open_table(ROWS)?;
            for key in number * ROWS_PER_TRANSACTION..(number + 1) * ROWS_PER_TRANSACTION {
                rows.insert(key, row(key).as_slice())?;
            }
            drop(rows);
            transaction.commit()?;
            if commits.send(begun.elapsed()).is_err() {
                // The demo was interrupted.
                break;
            }
        }
        Ok(())
    };
    write()
        .map_err(io::Error::other)
        .context("write to the database on the mount")
}

/// Compares every row of the database, and returns their number.
fn compare_rows(path: &Path) -> Result<u64, TestbedError> {
    let read = || -> Result<Option<u64>, redb::Error> {
        let database = redb::Database::open(path)?;
        let transaction = database.begin_read()?;
        let rows = transaction.open_table(ROWS)?;
        let mut next = 0;
        for found in rows.iter()? {
            let (key, bytes) = found?;
            if key.value() != next || bytes.value() != row(next) {
                return Ok(None);
            }
            next += 1;
        }
        Ok(Some(next))
    };
    let count = read()
        .map_err(io::Error::other)
        .context("read the database on the mount")?;
    count
        .filter(|count| *count == TRANSACTION_COUNT * ROWS_PER_TRANSACTION)
        .ok_or_else(|| TestbedError::Wrong("the database on the mount has lost rows".to_owned()))
}
