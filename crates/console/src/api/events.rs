//! Events.

use super::asked::Asked;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::events::EventView;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Most events of an answer.
const EVENT_COUNT_MAX: usize = 500;

/// The events to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsAsked {
    /// Only those with higher numbers.
    #[serde(default)]
    after: u64,
    /// Most events, the newest ones; at most 500.
    limit: Option<usize>,
}

/// The newest events, oldest first: `gabion events`. The console keeps the last 1000.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    params(EventsAsked),
    responses((status = 200, body = [EventView]), (status = 503, body = ProblemView))
)]
pub(super) async fn events(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<EventsAsked>,
) -> Result<Json<Vec<EventView>>, Problem> {
    let limit = asked.limit.unwrap_or(EVENT_COUNT_MAX).min(EVENT_COUNT_MAX);
    let events = app.events.newest(&app.client, asked.after, limit).await?;
    Ok(Json(events.iter().map(EventView::of).collect()))
}
