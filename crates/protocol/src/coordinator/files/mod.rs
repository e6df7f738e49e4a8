//! Files: pools, puts, replacements, names, and where new stripes are placed.
//!
//! `pools` creates and commits pools. `puts` stores, renames and deletes files, `lookups` finds them; `replace` is the
//! coordinator's half of a write that spans stripes. `places` places new stripes for both, and `blocks`
//! places blocks that are replicated first. `inline` stores and changes small files. `directories` makes and lists
//! directories, `inodes` keeps attributes and links. `exclusive` decides which client is the only writer of a file.
//! `orphans` opens files in clients' sessions, and ends those without a name.

mod blocks;
mod denied_puts;
pub(in crate::coordinator) mod directories;
mod exclusive;
mod inline;
pub(in crate::coordinator) mod inodes;
mod live_puts;
pub(in crate::coordinator) mod lookups;
mod orphans;
mod places;
mod pools;
mod puts;
mod replace;
mod sessions;
mod snapshots;

use super::core::Core;
use super::garbage::Garbage;
use super::garbage::leftovers::Leftovers;
use super::leases::Leases;
use super::leases::occupied::Occupied;
use super::lifecycle::timetable::Timetable;
use super::members::nodes::Nodes;
use super::pool_facts::Pools;
use super::repair::Repair;
use super::repair::backlog::Backlog;
use super::shared_state::SharedState;
use super::tickets::Tickets;
use denied_puts::DeniedPuts;
use futures::lock::Mutex as AsyncMutex;
use gabion_meta::{KeyValue, MetaError, PutId};
use live_puts::LivePut;
use sessions::Sessions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Stores files and places their stripes.
pub(in crate::coordinator) struct Files<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    nodes: Arc<Nodes<K>>,
    backlog: Arc<Backlog<K>>,
    leftovers: Arc<Leftovers>,
    occupied: Occupied,
    leases: Arc<Leases<K>>,
    garbage: Arc<Garbage<K>>,
    repair: Arc<Repair<K>>,
    timetable: Arc<Timetable>,
    tickets: Arc<Tickets<K>>,
    /// When the client of each put was last heard of, and what it is to replace.
    puts: Mutex<BTreeMap<PutId, LivePut>>,
    /// Why the last refused puts were refused.
    denied_puts: DeniedPuts,
    sessions: Sessions,
    /// Held by the exclusive open that looks at the sessions and changes them.
    opening: AsyncMutex<()>,
    /// The files of which a snapshot is being taken.
    frozen: Mutex<BTreeSet<PutId>>,
}

impl<K: KeyValue + Send + Sync + 'static> Files<K> {
    /// Puts of an earlier run continue. Waits for the disk.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(in crate::coordinator) fn new(
        shared: &SharedState<K>,
        leases: &Arc<Leases<K>>,
        garbage: &Arc<Garbage<K>>,
        repair: &Arc<Repair<K>>,
        timetable: &Arc<Timetable>,
    ) -> Result<Self, MetaError> {
        // An earlier run's clock does not apply to this one: all clients get a full timeout.
        let heard_ms = shared.core.ports.now_ms();
        let live = |put| LivePut::of_earlier_run(put, heard_ms);
        let puts = shared.core.meta.puts()?.into_iter();
        Ok(Self {
            core: Arc::clone(&shared.core),
            pools: Arc::clone(&shared.pools),
            nodes: Arc::clone(&shared.nodes),
            backlog: Arc::clone(&shared.backlog),
            leftovers: Arc::clone(&shared.leftovers),
            occupied: shared.occupied.clone(),
            leases: Arc::clone(leases),
            garbage: Arc::clone(garbage),
            repair: Arc::clone(repair),
            timetable: Arc::clone(timetable),
            tickets: Arc::clone(&shared.tickets),
            denied_puts: DeniedPuts::default(),
            opening: AsyncMutex::default(),
            frozen: Mutex::default(),
            sessions: Sessions::new(shared.core.meta.sessions()?, heard_ms),
            puts: Mutex::new(puts.map(|put| (put.id, live(put))).collect()),
        })
    }
}
