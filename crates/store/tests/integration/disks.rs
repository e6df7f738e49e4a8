//! A directory of a file system and an array of SSDs answer the same operations alike.

use crate::crashes::{CrashDisk, SimFlash};
use crate::{Random, pattern};
use gabion_store::{Disk, DiskFile, RealDisk, SimDisk};
use std::io;
use std::sync::Arc;

const PATHS: [&str; 6] = ["a", "b", "d/a", "d/b", "d/e/a", "none/a"];
const DIRECTORIES: [&str; 4] = ["", "d", "d/e", "none"];
const FILE_BYTES_MAX: u64 = 60_000;

/// Runs a random operation on names. Returns the answer of a file system as text.
fn ask_names(disk: &dyn Disk, files: &mut Vec<Arc<dyn DiskFile>>, random: &mut Random) -> String {
    let path = PATHS[random.below(6) as usize];
    let directory = DIRECTORIES[random.below(4) as usize];
    match random.below(8) {
        0..=2 => said(disk.create(path).map(|file| files.push(file))),
        3 => said(disk.open(path).map(|file| files.push(file))),
        4 => said(disk.rename(path, PATHS[random.below(6) as usize])),
        5 => said(disk.remove(path)),
        6 => said(disk.create_directory(directory)),
        // The directory's lock file does not belong to the store.
        _ => said(disk.list(directory).map(|names| {
            let names = names.into_iter().filter(|name| name != "lock");
            names.collect::<Vec<String>>()
        })),
    }
}

/// Runs a random operation on an open file.
fn ask_file(file: &dyn DiskFile, random: &mut Random) -> String {
    let offset = random.below(FILE_BYTES_MAX / 2);
    let bytes = random.below(FILE_BYTES_MAX / 2);
    match random.below(8) {
        0..=2 => {
            let bytes = pattern(random.next(), bytes as usize % 9000);
            said(file.write_all_at(&bytes, offset))
        }
        3 => said(file.allocate(offset, bytes + 1)),
        4 => said(file.punch_hole(offset, bytes)),
        5 => said(file.set_length(offset)),
        6 => said(file.sync()),
        _ => {
            let mut output = vec![0; bytes as usize];
            said(file.read_exact_at(&mut output, offset).map(|()| output))
        }
    }
}

fn said<T: std::fmt::Debug>(answer: io::Result<T>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// All bytes of a file.
fn contents(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0; file.length().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn an_array_answers_as_a_directory_does() {
    for seed in 0..30 {
        let directory = tempfile::tempdir().unwrap();
        let real = RealDisk::open(directory.path()).unwrap();
        let flash = SimFlash::fresh(seed);
        let (mut real_files, mut flash_files) = (Vec::new(), Vec::new());
        let mut random = Random(seed);
        for step in 0..150 {
            let choice = random.next();
            let (ask_real, ask_flash) = (&mut Random(choice), &mut Random(choice));
            let (of_real, of_flash) = match random.below(3) {
                _ if real_files.is_empty() => (
                    ask_names(&real, &mut real_files, ask_real),
                    ask_names(&flash, &mut flash_files, ask_flash),
                ),
                0 => (
                    ask_names(&real, &mut real_files, ask_real),
                    ask_names(&flash, &mut flash_files, ask_flash),
                ),
                _ => {
                    let at = random.below(real_files.len() as u64) as usize;
                    if random.below(12) == 0 {
                        drop((real_files.remove(at), flash_files.remove(at)));
                        continue;
                    }
                    let said = (
                        ask_file(&*real_files[at], ask_real),
                        ask_file(&*flash_files[at], ask_flash),
                    );
                    let (bytes, found) = (contents(&*real_files[at]), contents(&*flash_files[at]));
                    assert!(bytes == found, "seed {seed}, step {step}: other bytes");
                    said
                }
            };
            assert_eq!(of_real, of_flash, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn a_listed_file_is_told_from_a_directory_that_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let real = RealDisk::open(directory.path()).unwrap();
    for disk in [
        &real as &dyn Disk,
        &SimDisk::new(1),
        &SimFlash::fresh(1) as &dyn Disk,
    ] {
        disk.create("file").unwrap();
        let kind = |path| disk.list(path).unwrap_err().kind();
        assert_eq!(kind("file"), io::ErrorKind::NotADirectory);
        assert_eq!(kind("none"), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_file_that_is_gone_gives_its_space_back_with_its_last_handle() {
    let flash = SimFlash::fresh(1);
    flash.create("first").unwrap();
    flash.remove("first").unwrap();
    let all = flash.available_bytes().unwrap();
    let file = flash.create("gone").unwrap();
    let again = flash.open("gone").unwrap();
    file.allocate(0, 50_000).unwrap();
    file.write_all_at(b"still there", 0).unwrap();
    flash.remove("gone").unwrap();
    let other = flash.create("gone").unwrap();
    other.write_all_at(b"another", 0).unwrap();
    drop(file);
    let mut bytes = [0; 11];
    again.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still there");
    assert!(flash.available_bytes().unwrap() < all - 50_000);
    drop(again);
    assert_eq!(flash.available_bytes().unwrap(), all - 4096);
    let found = flash.open("gone").unwrap();
    found.read_exact_at(&mut bytes[..7], 0).unwrap();
    assert_eq!(&bytes[..7], b"another");
}

#[test]
fn a_read_that_fails_names_its_file_once() {
    let disk = SimDisk::new(1);
    let read = |file: &dyn DiskFile| file.read_exact_at(&mut [0], 0);
    let file = disk.create("first").unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    disk.create("other").unwrap();
    disk.fail_next_read();
    read(&*file).unwrap_err();
    disk.rename("first", "second").unwrap();
    assert_eq!(disk.take_failed_reads(), ["second"]);
    read(&*file).unwrap();
    disk.fail_next_read();
    file.read_device_at(&mut [0], 0).unwrap_err();
    disk.remove("second").unwrap();
    assert!(disk.take_failed_reads().is_empty());
}
