//! Kills a process that writes to a store on real files, repeatedly.
//!
//! Acknowledged writes must be there, and every page must be whole. A kill loses nothing that the
//! system has accepted, so this shows less than a power failure; but it uses the real mapped
//! memory, real files and real system calls. `GABION_FLASH_KILLS` sets the number of kills.

use gabion_flash::{FileDevice, FlashOptions, FlashStore, Geometry, MappedNvram, PAGE_BYTES};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Set for the process that writes: the store's directory.
const DIRECTORY: &str = "GABION_FLASH_KILLED_IN";
/// Pages that are overwritten at random.
const PAGES: u64 = 600;

type Store = FlashStore<FileDevice, MappedNvram>;

fn geometry() -> Geometry {
    Geometry {
        chunk_bytes: 64 << 10,
        ..Geometry::new(3, 1, 40)
    }
}

fn format(directory: &Path) -> Store {
    let device = |index| {
        let path = directory.join(format!("device{index}"));
        FileDevice::create(&path, geometry().device_bytes()).expect("there is room")
    };
    let devices = (0..4).map(device).collect();
    let nvram = MappedNvram::create(&directory.join("nvram"), geometry().nvram_bytes());
    let nvram = nvram.expect("there is room");
    FlashStore::format(geometry(), 3, devices, nvram, FlashOptions::default())
        .expect("files can be a store")
}

fn open(directory: &Path) -> Store {
    let device = |index| FileDevice::open(&directory.join(format!("device{index}"))).ok();
    let devices = (0..4).map(device).collect();
    let nvram = MappedNvram::open(&directory.join("nvram")).expect("no other process uses it");
    FlashStore::open(devices, nvram, FlashOptions::default()).expect("it was a store")
}

fn page(number: u64, version: u64) -> Vec<u8> {
    let word = |at: u64| [number, version][(at % 2) as usize] ^ (at / 2);
    (0..PAGE_BYTES as u64 / 8)
        .flat_map(|at| word(at).to_le_bytes())
        .collect()
}

/// The version of a page as it is stored.
fn version(store: &Store, number: u64) -> u64 {
    let file = store.find("pages").expect("it was created");
    let mut found = vec![0; PAGE_BYTES];
    store
        .read(file, number * PAGE_BYTES as u64, &mut found)
        .expect("it is there");
    let mut word = [0; 8];
    word.copy_from_slice(&found[8..16]);
    let version = u64::from_le_bytes(word);
    assert!(found == page(number, version), "page {number} is torn");
    version
}

/// Not a test by itself: the work of the killed process.
#[test]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = open(Path::new(&directory));
    let file = store.find("pages").expect("it was created");
    let mut versions: Vec<u64> = (0..PAGES).map(|number| version(&store, number)).collect();
    let mut random = versions.iter().sum::<u64>() | 1;
    let mut output = std::io::stderr();
    loop {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (random >> 33) % PAGES;
        let number = if random >> 63 == 0 {
            number / 20
        } else {
            number
        };
        let version = versions[number as usize] + 1;
        let bytes = page(number, version);
        store
            .write(file, number * PAGE_BYTES as u64, &bytes)
            .expect("overwrites find room");
        versions[number as usize] = version;
        writeln!(output, "durable {number} {version}").expect("the parent reads");
    }
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_process() {
    let kills = std::env::var("GABION_FLASH_KILLS").ok();
    let kills: usize = kills.and_then(|count| count.parse().ok()).unwrap_or(3);
    let directory = tempfile::tempdir().expect("there is room");
    let store = format(directory.path());
    let file = store.create("pages").expect("room");
    for number in 0..PAGES {
        let at = number * PAGE_BYTES as u64;
        store
            .write_deferred(file, at, &page(number, 0))
            .expect("room");
    }
    store.sync().expect("files can be synced");
    drop(store);
    let mut versions = vec![0; PAGES as usize];
    let mut flushed = 0;
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().expect("tests have a file"))
            .args([
                "--exact",
                "sigkill::writes_until_it_is_killed",
                "--nocapture",
            ])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a test can be started");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut acknowledged = |line: &str| {
            let mut words = line.split(' ').skip(1).map(str::parse::<u64>);
            if let (Some(Ok(number)), Some(Ok(version))) = (words.next(), words.next()) {
                versions[number as usize] = version;
            }
        };
        for line in lines.by_ref().take(150 + round * 61 % 200) {
            acknowledged(&line.expect("it writes text"));
        }
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
        lines
            .map_while(Result::ok)
            .for_each(|line| acknowledged(&line));
        let store = open(directory.path());
        for (number, durable) in (0..PAGES).zip(&versions) {
            let found = version(&store, number);
            let is_next = found == durable + 1;
            assert!(
                found == *durable || is_next,
                "page {number}: {found}, not {durable}"
            );
        }
        versions = (0..PAGES).map(|number| version(&store, number)).collect();
        flushed += store.usage().stripe_count - store.usage().free_stripes;
    }
    assert!(flushed as usize > kills, "stripes were written");
}
