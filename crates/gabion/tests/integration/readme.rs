//! The first ten minutes of `README.md`, line by line as it stands there: only where the binary and the
//! files are, and how large they are, is changed.

use crate::support::mount::can_mount;
use crate::support::nbd::has_nbd_tools;
use crate::support::{TestCluster, gabion, path_text, pattern, text};
use std::path::Path;
use std::process::{Command, Stdio};

/// The commands below a heading of a Markdown file: its indented lines up to the next one that is not.
fn block<'a>(markdown: &'a str, heading: &str) -> Vec<&'a str> {
    let (_, section) = markdown.split_once(heading).expect("the heading is there");
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.filter(|line| !line.is_empty()).collect()
}

/// Has a shell run a script in a directory, and end at the first command that fails; gives its stdout.
fn shell(script: &str, directory: &Path) -> String {
    let output = Command::new("bash")
        .args(["-e", "-u", "-o", "pipefail", "-c", script])
        .current_dir(directory)
        .env_remove("GABION_DIR")
        .env_remove("GABION_COORDINATOR")
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success(),
        "{script}\nprinted:\n{said}\nand on stderr:\n{complaint}"
    );
    said
}

#[test]
fn the_first_ten_minutes_run_as_typed() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let lines = block(&readme, "## The first ten minutes");
    let (build, lines) = lines.split_first().expect("a block");
    assert_eq!(
        build.trim(),
        "cargo build --release && export PATH=$PWD/target/release:$PATH",
        "the test builds and finds the command by itself, instead of this line"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = path_text(directory.path());
    // As long as the commands go, so that the directory is never another's.
    let script = lines.join("\n");
    for needed in [
        "/tmp/g ",
        "head -c 64M",
        "gabion lab replay",
        "cluster down",
    ] {
        assert!(script.contains(needed), "the block has no '{needed}'");
    }
    let script = script
        .replace("/tmp/g", place)
        .replace("head -c 64M", "head -c 8M");
    let binary = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let binaries = binary.parent().expect("the binary's directory");
    let down = Down(directory.path().join("cluster"));
    let script = format!("export PATH={}:$PATH\n{script}", path_text(binaries));
    let said = shell(&script, directory.path());
    assert!(said.contains("every byte is correct"), "{said}");
    let disk = std::fs::read(directory.path().join("disk.img")).expect("the image");
    let mut copy = std::fs::read(directory.path().join("copy.img")).expect("the copy");
    let patch = std::fs::read(directory.path().join("patch.bin")).expect("the patch");
    let patched = 4096..4096 + patch.len();
    assert_eq!(copy[patched.clone()], patch);
    copy[patched.clone()].copy_from_slice(&disk[patched]);
    assert!(copy == disk, "the rest of the copy is the image");
    drop(down);
}

#[test]
fn the_disk_for_virtual_machines_is_served_as_typed() {
    if !has_nbd_tools() {
        return;
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let script = block(&readme, "A disk for virtual machines").join("\n");
    for needed in [
        "gabion nbd serve vm/web &",
        "nbd://127.0.0.1:10809/vm/web",
        "kill %1",
    ] {
        assert!(script.contains(needed), "the block has no '{needed}'");
    }
    let cluster = TestCluster::start(3, 4);
    cluster.run(&["pool", "create", "vm", "--survive=1-rack"]);
    let directory = cluster.path("disk.img");
    std::fs::write(&directory, pattern(8 << 20, 3)).expect("write a temporary file");
    let directory = directory.parent().expect("it is in a directory");
    let place = path_text(directory);
    // The test serves a Unix socket, since the port may be in use, and waits for the server before the next line.
    let script = script
        .replace(
            "gabion nbd serve vm/web &",
            "gabion nbd serve --unix socket vm/web & until test -S socket; do sleep 0.05; done",
        )
        .replace(
            "nbd://127.0.0.1:10809/vm/web",
            "'nbd+unix:///vm/web?socket=socket'",
        );
    let binary = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let binaries = path_text(binary.parent().expect("the binary's directory"));
    let head = format!("set -m; export PATH={binaries}:$PATH GABION_DIR={place}/cluster");
    let said = shell(&format!("{head}\n{script}"), directory);
    assert!(said.contains("Images are identical"), "{said}");
}

#[test]
fn the_file_system_is_mounted_as_typed() {
    if !can_mount() {
        return;
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let script = block(&readme, "A file system for any program").join("\n");
    assert!(script.contains("gabion umount /tmp/g/mnt"), "{script}");
    let cluster = TestCluster::start(3, 4);
    cluster.run(&["pool", "create", "vm", "--survive=1-rack"]);
    let disk = cluster.path("disk.img");
    let bytes = pattern(3 << 20, 5);
    std::fs::write(&disk, &bytes).expect("write a temporary file");
    let directory = disk.parent().expect("it is in a directory");
    let place = path_text(directory);
    let unmount = format!("trap 'gabion umount --lazy {place}/mnt 2> /dev/null || true' EXIT");
    let binary = Path::new(env!("CARGO_BIN_EXE_gabion"));
    let binaries = path_text(binary.parent().expect("the binary's directory"));
    let head = format!("export PATH={binaries}:$PATH GABION_DIR={place}/cluster; {unmount}");
    let script = script.replace("/tmp/g", place);
    let said = shell(&format!("{head}\n{script}"), directory);
    assert!(said.contains("copy.img"), "{said}");
    assert!(cluster.get("copy.img") == bytes);
}

/// Stops the cluster when the block has not come as far as that.
struct Down(std::path::PathBuf);

impl Drop for Down {
    fn drop(&mut self) {
        let down = gabion(&["cluster", "down"])
            .env("GABION_DIR", &self.0)
            .output();
        drop(down);
    }
}
