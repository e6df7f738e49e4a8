//! Puts and writes of inline files.

use super::{Expected, Outcome, new_file};
use crate::model::operation::{Answer, INLINE_BYTES, InlineChange, InlinePut, World};
use gabion_meta::{Inline, PutId};
use std::collections::BTreeMap;

impl Expected {
    pub(super) fn put_inline(&mut self, asked: &InlinePut, world: &World) -> Outcome {
        let InlinePut {
            name,
            existing,
            bytes,
            number,
        } = asked;
        if let Some(made) = self.numbers.get(number) {
            return made.map(Answer::Stored).ok_or("NotInline");
        }
        let length_bytes = bytes.len() as u64;
        if length_bytes > INLINE_BYTES {
            return Err("NotInline");
        }
        self.check_name(name, *existing)?;
        let _ = self.remove(name);
        let put = PutId(self.put_count);
        self.put_count += 1;
        let mut file = new_file((name, put), world.pool, length_bytes, world.now_ms);
        file.inline = Some(Inline {
            version: 1,
            length_bytes,
        });
        self.files.insert(name.clone(), file);
        self.segments.insert(put, BTreeMap::new());
        if length_bytes > 0 {
            self.inline.insert(put, bytes.clone());
        }
        self.numbers.insert(*number, Some(put));
        Ok(Answer::Stored(put))
    }

    pub(super) fn write_inline(&mut self, asked: &InlineChange) -> Outcome {
        let &InlineChange {
            file: put,
            version,
            offset,
            bytes: ref new,
            number,
        } = asked;
        let file = self.files.values_mut().find(|file| file.put == put);
        if self.numbers.contains_key(&number) {
            return Ok(file.map_or(Answer::Done, |file| Answer::File(file.clone())));
        }
        let file = file.ok_or("FileGone")?;
        if new.is_empty() {
            return Ok(Answer::File(file.clone()));
        }
        let end = offset + new.len() as u64;
        let size = file.size_bytes.max(end);
        let seen = file.inline.filter(|inline| inline.version == version);
        // Bytes that are inline already may be overwritten, whatever the file's size.
        let fits = |inline: Inline| end <= inline.length_bytes || size <= INLINE_BYTES;
        if !seen.is_some_and(fits) {
            return Err("FileChanged");
        }
        let bytes = self.inline.entry(put).or_default();
        let (start, end) = (offset as usize, end as usize);
        bytes.resize(bytes.len().max(end), 0);
        bytes[start..end].copy_from_slice(new);
        file.size_bytes = size;
        file.inline = Some(Inline {
            version: version + 1,
            length_bytes: bytes.len() as u64,
        });
        if bytes.is_empty() {
            self.inline.remove(&put);
        }
        self.numbers.insert(number, None);
        Ok(Answer::File(file.clone()))
    }
}
