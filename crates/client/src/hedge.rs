//! Hedged reads: when a read takes longer than nearly all of its kind did, its bytes are requested
//! again without the nodes that have not delivered, or, where nodes forward them to each other,
//! directly from each. The first complete answer counts, and the other request ends.
//!
//! A budget ([`crate::health`]) limits second requests: if all nodes are overloaded, they would add
//! to the load.

use crate::client::Client;
use crate::error::ClientError;
use crate::extent::Extent;
use crate::file::File;
use crate::moment::Version;
use crate::place::Wanted;
use crate::reading::Reading;
use futures::{FutureExt, select_biased};
use gabion_layout::{ChunkIndex, NodeId};
use gabion_protocol::message::ask;
use gabion_protocol::ports::Ask as _;
use std::pin::pin;
use std::sync::Arc;

/// Time limit of reporting a suspicion to the coordinator.
const SUSPECT_DEADLINE_MS: u64 = 2_000;

impl Client {
    /// Marks a node that has failed a read to be asked last for some time, and reports it to the
    /// coordinator. Does not wait for that.
    pub(crate) fn suspect(&self, node: NodeId) {
        let now_ms = self.ports().now_ms();
        if node == NodeId::CLIENT || !self.shared.health.note_failed(node, now_ms) {
            return;
        }
        let ports = self.ports();
        let request = ask::Suspect { node };
        let told = ports.ask_coordinator(request, SUSPECT_DEADLINE_MS);
        ports.spawn(told.map(|_| ()).boxed());
    }
}

impl File {
    /// Reads a piece of one stripe into its place; none if the file's stripes now have other borders.
    pub(crate) async fn read_within(
        &self,
        wanted: &Wanted,
    ) -> Result<Option<Version>, ClientError> {
        let health = &self.client.shared.health;
        let began_ms = self.client.ports().now_ms();
        let read = self.read_hedged(wanted).await;
        if let Ok(Some(_)) = read {
            let took_ms = self.client.ports().now_ms() - began_ms;
            health.note_read(wanted.at_once_bytes, took_ms);
        }
        read
    }

    async fn read_hedged(&self, wanted: &Wanted) -> Result<Option<Version>, ClientError> {
        let (health, extent) = (&self.client.shared.health, wanted.extent);
        let mut reading = Reading::default();
        let delivered = Arc::clone(&reading.delivered);
        let mut first = pin!(self.read_with(wanted, &mut reading).fuse());
        let hedge_after_ms = health.hedge_after_ms(wanted.at_once_bytes);
        select_biased! {
            read = first => return read,
            () = self.client.ports().sleep_ms(hedge_after_ms).fuse() => {}
        }
        let slow = delivered.awaited();
        let Some(mut reading) = delivered.second_source().filter(|_| health.take_hedge()) else {
            return first.await;
        };
        let spare = wanted.elsewhere();
        let second = async {
            let read = self.read_with(&spare, &mut reading).await?;
            if read.is_some() {
                // Its success ends the first read, which writes nothing any more.
                wanted.place.write(0, &spare.place.take());
            }
            Ok(read)
        };
        let mut second = pin!(second.fuse());
        select_biased! {
            read = first => match read {
                Ok(read) => Ok(read),
                Err(_) => second.await,
            },
            read = second => match read {
                Ok(read) => {
                    self.suspect_holders(extent, &slow, &delivered.awaited());
                    Ok(read)
                }
                Err(_) => first.await,
            },
        }
    }

    /// Suspects the nodes of chunks that have delivered nothing while others have delivered
    /// everything.
    fn suspect_holders(&self, extent: Extent, slow: &[ChunkIndex], awaited: &[ChunkIndex]) {
        let layout = self.known_layout(extent.in_file());
        let Some(stripe) = layout.as_ref().and_then(|layout| layout.find(&extent)) else {
            return;
        };
        let late = slow.iter().filter(|chunk| awaited.contains(chunk));
        for node in late.filter_map(|&chunk| stripe.node_of(chunk)) {
            self.client.suspect(node);
        }
    }
}
