//! What a node remembers of itself between starts: its id, and how often it has started.
//!
//! The file `node` in the node's directory has three lines, `gabion-node 1`, `id N` (or `id -` before
//! the first join) and `incarnation N`. It is replaced atomically.

use crate::ServerError;
use crate::error::io_error;
use gabion_layout::NodeId;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "node";
const HEADER: &str = "gabion-node 1";

/// A node's memory of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    path: PathBuf,
    /// Its id, once it has joined.
    pub(crate) node: Option<NodeId>,
    /// Higher than at any earlier start.
    pub(crate) incarnation: u64,
}

impl Identity {
    /// Reads the identity in `directory`, counts this start, and makes that durable.
    pub(crate) fn begin(directory: &Path) -> Result<Self, ServerError> {
        let path = directory.join(FILE_NAME);
        let mut identity = match fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self {
                path,
                node: None,
                incarnation: 0,
            },
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        identity.incarnation += 1;
        identity.save()?;
        Ok(identity)
    }

    /// Remembers the id that the coordinator gave.
    pub(crate) fn joined(&mut self, node: NodeId) -> Result<(), ServerError> {
        if self.node == Some(node) {
            return Ok(());
        }
        self.node = Some(node);
        self.save()
    }

    fn save(&self) -> Result<(), ServerError> {
        let id = self
            .node
            .map_or_else(|| "-".to_owned(), |node| node.0.to_string());
        let text = format!("{HEADER}\nid {id}\nincarnation {}\n", self.incarnation);
        let temporary = self.path.with_extension("new");
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)?;
            let directory = self.path.parent().unwrap_or(Path::new("."));
            File::open(directory)?.sync_all()
        };
        write().map_err(io_error("write", &self.path))
    }
}

fn parse(path: &Path, text: &str) -> Result<Identity, ServerError> {
    let wrong = |reason: &str| ServerError::Identity {
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let lines: Vec<&str> = text.lines().collect();
    let [header, id, incarnation] = lines[..] else {
        return Err(wrong("it has not 3 lines"));
    };
    if header != HEADER {
        return Err(wrong("its first line is of another version"));
    }
    let node = match id.strip_prefix("id ") {
        Some("-") => None,
        Some(number) => Some(NodeId(
            number.parse().map_err(|_| wrong("its id is no number"))?,
        )),
        None => return Err(wrong("it has no id")),
    };
    let incarnation = incarnation
        .strip_prefix("incarnation ")
        .and_then(|n| n.parse().ok());
    let incarnation = incarnation.ok_or_else(|| wrong("it has no incarnation"))?;
    Ok(Identity {
        path: path.to_owned(),
        node,
        incarnation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_and_the_id_stays() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Identity::begin(directory.path()).unwrap();
        assert_eq!((first.node, first.incarnation), (None, 1));
        first.joined(NodeId(7)).unwrap();
        let second = Identity::begin(directory.path()).unwrap();
        assert_eq!((second.node, second.incarnation), (Some(NodeId(7)), 2));
    }

    #[test]
    fn a_damaged_identity_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        for text in [
            "",
            "gabion-node 9\nid 1\nincarnation 1\n",
            "gabion-node 1\nid x\nincarnation 1\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = Identity::begin(directory.path()).unwrap_err().to_string();
            assert!(error.contains("does not say which node this is"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
