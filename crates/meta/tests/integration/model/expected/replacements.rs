//! Replacements of stripes, which may change the size of their file.

use super::{Expected, Outcome};
use crate::model::operation::{Answer, Replacement, World};
use gabion_layout::StripeId;
use gabion_meta::{Displaced, FileRecord, Holder, PutId, PutTarget, Rewrite, SizeChange};
use std::collections::BTreeMap;

impl Expected {
    pub(super) fn holds(&self, old: Displaced) -> bool {
        let lease = self.leases.get(&old.stripe);
        matches!(lease, Some((epoch, Some(Holder::Coordinator { .. }))) if *epoch == old.epoch)
    }

    /// Whether no node may serve the stripe that it has replaced.
    pub(super) fn is_alone(&self, stripe: StripeId) -> bool {
        let old = self.replaced.get(&stripe);
        old.is_none_or(|old| !self.garbage.contains_key(old))
    }

    pub(super) fn replace(&mut self, replacement: &Replacement, world: &World) -> Outcome {
        let Replacement {
            file,
            rewrite,
            placements,
        } = replacement;
        let file = *file;
        self.check_seen(file, rewrite)?;
        for (_, old) in &rewrite.displaced {
            if !self.holds(*old) {
                return Err("LeaseLost");
            }
            if !self.is_alone(old.stripe) {
                return Err("Held");
            }
        }
        let size = self.size_after(file, rewrite.size);
        if rewrite.offsets.iter().any(|&offset| offset >= size) {
            return Err("Placement");
        }
        self.check_holes(file, rewrite)?;
        if placements.iter().any(|place| self.is_short(&place.nodes)) {
            return Err("NodeFailed");
        }
        let put = self.reserve(PutTarget::Stripes(file), placements, world);
        self.replacements.insert(put.id, (file, rewrite.clone()));
        Ok(Answer::Put(put))
    }

    /// Refuses to fill a hole while a stripe that the file has lost may be served.
    fn check_holes(&self, file: PutId, rewrite: &Rewrite) -> Result<(), &'static str> {
        let is_hole = |at: &u64| rewrite.displaced.iter().all(|(offset, _)| offset != at);
        if rewrite.offsets.iter().any(is_hole) && self.serves_lost_stripe(file) {
            return Err("StillServed");
        }
        Ok(())
    }

    /// Refuses stripes for a file whose inline bytes they do not have.
    fn check_seen(&self, put: PutId, rewrite: &Rewrite) -> Result<(), &'static str> {
        let file = self.files.values().find(|file| file.put == put);
        let present = file.and_then(|file| file.inline);
        let seen = rewrite.inline;
        let fits = match present {
            Some(present) if present.length_bytes == 0 => {
                seen.is_none_or(|seen| seen == present.version)
            }
            present => present.map(|inline| inline.version) == seen,
        };
        if fits || rewrite.offsets.is_empty() {
            return Ok(());
        }
        Err("FileChanged")
    }

    /// Whether a stripe that the file has lost may be served.
    pub(super) fn serves_lost_stripe(&self, file: PutId) -> bool {
        let dropped = self.dropped.get(&file);
        dropped.is_some_and(|d| d.iter().any(|id| self.garbage.contains_key(id)))
    }

    fn size_after(&self, file: PutId, change: SizeChange) -> u64 {
        let mut files = self.files.values();
        let present = files
            .find(|known| known.put == file)
            .map_or(0, |file| file.size_bytes);
        match change {
            SizeChange::AtLeast(size) => present.max(size),
            SizeChange::Exactly(size) => size,
        }
    }

    pub(super) fn commit_replacement(&mut self, put: PutId) -> Outcome {
        if self.committed.contains(&put) {
            return Err("CommittedBefore");
        }
        let (file_put, rewrite) = self.replacements.get(&put).cloned().ok_or("UnknownPut")?;
        let (_, stripes) = self.puts[&put].clone();
        let mut segments = self.segments.get(&file_put).ok_or("FileGone")?.clone();
        let Rewrite {
            displaced, offsets, ..
        } = &rewrite;
        if displaced
            .iter()
            .any(|(at, old)| segments.get(at) != Some(&old.stripe))
        {
            return Err("UnknownStripe");
        }
        if !displaced.iter().all(|(_, old)| self.holds(*old)) {
            return Err("LeaseLost");
        }
        self.check_holes(file_put, &rewrite)?;
        self.check_seen(file_put, &rewrite)?;
        for (at, _) in displaced {
            segments.remove(at);
        }
        let size = self.size_after(file_put, rewrite.size);
        let reaches = |(at, id): (&u64, &StripeId)| at + 4 * self.live[id].chunk_bytes > size;
        let is_cut = size < self.size_after(file_put, SizeChange::AtLeast(0));
        if is_cut && segments.iter().any(reaches) {
            return Err("FileChanged");
        }
        let is_out_of_place = |at: &u64| segments.contains_key(at) || *at >= size;
        if offsets.iter().any(is_out_of_place) {
            return Err("FileChanged");
        }
        for (at, Displaced { stripe: old, .. }) in displaced {
            self.leases.remove(old);
            let gone = self.live.remove(old).expect("files have stripes");
            self.garbage.insert(*old, gone);
            let is_dropped = match offsets.iter().position(|offset| offset == at) {
                Some(new) => {
                    self.replaced.insert(stripes[new].id, *old);
                    matches!(rewrite.size, SizeChange::Exactly(_))
                }
                None => true,
            };
            if is_dropped {
                self.dropped.entry(file_put).or_default().insert(*old);
            }
        }
        for (at, new) in offsets.iter().zip(&stripes) {
            segments.insert(*at, new.id);
            self.live.insert(new.id, new.clone());
        }
        let mut files = self.files.values_mut();
        let file = files
            .find(|file| file.put == file_put)
            .expect("it has segments");
        file.truncation_count += u64::from(is_cut);
        let gets_stripes = !offsets.is_empty();
        change_inline(file, &mut self.inline, gets_stripes, size);
        (file.size_bytes, file.stripe_count) = (size, segments.len() as u64);
        self.segments.insert(file_put, segments);
        self.puts.remove(&put);
        self.replacements.remove(&put);
        self.committed.insert(put);
        Ok(Answer::Stripes(stripes))
    }
}

/// The effect of stripes and of a new size on inline bytes.
fn change_inline(
    file: &mut FileRecord,
    inline: &mut BTreeMap<PutId, Vec<u8>>,
    gets_stripes: bool,
    size: u64,
) {
    if gets_stripes {
        file.inline = None;
        inline.remove(&file.put);
    }
    let Some(known) = file.inline.as_mut().filter(|_| size != file.size_bytes) else {
        return;
    };
    known.version += 1;
    known.length_bytes = known.length_bytes.min(size);
    if let Some(bytes) = inline.get_mut(&file.put) {
        bytes.truncate(size as usize);
    }
    inline.retain(|_, bytes| !bytes.is_empty());
}
