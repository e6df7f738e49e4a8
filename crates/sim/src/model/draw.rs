//! Draws the operations of the model's client. Names are few, so that many operations meet each other.

use super::expected::Expected;
use super::operation::{Access, Content, Operation, PutAs};
use crate::dice::Dice;

/// A size or an offset that no file has.
const TOO_LARGE: u64 = u64::MAX - 7;
/// No file of the model becomes larger than this many stripes.
const STRIPES_MAX: u64 = 40;
/// Parts of the names.
const PARTS: [&str; 4] = ["a", "b", "c", "d"];
/// Most names in a path.
const LEVELS: u64 = 3;
/// User attributes.
const ATTRIBUTES: [&str; 2] = ["user.one", "user.two"];

/// Draws the next operation.
pub(crate) struct Draw<'a> {
    pub(crate) dice: &'a mut Dice,
    pub(crate) expected: &'a Expected,
    /// The number of the operation, for its bytes.
    pub(crate) number: u64,
    /// Whether no process is down.
    pub(crate) is_calm: bool,
}

impl Draw<'_> {
    pub(crate) fn operation(&mut self) -> Operation {
        if self.dice.one_in(4) {
            return self.operation_of_holders();
        }
        match self.dice.below(100) {
            0..9 => self.put(),
            9..12 => Operation::MakeDirectory(self.new_path()),
            12..15 => Operation::RemoveDirectory(self.known_path()),
            15..19 => Operation::Remove(self.known_path()),
            19..25 => Operation::Rename {
                from: self.known_path(),
                to: self.new_path(),
                replaces: self.dice.one_in(2),
            },
            25..28 => Operation::Exchange(self.known_path(), self.known_path()),
            28..31 => Operation::Link(self.file_path(), self.new_path()),
            31..33 => self.symlink(),
            33..34 => Operation::ReadLink(self.known_path()),
            34..38 => Operation::Share {
                path: self.file_path(),
                to: self.new_path(),
                is_read_only: self.dice.one_in(2),
            },
            38..40 => self.mode(),
            40..43 => self.user_attribute(),
            43..46 => Operation::Look(self.known_path()),
            46..49 => self.list(),
            _ => self.access(),
        }
    }

    fn put(&mut self) -> Operation {
        let put_as = *self
            .dice
            .pick(&[PutAs::Create, PutAs::Known, PutAs::Known, PutAs::Stream]);
        let length = match put_as {
            PutAs::Create => 0,
            PutAs::Known | PutAs::Stream => self.size(),
        };
        Operation::Put {
            path: self.new_path(),
            content: self.content(length),
            replaces: self.dice.one_in(2),
            put_as,
        }
    }

    fn symlink(&mut self) -> Operation {
        let target = if self.dice.one_in(12) {
            String::new()
        } else {
            self.any_path()
        };
        Operation::Symlink(self.new_path(), target)
    }

    fn mode(&mut self) -> Operation {
        let mode = if self.dice.one_in(8) {
            0o10000
        } else {
            self.dice.below(0o10000) as u32
        };
        Operation::SetMode(self.known_path(), mode)
    }

    fn user_attribute(&mut self) -> Operation {
        let has_value = self.dice.one_in(2);
        let value = self.dice.below(256) as u8;
        let name = *self.dice.pick(&ATTRIBUTES);
        Operation::SetUserAttribute {
            path: self.known_path(),
            name,
            value: has_value.then_some(value),
            is_there: *self.dice.pick(&[None, Some(true), Some(false)]),
        }
    }

    pub(crate) fn list(&mut self) -> Operation {
        let is_directory = self.dice.one_in(2);
        let mut prefix = self.any_path();
        // A part of a name, a whole one, or all in a directory.
        match self.dice.below(4) {
            0 => prefix.clear(),
            1 => prefix.push('/'),
            _ => {}
        }
        let has_after = !is_directory && self.dice.one_in(2);
        let after = self.any_path();
        Operation::List {
            prefix,
            after: has_after.then_some(after),
            limit: *self.dice.pick(&[1, 2, 3, 5, u64::MAX]),
            is_directory,
        }
    }

    fn access(&mut self) -> Operation {
        let path = self.file_path();
        let size = self.expected.size_at(&path);
        Operation::File {
            access: self.access_of(size),
            is_old: self.dice.one_in(3),
            path,
        }
    }

    /// An access to a file of this size.
    pub(crate) fn access_of(&mut self, size: u64) -> Access {
        let most = STRIPES_MAX * self.expected.sizes.stripe_bytes;
        match self.dice.below(20) {
            0..5 => {
                let (at, content) = self.piece(size);
                Access::Write(at, content)
            }
            5..7 => {
                let (at, content) = self.piece(size);
                Access::WritePieces(at, content)
            }
            7 => {
                let (at, content) = self.piece(size);
                Access::Zero(at..at.saturating_add(content.length))
            }
            8..11 if size >= most => Access::Truncate(self.end(size)),
            8..11 => {
                let length = self.length();
                Access::Append(self.content(length))
            }
            11 => Access::Grow(self.end(size)),
            12..14 => Access::Truncate(self.end(size)),
            14..16 => {
                let at = self.place(size);
                Access::Punch(at..at + self.length())
            }
            16..19 => self.read(size),
            _ => Access::ReadStored,
        }
    }

    fn read(&mut self, size: u64) -> Access {
        if size == 0 || self.dice.one_in(10) {
            // Past the end.
            return Access::Read(size..size + self.length());
        }
        let at = self.place(size - 1).min(size - 1);
        let length = match self.dice.below(4) {
            0 => size - at,
            _ => self.length().min(size - at),
        };
        Access::Read(at..at + length)
    }

    /// A place and bytes for a write to a file of this size.
    fn piece(&mut self, size: u64) -> (u64, Content) {
        let length = self.length();
        let content = self.content(length);
        if self.dice.one_in(60) {
            return (TOO_LARGE, content);
        }
        let most = STRIPES_MAX * self.expected.sizes.stripe_bytes;
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        let at = match self.dice.below(12) {
            // Far behind the end, so that whole stripes are a hole.
            0 => size + self.dice.below(24 * stripe_bytes),
            1..3 => size + self.dice.below(2 * stripe_bytes),
            _ => self.place(size),
        };
        if at + length > most {
            return (self.dice.below(most / 4), content);
        }
        (at, content)
    }

    /// A size for a growth or a truncation of a file of this size.
    fn end(&mut self, size: u64) -> u64 {
        let most = STRIPES_MAX * self.expected.sizes.stripe_bytes;
        match self.dice.below(16) {
            0 => 0,
            1 => size,
            2 => TOO_LARGE,
            3..7 => (size + self.dice.below(3 * self.expected.sizes.stripe_bytes)).min(most),
            _ => self.place(size).min(most),
        }
    }

    /// An offset, mostly within this size, and often near a border.
    fn place(&mut self, size: u64) -> u64 {
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        let around = self.dice.below(60);
        match self.dice.below(6) {
            0 => (size + 30).saturating_sub(around),
            1 => {
                let border = self.dice.below(size / stripe_bytes + 2) * stripe_bytes;
                (border + 30).saturating_sub(around)
            }
            2 => self.dice.below(size / stripe_bytes + 1) * stripe_bytes,
            _ => self.dice.below(size + 1),
        }
    }

    fn length(&mut self) -> u64 {
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        match self.dice.below(10) {
            0 => self.dice.between(1, 5 * stripe_bytes / 2),
            1 => stripe_bytes,
            2..4 => self.dice.between(1, stripe_bytes / 2),
            _ => self.dice.between(1, 300),
        }
    }

    fn size(&mut self) -> u64 {
        let stripe_bytes = self.expected.sizes.stripe_bytes;
        match self.dice.below(8) {
            0 => 0,
            1..4 => self.dice.between(1, 200),
            4 => self.dice.between(4_050, 4_150),
            5 => self.dice.between(stripe_bytes - 50, stripe_bytes + 50),
            6 => self.dice.below(4 * stripe_bytes),
            _ => self.dice.between(5_000, 20_000),
        }
    }

    pub(crate) const fn content(&self, length: u64) -> Content {
        // Above the places of its bytes.
        Content::of(self.number << 20, length)
    }

    fn any_path(&mut self) -> String {
        let count = self.dice.between(1, LEVELS);
        let parts: Vec<&str> = (0..count).map(|_| *self.dice.pick(&PARTS)).collect();
        parts.join("/")
    }

    /// A path for something new, which may be taken or invalid.
    pub(crate) fn new_path(&mut self) -> String {
        match self.dice.below(80) {
            0 => "a//b".to_owned(),
            1 => format!("a/{}", "x".repeat(256)),
            _ => self.any_path(),
        }
    }

    /// Mostly one that something has.
    pub(crate) fn known_path(&mut self) -> String {
        let known = self.expected.paths();
        if known.is_empty() || self.dice.one_in(6) {
            return self.any_path();
        }
        self.dice.pick(&known).clone()
    }

    /// Mostly that of a file.
    pub(crate) fn file_path(&mut self) -> String {
        let files = self.expected.file_paths();
        if files.is_empty() || self.dice.one_in(12) {
            return self.known_path();
        }
        self.dice.pick(&files).clone()
    }
}
