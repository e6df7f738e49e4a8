//! Changes that other clients have made to names and inodes, for gateways that keep what they have looked up.

use crate::client::Client;
use crate::error::ClientError;
use gabion_meta::Changed;
use gabion_protocol::message::{CHANGES_WAIT_MS, ChangePlace, ask};
use gabion_protocol::ports::Ask as _;

/// Time limit of a connection to the coordinator.
const REACH_MS: u64 = 2_000;
/// Time limit of an answer, which may come late if there are no changes.
const DEADLINE_MS: u64 = CHANGES_WAIT_MS + 2_000;
/// Names and inodes that other clients have changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OthersChanges {
    /// These, in their order; none if there were none for some seconds. Some may be this client's own.
    These(Vec<Changed>),
    /// Anything: this is the first question, the coordinator has started anew, or too many changes were made since the
    /// question before.
    Any,
}

/// The changes of other clients from now on.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    place: ChangePlace,
}

impl Client {
    /// Follows the changes of names and inodes that other clients make. Updates in place change neither.
    pub fn follow(&self) -> Follower {
        Follower {
            client: self.clone(),
            place: ChangePlace::default(),
        }
    }

    /// A number for a change, by which the coordinator knows a repetition of the request.
    pub(crate) fn draw_change(&self) -> u64 {
        let number = self.ports().random();
        self.shared.own_changes.note(number);
        number
    }
}

impl Follower {
    /// Waits for the next changes, for some seconds. It asks once: if the coordinator is away, the caller pauses.
    ///
    /// # Errors
    /// [`ClientError::NoCoordinator`]; [`ClientError::Refused`] when too many clients follow.
    pub async fn next(&mut self) -> Result<OthersChanges, ClientError> {
        let ports = self.client.ports();
        let reached = ports.reach_coordinator(REACH_MS).await;
        reached.map_err(|error| ClientError::NoCoordinator(error.to_string()))?;
        let asked = ask::Changes(self.place);
        let page = ports.ask_coordinator(asked, DEADLINE_MS).await?;
        self.place = page.place;
        Ok(match page.changes {
            Some(changes) => {
                OthersChanges::These(self.client.shared.own_changes.leave_out(changes))
            }
            None => OthersChanges::Any,
        })
    }
}
