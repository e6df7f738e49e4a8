//! A relay between clients and a database server, which cuts connections at the moments that matter, and stops passing
//! bytes on.

use super::{LocalDatabase, cannot, url};
use crate::error::TestbedError;
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// `PostgreSQL`'s message that commits a transaction.
const COMMIT: &[u8] = b"COMMIT\0";
/// The name of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";
const BUFFER_BYTES: usize = 64 << 10;

/// The moment at which a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Before the server gets the commit: it is not done.
    BeforeCommit,
    /// When the server has got the commit: it may be done, and may be under way after the cut.
    AtCommit,
    /// When the server has answered: it is done, and the client does not know.
    AfterCommit,
}

/// A relay with a socket of its own.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    directory: PathBuf,
}

#[derive(Debug)]
struct Shared {
    server: PathBuf,
    state: Mutex<State>,
    resumed: Condvar,
    is_over: AtomicBool,
    cut_count: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The cut at the next commits.
    next: Option<Cut>,
    is_paused: bool,
    /// Both sides of each connection.
    open: Vec<UnixStream>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.resume();
        self.cut_all();
        // Wakes the thread that accepts connections.
        drop(UnixStream::connect(self.directory.join(SOCKET)));
    }
}

impl Relay {
    /// Begins to relay from a socket in `directory`, which it makes.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn start(database: &LocalDatabase, directory: &Path) -> Result<Self, TestbedError> {
        let listener = fs::create_dir(directory)
            .and_then(|()| UnixListener::bind(directory.join(SOCKET)))
            .map_err(cannot(&format!("listen in {}", directory.display())))?;
        let shared = Arc::new(Shared {
            server: database.socket().join(SOCKET),
            state: Mutex::default(),
            resumed: Condvar::new(),
            is_over: AtomicBool::new(false),
            cut_count: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Ok(Self {
            shared,
            directory: directory.to_owned(),
        })
    }

    /// The address of a database behind the relay.
    pub fn url(&self, database: &str) -> String {
        url(database, &self.directory)
    }

    /// The directory of its socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Cuts the connection that commits next.
    pub fn cut_next(&self, cut: Cut) {
        self.shared.lock().next = Some(cut);
    }

    /// Returns the number of connections that were cut at a commit.
    pub fn cut_count(&self) -> u64 {
        self.shared.cut_count.load(Ordering::Acquire)
    }

    /// Ends all connections.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Passes no more bytes on, and keeps the connections.
    pub fn pause(&self) {
        self.shared.lock().is_paused = true;
    }

    /// Ends [`Relay::pause`].
    pub fn resume(&self) {
        self.shared.lock().is_paused = false;
        self.shared.resumed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut_all(&self) {
        for stream in std::mem::take(&mut self.lock().open) {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn accept(self: Arc<Self>, listener: &UnixListener) {
        for client in listener.incoming() {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            let Ok(client) = client else {
                continue;
            };
            // A server that is down refuses the client, whose connection ends with this.
            let Ok(server) = UnixStream::connect(&self.server) else {
                continue;
            };
            let (Ok(of_client), Ok(of_server)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            self.lock().open.extend([of_client, of_server]);
            let (Ok(from_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else {
                continue;
            };
            // Set when the server's next answer is that of a commit, which the client does not get.
            let is_cut = Arc::new(AtomicBool::new(false));
            let (up, cut_up) = (Arc::clone(&self), Arc::clone(&is_cut));
            std::thread::spawn(move || up.pass_requests(client, server, &cut_up));
            let down = Arc::clone(&self);
            std::thread::spawn(move || down.pass_answers(from_server, to_client, &is_cut));
        }
    }

    /// Waits while the relay is paused.
    fn until_resumed(&self) {
        let state = self.lock();
        drop(self.resumed.wait_while(state, |state| state.is_paused));
    }

    fn pass_requests(&self, mut client: UnixStream, mut server: UnixStream, is_cut: &AtomicBool) {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            self.until_resumed();
            let bytes = &buffer[..count];
            let commits = bytes.windows(COMMIT.len()).any(|part| part == COMMIT);
            let cut = if commits {
                self.lock().next.take()
            } else {
                None
            };
            if cut.is_some() {
                self.cut_count.fetch_add(1, Ordering::AcqRel);
            }
            if cut == Some(Cut::BeforeCommit) {
                break;
            }
            is_cut.store(cut == Some(Cut::AfterCommit), Ordering::Release);
            if server.write_all(bytes).is_err() || cut == Some(Cut::AtCommit) {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }

    fn pass_answers(&self, mut server: UnixStream, mut client: UnixStream, is_cut: &AtomicBool) {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut answer = Vec::new();
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            self.until_resumed();
            let bytes = &buffer[..count];
            if is_cut.load(Ordering::Acquire) {
                answer.extend_from_slice(bytes);
                // The tag of the server's answer to a commit that is done.
                if answer.windows(COMMIT.len()).any(|part| part == COMMIT) {
                    break;
                }
                continue;
            }
            if client.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}
