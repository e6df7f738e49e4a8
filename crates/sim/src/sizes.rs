//! Checks the sizes of files that clients see: the counterpart of [`crate::registers`] for the ends of files.
//!
//! - A size is at least the size that any acknowledged operation gave the file before the look-up, unless a later
//!   truncation may have made it smaller.
//! - A size is at most the largest size that an operation requested, without the operations that certainly precede the
//!   last acknowledged truncation.
//! - Acknowledged extensions of a file that was never truncated do not overlap.

use gabion_meta::PutId;
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

/// Sizes that no order of the operations explains.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Missized {
    /// Acknowledged growth is gone.
    #[error(
        "{file:?} has {size_bytes} bytes, but an acknowledged operation set its size to {to_bytes}"
    )]
    Lost {
        /// The file.
        file: PutId,
        /// The size that was seen.
        size_bytes: u64,
        /// The size that it must have.
        to_bytes: u64,
    },
    /// No operation has asked for this size.
    #[error("{file:?} has {size_bytes} bytes, but at most {most_bytes} are possible")]
    Excess {
        /// The file.
        file: PutId,
        /// The size that was seen.
        size_bytes: u64,
        /// The largest size that is possible.
        most_bytes: u64,
    },
    /// Two appends have got the same bytes.
    #[error("{file:?}: two extensions got the overlapping bytes {one:?} and {other:?}")]
    Shared {
        /// The file.
        file: PutId,
        /// The range of an extension.
        one: Range<u64>,
        /// That of another.
        other: Range<u64>,
    },
}

/// The size that an operation asks for.
#[derive(Clone, Copy, Debug)]
enum To {
    /// At least this one.
    AtLeast(u64),
    /// This much more.
    More(u64),
    /// Exactly this one.
    Exactly(u64),
}

#[derive(Clone, Copy, Debug)]
struct Change {
    to: To,
    called_us: u64,
    /// When it was acknowledged; `u64::MAX` without that: it may take effect at any time.
    made_us: u64,
}

impl Change {
    /// The size that the file has for an instant once this was acknowledged.
    const fn least_bytes(self) -> u64 {
        match self.to {
            To::AtLeast(size) | To::Exactly(size) => size,
            To::More(_) => 0,
        }
    }

    const fn is_cut_below(self, size_bytes: u64) -> bool {
        matches!(self.to, To::Exactly(to) if to < size_bytes)
    }
}

#[derive(Debug, Default)]
struct File {
    /// The first is the creation.
    changes: Vec<Change>,
    extensions: Vec<Range<u64>>,
}

/// A look at the size of a file.
#[derive(Clone, Copy, Debug)]
pub struct SizeSeen {
    /// The size.
    pub size_bytes: u64,
    /// The time of the call.
    pub called_us: u64,
    /// The time of the answer.
    pub answered_us: u64,
}

/// The sizes of all files.
#[derive(Debug, Default)]
pub struct Sizes(BTreeMap<PutId, File>);

impl Sizes {
    /// A put was called.
    pub fn putting(&mut self, file: PutId, size_bytes: u64, called_us: u64) {
        let file = self.0.entry(file).or_default();
        *file = File::default();
        file.add(To::AtLeast(size_bytes), called_us);
    }

    /// A client calls an operation that gives a file at least this size. Returns its number, by which it is
    /// acknowledged.
    pub fn growing(&mut self, file: PutId, size_bytes: u64, called_us: u64) -> usize {
        self.file(file).add(To::AtLeast(size_bytes), called_us)
    }

    /// A client calls an extension of a file by this much. Returns its number.
    pub fn extending(&mut self, file: PutId, by_bytes: u64, called_us: u64) -> usize {
        self.file(file).add(To::More(by_bytes), called_us)
    }

    /// A client calls a truncation of a file to this size. Returns its number.
    pub fn truncating(&mut self, file: PutId, size_bytes: u64, called_us: u64) -> usize {
        self.file(file).add(To::Exactly(size_bytes), called_us)
    }

    /// An operation was acknowledged.
    pub fn made(&mut self, file: PutId, number: usize, now_us: u64) {
        let change = &mut self.file(file).changes[number];
        change.made_us = change.made_us.min(now_us);
    }

    /// An extension was acknowledged: the client has got this range.
    ///
    /// # Errors
    /// See [`Missized`].
    pub fn extended(
        &mut self,
        file: PutId,
        number: usize,
        range: Range<u64>,
        now_us: u64,
    ) -> Result<(), Missized> {
        let called_us = self.file(file).changes[number].called_us;
        // It begins at the size of that instant.
        let seen = SizeSeen {
            size_bytes: range.start,
            called_us,
            answered_us: now_us,
        };
        self.seen(file, seen)?;
        let known = self.file(file);
        known.changes[number].to = To::AtLeast(range.end);
        known.changes[number].made_us = now_us;
        let is_cut = |change: &Change| matches!(change.to, To::Exactly(_));
        if !known.changes.iter().any(is_cut) {
            let overlaps = |other: &&Range<u64>| range.start < other.end && other.start < range.end;
            if let Some(other) = known.extensions.iter().find(overlaps) {
                return Err(Missized::Shared {
                    file,
                    one: other.clone(),
                    other: range,
                });
            }
        }
        known.extensions.push(range);
        Ok(())
    }

    /// A client has looked a file up, which therefore exists.
    ///
    /// # Errors
    /// See [`Missized`].
    pub fn seen(&mut self, file: PutId, seen: SizeSeen) -> Result<(), Missized> {
        let known = self.file(file);
        if let Some(creation) = known.changes.first_mut() {
            creation.made_us = creation.made_us.min(seen.answered_us);
        }
        let size_bytes = seen.size_bytes;
        if let Some(to_bytes) = known.least_bytes(seen).filter(|&least| size_bytes < least) {
            return Err(Missized::Lost {
                file,
                size_bytes,
                to_bytes,
            });
        }
        match known.most_bytes(seen) {
            most_bytes if size_bytes > most_bytes => Err(Missized::Excess {
                file,
                size_bytes,
                most_bytes,
            }),
            _ => Ok(()),
        }
    }

    fn file(&mut self, file: PutId) -> &mut File {
        self.0.entry(file).or_default()
    }
}

impl File {
    fn add(&mut self, to: To, called_us: u64) -> usize {
        self.changes.push(Change {
            to,
            called_us,
            made_us: u64::MAX,
        });
        self.changes.len() - 1
    }

    /// The largest size that an acknowledged operation has given the file and no truncation can have taken.
    fn least_bytes(&self, seen: SizeSeen) -> Option<u64> {
        let may_be_cut = |growth: &Change| {
            let mut others = self.changes.iter();
            others.any(|other| {
                other.is_cut_below(growth.least_bytes())
                    && other.called_us <= seen.answered_us
                    && other.made_us >= growth.called_us
            })
        };
        let made = self.changes.iter();
        let made = made.filter(|change| change.made_us < seen.called_us && !may_be_cut(change));
        made.map(|change| change.least_bytes()).max()
    }

    /// The largest size that is possible after each of the acknowledged truncations.
    fn most_bytes(&self, seen: SizeSeen) -> u64 {
        let cuts = self.changes.iter().filter(|change| {
            matches!(change.to, To::Exactly(_)) && change.made_us < seen.called_us
        });
        let sinces = cuts.map(|cut| cut.called_us).chain([0]);
        let mosts = sinces.map(|since_us| {
            let (mut most, mut more) = (0, 0);
            for change in &self.changes {
                if change.made_us < since_us || change.called_us > seen.answered_us {
                    continue;
                }
                match change.to {
                    To::AtLeast(size) | To::Exactly(size) => most = most.max(size),
                    To::More(by) => more += by,
                }
            }
            most + more
        });
        mosts.min().unwrap_or(0)
    }
}
