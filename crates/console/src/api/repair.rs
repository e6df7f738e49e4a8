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
use gabion_protocol::message::{RepairOrder, RepairStatus};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The state of repairs, and its age. The light is `unknown` while there is no newer answer.
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
    let sample = app.traffic.look(Sample::take(&app.client)).await?;
    let meter = sample.now.meters.sum();
    // Meters may take long, and the coordinator has said more by then.
    let status = app.status.look(app.client.status()).await;
    let (age, mut repair) = match &status {
        Ok(look) if look.age < sample.age => (Age::of(look), RepairView::of(&look.now, &meter)),
        _ => (Age::of(&sample), RepairView::of(&sample.now.status, &meter)),
    };
    repair.light = age.light(repair.light);
    Ok(Json(RepairNow { age, repair }))
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
    app.ordered(app.client.repair_now(None).await)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes of limits. A limit that is not named stays as it is; null or 0 removes it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewLimits {
    /// Into, and out of, each node.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    node_bytes_per_s: Change,
    /// Into, and out of, each rack, from and to others.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    rack_bytes_per_s: Change,
    /// Sent by all nodes together.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    total_bytes_per_s: Change,
    /// Repairs slow down while the 99th percentile of clients' latencies is above this.
    #[serde(default)]
    #[schema(value_type = Option<u64>)]
    p99_target_ms: Change,
}

/// The change of a limit.
#[derive(Clone, Copy, Default)]
enum Change {
    /// It is not named, and stays.
    #[default]
    Keep,
    /// It is named, null included.
    To(Option<u64>),
}

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(Self::To)
    }
}

impl Change {
    fn of(self, present: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => present,
            Self::To(limit) => limit.filter(|&limit| limit > 0),
        }
    }
}

impl NewLimits {
    /// The present limits with these changes.
    fn merged(&self, repair: &RepairStatus) -> RepairOrder {
        let present = &repair.limits;
        RepairOrder::Limit {
            limits: Limits {
                node_bytes_per_s: self.node_bytes_per_s.of(present.node_bytes_per_s),
                rack_bytes_per_s: self.rack_bytes_per_s.of(present.rack_bytes_per_s),
                total_bytes_per_s: self.total_bytes_per_s.of(present.total_bytes_per_s),
            },
            p99_target_ms: self.p99_target_ms.of(repair.p99_target_ms),
        }
    }
}

/// Change limits of repairs: `gabion repair limit`. The console makes one change after the other, so that operators
/// who change different limits do not undo each other's.
#[utoipa::path(
    patch,
    path = "/api/v1/repair/limits",
    request_body = NewLimits,
    responses((status = 204, description = "The limits are durable"), (status = 400, body = ProblemView))
)]
pub(super) async fn limit(
    State(app): State<Arc<App>>,
    Told(told): Told<NewLimits>,
) -> Result<StatusCode, Problem> {
    let _others = app.limits.lock().await;
    let status = app.client.status().await?;
    order(&app, told.merged(&status.repair)).await
}

async fn order(app: &App, order: RepairOrder) -> Result<StatusCode, Problem> {
    app.ordered(app.client.order_repair(order).await)?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_limits_keeps_those_that_it_does_not_name() {
        let mut repair = RepairStatus::default();
        repair.limits.node_bytes_per_s = Some(1);
        repair.limits.rack_bytes_per_s = Some(2);
        repair.limits.total_bytes_per_s = Some(3);
        repair.p99_target_ms = Some(4);
        let change =
            r#"{"node_bytes_per_s": null, "rack_bytes_per_s": 0, "total_bytes_per_s": 30}"#;
        let change: NewLimits = serde_json::from_str(change).unwrap();
        let limits = Limits {
            node_bytes_per_s: None,
            rack_bytes_per_s: None,
            total_bytes_per_s: Some(30),
        };
        let expected = RepairOrder::Limit {
            limits,
            p99_target_ms: Some(4),
        };
        assert_eq!(change.merged(&repair), expected);
    }
}
