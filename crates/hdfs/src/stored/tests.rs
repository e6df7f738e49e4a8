//! Chunk files of other systems, written here from their published layouts, are lost and restored byte by byte. The
//! parities and checksums of QFS are computed by its definitions, not by the code under test.

use super::Format;
use crate::error::HdfsError;
use crate::restore::{Restoration, Restored};
use gabion_codec::Code;
use gabion_layout::ChunkIndex;
use std::fs;
use std::path::{Path, PathBuf};

const UNIT: usize = 64 << 10;

fn pattern(chunk: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at * 7 + at / 251 * (chunk + 3) + chunk * 89) as u8;
    (0..length).map(byte).collect()
}

/// Adler-32 by its definition (RFC 1950).
fn adler(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in bytes {
        a = (a + u32::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    b << 16 | a
}

/// Twice an element of GF(2^8) with the polynomial 0x11d.
fn twice(element: u8) -> u8 {
    element << 1 ^ if element & 0x80 == 0 { 0 } else { 0x1d }
}

/// QFS's three parities by Horner's rule, from the last chunk with data to the first.
fn qfs_parities(data: &[Vec<u8>], length: usize) -> [Vec<u8>; 3] {
    let mut parities = [(); 3].map(|()| vec![0; length]);
    for at in 0..length {
        for chunk in data.iter().rev() {
            let byte = chunk.get(at).copied().unwrap_or(0);
            let [p, q, r] = &mut parities;
            p[at] ^= byte;
            q[at] = twice(q[at]) ^ byte;
            r[at] = twice(twice(r[at])) ^ byte;
        }
    }
    parities
}

/// A chunk file of QFS.
fn qfs_file(chunk: u64, bytes: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xcafe_cafe_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for number in [55, chunk, 3, bytes.len() as u64] {
        file.extend(number.to_le_bytes());
    }
    for unit in bytes.chunks(UNIT) {
        let mut padded = unit.to_vec();
        padded.resize(UNIT, 0);
        file.extend(adler(&padded).to_le_bytes());
    }
    file.resize(40 + 4 * 1024, 0);
    file.extend([0; 4]);
    file.extend(b"\0QFSFsId\xe4\x5e\x23\x0e\x34\x9a\x07\xce");
    file.extend(77_u64.to_le_bytes());
    file.resize(4400, 0);
    let sum = u64::from(adler(&file));
    file.extend(sum.to_le_bytes());
    file.resize(16 << 10, 0);
    file.extend(bytes);
    file
}

/// A stripe of another system's chunk files.
struct Stripe {
    directory: tempfile::TempDir,
    format: Format,
    code: Code,
    /// The files of each chunk; the first has the bytes.
    files: Vec<Vec<(PathBuf, Vec<u8>)>>,
    lengths: Vec<u64>,
}

impl Stripe {
    fn new(format: Format, code: &str) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            format,
            code: code.parse().unwrap(),
            files: Vec::new(),
            lengths: Vec::new(),
        }
    }

    /// Each chunk lies in a directory of its own.
    fn add(&mut self, length: usize, files: Vec<(String, Vec<u8>)>) {
        let place = self.directory.path().join(self.files.len().to_string());
        fs::create_dir(&place).unwrap();
        let files = files.into_iter().map(|(name, bytes)| {
            let path = place.join(name);
            fs::write(&path, &bytes).unwrap();
            (path, bytes)
        });
        self.files.push(files.collect());
        self.lengths.push(length as u64);
    }

    /// QFS's stripe of chunks of these lengths, and three with parity.
    fn qfs(lengths: &[usize]) -> Self {
        let mut stripe = Self::new(Format::Qfs, &format!("powers({},3)", lengths.len()));
        let chunks = lengths.iter().enumerate();
        let data: Vec<Vec<u8>> = chunks
            .map(|(chunk, &length)| pattern(chunk, length))
            .collect();
        let longest = lengths.iter().copied().max().unwrap();
        let all = data
            .iter()
            .chain(&qfs_parities(&data, longest))
            .cloned()
            .collect::<Vec<_>>();
        for (bytes, id) in all.iter().zip(1001..) {
            stripe.add(
                bytes.len(),
                vec![(format!("55.{id}.3"), qfs_file(id, bytes))],
            );
        }
        stripe
    }

    /// HDFS-RAID's stripe of blocks of these lengths, whose checksums are inside or beside them.
    fn raid(code: &str, lengths: &[usize], (is_inline, kind, unit): (bool, u8, usize)) -> Self {
        let mut stripe = Self::new(Format::HdfsRaid, code);
        let longest = lengths.iter().copied().max().unwrap();
        let mut data: Vec<Vec<u8>> = lengths
            .iter()
            .enumerate()
            .map(|(at, &length)| pattern(at, length))
            .collect();
        let padded: Vec<Vec<u8>> = data
            .iter()
            .map(|bytes| [&bytes[..], &vec![0; longest - bytes.len()]].concat())
            .collect();
        let mut parity = vec![vec![0; longest]; stripe.code.m()];
        let mut rows: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        let columns: Vec<&[u8]> = padded.iter().map(Vec::as_slice).collect();
        stripe.code.encode(&columns, &mut rows).unwrap();
        data.extend(parity);
        let sum = |bytes: &[u8]| match kind {
            1 => crc_fast::crc32_iso_hdlc(bytes),
            _ => crc_fast::crc32_iscsi(bytes),
        };
        for (bytes, id) in data.iter().zip(-900_i64..) {
            let files = if is_inline {
                let units = bytes.chunks(unit);
                let stored = units.flat_map(|unit| [unit, &sum(unit).to_be_bytes()].concat());
                vec![(format!("blk_{id}_41_2_{kind}_{unit}"), stored.collect())]
            } else {
                let mut sums = vec![0, 1, kind];
                sums.extend((unit as u32).to_be_bytes());
                sums.extend(bytes.chunks(unit).flat_map(|unit| sum(unit).to_be_bytes()));
                vec![
                    (format!("blk_{id}"), bytes.clone()),
                    (format!("blk_{id}_41.meta"), sums),
                ]
            };
            stripe.add(bytes.len(), files);
        }
        stripe
    }

    /// The path that names a chunk to restore.
    fn out(&self, lost: usize) -> PathBuf {
        let files = &self.files[lost];
        match &files[..] {
            [(path, _)] => path.clone(),
            _ => files[1].0.with_extension(""),
        }
    }

    /// The restoration of a chunk, whose files are removed, without those that are `absent` too.
    fn lose(&self, lost: usize, absent: &[usize]) -> Restoration {
        let is_there = |at: &usize| *at != lost && !absent.contains(at);
        for (path, _) in &self.files[lost] {
            fs::remove_file(path).unwrap();
        }
        let chunks =
            (0..self.files.len()).map(|at| is_there(&at).then(|| self.files[at][0].0.clone()));
        Restoration {
            format: self.format,
            code: self.code.clone(),
            chunks: chunks.collect(),
            lost: ChunkIndex::new(lost),
            out: self.out(lost),
            length: Some(self.lengths[lost]),
        }
    }

    /// Returns the entries of its files' directory.
    fn names(&self, chunk: usize) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.out(chunk).parent().unwrap()).unwrap();
        let mut names: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    }

    /// The files of a chunk are what they were, and there are no others.
    fn check(&self, chunk: usize) {
        for (path, bytes) in &self.files[chunk] {
            assert!(fs::read(path).unwrap() == *bytes, "{}", path.display());
        }
        let paths: Vec<PathBuf> = self.files[chunk]
            .iter()
            .map(|(path, _)| path.clone())
            .collect();
        assert_eq!(self.names(chunk), paths);
    }
}

async fn restore(stripe: &Stripe, lost: usize, absent: &[usize]) -> Restored {
    let restored = stripe.lose(lost, absent).run().await.unwrap();
    stripe.check(lost);
    assert_eq!(restored.length, stripe.lengths[lost]);
    restored
}

#[tokio::test]
async fn each_chunk_of_qfs_is_restored() {
    let full = 5 * UNIT;
    let lengths = [full, full, full, 4 * UNIT + 777, 4 * UNIT, 4 * UNIT];
    let stripe = Stripe::qfs(&lengths);
    for lost in 0..9 {
        let restored = restore(&stripe, lost, &[]).await;
        assert_eq!(restored.read_bytes, 6 * restored.length);
        assert!(restored.proven_by.is_some(), "{lost}");
    }
    // With as few as it takes, nothing is left that could contradict.
    for (lost, absent) in [(0, [1, 2]), (3, [6, 8]), (7, [0, 5])] {
        assert_eq!(restore(&stripe, lost, &absent).await.proven_by, None);
    }
    let few = stripe.lose(0, &[1, 2, 3]).run().await.unwrap_err();
    assert!(matches!(few, HdfsError::Policy(_)), "{few}");
    assert_eq!(stripe.names(0), [""; 0].map(PathBuf::from));
}

#[tokio::test]
async fn blocks_of_hdfs_raid_are_restored_in_both_forms() {
    let lengths = [300_000, 300_000, 299_999, 70_000, 1];
    for form in [
        (false, 1, 512),
        (false, 2, 4096),
        (true, 1, 512),
        (true, 2, 65_536),
    ] {
        for code in ["polynomial(5,3)", "lrc(5,1,0)"] {
            let stripe = Stripe::raid(code, &lengths, form);
            for lost in 0..stripe.files.len() {
                restore(&stripe, lost, &[]).await;
            }
        }
        let stripe = Stripe::raid("polynomial(5,3)", &lengths, form);
        restore(&stripe, 4, &[0, 6]).await;
    }
}

/// A restoration fails so, and leaves nothing behind.
async fn fails(stripe: &Stripe, restoration: &Restoration, wanted: impl Fn(&HdfsError) -> bool) {
    let error = restoration.run().await.unwrap_err();
    assert!(wanted(&error), "{error}");
    let listed = fs::read_dir(restoration.out.parent().unwrap()).unwrap();
    let left: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    let is_of_stripe = |path: &PathBuf| {
        stripe
            .files
            .iter()
            .flatten()
            .any(|(known, _)| known == path)
    };
    assert!(left.iter().all(is_of_stripe), "{left:?}");
}

#[tokio::test]
async fn what_contradicts_itself_is_not_restored() {
    for stripe in [
        Stripe::qfs(&[2 * UNIT, 2 * UNIT, UNIT + 9]),
        Stripe::raid("polynomial(3,3)", &[99_000, 99_000, 500], (false, 2, 512)),
        Stripe::raid("polynomial(3,3)", &[99_000, 99_000, 500], (true, 1, 512)),
    ] {
        let right = stripe.lose(1, &[]);
        let mut swapped = right.clone();
        swapped.chunks.swap(0, 2);
        fails(&stripe, &swapped, |e| matches!(e, HdfsError::Order(_))).await;
        let mut other = right.clone();
        other.code = "rs(3,3)".parse().unwrap();
        fails(&stripe, &other, |e| matches!(e, HdfsError::Order(_))).await;
        let mut longer = right.clone();
        longer.length = Some(1 << 20);
        fails(&stripe, &longer, |e| matches!(e, HdfsError::Policy(_))).await;
        let mut fewer = right.clone();
        fewer.chunks.pop();
        fails(&stripe, &fewer, |e| matches!(e, HdfsError::Policy(_))).await;
        let mut taken = right.clone();
        taken.out = stripe.out(2);
        fails(&stripe, &taken, |e| matches!(e, HdfsError::Name { .. })).await;
        let mut unnamed = right.clone();
        unnamed.out = stripe.directory.path().join("1/chunk");
        fails(&stripe, &unnamed, |e| matches!(e, HdfsError::Name { .. })).await;
        // A byte of a chunk that is needed.
        let (path, bytes) = &stripe.files[0][0];
        let mut changed = bytes.clone();
        let last = changed.len() - 100;
        changed[last] ^= 1;
        fs::write(path, changed).unwrap();
        fails(&stripe, &right, |e| matches!(e, HdfsError::Corrupt { .. })).await;
        fs::write(path, bytes).unwrap();
        right.run().await.unwrap();
        stripe.check(1);
    }
}

#[test]
fn headers_and_names_that_do_not_fit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        let format = if name.starts_with("blk") {
            Format::HdfsRaid
        } else {
            Format::Qfs
        };
        format.open(Path::new(&path)).map(drop)
    };
    let good = qfs_file(9, &[5; 1000]);
    open("55.9.3", &good).unwrap();
    for name in ["55.9", "55.9.3.1", "55.9.x", "55.-9.3", "55..3", "chunk"] {
        assert!(
            matches!(open(name, &good), Err(HdfsError::Name { .. })),
            "{name}"
        );
    }
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let without_sum = |at: usize, to: u8| {
        let mut bytes = changed(at, to);
        bytes[4400..4408].fill(0);
        bytes
    };
    open("55.9.3", &without_sum(4399, 1)).unwrap();
    for bad in [
        changed(0, 0),
        changed(4, 2),
        changed(4399, 1),
        without_sum(39, 1),
        without_sum(16, 8),
    ] {
        assert!(matches!(
            open("55.9.3", &bad),
            Err(HdfsError::Corrupt { .. })
        ));
    }
    for length in [0, 4400, 16 << 10, good.len() - 1] {
        assert!(open("55.9.3", &good[..length]).is_err(), "{length}");
    }
    for name in [
        "blk_1_2_1_1_512",
        "blk_1_2_2_3_512",
        "blk_1_2_2_1_0",
        "blk_1_2_2_1_513",
        "blk_x",
        "blk_1_2_2_1",
    ] {
        assert!(
            matches!(open(name, &[0; 600]), Err(HdfsError::Name { .. })),
            "{name}"
        );
    }
    assert!(matches!(
        open("blk_1_2_2_1_512", &[0; 518]),
        Err(HdfsError::Corrupt { .. })
    ));
    // One file of checksums, and no other.
    assert!(matches!(
        open("blk_7", &[0; 600]),
        Err(HdfsError::Name { .. })
    ));
}
