//! Admission of requests. The console answers a request only if the browser used one of the console's names, if a page
//! of the console sent it, and if it has both secrets of a session.

use crate::app::App;
use crate::places::Seat;
use crate::problem::{Problem, UNDECIDED};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time of a request, its body and its answer by the cluster.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// The header with the session's key. A page of another origin can send it only if this server agrees, which it never
/// does. A login has no key yet, and sends the header with any value.
const OWN_HEADER: HeaderName = HeaderName::from_static("x-gabion-console");
/// Letters of a session's token in the name of its cookie.
const COOKIE_LETTERS: usize = 8;
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The page runs its own script and style, and talks to its own server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Prefix of the API's paths.
const API: &str = "/api/";
/// The paths that are answered without a session.
const LOGIN: &str = "/api/v1/session";
const DOCUMENT: &str = "/api/v1/openapi.json";

/// Answers a request, or says why not.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(API);
    let is_read = is_read(&request);
    let mut response = match check(&app, &request, Instant::now()) {
        Err(problem) => problem.into_response(),
        Ok(()) => tokio::time::timeout(REQUEST_LIMIT, next.run(request))
            .await
            .unwrap_or_else(|_| late(is_read).into_response()),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if is_api {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

fn late(is_read: bool) -> Problem {
    let limit_s = REQUEST_LIMIT.as_secs();
    let next = if is_read { "try again" } else { UNDECIDED };
    let sentence = format!("the cluster has not answered in {limit_s} s; {next}");
    Problem::new(StatusCode::GATEWAY_TIMEOUT, sentence)
}

fn is_read(request: &Request) -> bool {
    [Method::GET, Method::HEAD].contains(request.method())
}

fn check(app: &App, request: &Request, now: Instant) -> Result<(), Problem> {
    let seat = request.extensions().get::<Arc<Seat>>();
    if let Some(seat) = seat {
        seat.hear(now);
    }
    let headers = request.headers();
    let host = only(headers, &HOST).unwrap_or_default();
    if !is_own_host(app, host) {
        return Err(Problem::forbidden(
            "the console does not serve this address; open the address that it printed, or start it with --host NAME",
        ));
    }
    let path = request.uri().path();
    if !path.starts_with(API) {
        return Ok(());
    }
    check_origin(headers, host)?;
    let is_read = is_read(request);
    if !is_read && headers.get(OWN_HEADER).is_none() {
        return Err(Problem::forbidden(
            "a request with an effect needs the header X-Gabion-Console with the session's key; a login sends 1",
        ));
    }
    let is_open =
        (path == LOGIN && request.method() == Method::POST) || (path == DOCUMENT && is_read);
    if app.sessions.admits(tokens(app, headers), key(headers), now) {
        if let Some(seat) = seat {
            seat.show_session();
        }
        return Ok(());
    }
    if is_open {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNAUTHORIZED,
        "log in with the one-time password that the console printed; a program sends the cookie and the key of the \
         answer with each request",
    ))
}

/// Refuses requests that a page of another origin makes.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let site = headers.get(FETCH_SITE);
    let is_own_site = site.is_none_or(|site| site == "same-origin" || site == "none");
    let origin = headers.get(ORIGIN);
    let is_own_origin = origin.is_none_or(|origin| {
        let text = origin.to_str().unwrap_or_default();
        let name = text.split_once("://").map(|(_, name)| name);
        name.is_some_and(|name| name.eq_ignore_ascii_case(host))
    });
    if is_own_site && is_own_origin {
        return Ok(());
    }
    Err(Problem::forbidden(
        "the request comes from another page than the console's",
    ))
}

/// The value of a header that a request has once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether a browser that was led here by a foreign name would send this host. The port may be that of a tunnel.
fn is_own_host(app: &App, host: &str) -> bool {
    let name = host_name(host);
    is_loopback(name) || app.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
}

fn host_name(host: &str) -> &str {
    let has_port = |(_, port): &(&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':').filter(has_port) {
        Some((name, _)) => name,
        None => host,
    };
    name.strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name)
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a browser reaches the console by another name than loopback's, which a proxy with TLS serves.
pub(crate) fn is_proxied(headers: &HeaderMap) -> bool {
    !is_loopback(host_name(only(headers, &HOST).unwrap_or_default()))
}

/// The key that a request names.
pub(crate) fn key(headers: &HeaderMap) -> &str {
    only(headers, &OWN_HEADER).unwrap_or_default()
}

/// The name of the cookie with this token. Each session has its own, so that two of one browser do not end each other.
pub(crate) fn cookie_name(app: &App, token: &str) -> String {
    let start = token.get(..COOKIE_LETTERS).unwrap_or(token);
    format!("{}_{start}", app.cookie)
}

/// The tokens that a request names. A page on another port can plant cookies of any name before the console's, so that
/// each of them is tried.
pub(crate) fn tokens<'a>(app: &'a App, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.filter_map(|line| line.to_str().ok());
    let pairs = pairs.flat_map(|line| line.split(';'));
    pairs.filter_map(|pair| {
        let (name, token) = pair.trim().split_once('=')?;
        (name == cookie_name(app, token)).then_some(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_their_ports() {
        for (host, name) in [
            ("localhost", "localhost"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:8080", "::1"),
            ("[::1]", "::1"),
            ("evil.example:80", "evil.example"),
        ] {
            assert_eq!(host_name(host), name);
        }
        assert!(is_loopback("LOCALHOST") && is_loopback("127.0.0.1") && is_loopback("::1"));
        for name in [
            "",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[test]
    fn requests_of_other_pages_are_refused() {
        let check = |name: &'static str, value: &'static str, is_own: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            let checked = check_origin(&headers, "localhost:8080");
            assert_eq!(checked.is_ok(), is_own, "{name}: {value}");
        };
        check("origin", "http://localhost:8080", true);
        check("origin", "http://localhost:8081", false);
        check("origin", "null", false);
        check("sec-fetch-site", "same-origin", true);
        check("sec-fetch-site", "none", true);
        check("sec-fetch-site", "cross-site", false);
        check("sec-fetch-site", "same-site", false);
    }
}
