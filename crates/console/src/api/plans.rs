//! Plans as graphs, by the planner's own code.

use super::asked::Asked;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::plan::PlanView;
use axum::Json;
use axum::extract::State;
use gabion_layout::{ByteRange, ChunkIndex};
use gabion_planner::repair::Scheme;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;

/// Most bytes of an update whose plans are shown: each stripe that it touches has a plan.
const UPDATE_BYTES_MAX: u64 = 64 << 20;

/// Which plan to show: of an update at `offset`, or of the repair of `chunk` of the stripe in place `stripe`.
#[derive(Deserialize, IntoParams)]
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

/// The plans of an update, one for each stripe, or of a repair: `gabion plan show`.
#[utoipa::path(
    get,
    path = "/api/v1/plans",
    params(PlanAsked),
    responses((status = 200, body = [PlanView]), (status = 400, body = ProblemView))
)]
pub(super) async fn plans(
    State(app): State<Arc<App>>,
    Asked(asked): Asked<PlanAsked>,
) -> Result<Json<Vec<PlanView>>, Problem> {
    let (client, name) = (&app.client, &asked.name);
    let planned = match (asked.offset, asked.stripe, asked.chunk) {
        (Some(offset), None, None) => {
            let length = match asked.length {
                Some(length) if (1..=UPDATE_BYTES_MAX).contains(&length) => length,
                Some(_) => {
                    return Err(Problem::wrong(format!(
                        "a plan can be shown for updates of 1 to {UPDATE_BYTES_MAX} bytes"
                    )));
                }
                None => {
                    let size = client.open(name).await?.size_bytes();
                    size.saturating_sub(offset).clamp(1, 4 << 10)
                }
            };
            client
                .plan_update(name, ByteRange::new(offset, length))
                .await?
        }
        (None, Some(stripe), Some(chunk)) if chunk < u8::MAX => {
            let scheme = asked.scheme.as_deref();
            let scheme: Scheme = scheme
                .map_or(Ok(Scheme::Pipeline), str::parse)
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
