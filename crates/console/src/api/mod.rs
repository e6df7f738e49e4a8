//! The HTTP API. Each request is one of the command line's, with the same answer.

mod asked;
mod events;
mod files;
mod login;
mod overview;
mod plans;
mod pools;
mod repair;

use self::asked::{BODY_BYTES_MAX, without_parameters};
use crate::app::App;
use crate::guard::guard;
use crate::page;
use crate::problem::Problem;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::{get, patch, post};
use axum::{Json, Router, middleware};
use std::sync::Arc;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gabion's console",
        description = "What the console's page asks. Log in by POST /api/v1/session with the one-time password and the \
                       header X-Gabion-Console: 1. Send the cookie of the answer, and its key as X-Gabion-Console, with \
                       every further request."
    ),
    paths(
        login::log_in,
        login::log_out,
        overview::overview,
        overview::nodes,
        overview::drain,
        overview::keep,
        overview::traffic,
        repair::status,
        repair::pause,
        repair::resume,
        repair::now,
        repair::limit,
        events::events,
        pools::pools,
        pools::create,
        files::list,
        files::file,
        files::explain,
        plans::plans,
    )
)]
struct Document;

/// The API's description as an `OpenAPI` document, in JSON.
///
/// # Panics
/// Never: a description of this program is always JSON.
pub fn open_api() -> String {
    Document::openapi()
        .to_pretty_json()
        .expect("a description is JSON")
}

/// All that the console answers.
pub(crate) fn router(app: Arc<App>) -> Router {
    let with_parameters = Router::new()
        .route("/api/v1/nodes", get(overview::nodes))
        .route("/api/v1/events", get(events::events))
        .route("/api/v1/files", get(files::list))
        .route("/api/v1/file", get(files::file))
        .route("/api/v1/explain", get(files::explain))
        .route("/api/v1/plans", get(plans::plans));
    Router::new()
        .route(
            "/api/v1/openapi.json",
            get(async || Json(Document::openapi())),
        )
        .route(
            "/api/v1/session",
            post(login::log_in).delete(login::log_out),
        )
        .route("/api/v1/overview", get(overview::overview))
        .route("/api/v1/nodes/drain", post(overview::drain))
        .route("/api/v1/nodes/keep", post(overview::keep))
        .route("/api/v1/traffic", get(overview::traffic))
        .route("/api/v1/repair", get(repair::status))
        .route("/api/v1/repair/pause", post(repair::pause))
        .route("/api/v1/repair/resume", post(repair::resume))
        .route("/api/v1/repair/now", post(repair::now))
        .route("/api/v1/repair/limits", patch(repair::limit))
        .route("/api/v1/pools", get(pools::pools).post(pools::create))
        .route_layer(middleware::from_fn(without_parameters))
        .merge(with_parameters)
        .route("/", get(page::index))
        .route("/console.js", get(page::script))
        .route("/console.css", get(page::style))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "this path does not exist"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "use another method")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}
