//! The inputs of an experiment: its scale, its directory, the traces, the starter of clusters, and
//! the receiver of progress.

use crate::error::LabError;
use crate::experiments::ear::bench::{EncodeBench, Encodings};
use crate::experiments::ecpipe::bench::{RepairBench, TrialTime};
use crate::experiments::ecpipe::hdfs_times::{HdfsBench, HdfsTimes};
use crate::trace::TraceReader;
use gabion_codec::Code;
use gabion_layout::{AppendSpec, ByteRange, UpdateScheme};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The share of the paper's setting that an experiment runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scale {
    /// Seconds: shows which scheme is faster, not by how much.
    Quick,
    /// Minutes, on two processors.
    Usual,
    /// The paper's setting, as far as the machine goes.
    Full,
}

impl Scale {
    /// One of three values.
    pub fn pick<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}

/// Hears how far an experiment is.
pub trait Progress: Sync {
    /// Begins a phase of this many steps, and ends the one before.
    fn begin(&self, what: &str, step_count: u64);

    /// One more step is done.
    fn step(&self);
}

/// Puts and gets files on a cluster of real processes.
pub trait Clusters: Sync {
    /// Starts a cluster, puts a file by each client at the same time, gets them all at the same time, and
    /// stops it again.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails.
    fn transfer(&self, setting: &TransferSetting) -> Result<Transfers, LabError>;

    /// Starts a cluster, makes each of the overwrites without a cache and with one, and stops it again.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails.
    fn overwrite(
        &self,
        setting: &OverwriteSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<CacheEffect>, LabError>;

    /// Starts a cluster on a testbed, makes each of the overwrites by itself, and removes all of it.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails, or this machine can have no testbed.
    fn update_on_testbed(
        &self,
        setting: &TestbedSetting,
        overwrites: &[Overwrite],
    ) -> Result<Vec<Throughput>, LabError>;

    /// Makes a testbed, starts a cluster on it, times each trial, and removes everything again.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails.
    fn repairs(&self, bench: &RepairBench) -> Result<Vec<TrialTime>, LabError>;

    /// Makes a testbed, starts a cluster on it, has files encoded in each trial, and removes everything
    /// again.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails.
    fn encodings(&self, bench: &EncodeBench) -> Result<Encodings, LabError>;

    /// The first missing prerequisite of [`Clusters::hdfs`] on this machine, in one line; none if all are there.
    fn hdfs_missing(&self) -> Option<String>;

    /// Starts HDFS with its `DataNode`s on limited links, times repairs and reads, and removes everything again.
    ///
    /// # Errors
    /// [`LabError::Cluster`] when anything of it fails, or its report cannot be read.
    fn hdfs(&self, bench: &HdfsBench) -> Result<HdfsTimes, LabError>;
}

/// A cluster whose racks have links that the kernel limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestbedSetting {
    /// The directory for the cluster; empty.
    pub directory: PathBuf,
    /// Racks.
    pub rack_count: u32,
    /// Nodes of each of them.
    pub nodes_per_rack: u32,
    /// The rates of links between racks.
    pub limits: TestbedLimits,
    /// Whether nodes store in memory, so that no disk affects the measurements.
    pub is_in_memory: bool,
    /// The pools' code, by its name.
    pub code: String,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Writes that the client has under way at a time.
    pub depth: usize,
    /// Seed of the places of stripes: files of the same size get the same places.
    pub placement_seed: u64,
}

/// The rates of a testbed's links between racks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TestbedLimits {
    /// Each rack has one link to all others.
    Uplinks {
        /// Rate in each direction, in bytes a second.
        bytes_per_s: u64,
    },
    /// Racks are regions, and each has a link to each other one.
    Regions {
        /// Rate of a node's own link in each direction, in bytes a second.
        inner_bytes_per_s: u64,
        /// Rate of all nodes of one region together to another one, in bytes a second.
        cross_bytes_per_s: u64,
    },
}

/// The rate of overwrites, and the resources that limited it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Throughput {
    /// Until the last write was durable and all parity had followed, in seconds.
    pub seconds: f64,
    /// The part of this time in which parity followed after all writes were durable.
    pub commit_seconds: f64,
    /// Payload that nodes sent to other racks.
    pub cross_rack_bytes: u64,
    /// Share of its limit that the busiest link between racks carried as payload, in its busier direction.
    pub uplink_share: f64,
    /// Share of this machine's processors that all processes of the testbed took.
    pub processor_share: f64,
}

/// A cluster and its load.
#[derive(Clone, Debug)]
pub struct TransferSetting {
    /// The directory for the cluster; empty.
    pub directory: PathBuf,
    /// Nodes, all in one rack.
    pub node_count: u32,
    /// Rate of each node's emulated link, in and out.
    pub link_bytes_per_s: u64,
    /// The pool's code.
    pub code: Code,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Clients.
    pub client_count: u32,
    /// Bytes of each client's file.
    pub file_bytes: u64,
}

/// Duration of transfers, from the first byte of all files to the last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfers {
    /// All puts, in seconds.
    pub write_s: f64,
    /// All gets, in seconds.
    pub read_s: f64,
}

/// A cluster whose clients have a cache of segments or none.
#[derive(Clone, Debug)]
pub struct OverwriteSetting {
    /// The directory for the cluster; empty.
    pub directory: PathBuf,
    /// Racks.
    pub rack_count: u32,
    /// Nodes of each of them.
    pub nodes_per_rack: u32,
    /// The pools' code.
    pub code: Code,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Memory of a client's cache, if it has one.
    pub cache_bytes: u64,
    /// Writes that a client has under way at a time.
    pub depth: usize,
    /// Seed of the places of stripes: files of the same size get the same places.
    pub placement_seed: u64,
}

/// A file and the writes that one client makes on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Overwrite {
    /// The update scheme of its pool.
    pub scheme: UpdateScheme,
    /// The append phases of its pool; the scheme's defaults if absent.
    pub append: Option<AppendSpec>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The writes, in their order; none goes across a border of stripes.
    pub writes: Vec<ByteRange>,
}

/// The cost of the same writes without a cache and with one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CacheEffect {
    /// Every write is durable when it is done.
    pub off: Sent,
    /// Writes wait in the cache; the end is when all of them are durable.
    pub on: Sent,
}

/// A client's traffic for its writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sent {
    /// Updates of stripes.
    pub update_count: u64,
    /// Until everything was durable, in seconds.
    pub seconds: f64,
    /// Bytes between racks in that time, by the counts of nodes and client.
    pub cross_rack_bytes: u64,
}

/// One run of an experiment.
pub struct Session<'a> {
    /// The extent of the run.
    pub scale: Scale,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// A directory of the experiment's own, on the measured disk. The experiment removes data that
    /// it no longer needs; the rest goes with the directory, at the end of the run.
    pub directory: &'a Path,
    /// The folder with traces, if there is one.
    pub traces: Option<&'a Path>,
    /// Starts clusters, for experiments about the network; none where there can be none.
    pub clusters: Option<&'a dyn Clusters>,
    /// Hears how far it is.
    pub progress: &'a dyn Progress,
}

impl Session<'_> {
    /// Measures each point of an experiment in turn, and shows how far it is.
    ///
    /// # Errors
    /// The first error of a point; later ones are not measured.
    pub fn sweep<P, T>(
        &self,
        what: &str,
        points: impl IntoIterator<Item = P>,
        mut measure: impl FnMut(P) -> Result<T, LabError>,
    ) -> Result<Vec<T>, LabError> {
        let points: Vec<P> = points.into_iter().collect();
        self.progress.begin(what, points.len().max(1) as u64);
        let measured = points.into_iter().map(|point| {
            let measured = measure(point)?;
            self.progress.step();
            Ok(measured)
        });
        measured.collect()
    }

    /// Measures each pair of a row and a column, row by row, and shows how far it is. Gives each row with what was
    /// measured at its columns.
    ///
    /// # Errors
    /// The first error of a pair; later ones are not measured.
    pub fn grid<R, C, T>(
        &self,
        what: &str,
        rows: impl IntoIterator<Item = R>,
        columns: &[C],
        mut measure: impl FnMut(&R, &C) -> Result<T, LabError>,
    ) -> Result<Vec<(R, Vec<T>)>, LabError> {
        let rows: Vec<R> = rows.into_iter().collect();
        let of_row = |row| columns.iter().map(move |column| (row, column));
        let pairs = rows.iter().flat_map(of_row);
        let measured = self.sweep(what, pairs, |(row, column)| measure(row, column))?;
        let mut measured = measured.into_iter();
        let by_row = |row| (row, measured.by_ref().take(columns.len()).collect());
        Ok(rows.into_iter().map(by_row).collect())
    }

    /// Measures points `0..count` on all processors, and shows how far it is. Results are in the order of the points.
    /// For points whose result depends neither on time nor on other points.
    ///
    /// # Errors
    /// The first error by the order of the points. No point begins after one has failed.
    pub fn sweep_on_all_processors<T: Send>(
        &self,
        what: &str,
        count: usize,
        measure: impl Fn(usize) -> Result<T, LabError> + Sync,
    ) -> Result<Vec<T>, LabError> {
        self.progress.begin(what, count.max(1) as u64);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::with_capacity(count));
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return;
                }
                let result = measure(at);
                if result.is_err() {
                    next.store(count, Ordering::Relaxed);
                }
                self.progress.step();
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push((at, result));
            }
        };
        let workers = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..workers.min(count) {
                scope.spawn(work);
            }
        });
        let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.sort_unstable_by_key(|&(at, _)| at);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Measures each pair of a row and a column as [`Session::grid`] does, and on all processors as
    /// [`Session::sweep_on_all_processors`] does.
    ///
    /// # Errors
    /// The first error by the order of the pairs.
    pub fn grid_on_all_processors<R: Sync, C: Sync, T: Send>(
        &self,
        what: &str,
        rows: impl IntoIterator<Item = R>,
        columns: &[C],
        measure: impl Fn(&R, &C) -> Result<T, LabError> + Sync,
    ) -> Result<Vec<(R, Vec<T>)>, LabError> {
        let rows: Vec<R> = rows.into_iter().collect();
        let measured = self.sweep_on_all_processors(what, rows.len() * columns.len(), |at| {
            measure(&rows[at / columns.len()], &columns[at % columns.len()])
        })?;
        let mut measured = measured.into_iter();
        let by_row = |row| (row, measured.by_ref().take(columns.len()).collect());
        Ok(rows.into_iter().map(by_row).collect())
    }

    /// Opens a trace below the folder; none if it is absent, since traces are optional.
    ///
    /// # Errors
    /// [`LabError::Io`] when it is there and cannot be read.
    pub fn trace(&self, path: &str) -> Result<Option<TraceReader>, LabError> {
        let Some(file) = self.traces.map(|folder| folder.join(path)) else {
            return Ok(None);
        };
        file.exists().then(|| TraceReader::open(&file)).transpose()
    }

    /// Opens the trace of an MSR volume, whole if it is there, else a piece of it, with its file's name;
    /// none where there is neither.
    ///
    /// # Errors
    /// [`LabError::Io`] when it is there and cannot be read.
    pub fn volume(&self, name: &str) -> Result<Option<(String, TraceReader)>, LabError> {
        let Some(folder) = self.traces.map(|folder| folder.join("msr")) else {
            return Ok(None);
        };
        let mut files: Vec<String> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|file| file.split('.').next() == Some(name))
            .collect();
        // The shortest name is that of the whole volume.
        files.sort_by_key(|file| (file.len(), file.clone()));
        let Some(file) = files.into_iter().next() else {
            return Ok(None);
        };
        let reader = TraceReader::open(&folder.join(&file))?;
        Ok(Some((file, reader)))
    }

    /// An empty directory of this name within the session's own.
    ///
    /// # Errors
    /// [`LabError::File`] when it cannot be made.
    pub fn empty_directory(&self, name: &str) -> Result<PathBuf, LabError> {
        let path = self.directory.join(name);
        let failed = |operation| {
            let path = path.display().to_string();
            move |source| LabError::File {
                operation,
                path,
                source,
            }
        };
        if path.exists() {
            fs::remove_dir_all(&path).map_err(failed("empty"))?;
        }
        fs::create_dir_all(&path).map_err(failed("create"))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[derive(Default)]
    struct Steps(AtomicU64);

    impl Progress for Steps {
        fn begin(&self, _: &str, _: u64) {}

        fn step(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn session(progress: &Steps) -> Session<'_> {
        Session {
            scale: Scale::Quick,
            seed: 1,
            directory: Path::new("."),
            traces: None,
            clusters: None,
            progress,
        }
    }

    #[test]
    fn points_on_all_processors_are_measured_once_each_and_come_in_their_order() {
        let steps = Steps::default();
        let session = session(&steps);
        let all = session.sweep_on_all_processors("points", 500, |at| {
            // The first ones end last.
            let turns = 500 - at;
            Ok((0..turns * 1000).fold(at, |point, _| std::hint::black_box(point)))
        });
        assert_eq!(all.unwrap(), (0..500).collect::<Vec<_>>());
        assert_eq!(steps.0.load(Ordering::Relaxed), 500);
        let columns = ["a", "b", "c"];
        let name = |row: &u32, column: &&str| Ok(format!("{row}{column}"));
        let apart = session.grid_on_all_processors("pairs", [1, 2], &columns, name);
        let in_turn = session.grid("pairs", [1, 2], &columns, name);
        assert_eq!(apart.unwrap(), in_turn.unwrap());
    }

    #[test]
    fn the_first_error_on_all_processors_ends_the_sweep() {
        let steps = Steps::default();
        let result = session(&steps).sweep_on_all_processors("points", 100_000, |at| {
            if at < 3 {
                return Ok(at);
            }
            Err(LabError::Target(at.to_string()))
        });
        assert_eq!(
            result.unwrap_err().to_string(),
            LabError::Target("3".to_owned()).to_string()
        );
        assert!(steps.0.load(Ordering::Relaxed) < 100_000);
    }
}
