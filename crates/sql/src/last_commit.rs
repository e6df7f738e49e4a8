//! The number of the last commit, on this machine's disk: a database that does not have it is an older state of itself,
//! such as a standby that was promoted without the last transactions.
//!
//! The file has two records, written in turn, so a write that is torn leaves the record before. A renewal of the lease
//! changes no row, so its loss does no harm, and it is not noted.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The first bytes of a record; the last one is the format's number.
const MAGIC: [u8; 8] = *b"GABIONC1";
/// Magic, identity, term, sequence, checksum.
const RECORD_BYTES: usize = 8 + IDENTITY_BYTES + 8 + 8 + 4;
/// Bytes of an identity, as text.
pub(crate) const IDENTITY_BYTES: usize = 32;
/// Offset of each record: in a disk's block of its own.
const PLACES: [u64; 2] = [0, 4096];

/// A commit of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Commit {
    /// The database's, which its copies share.
    pub(crate) identity: String,
    pub(crate) term: i64,
    pub(crate) sequence: i64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct LastCommit {
    path: PathBuf,
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    last: Option<Commit>,
    /// The place of the record to write next.
    next: usize,
}

impl LastCommit {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let mut found: Vec<(usize, Commit)> = Vec::new();
        for (at, place) in PLACES.into_iter().enumerate() {
            let mut record = [0; RECORD_BYTES];
            match file.read_exact_at(&mut record, place) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                read => {
                    read?;
                    found.extend(decode(&record).map(|commit| (at, commit)));
                }
            }
        }
        if found.is_empty() && file.metadata()?.len() > PLACES[1] {
            let reason =
                "both of its records are damaged; remove it if the database has lost no commits";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let last = found
            .into_iter()
            .max_by_key(|(_, commit)| (commit.term, commit.sequence));
        if let Some(parent) = path.parent() {
            File::open(parent)?.sync_all()?;
        }
        let next = last.as_ref().map_or(0, |(at, _)| 1 - at);
        let last = last.map(|(_, commit)| commit);
        Ok(Self {
            path: path.to_owned(),
            file,
            state: Mutex::new(State { last, next }),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The last commit that was noted.
    pub(crate) fn last(&self) -> Option<Commit> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.clone()
    }

    /// Notes a commit. It is durable when this returns.
    pub(crate) fn note(&self, commit: &Commit) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |last: &Commit| last.identity != commit.identity;
        let both = state.last.as_ref().is_some_and(is_other);
        // A record of another database may have higher numbers, so it must not stay.
        for _ in 0..=usize::from(both) {
            self.file
                .write_all_at(&encode(commit), PLACES[state.next])?;
            state.next = 1 - state.next;
        }
        self.file.sync_data()?;
        state.last = Some(commit.clone());
        Ok(())
    }
}

fn encode(commit: &Commit) -> [u8; RECORD_BYTES] {
    let mut body = Vec::with_capacity(RECORD_BYTES);
    body.extend(MAGIC);
    body.extend(
        commit
            .identity
            .bytes()
            .chain([0; IDENTITY_BYTES])
            .take(IDENTITY_BYTES),
    );
    body.extend(commit.term.to_le_bytes());
    body.extend(commit.sequence.to_le_bytes());
    body.extend(crc_fast::crc32_iscsi(&body).to_le_bytes());
    let mut record = [0; RECORD_BYTES];
    record.copy_from_slice(&body);
    record
}

/// The commit of a record; none if it was torn or never written.
fn decode(record: &[u8; RECORD_BYTES]) -> Option<Commit> {
    let (body, checksum) = record.split_last_chunk()?;
    let (magic, rest) = body.split_first_chunk()?;
    let (identity, rest) = rest.split_first_chunk::<IDENTITY_BYTES>()?;
    let (term, rest) = rest.split_first_chunk()?;
    let (sequence, _) = rest.split_first_chunk()?;
    let is_whole = *magic == MAGIC && crc_fast::crc32_iscsi(body) == u32::from_le_bytes(*checksum);
    is_whole.then_some(())?;
    Some(Commit {
        identity: String::from_utf8(identity.to_vec()).ok()?,
        term: i64::from_le_bytes(*term),
        sequence: i64::from_le_bytes(*sequence),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(identity: &str, sequence: i64) -> Commit {
        Commit {
            identity: identity.repeat(IDENTITY_BYTES),
            term: 3,
            sequence,
        }
    }

    #[test]
    fn the_last_commit_is_found_again_and_a_torn_record_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("last");
        assert_eq!(LastCommit::open(&path).unwrap().last(), None);
        for sequence in 1..=5 {
            LastCommit::open(&path)
                .unwrap()
                .note(&commit("a", sequence))
                .unwrap();
            let found = LastCommit::open(&path).unwrap().last();
            assert_eq!(found, Some(commit("a", sequence)));
        }
        // Commits 1, 3 and 5 are in the first place.
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[9], PLACES[0] + 42).unwrap();
        let found = LastCommit::open(&path).unwrap().last();
        assert_eq!(found, Some(commit("a", 4)));
        // Without either the file does not say that there was no commit.
        file.write_all_at(&[9], PLACES[1] + 42).unwrap();
        LastCommit::open(&path).unwrap_err();
    }

    #[test]
    fn a_commit_of_another_database_leaves_nothing_of_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("last");
        let last = LastCommit::open(&path).unwrap();
        last.note(&commit("a", 7)).unwrap();
        last.note(&commit("a", 8)).unwrap();
        last.note(&commit("b", 1)).unwrap();
        let found = LastCommit::open(&path).unwrap().last();
        assert_eq!(found, Some(commit("b", 1)));
    }
}
