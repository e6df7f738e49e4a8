//! Advisory locks between mounts, by programs that know nothing of Gabion.

use crate::support::mount::{Mounted, can_mount};
use crate::support::{TestCluster, path_text, wait_for};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longest wait for a lock. The lock of a silent mount is free after ten seconds; the limit is far longer, because the
/// machine may be busy.
const FREE_LIMIT: Duration = Duration::from_mins(4);

/// Whether this machine can mount and has Python: prints what is missing.
fn can_lock() -> bool {
    let python = Command::new("python3")
        .args(["-c", "import fcntl, sqlite3"])
        .status();
    let has_python = python.is_ok_and(|status| status.success());
    if !has_python {
        println!("skipped: needs python3");
    }
    has_python && can_mount()
}

/// A cluster with this many mounts of its pool; none if this machine lacks what they need.
fn mounts<const COUNT: usize>() -> Option<(TestCluster, [Mounted; COUNT])> {
    if !can_lock() {
        return None;
    }
    let cluster = TestCluster::start(3, 2);
    cluster.run(&["pool", "create", "p", "--code=rs(4,2)", "--chunk=64KiB"]);
    let mounts = [(); COUNT].map(|()| Mounted::start(&cluster, "p", &[]));
    Some((cluster, mounts))
}

/// A process with an open file, which locks it; killed when it is dropped.
struct Locker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Locker {
    fn open(path: &Path) -> Self {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/integration/lock_client.py"
        );
        let mut child = Command::new("python3")
            .args([script, path_text(path)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut locker = Self {
            child,
            input,
            output,
        };
        assert_eq!(locker.answer(), "ready");
        locker
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it reads");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// Waits until it waits for a lock in the kernel.
    fn wait_until_blocked(&self) {
        let call = format!("/proc/{}/syscall", self.child.id());
        wait_for("a process waits for a lock", || {
            let call = fs::read_to_string(&call).unwrap_or_default();
            // Linux's numbers of `fcntl` and `flock` on x86-64 and on others.
            ["72 ", "73 ", "25 ", "32 "]
                .iter()
                .any(|number| call.starts_with(number))
        });
    }

    fn kill(&mut self) {
        self.child.kill().expect("the child is ours");
        self.child.wait().expect("the child is ours");
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn locks_exclude_between_mounts_as_within_one() {
    let Some((_cluster, [one, other])) = mounts() else {
        return;
    };
    let mut first = Locker::open(&one.path("f"));
    let mut second = Locker::open(&other.path("f"));
    let mut neighbour = Locker::open(&one.path("f"));

    for (locker, line, answer) in [
        (1, "lockf ex 0 100", "ok"),
        (2, "lockf ex 50 10", "EAGAIN"),
        (3, "lockf sh 99 1", "EAGAIN"),
        (2, "lockf ex 100 0", "ok"),
        // A hole in the middle, and a shared part.
        (1, "lockf un 40 20", "ok"),
        (2, "lockf sh 40 20", "ok"),
        (3, "lockf sh 40 20", "ok"),
        (3, "lockf ex 45 1", "EAGAIN"),
        (2, "lockf ex 39 1", "EAGAIN"),
        (2, "lockf sh 60 1", "EAGAIN"),
        (1, "lockf sh 0 40", "ok"),
        (2, "lockf sh 0 40", "ok"),
        (2, "lockf un 0 0", "ok"),
        // `flock` knows nothing of these.
        (2, "flock ex", "ok"),
        (1, "flock sh", "EAGAIN"),
        (2, "flock sh", "ok"),
        (1, "flock sh", "ok"),
        (1, "flock ex", "EAGAIN"),
    ] {
        let asked = match locker {
            1 => first.ask(line),
            2 => second.ask(line),
            _ => neighbour.ask(line),
        };
        assert_eq!(asked, answer, "{line} of process {locker}");
    }
    // The owner is named to processes of its own machine alone.
    let process = first.child.id();
    assert_eq!(neighbour.ask("test ex 60 5"), format!("ex 60 40 {process}"));
    assert_eq!(second.ask("test ex 0 5"), "sh 0 40 0");
    assert_eq!(second.ask("test sh 0 5"), "un");

    // A close ends the locks of a process, and the end of a process too.
    assert_eq!(first.ask("reopen"), "ok");
    assert_eq!(second.ask("lockf ex 60 40"), "ok");
    assert_eq!(first.ask("lockf sh 60 1"), "EAGAIN");
    second.kill();
    wait_for("the locks of a dead process are free", || {
        first.ask("lockf ex 60 40") == "ok" && first.ask("flock ex") == "ok"
    });
    let busy = Command::new("flock")
        .args(["--nonblock", path_text(&other.path("f")), "true"])
        .status();
    assert_eq!(busy.expect("flock runs").code(), Some(1));
    first.kill();
    let free = Command::new("flock")
        .args(["--timeout", "20", path_text(&other.path("f")), "true"])
        .status();
    assert!(free.expect("flock runs").success());
}

#[test]
fn sqlite_counts_right_on_two_mounts() {
    const COUNT: usize = 6;
    let Some((_cluster, [one, other])) = mounts() else {
        return;
    };
    let sqlite = |path: &Path, statement: &str| {
        let output = Command::new("python3")
            .args(["-c", "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1], 60, 0, None).execute(sys.argv[2]): print(*row)"])
            .args([path_text(path), statement])
            .output()
            .expect("python3 runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("a text")
    };
    sqlite(&one.path("base"), "create table counter (value)");
    sqlite(&other.path("base"), "insert into counter values (0)");
    sqlite(&one.path("base"), "create table made (value unique)");
    let mut lockers = [Locker::open(&one.path("a")), Locker::open(&other.path("b"))];
    for (locker, mount) in lockers.iter_mut().zip([&one, &other]) {
        locker.tell(&format!("add {} {COUNT}", path_text(&mount.path("base"))));
    }
    for locker in &mut lockers {
        assert_eq!(locker.answer(), "ok");
    }
    let total = format!("{}\n", 2 * COUNT);
    assert_eq!(
        sqlite(&one.path("base"), "select value from counter"),
        total
    );
    assert_eq!(
        sqlite(&other.path("base"), "select count(*) from made"),
        total
    );
    assert_eq!(
        sqlite(&other.path("base"), "pragma integrity_check"),
        "ok\n"
    );
}

#[test]
fn a_waiting_process_gets_its_lock_and_blocks_no_other_request() {
    /// More than a mount's requests in flight.
    const COUNT: usize = 300;
    let Some((_cluster, [one, other])) = mounts() else {
        return;
    };
    let (path, queue) = (one.path("f"), other.path("f"));
    let mut holder = Locker::open(&path);
    let mut waiter = Locker::open(&queue);
    assert_eq!(holder.ask("lockf ex 0 10"), "ok");
    assert_eq!(holder.ask("write 0 before"), "ok");
    wait_for("the other mount sees the write", || {
        waiter.ask("read 0 6") == "before"
    });
    waiter.tell("lockf ex+ 5 10");
    waiter.wait_until_blocked();
    // It wakes, and reads what was written before the lock was released.
    assert_eq!(holder.ask("write 0 behind"), "ok");
    let released = Instant::now();
    assert_eq!(holder.ask("lockf un 0 10"), "ok");
    assert_eq!(waiter.answer(), "ok");
    let took = released.elapsed();
    assert!(took < FREE_LIMIT, "it woke after {took:?}");
    assert_eq!(waiter.ask("read 0 6"), "behind");
    println!("a waiting process of another mount got the lock {took:?} after its release");

    // A signal ends the wait, and the lock is not taken later.
    holder.tell("lockf ex+ 5 10");
    holder.wait_until_blocked();
    holder.kill();
    assert_eq!(waiter.ask("lockf un 0 0"), "ok");
    assert_eq!(waiter.ask("test ex 0 0"), "un");

    // All wait at one mount, whose other requests are served, the unlock too.
    let held = File::options()
        .read(true)
        .open(&queue)
        .expect("it is there");
    flock(&held, FlockOperation::LockExclusive).expect("it is free");
    let waiting = (0..COUNT).map(|_| {
        let queue = queue.clone();
        std::thread::spawn(move || {
            let file = File::open(queue).expect("it is there");
            flock(&file, FlockOperation::LockExclusive)
        })
    });
    let waiting: Vec<_> = waiting.collect();
    let tasks = format!("/proc/{}/task", std::process::id());
    wait_for("all threads wait", || {
        let tasks = fs::read_dir(&tasks).expect("this process has threads");
        let calls =
            tasks.map(|task| task.and_then(|task| fs::read_to_string(task.path().join("syscall"))));
        let in_flock = |call: &String| call.starts_with("73 ") || call.starts_with("32 ");
        calls.flatten().filter(in_flock).count() >= COUNT
    });
    fs::write(other.path("g"), b"served").expect("a new file");
    assert_eq!(fs::read(one.path("g")).expect("it is there"), b"served");
    flock(&held, FlockOperation::Unlock).expect("it is served");
    for waiting in waiting {
        waiting
            .join()
            .expect("it has ended")
            .expect("it got the lock");
    }
}

/// Before it has a lock, the kernel must forget pages that are being read: with a place for reads only after the locks,
/// neither would end.
#[test]
fn a_crowd_that_locks_and_reads_at_once_is_served() {
    /// More than a mount's requests in flight.
    const COUNT: usize = 320;
    const ROUNDS: usize = 2;
    let Some((_cluster, [mount])) = mounts() else {
        return;
    };
    let path = mount.path("f");
    fs::write(&path, [7; 8_192]).expect("a new file");
    let (done, served) = mpsc::channel();
    for _ in 0..COUNT {
        let (path, done) = (path.clone(), done.clone());
        std::thread::spawn(move || {
            let file = File::open(path).expect("it is there");
            for _ in 0..ROUNDS {
                flock(&file, FlockOperation::NonBlockingLockShared).expect("all share it");
                let mut bytes = [0; 4_096];
                file.read_exact_at(&mut bytes, 4_096).expect("it is there");
                assert!(bytes.iter().all(|&byte| byte == 7));
                flock(&file, FlockOperation::Unlock).expect("it is served");
            }
            done.send(()).expect("the test waits");
        });
    }
    drop(done);
    for count in 0..COUNT {
        let end = served.recv_timeout(Duration::from_mins(4));
        assert_eq!(end, Ok(()), "{count} of {COUNT} threads have ended");
    }
}

/// A close that the coordinator could not hear is told to it later. By then its owner may have locked anew.
#[test]
fn a_close_in_an_outage_ends_no_later_lock() {
    let Some((cluster, [one, other])) = mounts() else {
        return;
    };
    let open = |name| {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        file.open(one.path(name)).expect("it can be opened")
    };
    let [first, second, only] = ["f", "f", "g"].map(open);
    for file in [&first, &only] {
        fcntl_lock(file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
    }
    cluster.run(&["chaos", "kill-coordinator"]);
    // Both closes return before the coordinator is back, and their unlocks are owed.
    std::thread::scope(|scope| {
        for file in [first, only] {
            scope.spawn(move || drop(file));
        }
    });
    cluster.up();
    // This is the same owner: a process.
    wait_for("the process locks the file anew", || {
        fcntl_lock(&second, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    let [mut rival, mut heir] = ["f", "g"].map(|name| Locker::open(&other.path(name)));
    // One round of what is owed frees this one, and must not free the other.
    wait_for("the owed unlock is made", || {
        heir.ask("lockf ex 0 0") == "ok"
    });
    assert_eq!(rival.ask("lockf ex 0 0"), "EAGAIN");
    second.write_all_at(b"mine", 0).expect("the lock is held");
    assert_eq!(rival.ask("lockf ex 0 0"), "EAGAIN");
    drop(second);
    wait_for("the second close frees the file", || {
        rival.ask("lockf ex 0 0") == "ok"
    });
}

#[test]
fn locks_outlive_the_coordinator_and_not_their_mount() {
    let Some((cluster, [dead, stopped, live])) = mounts() else {
        return;
    };
    let mut killed = Locker::open(&dead.path("k"));
    let mut silent = Locker::open(&stopped.path("s"));
    assert_eq!(killed.ask("flock ex"), "ok");
    assert_eq!(silent.ask("lockf ex 0 0"), "ok");
    assert_eq!(silent.ask("write 0 first"), "ok");
    let mut others = [Locker::open(&live.path("k")), Locker::open(&live.path("s"))];
    cluster.run(&["chaos", "kill-coordinator"]);
    cluster.up();
    assert_eq!(others[0].ask("flock ex"), "EAGAIN");
    assert_eq!(others[1].ask("lockf sh 3 1"), "EAGAIN");
    assert_eq!(silent.ask("write 0 again"), "ok");

    dead.signal(Signal::KILL);
    stopped.signal(Signal::STOP);
    let begun = Instant::now();
    others[0].tell("flock ex+");
    others[1].tell("lockf ex+ 0 0");
    for other in &mut others {
        assert_eq!(other.answer(), "ok");
    }
    let took = begun.elapsed();
    println!("the locks of a killed and of a stopped mount were free after {took:?}");
    assert!(took < FREE_LIMIT, "{took:?}");
    assert_eq!(others[1].ask("read 0 5"), "again");
    assert_eq!(others[1].ask("write 0 other"), "ok");

    // The mount that was silent learns of its loss before it writes, and works again after the file is opened anew.
    stopped.signal(Signal::CONT);
    assert_eq!(silent.ask("write 0 stale"), "EIO");
    assert_eq!(silent.ask("read 0 5"), "EIO");
    assert_eq!(silent.ask("lockf sh 0 0"), "EIO");
    assert_eq!(silent.ask("reopen"), "EIO", "the close tells it too");
    assert_eq!(silent.ask("read 0 5"), "other");
    assert_eq!(silent.ask("lockf sh 0 0"), "EAGAIN");
    drop(others);
    wait_for("it is locked anew", || silent.ask("lockf ex 0 0") == "ok");
    assert_eq!(silent.ask("write 0 later"), "ok");
}
