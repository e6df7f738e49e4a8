//! Serves metrics by HTTP: `GET /metrics`, and nothing else.

use crate::accept::passing;
use crate::page::Form;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most connections at a time.
const CONNECTION_COUNT_MAX: usize = 16;
/// Longest time of a connection.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may be without a request being answered while others wait for its place.
const SILENT_FOR: Duration = Duration::from_millis(250);

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Metrics that can be served.
pub trait Exposed: Send + Sync + 'static {
    /// All metrics as text.
    fn text(&self, form: Form) -> impl Future<Output = String> + Send;
}

/// A connection.
struct Open {
    since: Instant,
    /// Whether a request of it is being answered.
    is_busy: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The connections, oldest first.
#[derive(Default)]
struct Places(VecDeque<Open>);

impl Places {
    /// Waits until there is room for one more. A silent connection gives its place to another one.
    async fn make_room(&mut self) {
        loop {
            self.0.retain(|open| !open.task.is_finished());
            if self.0.len() < CONNECTION_COUNT_MAX {
                return;
            }
            let is_silent = |open: &Open| !open.is_busy.load(Ordering::Relaxed);
            let oldest = self.0.iter().find(|open| is_silent(open));
            match oldest {
                Some(open) if open.since.elapsed() >= SILENT_FOR => open.task.abort(),
                Some(open) => sleep_until(open.since + SILENT_FOR).await,
                None => sleep(SILENT_FOR).await,
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Serves metrics by HTTP, as `GET /metrics`, until the listener fails for good, and returns its error.
pub async fn serve_metrics<M: Exposed>(listener: TcpListener, metrics: Arc<M>) -> io::Error {
    let mut places = Places::default();
    loop {
        places.make_room().await;
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => match passing(error).await {
                Ok(()) => continue,
                Err(error) => return error,
            },
        };
        let metrics = Arc::clone(&metrics);
        let is_busy = Arc::<AtomicBool>::default();
        let busy = Arc::clone(&is_busy);
        let task = tokio::spawn(async move {
            let answer = service_fn(|request| {
                let (metrics, busy) = (Arc::clone(&metrics), Arc::clone(&busy));
                async move {
                    busy.store(true, Ordering::Relaxed);
                    let response = response(&request, &*metrics).await;
                    busy.store(false, Ordering::Relaxed);
                    Ok::<_, Infallible>(response)
                }
            });
            let served = http1::Builder::new()
                .max_buf_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), answer);
            // The peer has its answer, or has gone, or was too slow.
            let _ = timeout(CONNECTION_LIMIT, served).await;
        });
        places.0.push_back(Open {
            since: Instant::now(),
            is_busy,
            task: task.abort_handle(),
        });
    }
}

async fn response<M: Exposed>(request: &Request<Incoming>, metrics: &M) -> Response<Full<Bytes>> {
    let is_known = request.uri().path() == "/metrics";
    let mut kind = "text/plain; charset=utf-8";
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, text) = if is_known && is_read {
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
    let response = Response::builder().status(status);
    let response = match status {
        StatusCode::METHOD_NOT_ALLOWED => response.header(ALLOW, "GET, HEAD"),
        _ => response,
    };
    response
        .header(CONTENT_TYPE, kind)
        .body(Full::new(Bytes::from(text)))
        .expect("the parts are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    struct Page;

    impl Exposed for Page {
        async fn text(&self, _: Form) -> String {
            "figures".to_owned()
        }
    }

    /// The whole answer to a request.
    async fn ask(address: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = timeout(Duration::from_mins(1), stream.read_to_string(&mut answer));
        read.await.expect("it is answered").unwrap();
        answer
    }

    #[tokio::test]
    async fn silent_connections_keep_no_scrape_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_metrics(listener, Arc::new(Page)));
        let mut silent = Vec::new();
        for number in 0..3 * CONNECTION_COUNT_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 1 {
                stream.write_all(b"GET /metr").await.unwrap();
            }
            silent.push(stream);
        }
        let answer = ask(address, "GET /metrics").await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("figures"),
            "{answer}"
        );
        // The oldest has lost its place.
        let mut byte = [0];
        let ended = timeout(Duration::from_mins(1), silent[0].read(&mut byte));
        assert!(!matches!(ended.await.expect("it was closed"), Ok(1..)));
        serving.abort();
    }

    #[tokio::test]
    async fn only_reading_is_allowed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_metrics(listener, Arc::new(Page)));
        let head = ask(address, "HEAD /metrics").await;
        assert!(
            head.starts_with("HTTP/1.1 200") && !head.contains("figures"),
            "{head}"
        );
        let put = ask(address, "PUT /metrics").await;
        assert!(
            put.starts_with("HTTP/1.1 405") && put.contains("allow: GET, HEAD"),
            "{put}"
        );
        assert!(ask(address, "GET /").await.starts_with("HTTP/1.1 404"));
        serving.abort();
    }
}
