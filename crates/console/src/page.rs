//! The page: files that `npm run build` has made in `page/dist`, embedded.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

const INDEX: &[u8] = include_bytes!("../page/dist/index.html");
const SCRIPT: &[u8] = include_bytes!("../page/dist/console.js");
const STYLE: &[u8] = include_bytes!("../page/dist/console.css");

fn file(kind: &'static str, bytes: &'static [u8]) -> Response {
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")];
    (headers, bytes).into_response()
}

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", INDEX)
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}
