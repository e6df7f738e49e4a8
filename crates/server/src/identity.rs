//! A node's identity file: its cluster, its id, and its number of starts.
//!
//! The file `node` in the node's directory has four lines, `gabion-node 2`, `cluster HEX` and `id
//! N` (or `-` for each before the first join), and `incarnation N`. It is replaced atomically. The
//! store holds the same identity, which reveals a missing disk or one of another node.

use crate::error::{ServerError, io_error};
use gabion_layout::{ClusterId, NodeId};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

const FILE_NAME: &str = "node";
const HEADER: &str = "gabion-node 2";

/// A node's identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    path: PathBuf,
    /// Its cluster and its id there, once it has joined.
    pub(crate) member: Option<(ClusterId, NodeId)>,
    /// Higher than at any earlier start.
    pub(crate) incarnation: u64,
}

impl Identity {
    /// Reads the identity in `directory`; that of a new node if the file is missing.
    pub(crate) fn read(directory: &Path) -> Result<Self, ServerError> {
        let path = directory.join(FILE_NAME);
        match fs::read_to_string(&path) {
            Ok(text) => parse(&path, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self {
                path,
                member: None,
                incarnation: 0,
            }),
            Err(error) => Err(io_error("read", &path)(error)),
        }
    }

    /// Merges the store's identity, and refuses the store of another node.
    pub(crate) fn check(&mut self, store: &gabion_store::Identity) -> Result<(), ServerError> {
        if let Some(last) = store.starts.last() {
            self.incarnation = self.incarnation.max(last.number);
        }
        let (Some(cluster), Some(node)) = (store.cluster, store.node) else {
            return Ok(());
        };
        match self.member {
            Some(member) if member != (cluster, node) => {
                let in_words = |(cluster, node)| format!("{node} of cluster {cluster}");
                let directory = self.path.parent().unwrap_or(Path::new("."));
                Err(ServerError::OtherStore {
                    path: directory.to_owned(),
                    expected: in_words(member),
                    found: in_words((cluster, node)),
                })
            }
            _ => {
                self.member = Some((cluster, node));
                Ok(())
            }
        }
    }

    /// Counts this start, durably.
    pub(crate) fn begin(&mut self) -> Result<(), ServerError> {
        self.begin_above(self.incarnation)
    }

    /// The same with a number above this one, which a run of the node has had.
    pub(crate) fn begin_above(&mut self, number: u64) -> Result<(), ServerError> {
        self.incarnation = self.incarnation.max(number).saturating_add(1);
        self.save()
    }

    /// Records the identity that the coordinator has assigned.
    pub(crate) fn joined(&mut self, cluster: ClusterId, node: NodeId) -> Result<(), ServerError> {
        if self.member == Some((cluster, node)) {
            return Ok(());
        }
        self.member = Some((cluster, node));
        self.save()
    }

    fn save(&self) -> Result<(), ServerError> {
        let (cluster, id) = match self.member {
            Some((cluster, node)) => (cluster.to_string(), node.0.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let incarnation = self.incarnation;
        let text = format!("{HEADER}\ncluster {cluster}\nid {id}\nincarnation {incarnation}\n");
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
    if lines.first() != Some(&HEADER) {
        return Err(wrong("its first line is of another version"));
    }
    let [_, cluster, id, incarnation] = lines[..] else {
        return Err(wrong("it does not have 4 lines"));
    };
    let member = match (cluster.strip_prefix("cluster "), id.strip_prefix("id ")) {
        (Some("-"), Some("-")) => None,
        (Some(cluster), Some(id)) => {
            let cluster = u128::from_str_radix(cluster, 16);
            let cluster = cluster.map_err(|_| wrong("its cluster is not a number"))?;
            let id = id.parse().map_err(|_| wrong("its id is not a number"))?;
            Some((ClusterId(cluster), NodeId(id)))
        }
        _ => return Err(wrong("it has no cluster or no id")),
    };
    let incarnation = incarnation
        .strip_prefix("incarnation ")
        .and_then(|n| n.parse().ok());
    let incarnation = incarnation.ok_or_else(|| wrong("it has no incarnation"))?;
    Ok(Identity {
        path: path.to_owned(),
        member,
        incarnation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_layout::Start;

    const MEMBER: (ClusterId, NodeId) = (ClusterId(0xfeed), NodeId(7));

    #[test]
    fn a_start_counts_and_the_id_stays() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = Identity::read(directory.path()).unwrap();
        first.begin().unwrap();
        assert_eq!((first.member, first.incarnation), (None, 1));
        first.joined(MEMBER.0, MEMBER.1).unwrap();
        let mut second = Identity::read(directory.path()).unwrap();
        second.begin().unwrap();
        assert_eq!((second.member, second.incarnation), (Some(MEMBER), 2));
    }

    #[test]
    fn the_store_gives_its_identity_and_another_nodes_store_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut identity = Identity::read(directory.path()).unwrap();
        let mut store = gabion_store::Identity::default();
        identity.check(&store).unwrap();
        assert_eq!(identity.member, None);
        store.cluster = Some(MEMBER.0);
        store.node = Some(MEMBER.1);
        store.starts = vec![Start {
            number: 9,
            nonce: 1,
        }];
        identity.check(&store).unwrap();
        assert_eq!((identity.member, identity.incarnation), (Some(MEMBER), 9));
        store.node = Some(NodeId(8));
        let error = identity.check(&store).unwrap_err().to_string();
        assert!(error.contains("contains the store of node 8"), "{error}");
        store.node = Some(MEMBER.1);
        store.cluster = Some(ClusterId(1));
        identity.check(&store).unwrap_err();
    }

    #[test]
    fn a_damaged_identity_is_named_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        for text in [
            "",
            "gabion-node 9\nid 1\nincarnation 1\n",
            "gabion-node 2\ncluster -\nid 1\nincarnation 1\n",
            "gabion-node 2\ncluster 1\nid x\nincarnation 1\n",
        ] {
            fs::write(&path, text).unwrap();
            let error = Identity::read(directory.path()).unwrap_err().to_string();
            assert!(error.contains("is not a valid identity file"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
