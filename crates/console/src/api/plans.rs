//! Plans as graphs, by the planner's own code.

use super::asked::Asked;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::plan::PlanView;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gabion_client::Planned;
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_planner::repair::Scheme;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Most bytes of an update whose plans are shown.
const UPDATE_BYTES_MAX: u64 = 64 << 20;
/// Most plans of an answer: each stripe that an update touches has one.
const PLAN_COUNT_MAX: usize = 64;

/// The plan to show: of an update at `offset`, or of the repair of `chunk` of the stripe in place `stripe`.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanAsked {
    /// The file.
    name: String,
    /// The first byte of the update.
    offset: Option<u64>,
    /// Its bytes; without a number 4 KiB, or as many as the file has.
    length: Option<u64>,
    /// The stripe's place in the file, from 0.
    stripe: Option<usize>,
    /// The chunk of the stripe.
    chunk: Option<u8>,
    /// The repair's scheme; without one, `pipeline`.
    scheme: Option<String>,
}

/// The plans of an update, one for each stripe, at most 64, or of a repair: `gabion plan show`.
#[utoipa::path(
    get,
    path = "/api/v1/plans",
    params(PlanAsked),
    responses(
        (status = 200, body = [PlanView]),
        (status = 400, body = ProblemView),
        (status = 404, description = "There is no such file, or the bytes are in a hole", body = ProblemView),
    )
)]
pub(super) async fn plans(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<PlanAsked>,
) -> Result<Json<Vec<PlanView>>, Problem> {
    let (client, name) = (&app.client, &asked.name);
    let planned = match (asked.offset, asked.stripe, asked.chunk) {
        (Some(offset), None, None) => update(&app, name, offset, asked.length).await?,
        (None, Some(stripe), Some(chunk)) if chunk < u8::MAX => {
            let scheme = asked.scheme.as_deref();
            let scheme: Scheme = scheme
                .map_or(Ok(Scheme::default()), str::parse)
                .map_err(|error| Problem::wrong(error.to_string()))?;
            let chunk = ChunkIndex(chunk);
            vec![client.plan_repair(name, stripe, chunk, scheme).await?]
        }
        _ => {
            return Err(Problem::wrong(
                "no operation given; name offset and length of an update, or stripe and chunk of a repair",
            ));
        }
    };
    Ok(Json(planned.iter().map(PlanView::of).collect()))
}

/// The plans of an update, one for each stripe.
async fn update(
    app: &App,
    name: &str,
    offset: u64,
    length: Option<u64>,
) -> Result<Vec<Planned>, Problem> {
    let length = match length {
        Some(length) if (1..=UPDATE_BYTES_MAX).contains(&length) => length,
        Some(_) => {
            return Err(Problem::wrong(format!(
                "an update that is shown has 1 to {UPDATE_BYTES_MAX} bytes"
            )));
        }
        None => {
            let size = app.client.open(name).await?.size_bytes();
            size.saturating_sub(offset).clamp(1, 4 << 10)
        }
    };
    let range = ByteRange::new(offset, length);
    let planned = app.client.plan_update(name, range).await?;
    match planned.len() {
        0 => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "these bytes of {name} are in a hole: a write there stores new stripes, and updates none"
            ),
        )),
        1..=PLAN_COUNT_MAX => Ok(planned),
        count => Err(Problem::wrong(format!(
            "the update touches {count} stripes, and at most {PLAN_COUNT_MAX} plans are shown; ask for fewer bytes"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use gabion_planner::repair::SCHEMES;

    const PAGE: &str = include_str!("../../page/src/views/Plan.svelte");

    #[test]
    fn the_page_offers_every_repair_scheme() {
        let list = PAGE
            .lines()
            .find(|line| line.contains("as scheme (scheme)"));
        for name in SCHEMES.map(|known| known.name) {
            let offers = list.is_some_and(|list| list.contains(&format!("'{name}'")));
            assert!(offers, "{name} is not in the list of Plan.svelte");
        }
    }
}
