//! Repairs: their state, and the operator's orders.

use super::asked::Told;
use super::overview::Age;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::repair::RepairView;
use crate::view::traffic::Sample;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gabion_planner::manager::Limits;
use gabion_protocol::message::RepairOrder;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The state of repairs, and its age.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RepairNow {
    #[serde(flatten)]
    age: Age,
    #[serde(flatten)]
    repair: RepairView,
}

/// The state of repairs: `gabion repair status`. Asks every node for its sent bytes.
#[utoipa::path(
    get,
    path = "/api/v1/repair",
    responses((status = 200, body = RepairNow), (status = 503, body = ProblemView))
)]
pub(super) async fn status(State(app): State<Arc<App>>) -> Result<Json<RepairNow>, Problem> {
    let look = app.traffic.look(Sample::take(&app.client)).await?;
    Ok(Json(RepairNow {
        age: Age::of(&look),
        repair: RepairView::of(&look.now.status, &look.now.meters.sum()),
    }))
}

/// Start no repairs; those under way end: `gabion repair pause`.
#[utoipa::path(
    post,
    path = "/api/v1/repair/pause",
    responses((status = 204, description = "The order is durable"), (status = 503, body = ProblemView))
)]
pub(super) async fn pause(State(app): State<Arc<App>>) -> Result<StatusCode, Problem> {
    order(&app, RepairOrder::Pause).await
}

/// Start repairs again: `gabion repair resume`.
#[utoipa::path(
    post,
    path = "/api/v1/repair/resume",
    responses((status = 204, description = "The order is durable"), (status = 503, body = ProblemView))
)]
pub(super) async fn resume(State(app): State<Arc<App>>) -> Result<StatusCode, Problem> {
    order(&app, RepairOrder::Resume).await
}

/// Repair lost chunks now instead of after the grace period: `gabion repair`.
#[utoipa::path(
    post,
    path = "/api/v1/repair/now",
    responses((status = 204, description = "Repairs are due"), (status = 503, body = ProblemView))
)]
pub(super) async fn now(State(app): State<Arc<App>>) -> Result<StatusCode, Problem> {
    app.client.repair_now(None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// New limits. They replace all previous limits; null, 0 or an absent value means no limit.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLimits {
    /// Into, and out of, each node.
    #[serde(default)]
    node_bytes_per_s: Option<u64>,
    /// Into, and out of, each rack, from and to others.
    #[serde(default)]
    rack_bytes_per_s: Option<u64>,
    /// Sent by all nodes together.
    #[serde(default)]
    total_bytes_per_s: Option<u64>,
    /// Repairs slow down while the 99th percentile of clients' latencies is above this.
    #[serde(default)]
    p99_target_ms: Option<u64>,
}

/// Limit repairs: `gabion repair limit`.
#[utoipa::path(
    put,
    path = "/api/v1/repair/limits",
    request_body = NewLimits,
    responses((status = 204, description = "The limits are durable"), (status = 400, body = ProblemView))
)]
pub(super) async fn limit(
    State(app): State<Arc<App>>,
    Told(told): Told<NewLimits>,
) -> Result<StatusCode, Problem> {
    let some = |limit: Option<u64>| limit.filter(|&limit| limit > 0);
    let limits = Limits {
        node_bytes_per_s: some(told.node_bytes_per_s),
        rack_bytes_per_s: some(told.rack_bytes_per_s),
        total_bytes_per_s: some(told.total_bytes_per_s),
    };
    let p99_target_ms = some(told.p99_target_ms);
    order(
        &app,
        RepairOrder::Limit {
            limits,
            p99_target_ms,
        },
    )
    .await
}

async fn order(app: &App, order: RepairOrder) -> Result<StatusCode, Problem> {
    app.client.order_repair(order).await?;
    Ok(StatusCode::NO_CONTENT)
}
