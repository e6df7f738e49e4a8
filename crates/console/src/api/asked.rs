//! Parameters and bodies of requests. A wrong one is refused in one sentence.

use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::timeout;

/// Longest body of a request.
pub(super) const BODY_BYTES_MAX: usize = 16 << 10;
/// Longest wait for a body.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// The parameters behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(_) => Err(unlike(
                StatusCode::BAD_REQUEST,
                "a parameter of the request is unknown, missing, doubled or of a wrong kind",
            )),
        }
    }
}

/// Answers requests that have no parameters, and refuses those with some.
pub(super) async fn without_parameters(request: Request, next: Next) -> Result<Response, Problem> {
    match request.uri().query() {
        None | Some("") => Ok(next.run(request).await),
        Some(_) => Err(unlike(
            StatusCode::BAD_REQUEST,
            "this request has no parameters",
        )),
    }
}

/// A request that is not as it is described.
fn unlike(status: StatusCode, why: &str) -> Problem {
    Problem::new(
        status,
        format!("{why}; /api/v1/openapi.json describes each request"),
    )
}

/// The body, an object in JSON.
pub(super) struct Told<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let kind = request.headers().get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/json") {
            return Err(unlike(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body needs the header Content-Type: application/json",
            ));
        }
        let body = timeout(BODY_LIMIT, Bytes::from_request(request, state)).await;
        let body = body.map_err(|_| {
            let limit_s = BODY_LIMIT.as_secs();
            let why = format!("the body has not come in {limit_s} s; send it at once");
            Problem::new(StatusCode::REQUEST_TIMEOUT, why)
        })?;
        let body = body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("a body has at most {BODY_BYTES_MAX} bytes"),
            ),
            _ => Problem::wrong("the body has ended too early; send it again"),
        })?;
        let told: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|_| unlike(StatusCode::BAD_REQUEST, "the body is no object in JSON"))?;
        let told = serde_json::from_value(Value::Object(told)).map_err(|_| {
            unlike(
                StatusCode::UNPROCESSABLE_ENTITY,
                "a field of the body is unknown, missing or of a wrong kind",
            )
        })?;
        Ok(Self(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::response::IntoResponse as _;
    use std::io;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_the_senders_delay() {
        let never = futures::stream::pending::<Result<Bytes, io::Error>>();
        let request = Request::post("/").header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from_stream(never)).unwrap();
        let told = Told::<Value>::from_request(request, &()).await;
        let refusal = told.map(|_| ()).unwrap_err().into_response();
        assert_eq!(refusal.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
