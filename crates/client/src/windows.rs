//! A client's knowledge of an open file: the newest facts about the file itself, and the layouts of some windows.

use crate::error::ClientError;
use crate::layout::{Layout, age, joined};
use gabion_layout::ByteRange;
use gabion_meta::{Exclusive, FileRecord, Inline};
use gabion_protocol::message::FileLayout;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most windows that are remembered; the one that was looked up first goes.
const WINDOW_COUNT_MAX: usize = 256;

/// Known facts of a file.
#[derive(Debug)]
pub(crate) struct Windows {
    /// The newest facts about the file, from any of its windows.
    pub(crate) file: FileRecord,
    pub(crate) exclusive: Exclusive,
    /// By the beginning of the window. No two overlap.
    known: BTreeMap<u64, Known>,
    noted_count: u64,
}

#[derive(Debug)]
struct Known {
    layout: Arc<Layout>,
    /// Its position in the order of look-ups.
    number: u64,
}

impl Windows {
    pub(crate) fn new(layout: Arc<Layout>) -> Self {
        let mut windows = Self {
            file: layout.file.file.clone(),
            exclusive: layout.file.exclusive,
            known: BTreeMap::new(),
            noted_count: 0,
        };
        windows.note(layout);
        windows
    }

    /// Notes the result of a look-up. Of one from before a known change of the file's size or name, nothing stays.
    pub(crate) fn note(&mut self, layout: Arc<Layout>) {
        let (window, told) = (layout.window(), age(&layout.file.file));
        self.note_facts(&layout);
        // None that may be older stays in its place.
        self.known.retain(|_, known| {
            let is_apart = known.layout.window().intersect(window).is_none();
            is_apart || told < age(&known.layout.file.file)
        });
        if told < age(&self.file) {
            return;
        }
        let number = self.noted_count;
        self.noted_count += 1;
        self.known.insert(window.offset, Known { layout, number });
        if self.known.len() > WINDOW_COUNT_MAX {
            let first = self.known.iter().min_by_key(|(_, known)| known.number);
            if let Some(first) = first.map(|(&offset, _)| offset) {
                self.known.remove(&first);
            }
        }
    }

    /// Notes what a look-up tells of the file itself.
    pub(crate) fn note_facts(&mut self, layout: &Layout) {
        let told = &layout.file;
        if told.exclusive.token >= self.exclusive.token {
            self.exclusive = told.exclusive;
        }
        self.note_record(&told.file);
    }

    /// Notes facts of the file, unless they are older than the known ones.
    pub(crate) fn note_record(&mut self, file: &FileRecord) {
        if age(file) >= age(&self.file) {
            self.file.clone_from(file);
        }
    }

    /// Notes a size of the file with the number of truncations before it had that size, and its inline bytes then. An
    /// older size than the known one has no effect.
    pub(crate) fn note_size(&mut self, size: (u64, u64), inline: Option<Inline>) {
        let file = &mut self.file;
        if (file.truncation_count, file.size_bytes) < size {
            (file.truncation_count, file.size_bytes) = size;
            file.inline = inline;
        }
    }

    /// The known window with the byte at an offset.
    fn at(&self, offset: u64) -> Option<&Arc<Layout>> {
        let (_, known) = self.known.range(..=offset).next_back()?;
        (offset < known.layout.window().end()).then_some(&known.layout)
    }

    /// The windows that a range touches, at least one; none if one of them is unknown.
    pub(crate) fn over(&self, range: ByteRange) -> Option<Vec<Arc<Layout>>> {
        let mut layouts = vec![Arc::clone(self.at(range.offset)?)];
        while let Some(last) = layouts.last()
            && last.window().end() < range.end()
        {
            let next = Arc::clone(self.at(last.window().end())?);
            layouts.push(next);
        }
        Some(layouts)
    }
}

/// One layout of windows that follow each other.
///
/// # Errors
/// Those of [`Layout::new`].
///
/// # Panics
/// If there is none.
pub(crate) fn join(mut layouts: Vec<Arc<Layout>>) -> Result<Arc<Layout>, ClientError> {
    if layouts.len() == 1 {
        return Ok(layouts.remove(0));
    }
    let files = layouts.iter().map(|layout| layout.file.clone());
    let whole: Option<FileLayout> = files.reduce(joined);
    Ok(Arc::new(Layout::new(whole.expect("there is one"))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::sample;
    use gabion_meta::FencingToken;

    /// Bytes of a window.
    const WINDOW: u64 = 100;

    fn window(number: u64, size_bytes: u64, truncation_count: u64) -> Arc<Layout> {
        let mut layout = sample::layout();
        layout.file.size_bytes = size_bytes;
        layout.file.truncation_count = truncation_count;
        layout.window = ByteRange::new(number * WINDOW, WINDOW);
        Arc::new(Layout::new(layout).expect("it is valid"))
    }

    fn over(windows: &Windows, from: u64, to: u64) -> Option<ByteRange> {
        let layouts = windows.over(ByteRange::new(from, to - from))?;
        Some(join(layouts).expect("they fit").window())
    }

    #[test]
    fn a_range_is_known_if_all_of_its_windows_are() {
        let mut windows = Windows::new(window(1, 1000, 0));
        assert_eq!(over(&windows, 100, 200), Some(ByteRange::new(100, WINDOW)));
        assert_eq!(over(&windows, 150, 150), Some(ByteRange::new(100, WINDOW)));
        assert_eq!(over(&windows, 99, 100), None);
        assert_eq!(over(&windows, 199, 201), None);
        windows.note(window(3, 1000, 0));
        assert_eq!(over(&windows, 150, 350), None, "there is a gap");
        windows.note(window(2, 1000, 0));
        let all = Some(ByteRange::new(100, 3 * WINDOW));
        assert_eq!(over(&windows, 150, 350), all);
    }

    #[test]
    fn a_window_from_before_a_truncation_is_not_noted() {
        let mut windows = Windows::new(window(0, 50, 1));
        // Its answer is late.
        windows.note(window(0, 900, 0));
        windows.note(window(1, 900, 0));
        assert_eq!(
            (windows.file.size_bytes, over(&windows, 100, 200)),
            (50, None)
        );
        let size = windows.at(0).map(|layout| layout.file.file.size_bytes);
        assert_eq!(size, Some(50));
        windows.note_size((0, 700), None);
        assert_eq!(windows.file.size_bytes, 50, "that growth was before, too");
        windows.note_size((1, 700), None);
        windows.note(window(1, 600, 1));
        assert_eq!(windows.file.size_bytes, 700);
        windows.note_size((2, 20), None);
        assert_eq!(windows.file.size_bytes, 20, "a truncation is noted");
    }

    #[test]
    fn a_late_look_up_removes_windows_that_may_be_older() {
        let mut windows = Windows::new(window(0, 900, 0));
        windows.note(window(1, 950, 0));
        windows.note_size((0, 1000), None);
        // These are from before the growth, and one may be from after what is known of the same place.
        windows.note(window(0, 900, 0));
        assert_eq!(over(&windows, 0, 1), None);
        windows.note(window(1, 920, 0));
        assert!(over(&windows, 100, 101).is_some(), "that one is older");
    }

    #[test]
    fn a_look_up_replaces_the_windows_that_it_covers_and_the_oldest_of_many_goes() {
        let mut windows = Windows::new(window(0, 1000, 0));
        windows.note(window(1, 1000, 0));
        // A coordinator with other windows.
        let shifted = FileLayout {
            window: ByteRange::new(50, WINDOW),
            ..window(0, 1000, 0).file.clone()
        };
        windows.note(Arc::new(Layout::new(shifted).expect("it is valid")));
        assert_eq!(over(&windows, 50, 150), Some(ByteRange::new(50, WINDOW)));
        assert_eq!(
            (over(&windows, 0, 1), over(&windows, 150, 151)),
            (None, None)
        );
        for number in 2..2 + WINDOW_COUNT_MAX as u64 {
            windows.note(window(number, 1000, 0));
        }
        assert_eq!(over(&windows, 50, 150), None);
        assert!(over(&windows, 200, 200 + WINDOW_COUNT_MAX as u64 * WINDOW).is_some());
    }

    #[test]
    fn a_token_never_goes_back() {
        let with = |token| {
            let mut layout = window(0, 1000, 0).file.clone();
            layout.exclusive.token = FencingToken(token);
            Arc::new(Layout::new(layout).expect("it is valid"))
        };
        let mut windows = Windows::new(with(3));
        windows.note(with(2));
        assert_eq!(windows.exclusive.token, FencingToken(3));
        windows.note(with(4));
        assert_eq!(windows.exclusive.token, FencingToken(4));
    }
}
