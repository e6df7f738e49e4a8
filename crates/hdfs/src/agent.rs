//! The agent beside a `DataNode`: it accepts connections of its plugin and of other agents.

use crate::frame::{Kind, accept};
use crate::helper::help;
use crate::message::{Help, Join, Tally, Task, end_body, message_of};
use crate::requestor::rebuild;
use crate::runs::Runs;
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
/// Wait when the system has no descriptors left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);

/// An agent.
#[derive(Clone)]
pub struct Agent {
    runs: Arc<Runs>,
}

impl Agent {
    /// An agent that asks the plugin at `plugin` (`host:port`) for blocks.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new(plugin: String) -> io::Result<Self> {
        let runs = Runs::new(plugin)?;
        Ok(Self { runs })
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
                _ => Err(reading.error("its first message must be a request")),
            }
        };
        if let Err(error) = conversed.await {
            tracing::debug!("{error}");
        }
    }
}
