//! Parameters and bodies of requests. A wrong one is refused in one sentence.

use crate::problem::Problem;
use axum::Json;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

/// The parameters behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(asked)) => Ok(Self(asked)),
            Err(rejection) => Err(unlike(rejection.status(), &rejection.body_text())),
        }
    }
}

/// A request that is not as it is described.
fn unlike(status: StatusCode, why: &str) -> Problem {
    Problem::new(
        status,
        format!("{why}; /api/v1/openapi.json describes each request"),
    )
}

/// The body, in JSON.
pub(super) struct Told<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Told<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::from_request(request, state).await {
            Ok(Json(told)) => Ok(Self(told)),
            Err(rejection) => Err(unlike(rejection.status(), &rejection.body_text())),
        }
    }
}
