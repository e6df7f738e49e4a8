//! A disk in memory that keeps of each 4 KiB only what stands before its trailing zeros, so that a million
//! chunk files of zeros have room. Nothing is lost and nothing takes time: what it costs is the node's own work.

use gabion_layout::ByteRange;
use gabion_store::{Disk, DiskFile, PhysicalExtent};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE_BYTES: u64 = 4096;

/// A file: its length and the pages that are not all zeros.
#[derive(Debug, Default)]
struct Contents {
    length: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

type Shared = Arc<Mutex<Contents>>;

/// The disk. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseDisk {
    names: Arc<Mutex<BTreeMap<String, Shared>>>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct SparseFile(Shared);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with the lock")
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}

impl Disk for SparseDisk {
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = Shared::default();
        lock(&self.names).insert(path.to_owned(), Arc::clone(&file));
        Ok(Arc::new(SparseFile(file)))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = lock(&self.names).get(path).cloned();
        let file = file.ok_or_else(missing)?;
        Ok(Arc::new(SparseFile(file)))
    }

    fn create_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = lock(&self.names);
        let file = names.remove(from).ok_or_else(missing)?;
        names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let removed = lock(&self.names).remove(path);
        removed.map(|_| ()).ok_or_else(missing)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let prefix = if directory.is_empty() {
            String::new()
        } else {
            format!("{directory}/")
        };
        let names = lock(&self.names);
        let below = names.range(prefix.clone()..);
        let below = below.map_while(|(path, _)| path.strip_prefix(&prefix));
        let mut found: Vec<String> = below
            .map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
            .collect();
        found.dedup();
        Ok(found)
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn available_bytes(&self) -> io::Result<u64> {
        Ok(1 << 50)
    }
}

impl DiskFile for SparseFile {
    fn read_exact_at(&self, output: &mut [u8], offset: u64) -> io::Result<()> {
        let contents = lock(&self.0);
        if offset + output.len() as u64 > contents.length {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < output.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES) as usize;
            let count = (PAGE_BYTES as usize - within).min(output.len() - done);
            let target = &mut output[done..done + count];
            target.fill(0);
            if let Some(page) = contents.pages.get(&(at / PAGE_BYTES)) {
                let kept = page.get(within..).unwrap_or_default();
                let kept = &kept[..kept.len().min(count)];
                target[..kept.len()].copy_from_slice(kept);
            }
            done += count;
        }
        Ok(())
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut contents = lock(&self.0);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES) as usize;
            let count = (PAGE_BYTES as usize - within).min(bytes.len() - done);
            let old = contents.pages.remove(&(at / PAGE_BYTES));
            let mut page = old.unwrap_or_default().into_vec();
            page.resize(page.len().max(within + count), 0);
            page[within..within + count].copy_from_slice(&bytes[done..done + count]);
            let kept = page.iter().rposition(|&byte| byte != 0);
            page.truncate(kept.map_or(0, |last| last + 1));
            if !page.is_empty() {
                contents
                    .pages
                    .insert(at / PAGE_BYTES, page.into_boxed_slice());
            }
            done += count;
        }
        contents.length = contents.length.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut contents = lock(&self.0);
        contents.length = contents.length.max(offset + bytes);
        Ok(())
    }

    fn punch_hole(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn extents(&self, _: ByteRange) -> io::Result<Vec<PhysicalExtent>> {
        Ok(Vec::new())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.0).length)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        let mut contents = lock(&self.0);
        contents.length = bytes;
        contents.pages.retain(|page, _| page * PAGE_BYTES < bytes);
        Ok(())
    }
}
