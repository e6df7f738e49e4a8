//! What the crates below `wire` must not know, and what libraries must not link.
//!
//! Planners, the executor, the store and the protocol's roles give equal results for equal inputs,
//! and the simulator drives them through any schedule. That holds only while they reach for nothing
//! outside their inputs: no clock, socket, thread, ambient randomness or hash order. Tests may.

use super::layers::Layers;
use super::manifest::{self, Section};
use super::source::Source;
use super::tree::Tree;
use super::{Problem, crate_of};

/// Names that reach outside a pure crate's inputs, and what to use in their place.
///
/// Addresses such as `std::net::IpAddr` are plain data and may stay; sockets and name look-ups may
/// not.
const BANNED_PATHS: [(&[&str], &str); 25] = [
    (&["HashMap"], ORDER),
    (&["HashSet"], ORDER),
    (&["RandomState"], ORDER),
    (&["Instant", "now"], CLOCK),
    (&["time", "Instant"], CLOCK),
    (&["SystemTime"], CLOCK),
    (&["UNIX_EPOCH"], CLOCK),
    (&["std", "thread"], THREAD),
    (&["thread", "spawn"], THREAD),
    (&["thread", "scope"], THREAD),
    (&["thread", "sleep"], THREAD),
    (&["TcpListener"], SOCKET),
    (&["TcpStream"], SOCKET),
    (&["ToSocketAddrs"], SOCKET),
    (&["UdpSocket"], SOCKET),
    (&["UnixDatagram"], SOCKET),
    (&["UnixListener"], SOCKET),
    (&["UnixStream"], SOCKET),
    (&["rand", "rng"], CHANCE),
    (&["rand", "random"], CHANCE),
    (&["thread_rng"], CHANCE),
    (&["from_os_rng"], CHANCE),
    (&["OsRng"], CHANCE),
    (&["SysRng"], CHANCE),
    (&["from_entropy"], CHANCE),
];

const ORDER: &str = "use BTreeMap, BTreeSet or Vec, whose order is the same in every run";
const CLOCK: &str = "take the time as an argument";
const THREAD: &str = "return work to the caller, who owns the threads";
const SOCKET: &str = "return messages to the caller, who owns the sockets";
const CHANCE: &str = "take a seeded generator as an argument";

/// Packages that bring a runtime, a clock, sockets, threads or ambient randomness.
const BANNED_PACKAGES: [&str; 12] = [
    "async-std",
    "chrono",
    "crossbeam",
    "fastrand",
    "getrandom",
    "mio",
    "rayon",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tokio-util",
];

/// The one crate that may blur errors together, because a person reads them.
const BINARY: &str = "gabion";

/// Every breach of purity in the product code of the crates below `wire`.
pub(crate) fn check(tree: &Tree, sources: &[Source<'_>], layers: &Layers) -> Vec<Problem> {
    let mut problems = Vec::new();
    for source in sources {
        if crate_of(source.path).is_some_and(|name| layers.is_pure(name)) {
            problems.extend(check_source(source));
        }
    }
    for (name, path, text) in tree.manifests() {
        for dependency in manifest::dependencies(text) {
            let package = dependency.name;
            if package == "anyhow" && name != BINARY {
                let message = format!(
                    "library `{name}` may not use `anyhow`; give it an error enum, and leave `anyhow` to `{BINARY}`"
                );
                problems.push(Problem::new(path, dependency.line, message));
            }
            let banned = BANNED_PACKAGES.contains(&package);
            if banned && dependency.section == Section::Product && layers.is_pure(name) {
                let message = format!(
                    "`{name}` is below `wire` and may not use `{package}`; leave clocks, sockets, threads and chance to the crates from `wire` up"
                );
                problems.push(Problem::new(path, dependency.line, message));
            }
        }
    }
    problems
}

fn check_source(source: &Source<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in source.paths() {
        if source.is_test(path.line) {
            continue;
        }
        let ban = BANNED_PATHS.iter().find(|(names, _)| path.contains(names));
        if let Some((names, instead)) = ban {
            let message = format!("`{}` below `wire`; {instead}", names.join("::"));
            problems.push(Problem::new(source.path, path.line, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const TABLE: &str = "\
| crate | holds | may use |
|---|---|---|
| `store` | chunks | - |
| `wire` | frames | - |
| `gabion` | binary | - |
";

    fn check_tree(files: &[(&str, &str)], expected: &[(&str, usize, &str)]) {
        let mut all = vec![("ARCHITECTURE.md", TABLE)];
        all.extend_from_slice(files);
        let tree = Tree::of(&all);
        let sources = source::parse_all(&tree);
        let (layers, _) = Layers::read(&tree);
        let problems = check(&tree, &sources, &layers);
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, (path, line, start)) in problems.iter().zip(expected) {
            assert_eq!(
                (problem.path.as_str(), problem.line),
                (*path, *line),
                "{problem}"
            );
            assert!(problem.message.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn each_ban_fires_below_wire() {
        let path = "crates/store/src/lib.rs";
        let cases = [
            ("use std::collections::{BTreeMap, HashMap};", "`HashMap`"),
            (
                "fn a() { let s = std::collections::HashSet::<u8>::new(); }",
                "`HashSet`",
            ),
            (
                "fn a() { assert!(HashMap::<u8, u8>::new().is_empty()); }",
                "`HashMap`",
            ),
            ("fn a() { let t = Instant::now(); }", "`Instant::now`"),
            ("use std::time::{Duration, Instant};", "`time::Instant`"),
            ("use std::time::SystemTime;", "`SystemTime`"),
            ("use std::{fmt, thread};", "`std::thread`"),
            ("fn a() { thread::spawn(|| ()); }", "`thread::spawn`"),
            ("use std::{io, net::TcpStream};", "`TcpStream`"),
            ("fn a() { rand::rng(); }", "`rand::rng`"),
            ("fn a() { StdRng::from_os_rng(); }", "`from_os_rng`"),
        ];
        for (text, start) in cases {
            check_tree(&[(path, text)], &[(path, 1, start)]);
        }
    }

    #[test]
    fn bans_do_not_misfire() {
        let allowed = "\
use std::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
// HashMap would lose the order; Instant::now would lose the replay.
const TEXT: &str = \"HashMap std::net\";
struct Instant(u64);
mod net {}
fn thread(rng: &mut impl rand::Rng) { x.random(); let now = 1; }
#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::thread;
}
";
        check_tree(&[("crates/store/src/lib.rs", allowed)], &[]);
        let impure = "use std::collections::HashMap;\nuse std::net::TcpStream;\n";
        for path in [
            "crates/wire/src/lib.rs",
            "xtask/src/main.rs",
            "crates/store/benches/b.rs",
        ] {
            check_tree(&[(path, impure)], &[]);
        }
    }

    #[test]
    fn packages_are_judged_by_layer_and_section() {
        let runtime = "[dependencies]\ntokio.workspace = true\n";
        let store = "crates/store/Cargo.toml";
        check_tree(
            &[(store, runtime)],
            &[(store, 2, "`store` is below `wire`")],
        );
        check_tree(&[("crates/wire/Cargo.toml", runtime)], &[]);
        check_tree(
            &[(store, "[dev-dependencies]\ntokio.workspace = true\n")],
            &[],
        );
    }

    #[test]
    fn anyhow_is_for_the_binary() {
        let anyhow = "[dependencies]\nanyhow.workspace = true\n";
        let wire = "crates/wire/Cargo.toml";
        check_tree(
            &[(wire, anyhow)],
            &[(wire, 2, "library `wire` may not use `anyhow`")],
        );
        check_tree(
            &[
                ("crates/gabion/Cargo.toml", anyhow),
                ("xtask/Cargo.toml", anyhow),
            ],
            &[],
        );
    }
}
