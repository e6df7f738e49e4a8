//! Checks whether clients' observations of names, by puts, removals, look-ups and lists, are linearizable:
//! the counterpart of [`crate::registers`] for files as a whole.
//!
//! A file exists from one instant between the call and the answer of its put to one of some removal. A name
//! has one file at a time. So no file may be seen before its put or after its removal. A file that exists
//! and that no removal can have removed may not be missing. Two files of one name never exist together.

use gabion_meta::PutId;
use std::collections::BTreeMap;
use thiserror::Error;

/// The names of snapshots and clones begin with this. Their client alone knows them, so no checker of names does.
pub(crate) const SNAPSHOTS: &str = "snapshots/";

/// Whether a file is a snapshot or a clone.
pub(crate) fn is_snapshot(name: &str) -> bool {
    name.starts_with(SNAPSHOTS)
}

/// Observations of a name that are not linearizable.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Misnomer {
    /// A file was seen before it was put, or no put stored it.
    #[error("{name}: {file:?} exists before its put")]
    Early {
        /// The name.
        name: String,
        /// The put.
        file: PutId,
    },
    /// A file was seen, then was missing, then was seen again.
    #[error("{name}: {file:?} exists again after its removal")]
    Again {
        /// The name.
        name: String,
        /// The put.
        file: PutId,
    },
    /// A file is missing although no removal can have removed it.
    #[error("{name}: {file:?} is missing, but no operation removed it")]
    Gone {
        /// The name.
        name: String,
        /// The put.
        file: PutId,
    },
    /// Two files of one name existed together.
    #[error("{name}: {file:?} and {other:?} exist at the same time")]
    Both {
        /// The name.
        name: String,
        /// A put.
        file: PutId,
        /// Another.
        other: PutId,
    },
}

/// A span of time: of an operation from its call to its answer, or in which a file certainly exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The time of its call.
    pub called_us: u64,
    /// The time of its answer; `u64::MAX` without one.
    pub answered_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct File {
    put_called_us: u64,
    /// The first answer of an operation that shows the file (`u64::MAX` without one), by which it exists,
    /// and the last call of one, at which it still exists.
    seen: Span,
}

#[derive(Debug, Default)]
struct Name {
    files: BTreeMap<PutId, File>,
    /// The put of each file.
    removals: Vec<(PutId, Span)>,
    /// Operations that found no file.
    gaps: Vec<Span>,
}

/// All names.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, Name>);

impl Names {
    /// A put was called; it takes effect later, if ever.
    pub fn putting(&mut self, name: &str, file: PutId, called_us: u64) {
        let fresh = File {
            put_called_us: called_us,
            seen: Span {
                called_us,
                answered_us: u64::MAX,
            },
        };
        self.name(name).files.insert(file, fresh);
    }

    /// A put was acknowledged, or a look-up or a list has shown the file.
    ///
    /// # Errors
    /// The contradiction.
    pub fn is_there(&mut self, name: &str, file: PutId, at: Span) -> Result<(), Misnomer> {
        let known = self.0.entry(name.to_owned()).or_default();
        let early = || Misnomer::Early {
            name: name.to_owned(),
            file,
        };
        let shown = known.files.get_mut(&file).ok_or_else(early)?;
        if at.answered_us < shown.put_called_us {
            return Err(early());
        }
        shown.seen.answered_us = shown.seen.answered_us.min(at.answered_us);
        shown.seen.called_us = shown.seen.called_us.max(at.called_us);
        let shown = *shown;
        known.check_gaps(name, file, shown)?;
        known.check_others(name, file, shown)
    }

    /// A client called the removal of a file. Returns its number, by which it is acknowledged.
    pub fn removing(&mut self, name: &str, file: PutId, called_us: u64) -> usize {
        let removals = &mut self.name(name).removals;
        let open = Span {
            called_us,
            answered_us: u64::MAX,
        };
        removals.push((file, open));
        removals.len() - 1
    }

    /// A removal was acknowledged.
    ///
    /// # Errors
    /// [`Misnomer::Again`].
    ///
    /// # Panics
    /// When the removal was not called.
    pub fn removed(&mut self, name: &str, number: usize, now_us: u64) -> Result<(), Misnomer> {
        let known = self.name(name);
        known.removals[number].1.answered_us = now_us;
        known.check_all(name)
    }

    /// A list has not shown the name, or an open has not found it.
    ///
    /// # Errors
    /// [`Misnomer::Again`], [`Misnomer::Gone`].
    pub fn is_not_there(&mut self, name: &str, at: Span) -> Result<(), Misnomer> {
        let known = self.name(name);
        let is_gone = |(id, file): &(&PutId, &File)| {
            file.seen.answered_us < at.called_us && !known.may_be_removed(**id, at.answered_us)
        };
        if let Some((&file, _)) = known.files.iter().find(is_gone) {
            let name = name.to_owned();
            return Err(Misnomer::Gone { name, file });
        }
        known.gaps.push(at);
        known.check_all(name)
    }

    /// The names with any observations.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    fn name(&mut self, name: &str) -> &mut Name {
        self.0.entry(name.to_owned()).or_default()
    }
}

impl Name {
    /// Whether some removal can have removed a file by then.
    fn may_be_removed(&self, file: PutId, by_us: u64) -> bool {
        let mut removals = self.removals.iter();
        removals.any(|(other, removal)| *other == file && removal.called_us <= by_us)
    }

    fn check_all(&self, name: &str) -> Result<(), Misnomer> {
        let mut files = self.files.iter();
        files.try_for_each(|(&id, &file)| self.check_gaps(name, id, file))
    }

    /// While a file certainly exists, no operation finds the name free and no removal of it takes effect.
    fn check_gaps(&self, name: &str, id: PutId, file: File) -> Result<(), Misnomer> {
        let removals = self.removals.iter().filter(|(other, _)| *other == id);
        let mut against = self.gaps.iter().chain(removals.map(|(_, span)| span));
        let is_inside = |span: &Span| {
            file.seen.answered_us < span.called_us && span.answered_us < file.seen.called_us
        };
        if against.any(is_inside) {
            let name = name.to_owned();
            return Err(Misnomer::Again { name, file: id });
        }
        Ok(())
    }

    /// Of two files, one was removed before the other was put.
    fn check_others(&self, name: &str, id: PutId, file: File) -> Result<(), Misnomer> {
        for (&other_id, other) in &self.files {
            if other_id == id || other.seen.answered_us == u64::MAX {
                continue;
            }
            let overlap = file.seen.answered_us < other.seen.called_us
                && other.seen.answered_us < file.seen.called_us;
            let by_us = file.seen.answered_us.max(other.seen.answered_us);
            let mut either = [id, other_id].into_iter();
            if overlap || !either.any(|one| self.may_be_removed(one, by_us)) {
                return Err(Misnomer::Both {
                    name: name.to_owned(),
                    file: id,
                    other: other_id,
                });
            }
        }
        Ok(())
    }
}
