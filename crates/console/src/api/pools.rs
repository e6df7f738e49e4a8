//! Pools: their cost and their space, and new ones.

use super::asked::Told;
use crate::app::App;
use crate::problem::{Problem, ProblemView};
use crate::view::pools::{PoolView, cost_of};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use gabion_layout::UpdateScheme;
use gabion_meta::{INLINE_BYTES_USUAL, PoolRecord};
use gabion_protocol::message::{ClusterUsage, PoolRequest, PoolUsage};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Bytes of a chunk without a choice.
const CHUNK_BYTES: u64 = 1 << 20;

/// A pool, and the space of its files.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct UsedPool {
    #[serde(flatten)]
    pool: PoolView,
    /// Number of files.
    files: u64,
    /// Bytes of small files, which are in the metadata.
    inline_used_bytes: u64,
    /// Data bytes of stripes of files and of unfinished puts, which count against the quota.
    used_bytes: u64,
    /// The most such bytes.
    quota_bytes: Option<u64>,
    /// The most files.
    quota_files: Option<u64>,
}

fn used(pool: &PoolRecord, cluster: &ClusterUsage) -> Result<UsedPool, Problem> {
    let cost = cost_of(pool, cluster);
    let cost = cost.map_err(|error| Problem::new(StatusCode::BAD_GATEWAY, error.to_string()))?;
    let none = PoolUsage::default();
    let usage = cluster.pools.get(&pool.id).unwrap_or(&none);
    Ok(UsedPool {
        pool: PoolView::of(pool, cluster, cost),
        files: usage.file_count,
        inline_used_bytes: usage.inline_bytes,
        used_bytes: usage.used.bytes,
        quota_bytes: usage.quota.bytes.number(),
        quota_files: usage.quota.files.number(),
    })
}

/// All pools: `gabion pool ls`, `gabion df`. Counts of files and chunks may be 10 s old.
#[utoipa::path(
    get,
    path = "/api/v1/pools",
    responses((status = 200, body = [UsedPool]), (status = 503, body = ProblemView))
)]
pub(super) async fn pools(State(app): State<Arc<App>>) -> Result<Json<Vec<UsedPool>>, Problem> {
    let (pools, usage) = (app.client.pools().await?, app.client.recent_usage().await?);
    let pools = pools.iter();
    let pools = pools.map(|pool| used(pool, &usage));
    Ok(Json(pools.collect::<Result<_, _>>()?))
}

/// A new pool.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPool {
    /// Name of the pool: a to z, 0 to 9, - and _, starting with a letter.
    name: String,
    /// The failure that it survives: `1-rack`, `2-nodes` and so on. Without one, `1-rack`.
    #[serde(default)]
    survive: Option<String>,
    /// Its code, such as `rs(6,3)`. Without one, the failure to survive determines it.
    #[serde(default)]
    code: Option<String>,
    /// Bytes of a chunk. Without a number, 1 MiB.
    #[serde(default)]
    chunk_bytes: Option<u64>,
    /// Its update scheme, such as `plr`. Without one, the default.
    #[serde(default)]
    update: Option<String>,
}

/// Create a pool: `gabion pool create`. Replicated pools and limits of append phases need the command line.
#[utoipa::path(
    post,
    path = "/api/v1/pools",
    request_body = NewPool,
    responses(
        (status = 201, body = UsedPool),
        (status = 400, body = ProblemView),
        (status = 409, description = "A pool of this name exists", body = ProblemView),
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Told(told): Told<NewPool>,
) -> Result<(StatusCode, Json<UsedPool>), Problem> {
    let wrong = |error: &dyn std::fmt::Display| Problem::wrong(error.to_string());
    let survive = told.survive.as_deref().unwrap_or("1-rack");
    let update = told
        .update
        .as_deref()
        .map_or(Ok(UpdateScheme::default()), str::parse);
    if let Some(code) = &told.code {
        code.parse::<gabion_codec::Code>()
            .map_err(|error| wrong(&error))?;
    }
    let request = PoolRequest {
        name: told.name,
        survive: survive.parse().map_err(|error| wrong(&error))?,
        code: told.code,
        chunk_bytes: told.chunk_bytes.unwrap_or(CHUNK_BYTES),
        update: update.map_err(|error| wrong(&error))?,
        reserve: None,
        append: None,
        inline_bytes: INLINE_BYTES_USUAL,
        lifecycle: None,
    };
    let pool = app.ordered(app.client.create_pool(request).await)?;
    // The pool is made, whether or not its space is known.
    let usage = app.client.usage().await.unwrap_or_default();
    let made = used(&pool, &usage)?;
    Ok((StatusCode::CREATED, Json(made)))
}
