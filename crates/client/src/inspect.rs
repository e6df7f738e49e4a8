//! Inspection of the cluster: a file's redundancy, plans, network traffic, scrub results.

use crate::client::{Client, check};
use crate::error::ClientError;
use crate::extent::{extents, within_file};
use crate::file::{File, Holding};
use crate::layout::Layout;
use crate::losses::lost_for_good;
use gabion_codec::Code;
use gabion_layout::{ByteRange, ChunkIndex, NodeId, PoolId, StripeId, StripeRecord, Topology};
use gabion_plan::Plan;
use gabion_planner::endurance::{failures_left, failures_left_appending};
use gabion_planner::repair::{self, Scheme};
use gabion_planner::update;
use gabion_protocol::message::{
    FileLayout, Liveness, Meter, NodeStatus, RESERVES_ASKED_MAX, RecoveryPage, RecoveryPlace,
    ScrubReport, StoreCounts, ask, raw_bytes,
};
use gabion_protocol::ports::Ask as _;
use std::collections::{BTreeMap, BTreeSet};

/// Slice size of the displayed repair plans; the coordinator's default.
const REPAIR_SLICE_BYTES: u64 = 32 << 10;
/// Time limit of a node's traffic report.
const METER_DEADLINE_MS: u64 = 5_000;
/// Time limit of a page of a recovery's findings: nodes look chunks up on their disks.
const RECOVERY_DEADLINE_MS: u64 = 60_000;
/// Time limit of a scrub of the whole cluster: it reads every stored byte.
const SCRUB_DEADLINE_MS: u64 = 24 * 3600 * 1000;

/// A file, its location, and the failures that it survives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileStat {
    /// The file's layout.
    pub layout: FileLayout,
    /// For each stripe, the number of further lost chunks that it survives in any combination; -1
    /// when it has lost data. While updates of it wait for parity, the number that their copies
    /// survive, if that is lower.
    pub failures_left: Vec<i32>,
}

/// The disk space of a file's stripes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileSpace {
    /// Raw bytes of each stripe, in the layout's order.
    pub raw_bytes: Vec<u64>,
    /// Bytes of the reserves of each stripe that have disk space.
    pub reserved_bytes: Vec<u64>,
    /// Whether other files may have the stripe too.
    pub is_shared: Vec<bool>,
    /// Nodes that did not answer: the reserves of their chunks are not counted.
    pub silent_nodes: Vec<NodeId>,
}

impl FileSpace {
    /// The raw and the reserved bytes of all stripes.
    pub fn total(&self) -> (u64, u64) {
        self.sums(|_| true)
    }

    /// The same of those stripes alone that other files may have too.
    pub fn shared(&self) -> (u64, u64) {
        self.sums(|is_shared| is_shared)
    }

    fn sums(&self, counts: impl Fn(bool) -> bool) -> (u64, u64) {
        let sum = |bytes: &[u64]| {
            let stripes = bytes.iter().zip(&self.is_shared);
            let counted = stripes.filter(|&(_, &is_shared)| counts(is_shared));
            counted.fold(0, |sum: u64, (&more, _)| sum.saturating_add(more))
        };
        (sum(&self.raw_bytes), sum(&self.reserved_bytes))
    }
}

/// A plan as the cluster would run it now.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan, which has been checked.
    pub plan: Plan,
    /// Its code.
    pub code: Code,
    /// The topology, to compute its cost.
    pub topology: Topology,
}

/// Payload bytes sent, by the senders' meters, and the planned ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterMeters {
    /// By node, since its start.
    pub nodes: BTreeMap<NodeId, Meter>,
    /// By this client, since it connected.
    pub client: Meter,
    /// Planned traffic, as reported by the runners of plans: primaries for updates and commits, the
    /// coordinator for commits before repairs and for data grouping, and this client for its puts
    /// and reads. Repairs, other clients' puts and reads, and failed runs are in the meters only.
    pub planned: Meter,
    /// Nodes that did not answer.
    pub unreachable: Vec<NodeId>,
}

impl ClusterMeters {
    /// The sum of all meters.
    pub fn sum(&self) -> Meter {
        let mut sum = self.client.clone();
        for meter in self.nodes.values() {
            sum.add(meter);
        }
        sum
    }
}

impl File {
    /// The location of the file, and the further failures that each of its stripes survives, as of now.
    ///
    /// # Errors
    /// [`ClientError::FileGone`]; [`ClientError::NoCoordinator`].
    pub async fn stat(&self) -> Result<FileStat, ClientError> {
        let first = self.look_up(0).await?;
        let layout = self.client.complete(first.file.clone()).await?;
        Ok(self.stat_of(layout))
    }

    /// The same of the layout window with the byte at an offset, by one look-up; and the offset of the first stripe
    /// behind the window, without one the largest number.
    ///
    /// # Errors
    /// Those of [`File::stat`].
    pub async fn stat_window(&self, offset: u64) -> Result<(FileStat, u64), ClientError> {
        let layout = self.look_past(offset).await?;
        let end = layout.file.behind.unwrap_or(u64::MAX);
        Ok((self.stat_of(layout.file.clone()), end))
    }

    /// The further failures that the file's weakest stripe survives; negative if it has lost data. None if nothing is
    /// stored. Each window of the layout takes one look-up.
    ///
    /// # Errors
    /// Those of [`File::stat`].
    pub async fn failures_left(&self) -> Result<Option<i32>, ClientError> {
        let (mut weakest, mut at) = (None, 0);
        while at < u64::MAX {
            let (stat, end) = self.stat_window(at).await?;
            weakest = weakest.into_iter().chain(stat.failures_left).min();
            at = end;
        }
        Ok(weakest)
    }

    fn stat_of(&self, layout: FileLayout) -> FileStat {
        // Most stripes have the same losses, usually none, and for some codes the computation is
        // slow.
        let mut known: BTreeMap<(PoolId, Vec<ChunkIndex>), i32> = BTreeMap::new();
        let left = |stripe: &StripeRecord| {
            let lost = lost_for_good(stripe, &layout.nodes);
            let (spec, code) = (&layout.pool_of(stripe).spec, self.code(stripe));
            let lost_count = lost.len();
            let left = *known
                .entry((stripe.pool, lost))
                .or_insert_with_key(|(_, lost)| failures_left(code, lost));
            let copies = update::phase_survives(spec.update, spec.append, code);
            let appends = layout.appending.contains(&stripe.id);
            match copies.filter(|_| appends) {
                Some(copies) => failures_left_appending(left, lost_count, copies),
                None => left,
            }
        };
        let failures_left = layout.stripes.iter().map(left).collect();
        FileStat {
            layout,
            failures_left,
        }
    }
}

impl Client {
    /// The location of a file, and the further failures that each of its stripes survives.
    ///
    /// # Errors
    /// Those of [`Client::open`].
    pub async fn stat(&self, name: &str) -> Result<FileStat, ClientError> {
        let (file, layout) = self.open_whole(name).await?;
        Ok(file.stat_of(layout))
    }

    /// Opens a file, and looks all of its layout up.
    async fn open_whole(&self, name: &str) -> Result<(File, FileLayout), ClientError> {
        let first = self.lookup(name).await?;
        let file = File::with_layout(self, name, first.clone(), Holding::Nothing)?;
        Ok((file, self.complete(first).await?))
    }

    /// Verifies every stored byte of the cluster.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`], [`ClientError::Refused`].
    pub async fn scrub(&self) -> Result<ScrubReport, ClientError> {
        self.ask_for(ask::ScrubAll, SCRUB_DEADLINE_MS).await
    }

    /// Some findings of a coordinator that recovers files, from a place on: without one, the first.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`]; [`ClientError::Refused`] also by a coordinator that recovers nothing.
    pub async fn recovery(&self, from: Option<RecoveryPlace>) -> Result<RecoveryPage, ClientError> {
        let page = self.ask_for(ask::Recovery(from), RECOVERY_DEADLINE_MS);
        Ok(*page.await?)
    }

    /// Traffic of all nodes and this client so far.
    ///
    /// # Errors
    /// Those of [`Client::nodes`]; nodes that do not answer, or are not up and so not asked, are listed.
    pub async fn meters(&self) -> Result<ClusterMeters, ClientError> {
        let ports = &self.shared.ports;
        let meter = |status: &NodeStatus| {
            let node = status.node;
            // A node that hangs would hold up the others' answers.
            let asked = (status.liveness == Liveness::Up)
                .then(|| ports.ask_node(node, ask::Meter, METER_DEADLINE_MS));
            async move {
                match asked {
                    Some(asked) => (node, asked.await.ok()),
                    None => (node, None),
                }
            }
        };
        let nodes = self.nodes().await?;
        let asked = futures::future::join_all(nodes.iter().map(meter)).await;
        let mut meters = ClusterMeters {
            client: ports.meter(),
            planned: self.planned(),
            ..ClusterMeters::default()
        };
        meters.planned.add(&self.status().await?.planned);
        for (node, reply) in asked {
            if let Some((sent, planned)) = reply {
                meters.nodes.insert(node, sent);
                meters.planned.add(&planned);
            } else {
                meters.unreachable.push(node);
            }
        }
        Ok(meters)
    }

    /// Disk counters of all nodes since their start. Nodes that do not answer are left out.
    ///
    /// # Errors
    /// Those of [`Client::nodes`].
    pub async fn store_counts(&self) -> Result<BTreeMap<NodeId, StoreCounts>, ClientError> {
        let ports = &self.shared.ports;
        let nodes = self.nodes().await?;
        let asked = nodes.iter().map(|status| {
            let asked = ports.ask_node(status.node, ask::StoreCounts, METER_DEADLINE_MS);
            async move { (status.node, asked.await) }
        });
        let answers = futures::future::join_all(asked).await;
        let counts = answers.into_iter();
        let counts = counts.filter_map(|(node, counts)| Some((node, counts.ok()?)));
        Ok(counts.collect())
    }

    /// The disk space of a file's stripes. Asks the nodes that are up for the reserves of their chunks; a stripe whose
    /// pool has no reserves is not asked for.
    ///
    /// # Errors
    /// [`ClientError::Broken`] when the nodes' counts are impossible.
    pub async fn space_of(&self, layout: &FileLayout) -> Result<FileSpace, ClientError> {
        let mut by_node: BTreeMap<NodeId, Vec<StripeId>> = BTreeMap::new();
        for stripe in &layout.stripes {
            let spec = &layout.pool_of(stripe).spec;
            // Data chunks have no reserves.
            for node in stripe.nodes.iter().skip(spec.k) {
                if spec.reserve.is_some() {
                    by_node.entry(*node).or_default().push(stripe.id);
                }
            }
        }
        let is_up = |node: &NodeId| {
            let is_it = |status: &&NodeStatus| status.node == *node;
            let status = layout.nodes.iter().find(is_it);
            status.is_some_and(|status| status.liveness == Liveness::Up)
        };
        let asked = by_node.iter().map(|(&node, stripes)| async move {
            let reserved = if is_up(&node) {
                self.reserved_on(node, stripes).await
            } else {
                None
            };
            (node, reserved)
        });
        let mut space = FileSpace {
            raw_bytes: layout.stripes.iter().map(raw_bytes).collect(),
            ..FileSpace::default()
        };
        let mut reserved: BTreeMap<StripeId, u64> = BTreeMap::new();
        for (node, answer) in futures::future::join_all(asked).await {
            let Some(answer) = answer else {
                space.silent_nodes.push(node);
                continue;
            };
            for (stripe, bytes) in answer {
                let sum = reserved.entry(stripe).or_default();
                *sum = sum
                    .checked_add(bytes)
                    .ok_or_else(|| ClientError::unexpected("a node"))?;
            }
        }
        let of = |stripe: &StripeRecord| reserved.get(&stripe.id).copied().unwrap_or(0);
        space.reserved_bytes = layout.stripes.iter().map(of).collect();
        let shared: BTreeSet<StripeId> = layout.shared.iter().copied().collect();
        let is_shared = |stripe: &StripeRecord| shared.contains(&stripe.id);
        space.is_shared = layout.stripes.iter().map(is_shared).collect();
        Ok(space)
    }

    /// The reserves of a node's chunks of these stripes; none if it does not answer.
    async fn reserved_on(
        &self,
        node: NodeId,
        stripes: &[StripeId],
    ) -> Option<Vec<(StripeId, u64)>> {
        let mut all = Vec::new();
        for stripes in stripes.chunks(RESERVES_ASKED_MAX) {
            let stripes = stripes.to_vec();
            let asked = ask::ReservedBytes { stripes };
            let answer = self.ports().ask_node(node, asked, METER_DEADLINE_MS);
            all.extend(answer.await.ok()?);
        }
        Some(all)
    }

    /// The plans of an update of a range of a file, one for each stripe, as the stripes' primaries
    /// would make them now.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for a range outside of the file, or when a chunk to be changed is
    /// lost; those of [`Client::open`].
    pub async fn plan_update(
        &self,
        name: &str,
        range: ByteRange,
    ) -> Result<Vec<Planned>, ClientError> {
        let file = self.open(name).await?;
        within_file(name, file.size_bytes(), range)?;
        let layout = file.layout_of(range).await?;
        let mut planned = Vec::new();
        for extent in extents(layout.spans(), range) {
            let Some(stripe) = layout.find(&extent) else {
                continue;
            };
            let ranges = layout.geometry(stripe)?.split(extent.range);
            let ranges = ranges.map_err(|error| ClientError::Broken(error.to_string()))?;
            let plan = file.plan_update_of(&layout, stripe, &ranges);
            let plan = plan.map_err(|no_plan| ClientError::Usage(no_plan.sentence()))?;
            check(&plan, file.code(stripe))?;
            let (code, topology) = (file.code(stripe).clone(), layout.topology.clone());
            planned.push(Planned {
                plan,
                code,
                topology,
            });
        }
        Ok(planned)
    }

    /// The plan of the repair of one chunk of the file's `stripe_at`-th stripe, from 0.
    ///
    /// The chunk counts as lost even if it exists. Its new node is the first that is up and holds
    /// nothing of the stripe, in the lost chunk's rack if there is one; the coordinator chooses
    /// among such nodes at random.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when there is no such stripe or chunk, or too few chunks are left;
    /// those of [`Client::open`].
    pub async fn plan_repair(
        &self,
        name: &str,
        stripe_at: usize,
        chunk: ChunkIndex,
        scheme: Scheme,
    ) -> Result<Planned, ClientError> {
        let (file, layout) = self.open_whole(name).await?;
        let layout = Layout::new(layout)?;
        let stripe_count = layout.file.stripes.len();
        let no_stripe = || {
            ClientError::Usage(format!(
                "{name} has {stripe_count} stripes, counted from 0; there is no stripe {stripe_at}"
            ))
        };
        let record = layout.file.stripes.get(stripe_at).ok_or_else(no_stripe)?;
        if record.node_of(chunk).is_none() {
            let last = record.nodes.len() - 1;
            return Err(ClientError::Usage(format!(
                "{} has chunks 0 to {last}; there is no {chunk}",
                record.id
            )));
        }
        let mut lost = lost_for_good(record, &layout.file.nodes);
        if !lost.contains(&chunk) {
            lost.push(chunk);
        }
        let stripe = file.stripe(record, layout.geometry(record)?, &lost);
        let requestor = requestor(&layout, record, chunk);
        let helpers = repair::helpers_by_distance(&stripe, requestor, &layout.topology);
        let plan = repair::repair(
            &stripe,
            chunk,
            requestor,
            &helpers,
            scheme,
            REPAIR_SLICE_BYTES,
        )
        .map_err(|error| ClientError::Usage(error.to_string()))?;
        check(&plan, file.code(record))?;
        Ok(Planned {
            plan,
            code: file.code(record).clone(),
            topology: layout.topology.clone(),
        })
    }
}

/// The new node of a lost chunk; its present one if there is no other.
fn requestor(layout: &Layout, record: &StripeRecord, chunk: ChunkIndex) -> NodeId {
    let present = record.nodes[chunk.at()];
    let rack = layout.topology.rack_of(present);
    let is_free = |node: &NodeId| !record.nodes.contains(node);
    let up = layout
        .file
        .nodes
        .iter()
        .filter(|status| status.liveness == Liveness::Up);
    let free = up.map(|status| status.node).filter(is_free);
    free.min_by_key(|&node| (layout.topology.rack_of(node) != rack, node))
        .unwrap_or(present)
}
