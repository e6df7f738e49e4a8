//! The cluster at a glance: health, racks and nodes, space, stripes, traffic.

use super::asked::{Asked, Told};
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::health;
use crate::view::nodes::{NodeView, state_name};
use crate::view::repair::RepairView;
use crate::view::traffic::{Crossing, RackLink, Rates, Sample};
use crate::watch::Look;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gabion_layout::NodeId;
use gabion_planner::placement::Space;
use gabion_protocol::message::{ClusterStatus, Meter, NodeStatus};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Nodes up to which the overview has each of them. Larger clusters are shown by racks.
const CELL_COUNT_MAX: usize = 1_000;
/// Most nodes of an answer.
const NODE_COUNT_MAX: usize = 1_000;
/// Nodes that are not up, of an overview.
const UNWELL_COUNT_MAX: usize = 200;
/// Links of an answer, the busiest ones.
const LINK_COUNT_MAX: usize = 256;

/// The age of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Age {
    /// Time since the coordinator was asked.
    pub(super) age_ms: u64,
    /// The cause if there is no newer answer; null while the coordinator answers.
    pub(super) stale_because: Option<String>,
}

impl Age {
    pub(super) fn of<T>(look: &Look<T>) -> Self {
        Self {
            age_ms: u64::try_from(look.age.as_millis()).unwrap_or(u64::MAX),
            stale_because: look.failure.clone(),
        }
    }

    /// The light of an answer of this age.
    pub(super) fn light(&self, light: &'static str) -> &'static str {
        if self.stale_because.is_some() {
            "unknown"
        } else {
            light
        }
    }

    /// A silence that the answer has told, until now.
    fn until_now(&self, silence_ms: Option<u64>) -> Option<u64> {
        silence_ms.map(|silence_ms| silence_ms.saturating_add(self.age_ms))
    }

    /// A node of the answer, with its silence until now.
    fn node(&self, status: &ClusterStatus, node: &NodeStatus) -> NodeView {
        let mut view = NodeView::of(status, node, None);
        view.heard_ms_ago = self.until_now(view.heard_ms_ago);
        view
    }
}

/// A node in a few words.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cell {
    /// The node's number.
    node: u32,
    /// `up`, `suspect`, `failed`, `joining`, `draining` or `drained`.
    state: &'static str,
    /// Used share of its disk, in per cent; null without a report.
    used_percent: Option<u64>,
}

/// A rack.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(super) struct RackView {
    /// The rack's number.
    rack: u32,
    /// Its nodes by state.
    by_state: BTreeMap<&'static str, u64>,
    /// Bytes of its disks, as far as they are reported.
    capacity_bytes: u64,
    /// Bytes of them for new chunks.
    free_bytes: u64,
    /// Used share of its fullest disk, in per cent.
    fullest_percent: Option<u64>,
    /// Its nodes; null in a cluster of more than 1000.
    nodes: Option<Vec<Cell>>,
}

/// A cluster at a glance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Overview {
    #[serde(flatten)]
    age: Age,
    /// `green`, `yellow` or `red`; `unknown` while there is no newer answer.
    light: &'static str,
    /// The problems, a sentence each, the worst first.
    troubles: Vec<String>,
    /// Signs of decaying disks and broken links.
    signs: Vec<String>,
    /// Longest time since the last message of a node that is up.
    heard_at_most_ms_ago: Option<u64>,
    /// Number of nodes.
    node_count: usize,
    /// Nodes that are not up, at most 200.
    unwell: Vec<NodeView>,
    /// The racks.
    racks: Vec<RackView>,
    /// Stripes by the chunk losses that they still survive; -1 has lost data.
    stripes_by_failures_left: BTreeMap<i32, u64>,
    /// The same of stripes that have lost chunks.
    at_risk: BTreeMap<i32, u64>,
    /// Stripes whose updates wait for a commit.
    appending_stripes: u64,
    /// Chunks whose nodes do not answer.
    unreachable_chunks: u64,
    /// Repairs, without their traffic.
    repair: RepairView,
}

fn racks(status: &ClusterStatus) -> Vec<RackView> {
    let has_cells = status.nodes.len() <= CELL_COUNT_MAX;
    let mut racks: BTreeMap<u32, RackView> = BTreeMap::new();
    for node in &status.nodes {
        let rack = racks.entry(node.rack.0).or_default();
        rack.rack = node.rack.0;
        let state = state_name(status, node);
        *rack.by_state.entry(state).or_default() += 1;
        let space = status.spaces.get(&node.node);
        let used_percent = space.map(Space::used_percent);
        if let Some(space) = space {
            rack.capacity_bytes = rack.capacity_bytes.saturating_add(space.capacity_bytes);
            rack.free_bytes = rack.free_bytes.saturating_add(space.free_bytes);
        }
        rack.fullest_percent = rack.fullest_percent.max(used_percent);
        if has_cells {
            rack.nodes.get_or_insert_default().push(Cell {
                node: node.node.0,
                state,
                used_percent,
            });
        }
    }
    racks.into_values().collect()
}

/// The cluster at a glance: `gabion health`, `gabion cluster status`.
#[utoipa::path(
    get,
    path = "/api/v1/overview",
    responses((status = 200, body = Overview), (status = 503, body = ProblemView))
)]
pub(super) async fn overview(State(app): State<Arc<App>>) -> Result<Json<Overview>, Problem> {
    let look = app.status.look(app.client.status()).await?;
    let (status, age) = (&*look.now, Age::of(&look));
    let mut repair = RepairView::of(status, &Meter::default());
    repair.light = age.light(repair.light);
    let unwell = status.nodes.iter();
    let unwell = unwell.filter(|node| !["up", "drained"].contains(&state_name(status, node)));
    Ok(Json(Overview {
        light: age.light(health::light(status)),
        troubles: health::troubles(status),
        signs: health::signs(status),
        heard_at_most_ms_ago: age.until_now(health::age_ms(status)),
        node_count: status.nodes.len(),
        unwell: unwell
            .take(UNWELL_COUNT_MAX)
            .map(|node| age.node(status, node))
            .collect(),
        racks: racks(status),
        stripes_by_failures_left: status.stripes_by_failures_left.clone(),
        at_risk: status.at_risk.clone(),
        appending_stripes: status.appending_stripe_count,
        unreachable_chunks: status.unreachable_chunk_count,
        repair,
        age,
    }))
}

/// The nodes to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct NodesAsked {
    /// Only those of this rack.
    rack: Option<u32>,
    /// Only those with higher numbers.
    after: Option<u32>,
    /// Most nodes, at most 1000.
    limit: Option<usize>,
}

/// Nodes, in the order of their numbers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Nodes {
    #[serde(flatten)]
    age: Age,
    /// The nodes.
    nodes: Vec<NodeView>,
}

/// Nodes, in the order of their numbers.
#[utoipa::path(
    get,
    path = "/api/v1/nodes",
    params(NodesAsked),
    responses((status = 200, body = Nodes), (status = 503, body = ProblemView))
)]
pub(super) async fn nodes(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<NodesAsked>,
) -> Result<Json<Nodes>, Problem> {
    let look = app.status.look(app.client.status()).await?;
    let (status, age) = (&*look.now, Age::of(&look));
    let mut nodes: Vec<_> = status.nodes.iter().collect();
    nodes.sort_by_key(|node| node.node);
    let nodes = nodes.into_iter().filter(|node| {
        asked.rack.is_none_or(|rack| node.rack.0 == rack)
            && asked.after.is_none_or(|after| node.node.0 > after)
    });
    let limit = asked.limit.unwrap_or(NODE_COUNT_MAX).min(NODE_COUNT_MAX);
    let nodes = nodes.take(limit).map(|node| age.node(status, node));
    Ok(Json(Nodes {
        nodes: nodes.collect(),
        age,
    }))
}

/// A node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneNode {
    /// Its number.
    node: u32,
}

/// Move all chunks of a node to others, so that it can leave: `gabion node drain`.
#[utoipa::path(
    post,
    path = "/api/v1/nodes/drain",
    request_body = OneNode,
    responses((status = 204, description = "The order is durable"), (status = 404, body = ProblemView))
)]
pub(super) async fn drain(
    State(app): State<Arc<App>>,
    Told(told): Told<OneNode>,
) -> Result<StatusCode, Problem> {
    app.ordered(app.client.drain(NodeId(told.node)).await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Cancel a node's departure: `gabion node drain --cancel`.
#[utoipa::path(
    post,
    path = "/api/v1/nodes/keep",
    request_body = OneNode,
    responses((status = 204, description = "The order is durable"), (status = 404, body = ProblemView))
)]
pub(super) async fn keep(
    State(app): State<Arc<App>>,
    Told(told): Told<OneNode>,
) -> Result<StatusCode, Problem> {
    app.ordered(app.client.keep(NodeId(told.node)).await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Traffic of the cluster's links.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Traffic {
    #[serde(flatten)]
    age: Age,
    /// Updates a second; null until there are two samples.
    updates_per_s: Option<f64>,
    /// Parts of reads a second.
    read_parts_per_s: Option<f64>,
    /// Cross-rack bytes a second by purpose; purposes without any are left out.
    cross_rack: Vec<Crossing>,
    /// The links between racks, the busiest first, at most 256.
    links: Vec<RackLink>,
    /// Nodes whose meters are not known.
    unknown_of: Vec<u32>,
}

/// Cross-rack bytes, planned and metered: `gabion top`, `gabion cluster status`. Asks every node.
#[utoipa::path(
    get,
    path = "/api/v1/traffic",
    responses((status = 200, body = Traffic), (status = 503, body = ProblemView))
)]
pub(super) async fn traffic(State(app): State<Arc<App>>) -> Result<Json<Traffic>, Problem> {
    let look = app.traffic.look(Sample::take(&app.client)).await?;
    let rates = look.before.as_ref().map(|before| look.now.since(before));
    let served = rates.as_ref().map(Rates::all_served);
    let mut links = look.now.links(look.before.as_deref());
    links.truncate(LINK_COUNT_MAX);
    Ok(Json(Traffic {
        age: Age::of(&look),
        updates_per_s: served.map(|served| served.0),
        read_parts_per_s: served.map(|served| served.1),
        cross_rack: rates.map(|rates| rates.crossings()).unwrap_or_default(),
        links,
        unknown_of: look
            .now
            .meters
            .unreachable
            .iter()
            .map(|node| node.0)
            .collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_has_no_light_and_its_silences_grow() {
        let mut age = Age {
            age_ms: 5_000,
            stale_because: None,
        };
        assert_eq!(age.light("green"), "green");
        age.stale_because = Some("no coordinator answers".to_owned());
        assert_eq!(age.light("green"), "unknown");
        assert_eq!(age.until_now(Some(300)), Some(5_300));
        assert_eq!(age.until_now(None), None);
    }
}
