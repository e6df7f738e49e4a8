//! A page of metrics as a scraper reads it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// The samples of a page, by their names with labels as they are written.
pub(crate) struct Page {
    pub(crate) text: String,
    samples: BTreeMap<String, f64>,
}

impl Page {
    /// Reads the page of a server.
    pub(crate) fn of(address: SocketAddr) -> Self {
        let text = get(address, "/metrics", "text/plain");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        let lines = body.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample has a value");
            (name.to_owned(), value.parse().expect("it is a number"))
        });
        Self {
            samples: samples.collect(),
            text: body.to_owned(),
        }
    }

    /// A sample, if the page has it.
    pub(crate) fn find(&self, name: &str) -> Option<f64> {
        self.samples.get(name).copied()
    }

    /// A sample; the page must have it.
    pub(crate) fn value(&self, name: &str) -> f64 {
        let found = self.find(name);
        found.unwrap_or_else(|| panic!("there is no {name} in {}", self.text))
    }

    /// The names of all samples.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.samples.keys();
        names.map(|name| name.split('{').next().unwrap_or(name))
    }

    /// The samples of a metric with their labels as they are written.
    pub(crate) fn rows(&self, metric: &str) -> BTreeMap<String, f64> {
        let rows = self.samples.iter().filter_map(|(name, &value)| {
            let labels = name.strip_prefix(metric)?.strip_prefix('{')?;
            Some((labels.trim_end_matches('}').to_owned(), value))
        });
        rows.collect()
    }
}

/// Returns a server's answer to a request of this path.
pub(crate) fn get(address: SocketAddr, path: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("metrics are served");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer is text");
    text
}
