//! A model of the allowed file contents after a crash, given the requests and acknowledgements.

use crate::store::machine::{Draws, Store};
use gabion_flash::{FileId, FlashError, PAGE_BYTES};
use std::collections::BTreeMap;

type Page = Vec<u8>;

/// A file. The last element of each list is the current one; the first is durable, and a crash may
/// leave any.
#[derive(Clone, Default)]
struct File {
    lengths: Vec<u64>,
    /// Pages that were ever written; the others are zeros.
    pages: BTreeMap<usize, Vec<Page>>,
}

impl File {
    fn length(&self) -> u64 {
        *self.lengths.last().expect("a file has a length")
    }

    fn page(&self, number: usize) -> Page {
        let versions = self.pages.get(&number);
        versions
            .and_then(|versions| versions.last().cloned())
            .unwrap_or_else(zeros)
    }

    fn change(&mut self, number: usize, contents: Page) {
        let versions = self.pages.entry(number).or_insert_with(|| vec![zeros()]);
        versions.push(contents);
    }

    fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        for (at, byte) in (offset..).zip(bytes) {
            let number = at / PAGE_BYTES;
            if at == offset || at % PAGE_BYTES == 0 {
                self.change(number, self.page(number));
            }
            let versions = self.pages.get_mut(&number).expect("it was just changed");
            versions.last_mut().expect("it has a version")[at % PAGE_BYTES] = *byte;
        }
    }

    fn settle(&mut self) {
        self.lengths.drain(..self.lengths.len() - 1);
        for versions in self.pages.values_mut() {
            versions.drain(..versions.len() - 1);
        }
    }
}

fn zeros() -> Page {
    vec![0; PAGE_BYTES]
}

/// All files, and the last request if it was not acknowledged.
#[derive(Clone, Default)]
pub(crate) struct Model {
    files: BTreeMap<String, File>,
    /// The files as if the current request had succeeded, if it changes names.
    other: Option<BTreeMap<String, File>>,
}

/// Number of pages that the workload writes to.
const FILE_PAGES: u64 = 30;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Model {
    /// Makes a random request to the model and the store.
    pub(crate) fn step(&mut self, store: &Store, draws: &mut Draws) -> Result<(), FlashError> {
        let name = NAMES[draws.below(4) as usize];
        let Some(file) = store.find(name) else {
            let mut after = self.files.clone();
            let fresh = File {
                lengths: vec![0],
                pages: BTreeMap::new(),
            };
            after.insert(name.to_owned(), fresh);
            self.other = Some(after);
            store.create(name)?;
            self.settle_names();
            return Ok(());
        };
        match draws.below(40) {
            0 => self.delete(store, file, name)?,
            1 => self.rename(store, file, name, NAMES[draws.below(4) as usize])?,
            2 => self.set_length(store, file, name, draws)?,
            3 => self.punch(store, file, name, draws)?,
            4..=5 => {
                store.sync()?;
                self.settle();
            }
            6..=8 => store.maintain()?,
            9 => _ = store.collect()?,
            10..=11 => {
                // More than two stripes, so that some of it bypasses the buffers.
                let page = draws.below(4) * PAGE_BYTES as u64;
                let length = 22 * PAGE_BYTES + draws.below(5000) as usize;
                self.write(store, file, name, (page, &draws.bytes(length)), draws)?;
            }
            12 => self.allocate(store, file, name, draws)?,
            13 if draws.below(3) == 0 => {
                // Not even its name is left, but writes to it must not harm the others.
                let mut after = self.files.clone();
                after.remove(name);
                self.other = Some(after);
                store.unlink(file)?;
                self.settle_names();
                store.write(file, draws.below(9000), &draws.bytes(5000))?;
                store.delete(file)?;
            }
            _ => {
                let offset = draws.below(FILE_PAGES * PAGE_BYTES as u64);
                let is_hot = draws.below(2) == 0;
                let offset = if is_hot { offset % 8192 } else { offset };
                let length = 1 + draws.below(9000) as usize;
                self.write(store, file, name, (offset, &draws.bytes(length)), draws)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: &str) -> &mut File {
        self.files
            .get_mut(name)
            .expect("the store has the file too")
    }

    fn write(
        &mut self,
        store: &Store,
        file: FileId,
        name: &str,
        (offset, bytes): (u64, &[u8]),
        draws: &mut Draws,
    ) -> Result<(), FlashError> {
        let model = self.file(name);
        let end = model.length().max(offset + bytes.len() as u64);
        model.lengths.push(end);
        model.overwrite(offset as usize, bytes);
        if draws.below(3) == 0 {
            store.write_deferred(file, offset, bytes)?;
        } else {
            store.write(file, offset, bytes)?;
            self.settle();
        }
        Ok(())
    }

    fn delete(&mut self, store: &Store, file: FileId, name: &str) -> Result<(), FlashError> {
        let mut after = self.files.clone();
        after.remove(name);
        self.other = Some(after);
        store.delete(file)?;
        self.settle_names();
        Ok(())
    }

    fn rename(
        &mut self,
        store: &Store,
        file: FileId,
        from: &str,
        to: &str,
    ) -> Result<(), FlashError> {
        let mut after = self.files.clone();
        let moved = after.remove(from).expect("the file is in the model");
        after.insert(to.to_owned(), moved);
        self.other = Some(after);
        if let Some(replaced) = store.rename(file, to)? {
            store.delete(replaced)?;
        }
        self.settle_names();
        Ok(())
    }

    fn set_length(
        &mut self,
        store: &Store,
        file: FileId,
        name: &str,
        draws: &mut Draws,
    ) -> Result<(), FlashError> {
        let model = self.file(name);
        let before = model.length();
        let length = draws.below(before.max(1) * 5 / 4 + 1);
        let rest = before.saturating_sub(length) as usize;
        model.overwrite(length as usize, &vec![0; rest]);
        model.lengths.push(length);
        store.set_length(file, length)?;
        self.settle();
        Ok(())
    }

    fn allocate(
        &mut self,
        store: &Store,
        file: FileId,
        name: &str,
        draws: &mut Draws,
    ) -> Result<(), FlashError> {
        let page = PAGE_BYTES as u64;
        let (offset, bytes) = (draws.below(20 * page), draws.below(15 * page));
        let model = self.file(name);
        let end = if bytes == 0 { 0 } else { offset + bytes };
        model.lengths.push(model.length().max(end));
        store.allocate(file, offset, bytes)?;
        if bytes > 0 {
            self.settle();
        }
        Ok(())
    }

    fn punch(
        &mut self,
        store: &Store,
        file: FileId,
        name: &str,
        draws: &mut Draws,
    ) -> Result<(), FlashError> {
        let model = self.file(name);
        let offset = draws.below(model.length().max(1));
        let bytes = draws
            .below(5 * PAGE_BYTES as u64)
            .min(model.length() - offset);
        model.overwrite(offset as usize, &vec![0; bytes as usize]);
        store.punch_hole(file, offset, bytes)
    }

    /// Notes that everything is durable.
    pub(crate) fn settle(&mut self) {
        self.files.values_mut().for_each(File::settle);
    }

    fn settle_names(&mut self) {
        self.files = self.other.take().expect("names were about to change");
        self.settle();
    }

    /// Compares the model with a store's contents after a crash, and continues from these.
    pub(crate) fn check(&mut self, store: &Store) -> Result<(), String> {
        let names = store.list("");
        let has_names = |files: &BTreeMap<String, File>| files.keys().eq(names.iter());
        let candidates = [Some(self.files.clone()), self.other.take()];
        let mut problem = format!("there are files {names:?}");
        for files in candidates.into_iter().flatten().filter(has_names) {
            match observe(&files, store) {
                Ok(found) => {
                    self.files = found;
                    return Ok(());
                }
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }
}

/// The store's files, if they are allowed.
fn observe(
    files: &BTreeMap<String, File>,
    store: &Store,
) -> Result<BTreeMap<String, File>, String> {
    let mut found = BTreeMap::new();
    for (name, file) in files {
        let id = store.find(name).ok_or("a listed file is found")?;
        let length = store.length(id).map_err(|error| error.to_string())?;
        if !file.lengths.contains(&length) {
            return Err(format!("{name} has {length} bytes, not {:?}", file.lengths));
        }
        let mut bytes = vec![0; length as usize];
        store
            .read(id, 0, &mut bytes)
            .map_err(|error| error.to_string())?;
        let mut pages = BTreeMap::new();
        for (number, part) in bytes.chunks(PAGE_BYTES).enumerate() {
            let versions = file.pages.get(&number);
            let zeros = vec![zeros()];
            let mut versions = versions.unwrap_or(&zeros).iter();
            if !versions.any(|version| version[..part.len()] == *part) {
                return Err(format!(
                    "page {number} of {name} has bytes that the model does not allow"
                ));
            }
            let mut page = part.to_vec();
            page.resize(PAGE_BYTES, 0);
            pages.insert(number, vec![page]);
        }
        let lengths = vec![length];
        found.insert(name.clone(), File { lengths, pages });
    }
    Ok(found)
}
