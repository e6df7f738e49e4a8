//! One cluster from start to end: load, faults, and finally everything is read back.

use crate::cells::{CELL_BYTES, OperationId, fill};
use crate::clients::{Kept, Load, SharedFile, Signals, Working, read_all};
use crate::cluster::{Behaviour, Cluster, GRACE_MAX_S, NODES, Process};
use crate::dice::Dice;
use crate::disk;
use crate::faults::{Fault, FaultKind, Tools};
use crate::recorder::{Recorded, Recorder};
use crate::schemes::{Pool, draw_engine, draw_pool};
use crate::stop::{Context, Stop};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Time limit for a cluster without faults to become green.
const GREEN_LIMIT: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(50);
/// Interval of checking the clients' history and reading the status.
const CHECK_EVERY: Duration = Duration::from_secs(2);
const POOLS: u32 = 2;
/// Nodes whose disks can die or be full.
const DISKS: u64 = 2;
/// Cells of the file that is inline.
const SMALL_CELLS: u64 = 6;
/// Most scrubs until the damage of faults is repaired.
const SCRUBS_MAX: u32 = 3;

/// A fault in the report; times in microseconds of the episode.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) kind: FaultKind,
    pub(crate) began: u64,
    /// When the cluster was green again, or the next single fault began.
    pub(crate) healed: Option<u64>,
}

/// The use of a file that clients share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FileKind {
    /// All clients read and write it.
    Shared,
    /// The same, and it is inline.
    Small,
    /// Clients write it after an exclusive open.
    Owned,
}

/// The parameters of an episode.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    pub(crate) gabion: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) kinds: Vec<FaultKind>,
    pub(crate) is_testbed: bool,
    pub(crate) time: Duration,
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// The result of an episode.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) recorded: Recorded,
    pub(crate) faults: Vec<Noted>,
    pub(crate) ended: Result<(), Stop>,
    /// Schemes and engine.
    pub(crate) title: String,
}

/// An active fault, with its end.
struct Active {
    fault: Fault,
    ends: Instant,
    noted: usize,
}

struct Episode<'a> {
    orders: &'a Orders,
    /// Dropped before the cluster, whose processes do not end while their disks are frozen.
    active: Vec<Active>,
    cluster: Cluster,
    pools: Vec<Pool>,
    dice: Dice,
    recorder: Arc<Recorder>,
    signals: Arc<Signals>,
    disk_nodes: Vec<u32>,
    /// Processes harmed since the cluster was green.
    harmed: BTreeSet<Process>,
    /// Most nodes that may be harmed before the cluster is green again.
    at_once: usize,
    noted: Vec<Noted>,
    begun: Instant,
}

/// Runs an episode.
pub(crate) fn run(orders: &Orders) -> Outcome {
    let mut dice = Dice::new(orders.seed, 1);
    let pools: Vec<Pool> = (0..POOLS)
        .map(|number| draw_pool(number, &mut dice))
        .collect();
    let behaviour = Behaviour {
        lease_ms: dice.pick(&[1000, 2000, 3000]),
        grace_s: dice.pick(&[5, GRACE_MAX_S]),
        engine: draw_engine(&mut dice),
    };
    let schemes: Vec<&str> = pools.iter().map(|pool| pool.scheme).collect();
    let title = format!(
        "{} on {}, lease {} ms, grace {} s",
        schemes.join(" and "),
        behaviour.engine,
        behaviour.lease_ms,
        behaviour.grace_s
    );
    let recorder = Arc::new(Recorder::new());
    say(&recorder, &format!("seed {}: {title}", orders.seed));
    let directory = orders
        .directory
        .join(format!("seed-{}", orders.seed))
        .join("cluster");
    let cluster = Cluster::new(
        &orders.gabion,
        directory,
        behaviour,
        orders.is_testbed,
        Arc::clone(&orders.interrupted),
    );
    let mut episode = Episode {
        orders,
        cluster,
        pools,
        dice,
        recorder: Arc::clone(&recorder),
        signals: Arc::default(),
        disk_nodes: Vec::new(),
        active: Vec::new(),
        harmed: BTreeSet::new(),
        at_once: 1,
        noted: Vec::new(),
        begun: Instant::now(),
    };
    let ended = episode.run();
    Outcome {
        recorded: recorder.finish(),
        faults: std::mem::take(&mut episode.noted),
        ended,
        title,
    }
}

/// Prints a sentence about the cluster with the time of the episode.
fn say(recorder: &Recorder, sentence: &str) {
    eprintln!("{:>9.3} s  {sentence}", recorder.now() as f64 / 1e6);
}

impl Episode<'_> {
    fn run(&mut self) -> Result<(), Stop> {
        std::fs::create_dir_all(&self.cluster.directory).context("make a directory")?;
        self.cluster.up()?;
        if self.orders.kinds.iter().any(|kind| kind.needs_disk()) {
            self.give_disks()?;
        }
        let load = self.store()?;
        let working = Working::start(load.clone()).context("start clients")?;
        let faults_done = self.run_faults();
        // Read nothing back while a client may still write.
        let kept = working.stop();
        faults_done?;
        self.verify(&load, &kept)
    }

    fn give_disks(&mut self) -> Result<(), Stop> {
        let first = self.dice.below(u64::from(NODES)) as u32;
        for step in 0..DISKS as u32 {
            let node = (first + step * 4) % NODES;
            disk::give(&self.cluster, node)?;
            self.disk_nodes.push(node);
        }
        self.wait_until_green()
    }

    /// Creates pools, and a file in each, of cells of operation 0. The first pool has two more: one that is so small
    /// that it is inline, and one for exclusive opens.
    fn store(&mut self) -> Result<Load, Stop> {
        let pools = self.pools.clone();
        let mut files = Vec::new();
        for (number, pool) in (0..).zip(&pools) {
            let mut arguments = vec!["pool", "create", &pool.name];
            arguments.extend(pool.options.iter().map(String::as_str));
            self.cluster.run(&arguments)?;
            files.push(self.store_file(number, pool, FileKind::Shared)?);
        }
        for (number, kind) in (pools.len() as u32..).zip([FileKind::Small, FileKind::Owned]) {
            files.push(self.store_file(number, &pools[0], kind)?);
        }
        Ok(Load {
            coordinator: self.cluster.coordinator()?,
            security: self.cluster.security()?,
            files,
            pool: pools[0].name.clone(),
            seed: self.orders.seed,
            recorder: Arc::clone(&self.recorder),
            signals: Arc::clone(&self.signals),
        })
    }

    fn store_file(&mut self, number: u32, pool: &Pool, kind: FileKind) -> Result<SharedFile, Stop> {
        let cell_count = match kind {
            FileKind::Small => SMALL_CELLS,
            FileKind::Shared | FileKind::Owned => {
                // The last stripe is not full.
                pool.stripe_cells * self.dice.between(2, 4) - self.dice.between(1, 20)
            }
        };
        let source = self.cluster.beside("source");
        let bytes = fill(number, 0, OperationId(0), 0, cell_count);
        assert_eq!(
            bytes.len() as u64,
            cell_count * CELL_BYTES,
            "cells are whole"
        );
        std::fs::write(&source, bytes).context("write a temporary file")?;
        let is_owned = kind == FileKind::Owned;
        let name = format!("{}-{number}", if is_owned { "owned" } else { "shared" });
        let source = source.display().to_string();
        self.cluster
            .run(&["put", &source, &name, "--pool", &pool.name])?;
        self.recorder.add_file(cell_count, pool.atomic_cells);
        Ok(SharedFile {
            number,
            name,
            cell_count,
            stripe_cells: pool.stripe_cells,
            is_inline: kind == FileKind::Small,
            is_owned,
        })
    }

    /// Injects and ends faults until the time is over, and then waits until the cluster has recovered.
    fn run_faults(&mut self) -> Result<(), Stop> {
        self.begun = Instant::now();
        let mut next_fault = self.begun + Duration::from_secs(1);
        let mut next_check = self.begun;
        let mut unhealthy_since = None;
        loop {
            self.cluster.wait(POLL)?;
            let now = Instant::now();
            let is_over = self.begun.elapsed() >= self.orders.time;
            if self.active.iter().any(|one| is_over || one.ends <= now) {
                self.end_one(now)?;
                unhealthy_since = Some(Instant::now());
                next_check = Instant::now();
                continue;
            }
            if now >= next_check {
                next_check = now + CHECK_EVERY;
                self.recorder.check().map_err(Stop::Broken)?;
                let heals = !self.harmed.is_empty() && self.active.is_empty();
                let troubles = if heals {
                    self.cluster.troubles()?
                } else {
                    Vec::new()
                };
                if heals && troubles.is_empty() {
                    self.healed();
                    unhealthy_since = None;
                    next_check = Instant::now() + CHECK_EVERY;
                    let pause = self.dice.between(200, 2000);
                    next_fault = Instant::now() + Duration::from_millis(pause);
                } else if heals {
                    self.cluster.accept(&troubles)?;
                    require_green_soon(unhealthy_since, &troubles)?;
                    next_check = now + Duration::from_millis(300);
                }
            }
            if is_over && self.harmed.is_empty() {
                return Ok(());
            }
            if !is_over && now >= next_fault {
                self.begin_if_allowed()?;
                let pause = self.dice.between(100, 4000);
                next_fault = Instant::now() + Duration::from_millis(pause);
            }
        }
    }

    /// Notes that the cluster is green: all faults are over.
    fn healed(&mut self) {
        let now = self.recorder.now();
        for noted in self.noted.iter_mut().filter(|one| one.healed.is_none()) {
            noted.healed = Some(now);
        }
        say(&self.recorder, "green");
        self.harmed.clear();
        let survives = self.pools.iter().map(|pool| pool.survives).min();
        let several = self.dice.one_in(3);
        self.at_once = if several { survives.unwrap_or(1) } else { 1 };
    }

    /// Begins a fault unless that would harm more than the pools survive.
    fn begin_if_allowed(&mut self) -> Result<(), Stop> {
        let kind = self.dice.pick(&self.orders.kinds);
        let process = if kind.is_of_coordinator() {
            Process::Coordinator
        } else if kind.needs_disk() {
            Process::Node(self.dice.pick(&self.disk_nodes))
        } else {
            Process::Node(self.dice.below(u64::from(NODES)) as u32)
        };
        let Process::Node(node) = process else {
            // A fault of the coordinator is combined with others only where several are intended.
            if self.harmed.is_empty() || (self.at_once > 1 && !self.harmed.contains(&process)) {
                return self.begin(kind, process);
            }
            return Ok(());
        };
        let is_node = |process: &&Process| matches!(process, Process::Node(_));
        let harmed_nodes = self.harmed.iter().filter(is_node).count();
        let is_alone = self.harmed.is_empty() || self.at_once > 1;
        let has_copies = matches!(kind, FaultKind::Rollback | FaultKind::Twin);
        let is_mounted = has_copies && self.disk_nodes.contains(&node);
        let has_room = harmed_nodes < self.at_once && !self.harmed.contains(&process);
        // Its node is restarted to be copied.
        let can_start = !has_copies || self.of_coordinator().is_none();
        if is_alone && has_room && !is_mounted && can_start {
            return self.begin(kind, process);
        }
        Ok(())
    }

    fn begin(&mut self, kind: FaultKind, process: Process) -> Result<(), Stop> {
        let left = self.orders.time.saturating_sub(self.begun.elapsed());
        let duration = kind.draw_duration(&mut self.dice, left);
        let noted = Noted {
            kind,
            began: self.recorder.now(),
            healed: None,
        };
        self.noted.push(noted);
        self.harmed.insert(process);
        let tools = Tools {
            cluster: &self.cluster,
            signals: &self.signals,
        };
        let (fault, remark) = Fault::begin(kind, process, tools, &mut self.dice)?;
        let sentence = format!(
            "{} of {process} for {:.1} s{}",
            kind.name(),
            duration.as_secs_f64(),
            in_brackets(&remark)
        );
        say(&self.recorder, &sentence);
        self.active.push(Active {
            fault,
            ends: Instant::now() + duration,
            noted: self.noted.len() - 1,
        });
        Ok(())
    }

    /// Ends the fault whose time is over. A node is not ready before it has reached the
    /// coordinator, so a fault of that ends first.
    fn end_one(&mut self, now: Instant) -> Result<(), Stop> {
        let of_coordinator = self.of_coordinator();
        let due = self.active.iter().position(|one| one.ends <= now);
        self.end(of_coordinator.or(due).unwrap_or(0))
    }

    /// The active fault of the coordinator, if any.
    fn of_coordinator(&self) -> Option<usize> {
        let mut processes = self.active.iter().map(|one| one.fault.process);
        processes.position(|process| process == Process::Coordinator)
    }

    fn end(&mut self, at: usize) -> Result<(), Stop> {
        let active = self.active.swap_remove(at);
        let (kind, process) = (active.fault.kind, active.fault.process);
        let tools = Tools {
            cluster: &self.cluster,
            signals: &self.signals,
        };
        let remark = active.fault.end(tools)?;
        let lasted = self.recorder.now() - self.noted[active.noted].began;
        let sentence = format!(
            "{} of {process} ends after {:.1} s{}",
            kind.name(),
            lasted as f64 / 1e6,
            in_brackets(&remark)
        );
        say(&self.recorder, &sentence);
        Ok(())
    }

    fn wait_until_green(&self) -> Result<(), Stop> {
        let since = Some(Instant::now());
        loop {
            let troubles = self.cluster.troubles()?;
            if troubles.is_empty() {
                return Ok(());
            }
            self.cluster.accept(&troubles)?;
            require_green_soon(since, &troubles)?;
            self.cluster.wait(Duration::from_millis(300))?;
        }
    }

    /// Checks that without faults everything is there, whole and redundant.
    fn verify(&mut self, load: &Load, kept: &[Kept]) -> Result<(), Stop> {
        self.recorder.check().map_err(Stop::Broken)?;
        self.wait_until_green()?;
        read_all(load, kept).map_err(Stop::Broken)?;
        for attempt in 1.. {
            let scrubbed = self.cluster.json(&["scrub"])?.unwrap_or_default();
            let is_empty = |list: &str| scrubbed[list].as_array().is_some_and(Vec::is_empty);
            if is_empty("damage") && is_empty("unreachable_nodes") {
                break;
            }
            say(&self.recorder, &format!("a scrub found {scrubbed}"));
            if attempt == SCRUBS_MAX {
                return Err(Stop::Broken(format!("scrubs keep finding {scrubbed}")));
            }
            self.wait_until_green()?;
        }
        read_all(load, kept).map_err(Stop::Broken)?;
        let count = self.recorder.operation_count();
        say(
            &self.recorder,
            &format!("all is read back after {count} operations"),
        );
        self.cluster.down()?;
        remove(self.cluster.directory.parent())
    }
}

/// Removes a cluster's remains, disks included.
fn remove(directory: Option<&Path>) -> Result<(), Stop> {
    let Some(directory) = directory else {
        return Ok(());
    };
    // Nodes' disks are mounted below it, so unmount them first.
    let mounts = std::fs::read_to_string("/proc/mounts").context("list mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for point in points.filter(|point| Path::new(point).starts_with(directory)) {
        crate::cluster::tool("umount", [point])?;
    }
    std::fs::remove_dir_all(directory).context("remove a cluster's directory")
}

fn in_brackets(remark: &str) -> String {
    if remark.is_empty() {
        String::new()
    } else {
        format!(" ({remark})")
    }
}

fn require_green_soon(since: Option<Instant>, troubles: &[String]) -> Result<(), Stop> {
    if since.is_some_and(|since| since.elapsed() > GREEN_LIMIT) {
        let limit = GREEN_LIMIT.as_secs();
        return Err(Stop::Broken(format!(
            "the cluster is not green {limit} s after its last fault: {}",
            troubles.join("; ")
        )));
    }
    Ok(())
}
