//! Serves metrics by HTTP: `GET /metrics`, and nothing else.

use crate::accept::passing;
use crate::metrics::RequestMetrics;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Most connections at a time.
const CONNECTION_COUNT_MAX: usize = 16;
/// Longest time of a connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves metrics by HTTP, as `GET /metrics`, until the listener fails for good, and returns its error.
pub async fn serve_metrics(listener: TcpListener, metrics: Arc<RequestMetrics>) -> io::Error {
    let places = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => match passing(error).await {
                Ok(()) => continue,
                Err(error) => return error,
            },
        };
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = response(&request, &metrics);
                async move { Ok::<_, Infallible>(response) }
            });
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            // The peer has its answer, or has gone, or was too slow.
            let _ = timeout(CONNECTION_LIMIT, served).await;
            drop(place);
        });
    }
}

fn response(request: &Request<Incoming>, metrics: &RequestMetrics) -> Response<Full<Bytes>> {
    let is_known = request.uri().path() == "/metrics";
    let (status, text) = if is_known && request.method() == Method::GET {
        (StatusCode::OK, metrics.text())
    } else if is_known {
        let sentence = "metrics are read with GET\n";
        (StatusCode::METHOD_NOT_ALLOWED, sentence.to_owned())
    } else {
        let sentence = "there is only /metrics here\n";
        (StatusCode::NOT_FOUND, sentence.to_owned())
    };
    let kind = if status == StatusCode::OK {
        TEXT
    } else {
        "text/plain"
    };
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(text)))
        .expect("the parts are valid")
}
