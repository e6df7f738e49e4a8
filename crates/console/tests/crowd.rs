//! The console of a cluster of 10 000 nodes: its answers stay small, and connections are limited.

#[path = "../examples/crowd/cluster.rs"]
mod cluster;

use gabion_console::{Console, ConsoleOptions};
use std::sync::mpsc::{Receiver, channel};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The address of a console of this cluster, and its passwords.
async fn console(node_count: u32) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("the console answers");
    let (told, passwords) = channel();
    let options = ConsoleOptions {
        hosts: vec!["console.example".to_owned()],
        announce: Box::new(move |password| told.send(password.to_owned()).unwrap_or_default()),
    };
    let console = Console::new(cluster::client(node_count).await, listener, options)
        .expect("the console answers");
    let address = console.address().to_string();
    tokio::spawn(console.serve());
    (address, passwords)
}

/// The answer to a request, with its head.
async fn ask(address: &str, request: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address)
        .await
        .expect("the console answers");
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nConnection: close\r\nX-Gabion-Console: 1\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n{head}\r\n\r\n{body}"
    );
    stream
        .write_all(text.as_bytes())
        .await
        .expect("the console answers");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .await
        .expect("the console answers");
    answer
}

/// The head of requests of a browser that has logged in by a host name, and the answer to its login.
async fn log_in(address: &str, host: &str, passwords: &Receiver<String>) -> (String, String) {
    let password = passwords.recv().expect("the console answers");
    let body = format!("{{\"password\":\"{password}\"}}");
    let host = format!("Host: {host}");
    let answer = ask(address, "POST /api/v1/session", &host, &body).await;
    let cookie = answer.split("set-cookie: ").nth(1).expect("a cookie");
    let cookie = cookie.split(';').next().expect("the console answers");
    (format!("{host}\r\nCookie: {cookie}"), answer)
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

#[tokio::test]
async fn silent_connections_keep_no_place() {
    let (address, passwords) = console(1).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    // They give way after 5 s; the next one waits for that.
    let (head, _) = log_in(&address, &address, &passwords).await;
    let overview = ask(&address, "GET /api/v1/overview", &head, "").await;
    assert!(overview.starts_with("HTTP/1.1 200"), "{overview}");
    let ended = silent[0].read(&mut [0; 512]).await.unwrap_or_default();
    assert!(ended < 512, "its end, or a late answer");
}
