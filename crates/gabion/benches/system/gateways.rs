//! Images by NBD and files by FUSE against the client itself: the same requests on the same cluster, in turns. Beside
//! them the same image requests to `qemu-nbd` on a local file, which show what the protocol costs alone, and a clone of
//! a git repository on the mount and on the local disk.

use crate::machine;
use crate::median;
use crate::trial::{Trial, argument};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Goals, each a rate through the gateway over that of the client, or of `gabion put` and `get`.
const GOAL_NBD_RANDOM: f64 = 0.85;
const GOAL_NBD_SEQUENTIAL: f64 = 0.9;
const GOAL_FUSE_SEQUENTIAL: f64 = 0.8;
const GOAL_FUSE_RANDOM: f64 = 0.7;
/// The goal for a clone of a repository: its time on the mount over that on the disk.
const GOAL_CLONE: f64 = 5.0;

/// Bytes of the image, and of the file that random requests go to.
const BYTES: usize = 96 << 20;
/// Files of a directory in the repository.
const FILES_PER_DIRECTORY: usize = 100;
/// Time limit of a server's start, and the interval of checking for its socket.
const START_LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Programs that the measurements need.
const PROGRAMS: [&str; 3] = ["fio", "qemu-nbd", "git"];

/// Amounts of work.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Rounds over all measurements; the medians of their ratios are printed.
    pub(crate) round_count: usize,
    /// Seconds of each measurement of random requests in a round.
    pub(crate) seconds: u64,
    /// Bytes of the file that is put and got.
    pub(crate) file_bytes: usize,
    /// Files of the cloned repository.
    pub(crate) small_file_count: usize,
}

/// Measures both gateways, and prints the figures.
pub(crate) async fn run(scale: Scale) -> anyhow::Result<()> {
    for program in PROGRAMS {
        let found = Command::new("which").arg(program).output();
        if !found.is_ok_and(|output| output.status.success()) {
            println!("gateways: skipped, because {program} is not installed");
            return Ok(());
        }
    }
    let trial = Trial::start(&["--racks=3", "--nodes-per-rack=3"]).await?;
    // Small segments: a gateway's first write into a hole stores a whole segment.
    let pool = ["pool", "create", "vm", "--code=rs(6,3)", "--chunk=128KiB"];
    trial.run(&pool).await?;
    println!(
        "gateways, rs(6,3) with chunks of 128 KiB on 9 nodes, {} rounds:",
        scale.round_count
    );
    images(&trial, scale).await?;
    if rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists() {
        mounts(&trial, scale).await
    } else {
        println!("    mounts: skipped, because they need root and /dev/fuse");
        Ok(())
    }
}

/// Requests to an image, to the client and to a local file.
async fn images(trial: &Trial, scale: Scale) -> anyhow::Result<()> {
    let source = trial.path("source");
    std::fs::write(&source, machine::pattern(BYTES, 3)).context("write a file")?;
    let image = format!("--size={BYTES}");
    trial.run(&["image", "create", "vm/image", &image]).await?;
    let socket = trial.path("image.sock");
    let serve = ["nbd", "serve", "--unix", argument(&socket)?, "vm/image"];
    let _server = Server::start(trial.command(&serve), &socket)?;
    let uri = format!("nbd+unix:///vm/image?socket={}", socket.display());
    let mut fill = Command::new("qemu-img");
    fill.args(["convert", "-n", "-f", "raw", "-O", "raw"])
        .arg(&source)
        .arg(&uri);
    done(&mut fill)?;
    let local_socket = trial.path("local.sock");
    let mut local = Command::new("qemu-nbd");
    local.args([
        "--persistent",
        "--shared=4",
        "--format=raw",
        "--cache=writethrough",
        "--socket",
    ]);
    local.arg(&local_socket).arg(&source);
    let _local = Server::start(local, &local_socket)?;
    let local_uri = format!("nbd+unix:///?socket={}", local_socket.display());
    for depth in [1, 16, 64] {
        let mut rates = Rates::default();
        for round in 0..scale.round_count {
            let ours = client_rate(trial, scale, "randwrite", depth).await?;
            let through = image_rate(trial, scale, &uri, "randwrite", depth, round)?;
            let local = image_rate(trial, scale, &local_uri, "randwrite", depth, round)?;
            rates.note(through, ours);
            rates.local.push(local);
        }
        let name = format!("NBD, random writes of 4 KiB, depth {depth:>2}");
        rates.print(&name, "/s", GOAL_NBD_RANDOM);
    }
    for (kind, name) in [("write", "writes"), ("read", "reads")] {
        let mut rates = Rates::default();
        for round in 0..scale.round_count {
            let ours = client_rate(trial, scale, kind, 16).await?;
            let through = image_rate(trial, scale, &uri, kind, 16, round)?;
            let local = image_rate(trial, scale, &local_uri, kind, 16, round)?;
            rates.note(through, ours);
            rates.local.push(local);
        }
        let name = format!("NBD, sequential {name} of 1 MiB, depth 16");
        rates.print(&name, "MiB/s", GOAL_NBD_SEQUENTIAL);
    }
    Ok(())
}

/// Files on a mount against the same commands without one.
async fn mounts(trial: &Trial, scale: Scale) -> anyhow::Result<()> {
    let mount = Mount::start(trial, "mount", &[]).await?;
    let caching = Mount::start(trial, "caching", &["-o", "cache=64MiB"]).await?;
    let source = trial.path("large");
    std::fs::write(&source, machine::pattern(scale.file_bytes, 5)).context("write a file")?;
    let [mut writes, mut later_writes, mut reads, mut random] = [(); 4].map(|()| Rates::default());
    let mib = scale.file_bytes as f64 / f64::from(1 << 20);
    for round in 0..scale.round_count {
        let name = format!("large-{round}");
        let begun = Instant::now();
        trial.run(&["put", argument(&source)?, &name]).await?;
        let put_s = begun.elapsed().as_secs_f64();
        let copied = mount.path(&format!("copy-{round}"));
        let copy = |from: &Path, to: &Path, flag: &str| {
            let mut dd = Command::new("dd");
            dd.args(["bs=1M", "status=none", flag]);
            dd.arg(path_word("if=", from)).arg(path_word("of=", to));
            let begun = Instant::now();
            done(&mut dd).map(|()| begun.elapsed().as_secs_f64())
        };
        let copied_in_s = copy(&source, &copied, "conv=fsync")?;
        writes.note(mib / copied_in_s, mib / put_s);
        let copied = caching.path(&format!("later-{round}"));
        let copied_later_s = copy(&source, &copied, "conv=fsync")?;
        later_writes.note(mib / copied_later_s, mib / put_s);
        let begun = Instant::now();
        trial.run(&["get", &name, "/dev/null"]).await?;
        let get_s = begun.elapsed().as_secs_f64();
        // This mount has never read that file, so its pages are not in the kernel's cache.
        let copied_out_s = copy(
            &mount.path(&name),
            Path::new("/dev/null"),
            "iflag=fullblock",
        )?;
        reads.note(mib / copied_out_s, mib / get_s);
        let ours = client_rate(trial, scale, "randwrite", 1).await?;
        let target = mount.path("large-0");
        let through = fio(trial, scale, "randwrite", 1, round, |fio| {
            fio.arg("--ioengine=psync")
                .arg("--fdatasync=1")
                .arg(path_word("--filename=", &target));
        })?;
        random.note(through, ours);
    }
    writes.print(
        "FUSE, sequential write against put",
        "MiB/s",
        GOAL_FUSE_SEQUENTIAL,
    );
    later_writes.print(
        "FUSE with cache=64MiB, sequential write and fsync against put",
        "MiB/s",
        GOAL_FUSE_SEQUENTIAL,
    );
    reads.print(
        "FUSE, sequential read against get",
        "MiB/s",
        GOAL_FUSE_SEQUENTIAL,
    );
    random.print(
        "FUSE, random durable writes of 4 KiB, one at a time",
        "/s",
        GOAL_FUSE_RANDOM,
    );
    clones(trial, &mount, scale)
}

/// A clone of a repository of small files, on the mount and on the disk.
fn clones(trial: &Trial, mount: &Mount<'_>, scale: Scale) -> anyhow::Result<()> {
    let repository = trial.path("repository");
    for number in 0..scale.small_file_count {
        let directory = repository.join((number / FILES_PER_DIRECTORY).to_string());
        std::fs::create_dir_all(&directory).context("make a directory")?;
        let contents = format!("file {number}\n").repeat(100);
        std::fs::write(directory.join(number.to_string()), contents).context("write a file")?;
    }
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(&repository).args([
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.org",
        ]);
        done(git.args(words))
    };
    git(&["init", "--quiet"])?;
    git(&["add", "."])?;
    git(&["commit", "--quiet", "--message=one"])?;
    let clone = |to: &Path| {
        let mut clone = Command::new("git");
        clone
            .args(["clone", "--quiet", "--no-hardlinks"])
            .arg(&repository)
            .arg(to);
        let begun = Instant::now();
        done(&mut clone)?;
        done(Command::new("sync").arg("--file-system").arg(to))?;
        Ok::<_, anyhow::Error>(begun.elapsed().as_secs_f64())
    };
    let local_s = clone(&trial.path("clone"))?;
    let mounted_s = clone(&mount.path("clone"))?;
    let ratio = mounted_s / local_s;
    let word = if ratio <= GOAL_CLONE { "met" } else { "missed" };
    println!(
        "    FUSE, git clone of {} files: {mounted_s:.1} s, {local_s:.1} s on the disk; ratio {ratio:.1} (goal at most \
         {GOAL_CLONE:.0}: {word})",
        scale.small_file_count
    );
    Ok(())
}

/// Requests a second of the client itself.
async fn client_rate(trial: &Trial, scale: Scale, kind: &str, depth: u32) -> anyhow::Result<f64> {
    let workload = format!("--workload={kind}");
    let depth = format!("--depth={depth}");
    let (size, seconds) = (
        format!("--size={BYTES}"),
        format!("--seconds={}", scale.seconds),
    );
    let words = [
        "bench",
        "--pool=vm",
        "--block=4KiB",
        &workload,
        &depth,
        &size,
        &seconds,
    ];
    let report = trial.json(&words).await?;
    let rate = report["lines"][0]["requests_per_s"].as_f64();
    rate.with_context(|| format!("no rate in {report}"))
}

/// Requests a second to an image.
fn image_rate(
    trial: &Trial,
    scale: Scale,
    uri: &str,
    kind: &str,
    depth: u32,
    round: usize,
) -> anyhow::Result<f64> {
    fio(trial, scale, kind, depth, round, |fio| {
        fio.arg("--ioengine=nbd").arg(format!("--uri={uri}"));
    })
}

/// Requests a second that `fio` makes: random ones of 4 KiB, or sequential ones of 1 MiB.
fn fio(
    trial: &Trial,
    scale: Scale,
    kind: &str,
    depth: u32,
    round: usize,
    target: impl FnOnce(&mut Command),
) -> anyhow::Result<f64> {
    let block = if kind.starts_with("rand") { "4k" } else { "1m" };
    let mut fio = Command::new("fio");
    fio.args([
        "--name=bench",
        "--output-format=json",
        "--time_based",
        "--randrepeat=1",
    ]);
    fio.arg(format!("--rw={kind}")).arg(format!("--bs={block}"));
    fio.arg(format!("--iodepth={depth}"))
        .arg(format!("--size={BYTES}"));
    fio.arg(format!("--runtime={}", scale.seconds))
        .arg(format!("--randseed={round}"));
    target(&mut fio);
    let output = fio
        .current_dir(trial.path(""))
        .output()
        .context("start fio")?;
    ensure!(
        output.status.success(),
        "fio: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Engines print lines of their own before the report.
    let start = output.stdout.iter().position(|byte| *byte == b'{');
    let report = &output.stdout[start.context("fio has no report")?..];
    let report: Value = serde_json::from_slice(report).context("understand fio")?;
    let side = if kind.ends_with("write") {
        "write"
    } else {
        "read"
    };
    let rate = report["jobs"][0][side]["iops"].as_f64();
    rate.with_context(|| format!("no rate in {report}"))
}

/// Rates through a gateway and of the client, one of each a round; also of a local file, if it is compared.
#[derive(Default)]
struct Rates {
    through: Vec<f64>,
    ours: Vec<f64>,
    local: Vec<f64>,
}

impl Rates {
    fn note(&mut self, through: f64, ours: f64) {
        self.through.push(through);
        self.ours.push(ours);
    }

    /// Prints the medians with their unit, and the median of the rounds' ratios.
    fn print(self, name: &str, unit: &str, goal: f64) {
        let ratios = self.through.iter().zip(&self.ours);
        let ratio = median(ratios.map(|(through, ours)| through / ours).collect());
        let word = if ratio >= goal { "met" } else { "missed" };
        let (through, ours) = (median(self.through), median(self.ours));
        println!(
            "    {name}: {through:.0} {unit}, client {ours:.0} {unit}; ratio {ratio:.2} (goal at least {goal:.2}: {word})"
        );
        if !self.local.is_empty() {
            let local = median(self.local);
            println!("        qemu-nbd on a local file: {local:.0} {unit}");
        }
    }
}

/// A server of an image, which is killed at the end.
struct Server(Child);

impl Server {
    /// Starts it, and waits until it has made its socket.
    fn start(mut command: Command, socket: &Path) -> anyhow::Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = Self(quiet.spawn().context("start a server of an image")?);
        let begun = Instant::now();
        while !socket.exists() {
            if let Some(status) = server.0.try_wait().context("wait for a server")? {
                bail!("the server of an image ended: {status}");
            }
            ensure!(begun.elapsed() < START_LIMIT, "a server does not start");
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The pool as a mount, which is unmounted at the end.
struct Mount<'a> {
    trial: &'a Trial,
    directory: PathBuf,
}

impl<'a> Mount<'a> {
    /// Mounts it below the trial's directory.
    async fn start(trial: &'a Trial, name: &str, options: &[&str]) -> anyhow::Result<Self> {
        let directory = trial.path(name);
        std::fs::create_dir(&directory).context("make a directory")?;
        let mount = Self { trial, directory };
        let at = argument(&mount.directory)?;
        let words = [&["mount", "vm", at], options].concat();
        trial.run(&words).await?;
        Ok(mount)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let mut umount = self.trial.command(&["umount", "--lazy"]);
        if let Err(error) = done(umount.arg(&self.directory)) {
            eprintln!("{error:#}");
        }
    }
}

/// A word with a path behind it.
fn path_word(word: &str, path: &Path) -> std::ffi::OsString {
    let mut whole = std::ffi::OsString::from(word);
    whole.push(path);
    whole
}

/// Runs a command to its end.
fn done(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("start {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(())
}
