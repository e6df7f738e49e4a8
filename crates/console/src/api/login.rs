//! Sessions.

use super::asked::Told;
use crate::app::App;
use crate::guard::{cookie_name, is_proxied, key, tokens};
use crate::problem::{Problem, ProblemView};
use crate::session::{LoginError, SESSION_LIMIT};
use axum::Json;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// A login.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Login {
    /// The one-time password that the console has printed; case, dashes and spaces do not matter.
    password: String,
}

/// A session that has begun.
#[derive(Serialize, ToSchema)]
pub(super) struct Begun {
    /// The session's key. Send it as the header `X-Gabion-Console` with every further request, beside the cookie.
    key: String,
}

/// Begin a session by the one-time password, which is spent from then on.
#[utoipa::path(
    post,
    path = "/api/v1/session",
    request_body = Login,
    responses(
        (status = 200, description = "The session has started; its cookie is set", body = Begun),
        (status = 401, description = "The password is wrong", body = ProblemView),
        (status = 429, description = "Too many wrong passwords", body = ProblemView),
    )
)]
pub(super) async fn log_in(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    Told(login): Told<Login>,
) -> Result<Response, Problem> {
    let secrets = app.sessions.begin(&login.password, Instant::now());
    if secrets == Err(LoginError::Wrong) {
        // At most one each 2 s lasts.
        tracing::warn!(target: "cluster", "a wrong password of the console");
    }
    let secrets = secrets.map_err(|error| match error {
        LoginError::Wrong => Problem::new(
            StatusCode::UNAUTHORIZED,
            "the password is wrong or was already used; the console prints a new one after each login",
        ),
        LoginError::TooMany { retry_after } => {
            let seconds = retry_after.as_secs() + 1;
            Problem::early(
                format!("too many wrong passwords; try again in {seconds} s"),
                seconds,
            )
        }
        LoginError::NoRandomness => Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the system gives no random numbers",
        ),
    })?;
    tracing::info!(target: "cluster", "a session of the console has started");
    let name = cookie_name(&app, &secrets.token);
    let cookie = cookie(&headers, &name, &secrets.token, SESSION_LIMIT.as_secs());
    let begun = Json(Begun { key: secrets.key });
    Ok((cookie, begun).into_response())
}

/// End the session.
#[utoipa::path(
    delete,
    path = "/api/v1/session",
    responses((status = 204, description = "The session has ended"))
)]
pub(super) async fn log_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let ended = app.sessions.end(tokens(&app, &headers), key(&headers));
    let name = cookie_name(&app, ended.unwrap_or_default());
    (StatusCode::NO_CONTENT, cookie(&headers, &name, "", 0)).into_response()
}

/// The header that sets a session's cookie.
fn cookie(
    headers: &HeaderMap,
    name: &str,
    token: &str,
    max_age_s: u64,
) -> [(axum::http::HeaderName, String); 1] {
    // A proxy's name is reached by TLS alone.
    let secure = if is_proxied(headers) { "; Secure" } else { "" };
    let value =
        format!("{name}={token}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict{secure}");
    [(SET_COOKIE, value)]
}
