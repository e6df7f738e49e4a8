//! The agent beside a `DataNode`: it accepts connections of its plugin and of other agents.

use crate::error::HdfsError;
use crate::frame::{Frame, Kind, Reading, Writing, accept, connect};
use crate::helper::help;
use crate::message::{DEADLINE_MAX, Help, Join, Tally, Task, end_body, message_of};
use crate::requestor::rebuild;
use crate::runs::Runs;
use crate::schedule::{Lost, schedule_body};
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Most connections at a time; further ones wait.
const CONNECTION_COUNT_MAX: usize = 1024;
/// Time limit of a new connection's first message.
const FIRST_FRAME_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of an order: that of a task, and as long again for Hadoop's own code after it.
const ORDER_TIMEOUT: Duration = Duration::from_secs(2 * DEADLINE_MAX.as_secs());
/// Schedules that are planned at the same time. Further ones wait: each occupies a processor, and every caller of the
/// port can ask for one.
const PLANNING_COUNT_MAX: usize = 1;
/// Wait when the system has no descriptors left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// An agent.
#[derive(Clone)]
pub struct Agent {
    runs: Arc<Runs>,
    /// A permit for each schedule that is being planned.
    pub(crate) planning: Arc<Semaphore>,
}

impl Agent {
    /// An agent that asks the plugin at `plugin` (`host:port`) for blocks.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(plugin: String) -> io::Result<Self> {
        let runs = Runs::new(plugin)?;
        let planning = Arc::new(Semaphore::new(PLANNING_COUNT_MAX));
        Ok(Self { runs, planning })
    }

    /// Serves connections until the future is dropped or the listener fails.
    pub async fn serve(self, listener: TcpListener) -> io::Error {
        let places = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return io::Error::other("the agent is closing");
            };
            match listener.accept().await {
                Ok((stream, address)) => {
                    let agent = self.clone();
                    tokio::spawn(async move {
                        agent.converse(stream, address).await;
                        drop(place);
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => return error,
                // The peer has gone again, or descriptors are short.
                Err(_) => tokio::time::sleep(SHORTAGE_PAUSE).await,
            }
        }
    }

    async fn converse(&self, stream: TcpStream, address: SocketAddr) {
        let conversed = async {
            let (mut reading, writing) = accept(stream, address, FIRST_FRAME_TIMEOUT).await?;
            let first = reading.frame_within(FIRST_FRAME_TIMEOUT).await?;
            match first.kind {
                Kind::Rebuild => match Task::read(first.body) {
                    Ok(task) => rebuild(&self.runs, &task, reading, writing).await,
                    Err(error) => {
                        let body = end_body(&Tally::default(), &error.to_string());
                        writing.send(Kind::Failed, vec![body.into()]).await
                    }
                },
                Kind::Help => {
                    let request: Help = message_of(&first.body)?;
                    help(&self.runs, request, reading, writing).await
                }
                Kind::Join => {
                    let join: Join = message_of(&first.body)?;
                    self.runs.join(join.run, (join.from, reading, writing));
                    Ok(())
                }
                Kind::Schedule => {
                    let permits = Arc::clone(&self.planning);
                    schedule(permits, first.body, &mut reading, &writing).await
                }
                Kind::Order => {
                    let order = first.body;
                    pass_on(self.runs.plugin(), order, &mut reading, &writing).await
                }
                _ => Err(reading.error("its first message must be a request")),
            }
        };
        if let Err(error) = conversed.await {
            tracing::debug!("{error}");
        }
    }
}

/// Answers with the schedule of a recovery, when it is this request's turn. An asker that leaves before loses its turn.
async fn schedule(
    permits: Arc<Semaphore>,
    body: Bytes,
    asker: &mut Reading,
    writing: &Writing,
) -> Result<(), HdfsError> {
    let permit = tokio::select! {
        permit = permits.acquire_owned() => permit,
        ended = asker.frame() => return Err(left(asker, ended)),
    };
    let planned = tokio::task::spawn_blocking(move || {
        // Planning cannot be interrupted, so the permit lasts until its end.
        let _permit = permit;
        let schedule = Lost::read(body)?.schedule()?;
        Ok::<_, HdfsError>(schedule_body(&schedule))
    });
    let planned = planned
        .await
        .map_err(|error| HdfsError::Policy(error.to_string()));
    match planned.and_then(|planned| planned) {
        Ok(body) => writing.send(Kind::Scheduled, vec![body.into()]).await,
        Err(error) => refuse(writing, error).await,
    }
}

/// Passes an order on to the plugin, and the plugin's answer back. An order that the plugin has goes on if its sender
/// leaves.
async fn pass_on(
    plugin: &str,
    order: Bytes,
    sender: &mut Reading,
    writing: &Writing,
) -> Result<(), HdfsError> {
    let answered = async {
        let (mut answers, orders) = connect(plugin).await?;
        orders.send(Kind::Order, vec![order]).await?;
        answers.frame_within(ORDER_TIMEOUT).await
    };
    let answer = tokio::select! {
        answer = answered => answer,
        ended = sender.frame() => return Err(left(sender, ended)),
    };
    match answer {
        Ok(answer) if matches!(answer.kind, Kind::Done | Kind::Refused) => {
            writing.send(answer.kind, vec![answer.body]).await
        }
        Ok(_) => refuse(writing, "the plugin's answer does not fit the order").await,
        Err(error) => refuse(writing, error).await,
    }
}

/// Why a peer gets no answer that sends a second request, or has ended its connection.
fn left(peer: &Reading, ended: Result<Frame, HdfsError>) -> HdfsError {
    let second = || "it has sent a second request".to_owned();
    peer.error(ended.err().map_or_else(second, |error| error.to_string()))
}

async fn refuse(writing: &Writing, reason: impl std::fmt::Display) -> Result<(), HdfsError> {
    let reason = Bytes::from(reason.to_string());
    writing.send(Kind::Refused, vec![reason]).await
}
