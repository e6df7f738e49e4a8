//! Whether what was written and read goes together with the numbers that the system gives: beside
//! [`crate::registers`], which knows none. This one is stricter: what was dropped stays away, an update stands under
//! one number, and a read is exactly as of the cut that it claims.
//!
//! The checker is told of every update when it is submitted, of its number when its primary sends
//! it out, of its acknowledgement, and of every read. Since bytes name their writers
//! ([`crate::cells`]), a read shows which updates it contains; since updates are numbered, it must
//! be exactly the stripe after those of them that stand, up to the cut that the read claims. From
//! each read the checker learns which updates stand and which were dropped, and holds all later
//! reads to it.
//!
//! Numbers order a stripe's updates; real time orders operations: what was acknowledged, or seen by
//! a finished read, before a read began must be in it.

use crate::cells::{CELL_BYTES, UpdateId, writer};
use gabion_layout::{Sequence, StripeId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use thiserror::Error;

/// A promise was broken.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum Violation {
    /// Bytes that no update wrote there.
    #[error("{stripe}: cell {cell} holds {found:02x?}, which nobody wrote there")]
    Garbage {
        /// The stripe.
        stripe: StripeId,
        /// The cell.
        cell: u64,
        /// Its bytes.
        found: Vec<u8>,
    },
    /// A read shows an update that it must not.
    #[error("{stripe}: cell {cell} as of {as_of} shows {update:?}, {why}")]
    Wrong {
        /// The stripe.
        stripe: StripeId,
        /// The cell.
        cell: u64,
        /// The cut that the read claims.
        as_of: Sequence,
        /// The update.
        update: UpdateId,
        /// Why it must not be there.
        why: &'static str,
    },
    /// A read lacks an update that it must show.
    #[error("{stripe}: cell {cell} as of {as_of} shows {shown:?} and not {missing:?}, {why}")]
    Missing {
        /// The stripe.
        stripe: StripeId,
        /// The cell.
        cell: u64,
        /// The cut that the read claims.
        as_of: Sequence,
        /// What is there.
        shown: UpdateId,
        /// What should be there.
        missing: UpdateId,
        /// Why.
        why: &'static str,
    },
    /// Two updates that stand have one number, or one has two.
    #[error("{stripe}: {update:?} is {sequence}, {why}")]
    Number {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        update: UpdateId,
        /// Its number.
        sequence: Sequence,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A client was told that its update was not made, and it stands.
    #[error("{stripe}: {update:?} stands, although its client was told that it was not made")]
    Denied {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        update: UpdateId,
    },
    /// An update is there, or was acknowledged, that a read has shown to be dropped; or one and
    /// the same read shows a part of it.
    #[error("{stripe}: {update:?} stands, although a read has shown it to be dropped")]
    Revived {
        /// The stripe.
        stripe: StripeId,
        /// The update.
        update: UpdateId,
    },
}

/// What is known of an update's fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Open,
    Stands,
    Dropped,
}

#[derive(Clone, Debug)]
struct Update {
    /// What primaries have sent it out under. There are several if a copy of the request came to
    /// one later; at most one of them can stand, and an acknowledgement says which.
    numbers: Vec<Sequence>,
    fate: Fate,
    /// Whoever begins to read after this must see the update.
    settled_us: u64,
    /// Its client has made sure that it is over before it tried again.
    is_closed: bool,
}

impl Update {
    /// The only number that it can have.
    fn number(&self) -> Option<Sequence> {
        match self.numbers[..] {
            [number] => Some(number),
            _ => None,
        }
    }
}

/// A stripe's updates.
#[derive(Clone, Debug)]
struct StripeHistory {
    /// Where in its file the stripe starts.
    first_cell: u64,
    updates: BTreeMap<UpdateId, Update>,
    /// The updates that touch each cell, in the order of their submission.
    by_cell: Vec<Vec<UpdateId>>,
    standing: BTreeMap<Sequence, UpdateId>,
}

/// What a finished read of one stripe brought.
#[derive(Clone, Debug)]
pub struct Observation<'a> {
    /// The stripe.
    pub stripe: StripeId,
    /// As of which update the bytes are said to be.
    pub as_of: Sequence,
    /// The first cell of each piece, and the piece's bytes.
    pub pieces: &'a [(u64, Vec<u8>)],
    /// When the read began.
    pub began_us: u64,
    /// When its answer was there.
    pub ended_us: u64,
}

/// Cells that a stripe has of another, which it was made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// The first of them.
    pub first: u64,
    /// How many follow each other.
    pub count: u64,
    /// The other.
    pub old: StripeId,
    /// The first of them there.
    pub old_first: u64,
    /// The other's last update that is in them.
    pub cut: Sequence,
}

/// What a converted stripe holds before any update. No update of a client has this name.
const INHERITED: UpdateId = UpdateId(u32::MAX);

/// All updates and reads of a run.
#[derive(Debug, Default)]
pub struct History {
    stripes: BTreeMap<StripeId, StripeHistory>,
    /// What each stripe that was made of others has of them.
    inherited: BTreeMap<StripeId, Vec<Inherited>>,
    /// The stripes that were made of each.
    heirs: BTreeMap<StripeId, Vec<StripeId>>,
    acknowledged_count: u64,
    read_count: u64,
}

impl History {
    /// Adds a stripe that has these cells of its file, all written by `first`, which is its state before any
    /// update.
    pub fn add_stripe(&mut self, stripe: StripeId, cells: Range<u64>, first: UpdateId) {
        let origin = Update {
            numbers: vec![Sequence(0)],
            fate: Fate::Stands,
            settled_us: 0,
            is_closed: false,
        };
        let history = StripeHistory {
            first_cell: cells.start,
            updates: BTreeMap::from([(first, origin)]),
            by_cell: vec![vec![first]; (cells.end - cells.start) as usize],
            standing: BTreeMap::from([(Sequence(0), first)]),
        };
        self.stripes.insert(stripe, history);
    }

    /// Adds a stripe that is made of others, in the order of its cells.
    ///
    /// # Panics
    /// When there are no others, or they were not added.
    pub fn add_heir(&mut self, stripe: StripeId, inherited: Vec<Inherited>) {
        let count: u64 = inherited.iter().map(|piece| piece.count).sum();
        let start = inherited[0];
        let start = self.stripes[&start.old].first_cell + start.old_first;
        self.add_stripe(stripe, start..start + count, INHERITED);
        for piece in &inherited {
            self.heirs.entry(piece.old).or_default().push(stripe);
        }
        self.inherited.insert(stripe, inherited);
    }

    /// Whether a stripe was added.
    pub fn has(&self, stripe: StripeId) -> bool {
        self.stripes.contains_key(&stripe)
    }

    /// Where in its file a stripe starts, in cells.
    ///
    /// # Panics
    /// When it was not added.
    pub fn first_cell(&self, stripe: StripeId) -> u64 {
        self.stripes[&stripe].first_cell
    }

    /// How many cells a stripe has.
    ///
    /// # Panics
    /// When it was not added.
    pub fn cell_count(&self, stripe: StripeId) -> u64 {
        self.stripes[&stripe].by_cell.len() as u64
    }

    /// Notes that an update was submitted, before anybody can have heard of it; or that it is submitted once more,
    /// when what was tried before is over and never stands.
    ///
    /// # Panics
    /// When the stripe or one of the cells does not exist.
    pub fn submitted(&mut self, stripe: StripeId, update: UpdateId, cells: &[Range<u64>]) {
        let history = self.stripe(stripe);
        let open = Update {
            numbers: Vec::new(),
            fate: Fate::Open,
            settled_us: u64::MAX,
            is_closed: false,
        };
        if history.updates.insert(update, open).is_some() {
            return;
        }
        let touched: BTreeSet<u64> = cells.iter().cloned().flatten().collect();
        for cell in touched {
            history.by_cell[cell as usize].push(update);
        }
    }

    /// Notes the number that a primary sends an update out under. A further one can only stand if
    /// those before it do not, and never once the update is closed.
    ///
    /// # Panics
    /// When it was not submitted.
    pub fn numbered(&mut self, stripe: StripeId, update: UpdateId, sequence: Sequence) {
        let known = self.stripe(stripe).updates.get_mut(&update);
        let known = known.expect("updates are submitted before they are numbered");
        if known.is_closed || known.fate == Fate::Stands || known.numbers.contains(&sequence) {
            return;
        }
        known.numbers.push(sequence);
        // A read may have shown that it did not stand under an earlier number.
        known.fate = Fate::Open;
    }

    /// Notes that an update's client has made sure that it is over: what no primary has sent out by
    /// now never stands, and nothing else stands under a number that it gets from now on.
    ///
    /// # Panics
    /// When it was not submitted.
    pub fn closed(&mut self, stripe: StripeId, update: UpdateId) {
        let known = self.stripe(stripe).updates.get_mut(&update);
        let known = known.expect("updates are submitted before they are closed");
        known.is_closed = true;
        if known.numbers.is_empty() {
            known.fate = Fate::Dropped;
        }
    }

    /// Notes that a client was told that its update was not made and never will be.
    ///
    /// # Errors
    /// [`Violation::Denied`].
    ///
    /// # Panics
    /// When it was not submitted.
    pub fn denied(&mut self, stripe: StripeId, update: UpdateId) -> Result<(), Violation> {
        let known = self.stripe(stripe).updates.get_mut(&update);
        let known = known.expect("updates are submitted before anybody is told of them");
        if known.fate == Fate::Stands {
            return Err(Violation::Denied { stripe, update });
        }
        known.fate = Fate::Dropped;
        Ok(())
    }

    /// Notes that a client was told that its update is committed.
    ///
    /// # Errors
    /// [`Violation::Revived`], [`Violation::Number`].
    ///
    /// # Panics
    /// When it was not submitted.
    pub fn acknowledged(
        &mut self,
        stripe: StripeId,
        update: UpdateId,
        sequence: Sequence,
        now_us: u64,
    ) -> Result<(), Violation> {
        self.acknowledged_count += 1;
        let history = self.stripe(stripe);
        let known = history.updates.get_mut(&update);
        let known = known.expect("updates are submitted before they are acknowledged");
        if !known.numbers.contains(&sequence) {
            let why = "says the answer, but it was sent out under another number";
            return Err(Violation::Number {
                stripe,
                update,
                sequence,
                why,
            });
        }
        known.numbers = vec![sequence];
        history.stands(stripe, update, now_us)
    }

    /// Checks a read.
    ///
    /// # Errors
    /// Whatever the read shows to be wrong.
    ///
    /// # Panics
    /// When the stripe is unknown or the pieces leave it.
    pub fn read(&mut self, seen: &Observation<'_>) -> Result<(), Violation> {
        self.read_count += 1;
        let mut shown = BTreeSet::new();
        for (first, bytes) in seen.pieces {
            for (at, bytes) in bytes.chunks(CELL_BYTES as usize).enumerate() {
                let cell = first + at as u64;
                shown.insert(self.read_cell(seen, cell, bytes)?);
                self.check_heirs(seen, cell)?;
            }
        }
        for (stripe, update) in shown {
            self.stripe(stripe).stands(stripe, update, seen.ended_us)?;
        }
        Ok(())
    }

    /// Checks a cell: against the stripe's own updates, and where it has none there, against those of the
    /// stripe that it was made of, as of when it was. Gives the update that it shows.
    fn read_cell(
        &mut self,
        seen: &Observation<'_>,
        cell: u64,
        bytes: &[u8],
    ) -> Result<(StripeId, UpdateId), Violation> {
        let mut seen = seen.clone();
        let mut at = cell;
        loop {
            let stripe = seen.stripe;
            let known = &self.stripes[&stripe];
            let shown = writer(known.first_cell + at, bytes);
            let piece = self.inherited(stripe, at);
            let is_own = |update: &UpdateId| piece.is_none() || known.updates.contains_key(update);
            if let Some(update) = shown.filter(is_own) {
                self.stripe(stripe).check_cell(&seen, at, update)?;
                return Ok((stripe, update));
            }
            let Some(piece) = piece else {
                return Err(Violation::Garbage {
                    stripe,
                    cell: at,
                    found: bytes.to_vec(),
                });
            };
            self.stripe(stripe).check_cell(&seen, at, INHERITED)?;
            (seen.stripe, seen.as_of) = (piece.old, piece.cut);
            at = piece.old_first + at - piece.first;
        }
    }

    /// Where a cell of a stripe that was made of others comes from.
    fn inherited(&self, stripe: StripeId, cell: u64) -> Option<Inherited> {
        let mut pieces = self.inherited.get(&stripe)?.iter();
        let has = |piece: &&Inherited| (piece.first..piece.first + piece.count).contains(&cell);
        pieces.find(has).copied()
    }

    /// Nobody may read a stripe when another that was made of it has updates there that were known when
    /// the read began.
    fn check_heirs(&self, seen: &Observation<'_>, cell: u64) -> Result<(), Violation> {
        for heir in self.heirs.get(&seen.stripe).into_iter().flatten() {
            for piece in self.inherited[heir]
                .iter()
                .filter(|piece| piece.old == seen.stripe)
            {
                if !(piece.old_first..piece.old_first + piece.count).contains(&cell) {
                    continue;
                }
                let known = &self.stripes[heir];
                let there = &known.by_cell[(piece.first + cell - piece.old_first) as usize];
                let is_missing = |update: &&UpdateId| {
                    **update != INHERITED && known.updates[*update].settled_us < seen.began_us
                };
                if let Some(&missing) = there.iter().find(is_missing) {
                    return Err(Violation::Missing {
                        stripe: seen.stripe,
                        cell,
                        as_of: seen.as_of,
                        shown: INHERITED,
                        missing,
                        why: "which is in the stripe that took this one's place",
                    });
                }
            }
        }
        Ok(())
    }

    /// What is known of a stripe and of those that it was made of: somebody who looks on may check against it
    /// what nobody reads, and nothing follows for anybody.
    ///
    /// # Panics
    /// When it was not added.
    #[must_use]
    pub fn excerpt(&self, stripe: StripeId) -> Self {
        let mut excerpt = Self::default();
        let mut left = vec![stripe];
        while let Some(stripe) = left.pop() {
            // Several stripes may be made of it.
            if excerpt.stripes.contains_key(&stripe) {
                continue;
            }
            if let Some(pieces) = self.inherited.get(&stripe) {
                left.extend(pieces.iter().map(|piece| piece.old));
                excerpt.inherited.insert(stripe, pieces.clone());
            }
            let known = self.stripes[&stripe].clone();
            excerpt.stripes.insert(stripe, known);
        }
        excerpt
    }

    /// How many updates were acknowledged and how many reads were checked.
    pub fn counts(&self) -> (u64, u64) {
        (self.acknowledged_count, self.read_count)
    }

    fn stripe(&mut self, stripe: StripeId) -> &mut StripeHistory {
        let known = self.stripes.get_mut(&stripe);
        known.expect("stripes are added before anything happens to them")
    }
}

impl StripeHistory {
    fn check_cell(
        &mut self,
        seen: &Observation<'_>,
        cell: u64,
        shown: UpdateId,
    ) -> Result<(), Violation> {
        let (stripe, as_of) = (seen.stripe, seen.as_of);
        let wrong = |why| Violation::Wrong {
            stripe,
            cell,
            as_of,
            update: shown,
            why,
        };
        let touching = &self.by_cell[cell as usize];
        if !touching.contains(&shown) {
            return Err(wrong("which never wrote there"));
        }
        let known = &self.updates[&shown];
        if known.fate == Fate::Dropped {
            let why = match known.numbers[..] {
                [] => "which was closed before any primary sent it out",
                _ => "which an earlier read had shown to be dropped",
            };
            return Err(wrong(why));
        }
        match known.numbers.iter().min() {
            None => return Err(wrong("which was never sent out")),
            Some(&first) if first > as_of => return Err(wrong("which is later than the cut")),
            Some(_) => {}
        }
        let Some(sequence) = known.number() else {
            // Which of its numbers stands is not known, so nothing follows about others.
            return Ok(());
        };
        let missing = |missing, why| Violation::Missing {
            stripe,
            cell,
            as_of,
            shown,
            missing,
            why,
        };
        for &other in touching.iter().filter(|&&other| other != shown) {
            let update = self.updates.get_mut(&other).expect("it touches a cell");
            let Some(number) = update.number().filter(|&number| number > sequence) else {
                continue;
            };
            if update.settled_us < seen.began_us {
                return Err(missing(other, "which was there before the read began"));
            }
            if number <= as_of {
                if update.fate == Fate::Stands {
                    return Err(missing(other, "which stands"));
                }
                update.fate = Fate::Dropped;
            }
        }
        Ok(())
    }

    fn stands(&mut self, stripe: StripeId, update: UpdateId, now_us: u64) -> Result<(), Violation> {
        let known = self.updates.get_mut(&update);
        let known = known.expect("only updates that were submitted can stand");
        if known.fate == Fate::Dropped {
            return Err(Violation::Revived { stripe, update });
        }
        known.fate = Fate::Stands;
        known.settled_us = known.settled_us.min(now_us);
        let Some(sequence) = known.number() else {
            return Ok(());
        };
        match self.standing.insert(sequence, update) {
            Some(other) if other != update => Err(Violation::Number {
                stripe,
                update,
                sequence,
                why: "and so is another update that stands",
            }),
            _ => Ok(()),
        }
    }
}
