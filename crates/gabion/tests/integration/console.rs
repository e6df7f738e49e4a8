//! The console's HTTP API: who is let in, what it shows, and what it orders.

use crate::support::{TestCluster, fails, fails_on, path_text, pattern, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// An answer of the console.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A browser that has logged in, or not yet.
struct Browser {
    address: String,
    cookie: String,
    /// The session's key; before a login any value.
    key: String,
}

impl Browser {
    /// Sends a request with these lines of a head, and reads the answer to its end.
    fn send(&self, request: &str, lines: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).expect("the console listens");
        stream
            .set_read_timeout(Some(Duration::from_mins(4)))
            .expect("a time limit");
        let (cookie, lines) = (&self.cookie, lines.join("\r\n"));
        let length = body.len();
        let text = format!(
            "{request} HTTP/1.1\r\nConnection: close\r\nCookie: a=b; {cookie}\r\nContent-Length: {length}\r\n\
             Content-Type: application/json\r\n{lines}\r\n\r\n{body}"
        );
        stream
            .write_all(text.as_bytes())
            .expect("the console reads");
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("an answer in time");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.expect("a status"),
            head: head.replace("\r\n", "\n"),
            body: body.to_owned(),
        }
    }

    /// The same as the page sends it.
    fn ask(&self, request: &str, body: &Value) -> Answer {
        let host = format!("host: {}", self.address);
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let key = format!("x-gabion-console: {}", self.key);
        self.send(request, &[&host, &key], &body)
    }

    fn get(&self, path: &str) -> Value {
        let answer = self.ask(&format!("GET /api/v1/{path}"), &Value::Null);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    fn order(&self, request: &str, body: &Value, status: u16) -> Answer {
        let answer = self.ask(request, body);
        assert_eq!(answer.status, status, "{request}: {}", answer.body);
        answer
    }

    fn log_in(&mut self, password: &str) -> Answer {
        let answer = self.ask("POST /api/v1/session", &json!({ "password": password }));
        if let Some(cookie) = answer.header("set-cookie") {
            cookie
                .split(';')
                .next()
                .expect("as described")
                .clone_into(&mut self.cookie);
            let key = answer.json()["key"].clone();
            key.as_str().expect("a key").clone_into(&mut self.key);
        }
        answer
    }
}

/// A cluster with a console, its browser and its password.
fn cluster_with_console() -> (TestCluster, Browser, String) {
    let cluster = TestCluster::start_with(3, 2, &["--lease-ms=1000", "--grace-s=3600"]);
    let (browser, password) = open(&cluster);
    (cluster, browser, password)
}

/// Starts the console of a cluster unless it runs, and tells how to open it.
fn open(cluster: &TestCluster) -> (Browser, String) {
    let mut up = cluster.command(&["--format=json", "cluster", "up"]);
    let up = up
        .env_remove("GABION_NO_CONSOLE")
        .output()
        .expect("the binary runs");
    let up: Value = serde_json::from_slice(&up.stdout).expect("JSON");
    let url = up["console"]["url"].as_str().expect("a console");
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let browser = Browser {
        address: address.to_owned(),
        cookie: String::new(),
        key: "1".to_owned(),
    };
    let password = up["console"]["password"].as_str().expect("a password");
    (browser, password.to_owned())
}

/// The page and the description need no session, and the page runs nothing of others.
fn the_page_runs_nothing_of_others(browser: &Browser) {
    let page = browser.ask("GET /", &Value::Null);
    assert_eq!(page.status, 200);
    let policy = page
        .header("content-security-policy")
        .expect("as described");
    assert!(
        policy.contains("default-src 'none'; script-src 'self'"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(
        !page.body.contains("//"),
        "no address of others: {}",
        page.body
    );
    let paths = browser.get("openapi.json")["paths"].clone();
    assert!(paths["/api/v1/overview"]["get"].is_object(), "{paths}");
}

/// Without a session, with a wrong password, by another host and from another page there is no answer.
fn refuses_strangers(browser: &mut Browser, password: &str) {
    let refused = browser.ask("GET /api/v1/overview", &Value::Null);
    assert_eq!(refused.status, 401);
    assert!(
        refused.json()["error"]
            .as_str()
            .expect("as described")
            .contains("log in")
    );
    assert_eq!(browser.log_in("wrong").status, 401);
    let host = format!("host: {}", browser.address);
    let login = json!({ "password": password }).to_string();
    for lines in [
        &["host: evil.example", "x-gabion-console: 1"][..],
        &["x-gabion-console: 1", &host, "host: evil.example"],
        &[&host],
        &[&host, "x-gabion-console: 1", "origin: http://evil.example"],
        &[&host, "x-gabion-console: 1", "sec-fetch-site: cross-site"],
    ] {
        let refused = browser.send("POST /api/v1/session", lines, &login);
        assert!(
            [400, 403].contains(&refused.status),
            "{lines:?}: {}",
            refused.status
        );
        assert!(refused.header("set-cookie").is_none());
    }
}

#[test]
fn only_its_own_pages_with_a_session_are_answered() {
    let (cluster, mut browser, password) = cluster_with_console();
    let file = cluster.path("cluster/console.password");
    let mode = fs::metadata(&file)
        .expect("as described")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_to_string(&file).expect("as described"), password);

    the_page_runs_nothing_of_others(&browser);

    refuses_strangers(&mut browser, &password);

    // The password begins one session.
    let answer = browser.log_in(&password);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let cookie = answer.header("set-cookie").expect("as described");
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    assert_eq!(browser.get("overview")["node_count"], 6);
    assert_eq!(
        browser
            .ask("POST /api/v1/session", &json!({ "password": password }))
            .status,
        401
    );
    let next = fs::read_to_string(&file).expect("as described");
    assert_ne!(next, password);
    let (mut other, again) = open(&cluster);
    assert_eq!(again, next, "the console runs on");
    assert_eq!(other.log_in(&next).status, 200);
    other.order("DELETE /api/v1/session", &Value::Null, 204);
    assert_eq!(other.ask("GET /api/v1/overview", &Value::Null).status, 401);
    assert_eq!(
        browser.get("overview")["node_count"],
        6,
        "it has its own session"
    );

    let host = format!("host: {}", browser.address);
    // An order of a foreign form, which cannot send the header.
    let order = browser.send("POST /api/v1/repair/pause", &[&host], "");
    assert_eq!(order.status, 403, "{}", order.body);
    assert_eq!(browser.get("repair")["paused"], false);

    // The cookie alone, as every server of the host gets it.
    let alone = browser.send("GET /api/v1/overview", &[&host], "");
    assert_eq!(alone.status, 401, "{}", alone.body);

    for _ in 0..5 {
        browser.log_in("wrong");
    }
    let early = browser.log_in("wrong");
    assert_eq!(early.status, 429);
    assert!(early.header("retry-after").is_some());
    let (mut guessed, right) = open(&cluster);
    assert_eq!(
        guessed.log_in(&right).status,
        200,
        "guesses do not keep it out"
    );
}

#[test]
fn what_is_wrong_is_refused_in_a_sentence() {
    let (_cluster, mut browser, password) = cluster_with_console();
    assert_eq!(browser.log_in(&password).status, 200);
    let pools = "POST /api/v1/pools";
    for (request, body, status) in [
        (pools, json!({ "name": "vm", "survive": "1-comet" }), 400),
        (pools, json!({ "name": "vm", "code": "rs(x)" }), 400),
        (pools, json!({ "name": "v m/" }), 400),
        (pools, json!({ "name": "vm", "update": "fast" }), 400),
        (pools, json!({ "name": "vm", "colour": "red" }), 422),
        (pools, json!({ "name": "v".repeat(20 << 10) }), 413),
        (
            "PATCH /api/v1/repair/limits",
            json!({ "total_bytes_per_s": -1 }),
            422,
        ),
        ("POST /api/v1/nodes/drain", json!({ "node": 99 }), 404),
        ("GET /api/v1/file?name=none", Value::Null, 404),
        ("GET /api/v1/explain?name=none&offset=x", Value::Null, 400),
        ("GET /api/v1/plans?name=none", Value::Null, 400),
        ("GET /api/v1/nothing", Value::Null, 404),
        ("PUT /api/v1/pools", Value::Null, 405),
    ] {
        let answer = browser.order(request, &body, status);
        let error = answer.json()["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(!error.is_empty(), "{request}: {}", answer.body);
    }
    let long = "a".repeat(32 << 10);
    let answer = browser.ask(&format!("GET /api/v1/files?prefix={long}"), &Value::Null);
    assert!([414, 431].contains(&answer.status), "{}", answer.status);
    assert_eq!(browser.get("pools"), json!([]));
}

/// Files, stripes, bytes and plans, as the commands show them.
fn files_are_shown_down_to_their_chunks(cluster: &TestCluster, browser: &Browser) {
    let page = browser.get("files?limit=1");
    assert_eq!(page["entries"][0]["name"], "a/");
    let page = browser.get(&format!(
        "files?after={}",
        page["next"].as_str().expect("as described")
    ));
    assert_eq!(
        page,
        json!({ "entries": [{ "name": "b", "bytes": 1, "stripes": 0, "symlink": false }], "next": null })
    );
    let file = browser.get("file?name=a/disk");
    let mut stripes = cluster.json(&["stat", "a/disk"])["stripes"].clone();
    // The command also asks nodes for the space of each stripe.
    for stripe in stripes.as_array_mut().expect("a list") {
        let stripe = stripe.as_object_mut().expect("a row");
        for field in ["raw_bytes", "reserved_bytes", "shared"] {
            assert!(stripe.remove(field).is_some(), "{field}");
        }
    }
    assert_eq!(file["stripes"], stripes);
    for (request, status) in [
        ("file?name=b&offset=1", 400),
        ("file?name=a", 400),
        ("explain?name=a", 400),
        ("plans?name=a&offset=0", 400),
        ("file?name=b/c", 404),
    ] {
        let answer = browser.ask(&format!("GET /api/v1/{request}"), &Value::Null);
        assert_eq!(answer.status, status, "{request}: {}", answer.body);
    }
    let explained = browser.get("explain?name=a/disk&offset=70000");
    assert_eq!(explained, cluster.json(&["explain", "a/disk:70000"]));
    let plans = browser.get("plans?name=a/disk&offset=70000&length=100");
    let crossing: u64 = plans[0]["steps"]
        .as_array()
        .expect("as described")
        .iter()
        .flat_map(|step| step["uses"].as_array().expect("as described"))
        .filter(|used| used["crosses_racks"] == true)
        .map(|used| used["sent_bytes"].as_u64().expect("as described"))
        .sum();
    assert_eq!(plans[0]["cost"]["cross_rack_bytes"], crossing);
    let repair = browser.get("plans?name=a/disk&stripe=0&chunk=1&scheme=conventional");
    assert!(
        repair[0]["title"]
            .as_str()
            .expect("as described")
            .starts_with("repair of"),
        "{repair}"
    );
}

/// The operator limits repairs, pauses them and has the chunks repaired.
fn orders_repairs(cluster: &TestCluster, browser: &Browser) {
    let limits = json!({ "total_bytes_per_s": 1_000_000_000, "p99_target_ms": 50 });
    browser.order("PATCH /api/v1/repair/limits", &limits, 204);
    browser.order("POST /api/v1/repair/pause", &Value::Null, 204);
    browser.order("POST /api/v1/repair/now", &Value::Null, 204);
    assert_eq!(browser.get("repair")["paused"], true, "it shows at once");
    let status = cluster.json(&["repair", "status"]);
    assert_eq!(status["limits"]["total_bytes_per_s"], 1_000_000_000);
    assert!(status["lost_chunks"].as_u64().expect("as described") > 0);
    // A change of one limit keeps the others, and shows at once.
    let change = json!({ "total_bytes_per_s": null });
    browser.order("PATCH /api/v1/repair/limits", &change, 204);
    let limits = browser.get("overview")["repair"]["limits"].clone();
    assert_eq!(
        (&limits["total_bytes_per_s"], &limits["p99_target_ms"]),
        (&Value::Null, &json!(50))
    );
    browser.order("POST /api/v1/repair/resume", &Value::Null, 204);
    wait_for("all is repaired", || {
        browser.get("repair")["lost_chunks"] == 0
    });
    wait_for("the links show", || {
        let traffic = browser.get("traffic");
        let repaired = traffic["links"][0]["bytes"]["repair"].as_u64();
        repaired.unwrap_or(0) > 0 && traffic["updates_per_s"].is_number()
    });
}

/// Without a coordinator the last answer stays, and says how old it is. An order may be carried out or not.
fn keeps_the_last_answer(cluster: &TestCluster, browser: &Browser) {
    cluster.run(&["chaos", "kill-coordinator"]);
    wait_for("the answer is old", || {
        !browser.get("overview")["stale_because"].is_null()
    });
    let old = browser.get("overview");
    assert_eq!(
        (&old["node_count"], &old["light"]),
        (&json!(6), &json!("unknown"))
    );
    assert!(browser.get("nodes")["stale_because"].is_string());
    let order = browser.order("POST /api/v1/repair/pause", &Value::Null, 503);
    assert!(
        order
            .body
            .contains("it is unknown whether the order was carried out"),
        "{}",
        order.body
    );
    cluster.up();
    wait_for("it answers again", || {
        browser.get("overview")["stale_because"].is_null()
    });
}

#[test]
fn a_killed_node_shows_and_is_repaired() {
    let (cluster, mut browser, password) = cluster_with_console();
    assert_eq!(browser.log_in(&password).status, 200);
    let made =
        json!({ "name": "vm", "code": "rs(2,2)", "chunk_bytes": 64 << 10, "survive": "1-rack" });
    let pool = browser.order("POST /api/v1/pools", &made, 201).json();
    assert_eq!(
        (&pool["code"], &pool["usable_share"]),
        (&json!("rs(2,2)"), &json!(1.0 / 3.0))
    );
    browser.order("POST /api/v1/pools", &made, 409);
    cluster.put("a/disk", &pattern(1 << 20, 1));
    cluster.put("b", &pattern(1, 1));
    wait_for("every node was heard", || {
        browser.get("overview")["light"] == "green"
    });

    files_are_shown_down_to_their_chunks(&cluster, &browser);

    // A node dies: its problem is there, and an event.
    cluster.run(&["chaos", "kill-node", "1"]);
    cluster.wait_until_failed(&[1]);
    let overview = browser.get("overview");
    assert_eq!(overview["light"], "yellow");
    assert_eq!(
        overview["troubles"],
        cluster.json(&["cluster", "status"])["troubles"]
    );
    assert_eq!(overview["unwell"][0]["node"], 1);
    assert_eq!(
        overview["racks"][0]["by_state"],
        json!({ "failed": 1, "up": 1 })
    );
    wait_for("the event is there", || {
        let events = browser.get("events?limit=500");
        let mut kinds = events
            .as_array()
            .expect("as described")
            .iter()
            .map(|event| event["kind"].clone());
        kinds.any(|kind| kind == "failed")
    });
    let last = browser.get("events?limit=1")[0]["number"].clone();
    let newer = browser.get(&format!("events?after={last}"));
    assert!(
        newer
            .as_array()
            .expect("as described")
            .iter()
            .all(|event| event["number"].as_u64() > last.as_u64())
    );

    orders_repairs(&cluster, &browser);

    keeps_the_last_answer(&cluster, &browser);
}

#[test]
fn a_console_serves_loopback_only() {
    let cluster = TestCluster::start(1, 1);
    let error = fails_on(&cluster, &["console", "--listen=0.0.0.0:0"], 2);
    assert!(
        error.contains("use a tunnel or a proxy with TLS"),
        "{error}"
    );
    fails(&["console"], 2);
    for host in ["", "https://x/", "a b"] {
        fails_on(&cluster, &["console", &format!("--host={host}")], 2);
    }
    let nowhere = cluster.path("none/password");
    let file = format!("--password-file={}", path_text(&nowhere));
    fails_on(&cluster, &["console", &file], 1);
}
