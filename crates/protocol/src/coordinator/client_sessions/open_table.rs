//! The files that clients have open, and those that have lost their last names since.

use super::known::{Known, Opened, Standing};
use crate::message::{OpenedFile, Opener};
use gabion_meta::{ClientSessionId, PutId};
use std::collections::{BTreeMap, BTreeSet};

/// Open files by their puts.
#[derive(Debug, Default)]
pub(super) struct OpenTable {
    /// The sessions that have each open.
    holders: BTreeMap<PutId, BTreeSet<ClientSessionId>>,
    /// Pairs of a session and a file that it has open.
    open_count: usize,
    /// Files that transactions may be ending, with the number of these.
    ending: BTreeMap<PutId, usize>,
    /// Puts under way that make files which are open at once, by the numbers that their clients have drawn.
    makers: BTreeMap<u64, Maker>,
    /// Files that may be orphans: a transaction that was told to keep one may have failed.
    orphans: BTreeSet<PutId>,
    /// Those of them that no session has open.
    idle: BTreeSet<PutId>,
}

/// A put that makes a file which is open at once.
#[derive(Debug)]
struct Maker {
    opener: Opener,
    /// Copies of its request that are under way.
    copy_count: usize,
    /// Files that transactions have made, and those of them that are stored.
    made: BTreeSet<PutId>,
    stored: BTreeSet<PutId>,
}

impl OpenTable {
    pub(super) fn new(orphans: Vec<PutId>) -> Self {
        Self {
            orphans: orphans.into_iter().collect(),
            ..Self::default()
        }
    }

    pub(super) const fn open_count(&self) -> usize {
        self.open_count
    }

    /// Puts under way that make files which are open at once: those of one session, and all.
    pub(super) fn making_counts(&self, session: ClientSessionId) -> (usize, usize) {
        let makers = self.makers.values();
        let own = makers.filter(|maker| maker.opener.session == session);
        (own.count(), self.makers.len())
    }

    pub(super) fn is_ending(&self, file: PutId) -> bool {
        self.ending.contains_key(&file)
    }

    /// A session has a file open. Returns the session's entry of it.
    pub(super) fn open<'k>(
        &mut self,
        (session, known): (ClientSessionId, &'k mut Known),
        file: PutId,
        number: u64,
    ) -> &'k mut Opened {
        let opened = known.open.entry(file).or_default();
        opened.number = number.max(opened.number);
        let is_new = self.holders.entry(file).or_default().insert(session);
        self.open_count += usize::from(is_new);
        self.idle.remove(&file);
        opened
    }

    /// A session has a file open no more. Returns whether it is an orphan that no session has open.
    pub(super) fn close(&mut self, session: ClientSessionId, file: PutId) -> bool {
        let Some(holders) = self.holders.get_mut(&file) else {
            return false;
        };
        self.open_count -= usize::from(holders.remove(&session));
        if !holders.is_empty() {
            return false;
        }
        self.holders.remove(&file);
        let is_orphan = self.orphans.contains(&file);
        if is_orphan {
            self.idle.insert(file);
        }
        is_orphan
    }

    /// Finds all orphans that no session has open. Returns whether there are any.
    pub(super) fn note_all_idle(&mut self) -> bool {
        let holders = &self.holders;
        let idle = self.orphans.iter().copied();
        self.idle = idle.filter(|file| !holders.contains_key(file)).collect();
        !self.idle.is_empty()
    }

    /// A put begins with this number, which its client has drawn. The file that it makes is open at once.
    pub(super) fn begin_making(&mut self, number: u64, opener: Opener) {
        let maker = self.makers.entry(number).or_insert(Maker {
            opener,
            copy_count: 0,
            made: BTreeSet::new(),
            stored: BTreeSet::new(),
        });
        maker.copy_count += 1;
    }

    /// The request that makes files under this number, if there is one.
    pub(super) fn maker(&self, number: u64) -> Option<Opener> {
        self.makers.get(&number).map(|maker| maker.opener)
    }

    /// A put with this number is making a file, which is open.
    pub(super) fn make(&mut self, number: u64, file: PutId, known: &mut Known) {
        let Some(maker) = self.makers.get_mut(&number) else {
            return;
        };
        let opener = maker.opener;
        if known.standing(opener.number) == Standing::Counts {
            maker.made.insert(file);
            let entry = self.open((opener.session, known), file, opener.number);
            entry.is_granted = true;
        }
    }

    /// A put with this number has ended, and has stored this file if any. Returns the files that are to be closed,
    /// because no copy of the request has stored them.
    pub(super) fn end_making(&mut self, number: u64, stored: Option<PutId>) -> Vec<OpenedFile> {
        let Some(maker) = self.makers.get_mut(&number) else {
            return Vec::new();
        };
        maker.copy_count -= 1;
        maker.stored.extend(stored);
        if maker.copy_count > 0 {
            return Vec::new();
        }
        let maker = self.makers.remove(&number);
        let surplus = maker.iter().flat_map(|maker| {
            let number = maker.opener.number;
            let files = maker.made.difference(&maker.stored);
            files.map(move |&file| OpenedFile { file, number })
        });
        surplus.collect()
    }

    /// Whether a file that loses its last name is to stay, because a session has it open or any file may be open. It
    /// is noted as an orphan then, and otherwise as one that a transaction may be ending.
    pub(super) fn keep(&mut self, file: PutId, may_be_open: bool) -> bool {
        let is_kept = may_be_open || self.holders.contains_key(&file);
        if is_kept {
            self.orphans.insert(file);
        } else {
            *self.ending.entry(file).or_default() += 1;
        }
        is_kept
    }

    /// A transaction has ended that may have ended the file.
    pub(super) fn settle(&mut self, file: PutId) {
        if let Some(count) = self.ending.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.ending.remove(&file);
            }
        }
    }

    /// Takes some of the orphans that no session has open. A transaction that keeps one from now on notes it again.
    pub(super) fn take_idle(&mut self, limit: usize) -> Vec<PutId> {
        let taken: Vec<PutId> = self.idle.iter().copied().take(limit).collect();
        for file in &taken {
            self.idle.remove(file);
            self.orphans.remove(file);
        }
        taken
    }

    /// Notes an orphan again that was taken and not freed.
    pub(super) fn give_back(&mut self, file: PutId) {
        self.orphans.insert(file);
        if !self.holders.contains_key(&file) {
            self.idle.insert(file);
        }
    }
}
