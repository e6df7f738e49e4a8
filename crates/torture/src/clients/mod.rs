//! The load: clients that write and read the same bytes, and store, list, read and remove files.

mod cached;
mod direct;
mod load;
mod names;
mod sole;
mod verify;
mod worker;

pub(crate) use load::{Load, SharedFile, Signals};
pub(crate) use names::Kept;
pub(crate) use verify::read_all;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use worker::Worker;

/// Clients that run in a thread of their own.
#[derive(Debug)]
pub(crate) struct Working {
    thread: JoinHandle<Vec<Kept>>,
    signals: Arc<Signals>,
}

impl Working {
    /// Starts the clients.
    ///
    /// # Errors
    /// A sentence of the operating system.
    pub(crate) fn start(load: Load) -> std::io::Result<Self> {
        let signals = Arc::clone(&load.signals);
        let thread = std::thread::Builder::new().name("clients".to_owned());
        let thread = thread.spawn(move || run(&load))?;
        Ok(Self { thread, signals })
    }

    /// Stops the clients, waits for their operations in flight, and returns the files that exist.
    pub(crate) fn stop(self) -> Vec<Kept> {
        self.signals.is_over.store(true, Ordering::Release);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn run(load: &Load) -> Vec<Kept> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a run-time for clients");
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in 1..=3 {
            tasks.push(tokio::spawn(direct::run(Worker::new(load, number))));
        }
        for number in 4..=5 {
            tasks.push(tokio::spawn(cached::run(Worker::new(load, number))));
        }
        for number in 7..=8 {
            tasks.push(tokio::spawn(sole::run(Worker::new(load, number))));
        }
        let names = tokio::spawn(names::run(Worker::new(load, 6)));
        for task in tasks {
            task.await.expect("clients do not panic");
        }
        names.await.expect("clients do not panic")
    })
}
