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
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most connections at a time.
const CONNECTION_COUNT_MAX: usize = 16;
/// Longest time of a connection. Tests show that no scrape waits for it.
const CONNECTION_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 3_600 } else { 10 });
/// While others wait for its place: how long a connection may be without its first request, and how long it may take to
/// read an answer or to ask again.
const SILENT_FOR: Duration = Duration::from_millis(250);
const IDLE_FOR: Duration = Duration::from_secs(5);

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Metrics that can be served.
pub trait Exposed: Send + Sync + 'static {
    /// All metrics as text.
    fn text(&self, form: Form) -> impl Future<Output = String> + Send;
}

/// A connection.
struct Open {
    keeps: watch::Receiver<Keeps>,
    task: AbortHandle,
}

/// Time until which a connection keeps its place.
#[derive(Clone, Copy)]
enum Keeps {
    Until(Instant),
    /// A request of it is being answered.
    UntilAnswered,
}

/// The connections, oldest first.
#[derive(Default)]
struct Places(VecDeque<Open>);

impl Places {
    /// Waits until there is room for one more. A connection that is silent for long gives its place to another one.
    async fn make_room(&mut self) {
        loop {
            self.0.retain(|open| !open.task.is_finished());
            if self.0.len() < CONNECTION_COUNT_MAX {
                return;
            }
            let ends = self.0.iter().enumerate();
            let ends = ends.filter_map(|(at, open)| match *open.keeps.borrow() {
                Keeps::Until(end) => Some((end, at)),
                Keeps::UntilAnswered => None,
            });
            match ends.min() {
                Some((end, at)) if end <= Instant::now() => {
                    if let Some(open) = self.0.remove(at) {
                        open.task.abort();
                    }
                }
                // Any may end before.
                Some((end, _)) => sleep_until(end.min(Instant::now() + SILENT_FOR)).await,
                None => sleep(SILENT_FOR).await,
            }
        }
    }
}

/// Serves metrics by HTTP, as `GET /metrics`, until the listener fails permanently, and returns its error.
pub async fn serve_metrics<M: Exposed>(listener: TcpListener, metrics: Arc<M>) -> io::Error {
    let mut places = Places::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => match passing(error).await {
                Ok(()) => continue,
                Err(error) => return error,
            },
        };
        let metrics = Arc::clone(&metrics);
        places.make_room().await;
        let (told, keeps) = watch::channel(Keeps::Until(Instant::now() + SILENT_FOR));
        let told = Arc::new(told);
        let task = tokio::spawn(async move {
            let answer = service_fn(|request| {
                let (metrics, told) = (Arc::clone(&metrics), Arc::clone(&told));
                async move {
                    told.send_replace(Keeps::UntilAnswered);
                    let response = response(&request, &*metrics).await;
                    told.send_replace(Keeps::Until(Instant::now() + IDLE_FOR));
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
            keeps,
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
        // The oldest has lost its place, the newest has not.
        let mut byte = [0];
        let ended = timeout(Duration::from_mins(1), silent[0].read(&mut byte));
        assert!(!matches!(ended.await.expect("it was closed"), Ok(1..)));
        assert!(
            silent[3 * CONNECTION_COUNT_MAX - 1]
                .try_read(&mut byte)
                .is_err()
        );
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
