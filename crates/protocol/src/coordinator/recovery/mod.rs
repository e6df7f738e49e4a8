//! A coordinator of an emergency: its metadata are an earlier copy, and nodes know newer ones. It serves what can
//! still be read, and changes nothing.
//!
//! To a node it is like a client with an old layout: nodes do not follow it, get no lease from it, and refuse an old
//! layout of a stripe. Before it shows a client a part of a file, it asks the nodes of each stripe whether the layout
//! still holds. The client then reads by a quorum, which proves the same again (docs/update-protocol.md, "Reading
//! without the coordinator"). So a byte that is read from a stripe is as new as the last acknowledged write. Names,
//! sizes, holes and inline bytes are as old as the copy.

mod findings;
mod judge;
mod survey;

use super::core::{Answer, Core};
use super::files::directories::read_directory;
use super::files::inodes::{stat_inode, user_attributes};
use super::files::lookups::{first_window, list, window_of};
use super::options::CoordinatorOptions;
use super::pool_facts::Pools;
use super::tickets::grants_of;
use crate::message::{
    Cause, CoordinatorCall as _, CoordinatorReply, CoordinatorRequest as Ask, Denial, FileLayout,
    RECOVERING, StripeCounts, TicketKeys, ask,
};
use crate::ports::Ports;
use crate::ticket::{Operations, ReadyKey, Ticket};
use gabion_layout::StripeRecord;
use gabion_meta::{KeyValue, Meta, MetaError, PutId};
use std::sync::Arc;
use survey::Survey;

/// Time in which nodes tell their chunks for a look-up; the client waits not much longer.
const HELD_LIMIT_MS: u64 = 4_000;
/// Serves the files of an earlier copy of the metadata whose stripes still hold.
pub struct Recovery<K> {
    core: Arc<Core<K>>,
    pools: Arc<Pools>,
    survey: Survey<K>,
}

impl<K: KeyValue + Send + Sync + 'static> Recovery<K> {
    /// A recovery of the cluster in `meta`, which was opened by [`Meta::open_to_read`]. Waits for the disk.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn new(
        meta: Meta<K>,
        ports: Arc<dyn Ports>,
        options: CoordinatorOptions,
    ) -> Result<Arc<Self>, MetaError> {
        let core = Arc::new(Core::new(meta, ports, options)?);
        let survey = Survey::new(&core)?;
        Ok(Arc::new(Self {
            core,
            pools: Arc::default(),
            survey,
        }))
    }

    /// Answers a request.
    pub async fn handle(&self, request: Ask) -> CoordinatorReply {
        let answer = self.answer(request).await;
        answer.unwrap_or_else(CoordinatorReply::from)
    }

    /// Waits until the metadata store has failed; returns the error.
    pub async fn broken(&self) -> MetaError {
        self.core.broken().await
    }

    /// Requests that are not listed change something, or rely on a change.
    async fn answer(&self, request: Ask) -> Answer<CoordinatorReply> {
        match request {
            Ask::Lookup(ask::Lookup { name }) => self.lookup(name).await,
            Ask::LookupFile(asked) => self.lookup_file(asked).await,
            Ask::Nodes => Ok(CoordinatorReply::Nodes(self.survey.fleet().await?.nodes)),
            Ask::Recovery(place) => {
                let page = findings::page_at(&self.core, &self.pools, &self.survey, place);
                Ok(CoordinatorReply::Recovery(Box::new(page.await?)))
            }
            Ask::Pools
            | Ask::List(_)
            | Ask::ReadDirectory(_)
            | Ask::LookupInode(_)
            | Ask::StatInode(_)
            | Ask::UserAttributes(_)
            | Ask::DirectoryQuota(_)
            | Ask::ReadLink(_) => self.read_names(request).await,
            // A client's hint; the nodes are asked anyway.
            Ask::Suspect(_) => Ok(CoordinatorReply::Done),
            Ask::BeginJoin(_)
            | Ask::TellChunks(_)
            | Ask::SetAside(_)
            | Ask::EndJoin(_)
            | Ask::EndMembership(_)
            | Ask::StoreFailed(_)
            | Ask::Heartbeat(_)
            | Ask::Acquire(_)
            | Ask::Settling(_)
            | Ask::NoteDegraded(_)
            | Ask::NotePhase(_)
            | Ask::Group(_)
            | Ask::ReportDamage(_)
            | Ask::Reserves(_)
            | Ask::Token(_) => Ok(CoordinatorReply::Busy(of_node())),
            // Nothing is in doubt about a question that this coordinator cannot answer.
            Ask::Status
            | Ask::Usage
            | Ask::RecentUsage
            | Ask::Space
            | Ask::Events(_)
            | Ask::Changes(_)
            | Ask::Links => Err(refused(Cause::Unsupported).into()),
            // An earlier coordinator may have made the change, and its answer may be lost.
            _ => Err(refused(Cause::Recovers).into()),
        }
    }

    /// Answers a request about names and attributes, as of the copy.
    async fn read_names(&self, request: Ask) -> Answer<CoordinatorReply> {
        let read = move |meta: &Meta<K>| {
            Ok(match &request {
                Ask::List(page) => ask::List::answer_of(list(meta, page)?),
                Ask::ReadDirectory(page) => {
                    ask::ReadDirectory::answer_of(read_directory(meta, page)?)
                }
                Ask::LookupInode(asked) => {
                    ask::LookupInode::answer_of(Box::new(meta.inode(asked.at.clone())?))
                }
                &Ask::StatInode(inode) => ask::StatInode::answer_of(stat_inode(meta, inode)?),
                &Ask::UserAttributes(inode) => {
                    ask::UserAttributes::answer_of(user_attributes(meta, inode)?)
                }
                &Ask::DirectoryQuota(inode) => {
                    ask::DirectoryQuota::answer_of(meta.directory_quota(inode)?.map(Box::new))
                }
                &Ask::ReadLink(file) => ask::ReadLink::answer_of(meta.target(file)?),
                _ => ask::Pools::answer_of(meta.pools()?),
            })
        };
        Ok(self.core.with_meta(read).await?)
    }

    /// The file with a name, and its first window.
    async fn lookup(&self, name: String) -> Answer<CoordinatorReply> {
        let (pools, count) = (
            Arc::clone(&self.pools),
            self.core.options.window_stripe_count,
        );
        let look = move |meta: &Meta<K>| first_window(meta, &pools, &name, count);
        self.usable(self.core.with_meta(look).await?).await
    }

    /// The file that a put made, and the window that has the byte at an offset.
    async fn lookup_file(&self, asked: ask::LookupFile) -> Answer<CoordinatorReply> {
        let ask::LookupFile { file, offset } = asked;
        let (pools, count) = (
            Arc::clone(&self.pools),
            self.core.options.window_stripe_count,
        );
        let look = move |meta: &Meta<K>| {
            let file = meta.file_of(file)?;
            window_of(meta, &pools, (&file, offset), count)
        };
        match self.core.with_meta(look).await {
            Ok(layout) => self.usable(layout).await,
            Err(MetaError::FileGone(_)) => Ok(CoordinatorReply::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// A layout whose stripes all hold, with the nodes, and with tickets that permit nothing but reads.
    async fn usable(&self, layout: FileLayout) -> Answer<CoordinatorReply> {
        let fleet = self.survey.fleet().await?;
        let stripes: Vec<&StripeRecord> = layout.stripes.iter().collect();
        let (told, _) = self.survey.held(&fleet, &stripes, HELD_LIMIT_MS).await;
        let counts = findings::count(&layout, &told);
        if counts.not_held_count() > 0 {
            let sentence = not_held(&layout.file.name, counts);
            return Err(Denial::new(Cause::Failure, sentence).into());
        }
        let tickets = reading_tickets(layout.file.put, &layout.stripes, &fleet.keys);
        if tickets.is_empty() && !layout.stripes.is_empty() {
            let sentence = "no node that answers knows a key of tickets, and nothing can be read without one; wait until more \
                nodes answer";
            return Err(Denial::new(Cause::Failure, sentence).into());
        }
        Ok(CoordinatorReply::File(Box::new(FileLayout {
            tickets,
            nodes: fleet.nodes,
            ..layout
        })))
    }
}

/// Tickets to read a file's stripes, by a key that the nodes know. The nodes' time may be far ahead of the copy's, and
/// goes on while no coordinator leads. So these expire with their key alone.
fn reading_tickets(put: PutId, stripes: &[StripeRecord], known: &TicketKeys) -> Vec<Ticket> {
    // A node that missed the newest key has the one before.
    let Some(key) = known.keys.first().map(ReadyKey::new) else {
        return Vec::new();
    };
    let grants = grants_of(put, stripes, Operations::READ);
    let tickets = grants.into_iter().map(|grant| key.sign(grant, u64::MAX));
    tickets.collect()
}

/// Why a part of a file is not served.
fn not_held(name: &str, counts: StripeCounts) -> String {
    let stripe_count = counts.held_count + counts.not_held_count();
    let is_silence = counts.unknown_count == counts.not_held_count();
    let wait = if is_silence {
        "wait until more nodes answer; "
    } else {
        ""
    };
    format!(
        "'{name}' is not served, because the nodes do not confirm all {stripe_count} stripes of this part (newer on the nodes: \
        {}, missing: {}, unknown: {}); {}'gabion metadata recovery' lists all such files",
        counts.newer_count, counts.missing_count, counts.unknown_count, wait
    )
}

/// The answer to a node: it goes on without this coordinator, and waits for another one.
fn of_node() -> Denial {
    let sentence =
        "this coordinator only reads files by an earlier copy of the metadata, and takes no nodes";
    Denial::new(Cause::NotLeading, sentence)
}

/// The answer to a request that this coordinator does not serve.
fn refused(cause: Cause) -> Denial {
    Denial::new(cause, RECOVERING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::TicketFault;
    use crate::ticket::{Claim, Keyring};
    use gabion_layout::{Generation, NodeId, PoolId, StripeId};
    use gabion_meta::{Secret, TicketKey};

    #[test]
    fn tickets_permit_reads_alone_however_long_the_coordinator_has_been_away() {
        let key = |number: u32| TicketKey {
            number,
            secret: Secret([number as u8; 32]),
            drawn_ms: 0,
        };
        let told = TicketKeys {
            now_ms: 10_000,
            grace_ms: 5_000,
            keys: vec![key(7), key(8)],
        };
        let stripe = StripeRecord {
            id: StripeId(4),
            pool: PoolId(1),
            chunk_bytes: 4096,
            generation: Generation(2),
            nodes: vec![NodeId(1)],
            stale: Vec::new(),
        };
        let tickets = reading_tickets(PutId(3), &[stripe], &told);
        assert_eq!(tickets[0].key, 7, "each node has the older key");
        let mut keyring = Keyring::default();
        keyring.learn(told, 500);
        let year_ms = 365 * 24 * 3_600_000;
        let check = |operation| {
            let claim = Claim {
                operation,
                stripe: StripeId(4),
                generation: Some(Generation(2)),
                file: None,
                ticket: tickets.first().copied(),
            };
            keyring.check(&claim, year_ms, true)
        };
        assert_eq!(check(Operations::READ), Ok(()));
        for other in [Operations::UPDATE, Operations::INSTALL] {
            assert_eq!(check(other), Err(TicketFault::OtherOperation));
        }
        assert_eq!(
            reading_tickets(PutId(3), &[], &TicketKeys::default()),
            Vec::new()
        );
    }
}
