//! Why a request failed: a status for programs, and a sentence for people.

use crate::watch::Unknown;
use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gabion_client::{Cause, ClientError, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

/// The body of a failed request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct ProblemView {
    /// One plain sentence.
    pub(crate) error: String,
}

/// A failed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    sentence: String,
    retry_after_s: Option<u64>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self {
            status,
            sentence: sentence.into(),
            retry_after_s: None,
        }
    }

    /// A request that is wrong in itself.
    pub(crate) fn wrong(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, sentence)
    }

    /// A request that the console does not trust.
    pub(crate) fn forbidden(sentence: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, sentence)
    }

    /// A request that comes too early.
    pub(crate) fn early(sentence: impl Into<String>, retry_after_s: u64) -> Self {
        Self {
            retry_after_s: Some(retry_after_s),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, sentence)
        }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let status = match (&error, error.cause()) {
            (ClientError::NoCoordinator(_), _) => StatusCode::SERVICE_UNAVAILABLE,
            (_, Cause::NotFound) => StatusCode::NOT_FOUND,
            (_, Cause::Exists) => StatusCode::CONFLICT,
            (_, Cause::NotPermitted) => StatusCode::FORBIDDEN,
            (_, Cause::Invalid | Cause::NameTooLong | Cause::Unsupported) => {
                StatusCode::BAD_REQUEST
            }
            _ if error.kind() == ErrorKind::Usage => StatusCode::BAD_REQUEST,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, error.to_string())
    }
}

impl From<Unknown> for Problem {
    fn from(Unknown(sentence): Unknown) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, sentence)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Json(ProblemView {
            error: self.sentence,
        });
        let mut response = (self.status, body).into_response();
        if let Some(seconds) = self.retry_after_s {
            let seconds = HeaderValue::from(seconds);
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}
