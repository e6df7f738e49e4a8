//! A `PostgreSQL` server of Debian's package, in a directory of its own and on a socket of its own.
//!
//! The server refuses to run as root, so root starts it as the package's user. Other users cannot reach the socket.

mod relay;

pub use relay::{Cut, Relay};

use crate::error::TestbedError;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory of the programs of Debian's packages, by version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that Debian's package makes.
const USER: &str = "postgres";
/// The superuser of the server's databases.
const ROLE: &str = "gabion";

/// The way in which a server ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Sessions are ended, and what is in memory is written.
    Fast,
    /// As a crash: the next start recovers.
    Immediate,
}

/// The failures that a server's commits outlive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Endurance {
    /// A loss of power.
    Power,
    /// The end of the server's processes, whatever way: enough for tests, and much faster.
    Processes,
}

/// A server and its data.
#[derive(Debug)]
pub struct LocalDatabase {
    endurance: Endurance,
    binaries: PathBuf,
    data: PathBuf,
    socket: PathBuf,
    /// The user that runs it, if that is another one.
    owner: Option<(u32, u32)>,
}

impl Drop for LocalDatabase {
    fn drop(&mut self) {
        // If it does not stop, its directory shows why.
        let _ = self.stop(Stop::Immediate);
    }
}

impl LocalDatabase {
    /// Whether a server is installed.
    pub fn is_installed() -> bool {
        binaries().is_some()
    }

    /// Makes a server in an empty directory and starts it. All users that may search the directory's parents may not
    /// read what is in it.
    ///
    /// # Errors
    /// If no server is installed, or it does not start.
    pub fn create(directory: &Path, endurance: Endurance) -> Result<Self, TestbedError> {
        let binaries = binaries().ok_or_else(|| TestbedError::Cannot {
            operation: "find PostgreSQL's server; install the package postgresql".to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let owner = if rustix::process::geteuid().is_root() {
            Some(ids_of(USER)?)
        } else {
            None
        };
        let [data, socket] = ["data", "socket"].map(|name| directory.join(name));
        for path in [&data, &socket] {
            let made = fs::create_dir(path);
            made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)))
                .and_then(|()| owner.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid))))
                .map_err(cannot(&format!("make {}", path.display())))?;
        }
        if owner.is_some() {
            fs::set_permissions(directory, Permissions::from_mode(0o711))
                .map_err(cannot(&format!("open {}", directory.display())))?;
        }
        let this = Self {
            endurance,
            binaries,
            data,
            socket,
            owner,
        };
        let role = format!("--username={ROLE}");
        let data = format!("--pgdata={}", this.data.display());
        this.run(
            "initdb",
            &[
                &data,
                &role,
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
            ],
        )?;
        this.start()?;
        Ok(this)
    }

    /// Starts the server again, and waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(&self) -> Result<(), TestbedError> {
        let data = self.data.display().to_string();
        let log = self.data.join("server.log").display().to_string();
        let options = format!(
            "-k {} -c listen_addresses= -c shared_buffers=64MB -c fsync={}",
            self.socket.display(),
            match self.endurance {
                Endurance::Power => "on",
                Endurance::Processes => "off",
            }
        );
        self.run(
            "pg_ctl",
            &[
                "start", "-D", &data, "-w", "-t", "60", "-l", &log, "-o", &options,
            ],
        )
    }

    /// Stops the server, and waits until it has ended.
    ///
    /// # Errors
    /// If it does not stop, or does not run.
    pub fn stop(&self, how: Stop) -> Result<(), TestbedError> {
        let data = self.data.display().to_string();
        let mode = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        self.run(
            "pg_ctl",
            &["stop", "-D", &data, "-w", "-t", "60", "-m", mode],
        )
    }

    /// Makes an empty database.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create_database(&self, name: &str) -> Result<(), TestbedError> {
        let host = format!("--host={}", self.socket.display());
        let role = format!("--username={ROLE}");
        self.run("createdb", &[&host, &role, name])
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        url(database, &self.socket)
    }

    /// The directory of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs statements in a database, as its superuser.
    ///
    /// # Errors
    /// If one of them fails.
    pub fn execute(&self, database: &str, statements: &str) -> Result<(), TestbedError> {
        let host = format!("--host={}", self.socket.display());
        let role = format!("--username={ROLE}");
        let strict = "--set=ON_ERROR_STOP=1";
        let command = format!("--command={statements}");
        self.run(
            "psql",
            &["--no-psqlrc", strict, &host, &role, &command, database],
        )
    }

    /// A program of the package, with the user that may run it, not started yet.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.join(name));
        command.current_dir("/").stdin(Stdio::null());
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), TestbedError> {
        let mut command = self.program(program);
        command.args(arguments);
        // The server inherits these: a pipe would stay open as long as it runs.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let done = command
            .status()
            .map_err(cannot(&format!("run {program}")))?;
        if done.success() {
            return Ok(());
        }
        let log = fs::read_to_string(self.data.join("server.log")).unwrap_or_default();
        let said = log.lines().last().unwrap_or("it gave no reason");
        Err(cannot(&format!("run {program} {arguments:?}"))(
            io::Error::other(format!("{done}; {said}")),
        ))
    }
}

/// The address of a database behind a socket.
fn url(database: &str, socket: &Path) -> String {
    format!(
        "postgres:///{database}?host={}&user={ROLE}",
        socket.display()
    )
}

/// The programs of the newest version that is installed.
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?;
    let versions = versions.filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        let binaries = path.join("bin");
        binaries
            .join("initdb")
            .exists()
            .then_some((version, binaries))
    });
    versions.max().map(|(_, binaries)| binaries)
}

/// The ids of a user and its group.
fn ids_of(user: &str) -> Result<(u32, u32), TestbedError> {
    let users = fs::read_to_string("/etc/passwd").map_err(cannot("read the users"))?;
    let ids = users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_it = fields.first() == Some(&user);
        let id = |at: usize| fields.get(at)?.parse().ok();
        is_it.then(|| Some((id(2)?, id(3)?))).flatten()
    });
    ids.ok_or_else(|| cannot(&format!("find the user {user}"))(io::ErrorKind::NotFound.into()))
}

fn cannot(operation: &str) -> impl FnOnce(io::Error) -> TestbedError {
    let operation = operation.to_owned();
    move |source| TestbedError::Cannot { operation, source }
}
