//! The console of a cluster of 10 000 nodes: its answers stay small, and connections are limited.

#[path = "../examples/crowd/cluster.rs"]
mod cluster;

use gabion_client::Client;
use gabion_console::{Console, ConsoleOptions};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What is expected of a console.
const ANSWERS: &str = "the console answers";
/// Bursts until one is over while the operator's connection may still be silent.
const BURST_COUNT_MAX: u32 = 20;
/// Well below the 5 s for which a connection may be silent.
const SILENCE_S: u64 = 3;

/// The address of a console of this cluster, and its passwords.
async fn console(node_count: u32) -> (String, Receiver<String>) {
    console_of(cluster::client(node_count).await).await
}

/// The same of a client's cluster.
async fn console_of(client: Client) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect(ANSWERS);
    let (told, passwords) = channel();
    let options = ConsoleOptions {
        hosts: vec!["console.example".to_owned()],
        announce: Box::new(move |password| told.send(password.to_owned()).unwrap_or_default()),
    };
    let console = Console::new(client, listener, options).expect(ANSWERS);
    let address = console.address().to_string();
    tokio::spawn(console.serve());
    (address, passwords)
}

/// The answer to a request, with its head.
async fn ask(address: &str, request: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect(ANSWERS);
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{head}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.expect(ANSWERS);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect(ANSWERS);
    answer
}

/// The head of requests of a browser that has logged in by a host name, and the answer to its login.
async fn log_in(address: &str, host: &str, passwords: &Receiver<String>) -> (String, String) {
    let password = passwords.recv().expect(ANSWERS);
    let body = format!("{{\"password\":\"{password}\"}}");
    let host = format!("Host: {host}");
    let head = format!("{host}\r\nX-Gabion-Console: 1");
    let answer = ask(address, "POST /api/v1/session", &head, &body).await;
    let cookie = answer.split("set-cookie: ").nth(1).expect("a cookie");
    let cookie = cookie.split(';').next().expect(ANSWERS);
    let key = answer.split("\"key\":\"").nth(1).expect("a key");
    let key = key.split('"').next().expect(ANSWERS);
    let head = format!("{host}\r\nCookie: {cookie}\r\nX-Gabion-Console: {key}");
    (head, answer)
}

#[tokio::test]
async fn an_overview_of_10_000_nodes_has_racks_and_only_what_is_unwell() {
    let (address, passwords) = console(10_000).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let overview = ask(&address, "GET /api/v1/overview", &head, "").await;
    let body = overview.split_once("\r\n\r\n").unwrap().1;
    assert!(body.len() < 128 << 10, "{} bytes", body.len());
    let overview: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(overview["node_count"], 10_000);
    assert_eq!(overview["racks"].as_array().unwrap().len(), 250);
    assert!(overview["racks"][0]["nodes"].is_null());
    assert_eq!(overview["unwell"].as_array().unwrap().len(), 100);
    let rack = ask(&address, "GET /api/v1/nodes?rack=3", &head, "").await;
    assert_eq!(rack.matches("\"rack\":3,").count(), 40);
    let traffic = ask(&address, "GET /api/v1/traffic", &head, "").await;
    assert_eq!(
        traffic.matches("from_rack").count(),
        256,
        "the busiest links"
    );
    let (address, passwords) = console(100).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let small = ask(&address, "GET /api/v1/overview", &head, "").await;
    assert!(
        small.contains("{\"node\":0,\"state\":\"up\",\"used_percent\":93}"),
        "{small}"
    );
}

#[tokio::test]
async fn a_name_that_the_operator_gives_is_served_with_secure_cookies() {
    let (address, passwords) = console(1).await;
    let refused = ask(&address, "GET /", "Host: other.example", "").await;
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let (head, login) = log_in(&address, "Console.example:443", &passwords).await;
    assert!(login.contains("; Secure"), "{login}");
    let overview = ask(&address, "GET /api/v1/overview", &head, "").await;
    assert!(overview.starts_with("HTTP/1.1 200"), "{overview}");
    let (_, login) = log_in(&address, "localhost", &passwords).await;
    assert!(!login.contains("; Secure"), "loopback has no TLS: {login}");
}

#[tokio::test]
async fn each_request_that_is_described_is_answered() {
    let (address, passwords) = console(1).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let described: serde_json::Value = serde_json::from_str(&gabion_console::open_api()).unwrap();
    let mut count = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let request = format!("{} {path}", method.to_uppercase());
            let answer = ask(&address, &request, &head, "").await;
            for status in ["404", "405"] {
                let refusal = format!("HTTP/1.1 {status}");
                assert!(!answer.starts_with(&refusal), "{request}: {answer}");
            }
            count += 1;
        }
    }
    assert_eq!(count, 19);
}

/// Reads an answer's first line, from a connection that stays open.
async fn status_line(stream: &mut TcpStream, request: &str) -> String {
    let written = stream.write_all(request.as_bytes()).await;
    written.expect("the console reads");
    let mut answer = [0; 12];
    let read = stream.read_exact(&mut answer).await;
    read.expect(ANSWERS);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_session_needs_its_cookie_and_its_key() {
    let (address, passwords) = console(1).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let (host, secrets) = head.split_once("\r\n").unwrap();
    let (cookie, key) = secrets.split_once("\r\n").unwrap();
    let (name, value) = cookie["Cookie: ".len()..].split_once('=').unwrap();
    let ask = async |lines: &[&str]| {
        let head = format!("{host}\r\n{}", lines.join("\r\n"));
        let answer = ask(&address, "GET /api/v1/overview", &head, "").await;
        answer["HTTP/1.1 ".len()..][..3].to_owned()
    };
    assert_eq!(ask(&[cookie, key]).await, "200");
    // The headers that another server of the same host gets of a browser.
    assert_eq!(ask(&[cookie]).await, "401");
    assert_eq!(ask(&[cookie, "X-Gabion-Console: 1"]).await, "401");
    assert_eq!(
        ask(&[cookie, &format!("X-Gabion-Console: {value}")]).await,
        "401"
    );
    assert_eq!(ask(&[key]).await, "401");
    // A page of another port has set cookies, which come first.
    let letters = &value[..8];
    let planted = format!("Cookie: {name}=x; {name}={letters}; {name}={value}");
    assert_eq!(ask(&[&planted, key]).await, "200");
    let (other, _) = log_in(&address, &address, &passwords).await;
    let other = other.split("\r\n").nth(1).unwrap();
    let both = format!("{other}; {name}={value}");
    assert_eq!(
        ask(&[&both, key]).await,
        "200",
        "two sessions of one browser"
    );
}

#[tokio::test]
async fn operators_do_not_undo_each_others_limits() {
    let (address, passwords) = console(1).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let limit = "PATCH /api/v1/repair/limits";
    for round in 1..=20 {
        let change = async |body: String| {
            let answer = ask(&address, limit, &head, &body).await;
            assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
        };
        tokio::join!(
            change(format!("{{\"total_bytes_per_s\":{round}}}")),
            change(format!("{{\"node_bytes_per_s\":{round}}}")),
        );
        // An answer after an order shows the state after it.
        let overview = ask(&address, "GET /api/v1/overview", &head, "").await;
        let limits = format!(
            "{{\"node_bytes_per_s\":{round},\"rack_bytes_per_s\":null,\"total_bytes_per_s\":{round},"
        );
        assert!(overview.contains(&limits), "{round}: {overview}");
    }
    ask(&address, limit, &head, "{\"node_bytes_per_s\":null}").await;
    let repair = ask(&address, "GET /api/v1/repair", &head, "").await;
    assert!(repair.contains("\"node_bytes_per_s\":null"), "{repair}");
    assert!(repair.contains("\"total_bytes_per_s\":20"), "{repair}");
}

#[tokio::test]
async fn the_state_of_repairs_is_not_as_old_as_the_wait_for_meters() {
    let wait = Duration::from_secs(1);
    let (address, passwords) = console_of(cluster::slow_client(1, wait).await).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    let repair = ask(&address, "GET /api/v1/repair", &head, "").await;
    let repair = repair.split_once("\r\n\r\n").unwrap().1;
    let repair: serde_json::Value = serde_json::from_str(repair).unwrap();
    let age_ms = repair["age_ms"].as_u64().unwrap();
    assert!(age_ms < 1_000, "{age_ms} ms");
}

#[tokio::test]
async fn what_is_not_described_is_refused_in_a_sentence_of_the_consoles() {
    let (address, passwords) = console(1).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    for (request, body, status) in [
        ("PATCH /api/v1/repair/limits", "[]", 400),
        ("PATCH /api/v1/repair/limits", "{", 400),
        ("PATCH /api/v1/repair/limits", "{\"total\":1}", 422),
        (
            "PATCH /api/v1/repair/limits",
            "{\"total_bytes_per_s\":\"x\"}",
            422,
        ),
        ("PATCH /api/v1/repair/limits?now=1", "{}", 400),
        ("GET /api/v1/overview?rack=1", "", 400),
        ("GET /api/v1/nodes?rakc=1", "", 400),
        ("GET /api/v1/nodes?rack=x", "", 400),
        ("GET /api/v1/events?limit=1&limit=2", "", 400),
        ("GET /api/v1/file", "", 400),
    ] {
        let answer = ask(&address, request, &head, body).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&expected), "{request} {body}: {answer}");
        let describes = "; /api/v1/openapi.json describes each request\"}";
        assert!(answer.ends_with(describes), "{request} {body}: {answer}");
        for foreign in ["expected", "deserialize", "column", "invalid type"] {
            assert!(!answer.contains(foreign), "{request} {body}: {answer}");
        }
    }
    let long = format!("{{\"name\":\"{}\"}}", "v".repeat(20 << 10));
    let answer = ask(&address, "POST /api/v1/pools", &head, &long).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    let nodes = ask(&address, "GET /api/v1/nodes?limit=1", &head, "").await;
    assert!(nodes.contains("{\"age_ms\":"), "{nodes}");
    assert!(
        nodes.contains("\"stale_because\":null,\"nodes\":[{"),
        "{nodes}"
    );
}

#[tokio::test]
async fn a_burst_without_a_session_keeps_no_operator_out() {
    let (address, passwords) = console(1).await;
    let (head, _) = log_in(&address, &address, &passwords).await;
    for _ in 0..BURST_COUNT_MAX {
        if operator_outlives_a_burst(&address, &head).await {
            return;
        }
    }
    panic!("each burst took as long as a silent connection may last");
}

/// Has strangers ask much while an operator asks. Returns false if that took so long that the operator's connection
/// may have ended for its own silence, as on a machine that stands still for seconds.
async fn operator_outlives_a_burst(address: &str, head: &str) -> bool {
    let begun = std::time::Instant::now();
    let overview = format!("GET /api/v1/overview HTTP/1.1\r\n{head}\r\n\r\n");
    let mut operator = TcpStream::connect(address).await.expect(ANSWERS);
    assert_eq!(status_line(&mut operator, &overview).await, "HTTP/1.1 200");
    // They ask much, and read nothing.
    let burst = format!("GET /console.js HTTP/1.1\r\nHost: {address}\r\n\r\n").repeat(100);
    let mut strangers = Vec::new();
    for _ in 0..64 {
        let mut stranger = TcpStream::connect(address).await.expect(ANSWERS);
        // It may have lost its place already.
        let _ = stranger.write_all(burst.as_bytes()).await;
        strangers.push(stranger);
    }
    let answer = ask(address, "GET /api/v1/overview", head, "").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    if begun.elapsed().as_secs() >= SILENCE_S {
        return false;
    }
    // The operator's connection has kept its place. What is left of its first answer comes first.
    let second = format!("HEAD / HTTP/1.1\r\n{head}\r\nConnection: close\r\n\r\n");
    operator.write_all(second.as_bytes()).await.expect(ANSWERS);
    let mut rest = String::new();
    operator.read_to_string(&mut rest).await.expect(ANSWERS);
    assert!(rest.contains("HTTP/1.1 200"), "{rest}");
    true
}

#[tokio::test]
async fn silent_connections_keep_no_place() {
    let (address, passwords) = console(1).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    // They give way to the next one.
    let (head, _) = log_in(&address, &address, &passwords).await;
    let overview = ask(&address, "GET /api/v1/overview", &head, "").await;
    assert!(overview.starts_with("HTTP/1.1 200"), "{overview}");
    let ended = silent[0].read(&mut [0; 512]).await.unwrap_or_default();
    assert!(ended < 512, "its end, or a late answer");
}
