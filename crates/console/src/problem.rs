//! Why a request failed: a status for programs, and a sentence for people.

use crate::watch::Unknown;
use axum::Json;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gabion_client::{Cause, ClientError, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

/// The end of the sentence about an order without an answer.
pub(crate) const UNDECIDED: &str = "it is unknown whether the order was carried out";

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

    /// An order that was not carried out, or perhaps not.
    pub(crate) fn of_order(error: ClientError) -> Self {
        let is_undecided = matches!(
            error,
            ClientError::NoCoordinator(_)
                | ClientError::Recovering(_)
                | ClientError::Late { .. }
                | ClientError::Undecided { .. }
        );
        let is_refused = matches!(error, ClientError::Refused(_));
        let cause = error.cause();
        let mut problem = Self::from(error);
        if is_undecided {
            problem.sentence = format!("{}; {UNDECIDED}", problem.sentence);
        }
        // Such as an audit log that cannot be written.
        match cause {
            Cause::NoSpace | Cause::Quota => problem.status = StatusCode::INSUFFICIENT_STORAGE,
            Cause::Failure if is_refused => problem.status = StatusCode::SERVICE_UNAVAILABLE,
            _ => {}
        }
        problem
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
            (ClientError::NoCoordinator(_) | ClientError::Recovering(_), _) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            (_, Cause::NotFound | Cause::NotADirectory) => StatusCode::NOT_FOUND,
            (_, Cause::Exists) => StatusCode::CONFLICT,
            (_, Cause::NotPermitted) => StatusCode::FORBIDDEN,
            (
                _,
                Cause::Invalid
                | Cause::IsADirectory
                | Cause::IsASymlink
                | Cause::NameTooLong
                | Cause::Unsupported,
            ) => StatusCode::BAD_REQUEST,
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

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_client::Denial;

    #[test]
    fn an_order_without_an_answer_may_be_carried_out() {
        let away = || ClientError::NoCoordinator("no coordinator answers".to_owned());
        let order = Problem::of_order(away());
        assert_eq!(order.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(order.sentence.ends_with(UNDECIDED), "{}", order.sentence);
        assert!(!Problem::from(away()).sentence.contains("order"));
    }

    #[test]
    fn statuses_tell_wrong_requests_from_failures() {
        let refused = |cause| ClientError::Refused(Denial::new(cause, "a reason"));
        for (cause, status, of_order) in [
            (Cause::IsADirectory, 400, 400),
            (Cause::NotADirectory, 404, 404),
            (Cause::NotFound, 404, 404),
            (Cause::Failure, 502, 503),
            (Cause::NoSpace, 502, 507),
            (Cause::Quota, 502, 507),
        ] {
            assert_eq!(Problem::from(refused(cause)).status, status, "{cause:?}");
            let order = Problem::of_order(refused(cause));
            assert_eq!(order.status, of_order, "{cause:?}");
            assert!(!order.sentence.contains(UNDECIDED));
        }
    }
}
