//! Serves metrics by HTTP: `GET /metrics`, and nothing else.

use crate::accept::passing;
use crate::page::Form;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE};
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

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Metrics that can be served.
pub trait Exposed: Send + Sync + 'static {
    /// All metrics as text.
    fn text(&self, form: Form) -> impl Future<Output = String> + Send;
}

/// Serves metrics by HTTP, as `GET /metrics`, until the listener fails for good, and returns its error.
pub async fn serve_metrics<M: Exposed>(listener: TcpListener, metrics: Arc<M>) -> io::Error {
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
                let metrics = Arc::clone(&metrics);
                async move { Ok::<_, Infallible>(response(&request, &*metrics).await) }
            });
            let served = http1::Builder::new()
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // The peer has its answer, or has gone, or was too slow.
            let _ = timeout(CONNECTION_LIMIT, served).await;
            drop(place);
        });
    }
}

async fn response<M: Exposed>(request: &Request<Incoming>, metrics: &M) -> Response<Full<Bytes>> {
    let is_known = request.uri().path() == "/metrics";
    let mut kind = "text/plain; charset=utf-8";
    let (status, text) = if is_known && request.method() == Method::GET {
        let accept = request.headers().get(ACCEPT);
        let form = Form::of(
            accept
                .and_then(|accept| accept.to_str().ok())
                .unwrap_or_default(),
        );
        kind = form.content_type();
        (StatusCode::OK, metrics.text(form).await)
    } else if is_known {
        let sentence = "metrics are read with GET\n";
        (StatusCode::METHOD_NOT_ALLOWED, sentence.to_owned())
    } else {
        let sentence = "there is only /metrics here\n";
        (StatusCode::NOT_FOUND, sentence.to_owned())
    };
    Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(text)))
        .expect("the parts are valid")
}
