//! The audited requests: deletions, renames, and changes of settings or permissions. A request that is missing here
//! does not compile.

use super::record::{AuditedOrder, AuditedPeer};
use crate::events;
use crate::metadata::MetadataStore;
use gabion_meta::{DirectoryId, Inode, RelativePath};
use gabion_protocol::coordinator::Coordinator;
use gabion_protocol::message::{CoordinatorRequest, ask};
use gabion_wire::{Connection, Role};
use std::sync::Arc;

/// An order that a request gives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    operation: &'static str,
    on: Subject,
}

/// The subject of an order.
#[derive(Debug, PartialEq, Eq)]
enum Subject {
    Path(RelativePath),
    Move(RelativePath, RelativePath),
    Named(String),
}

impl Order {
    /// The order of a request, if it is audited; `quota_directory` as for the event of it.
    #[rustfmt::skip]
    pub(crate) fn of(request: &CoordinatorRequest, quota_directory: Option<&str>) -> Option<Self> {
        use CoordinatorRequest as R;
        let order = |operation, on| Some(Self { operation, on });
        let directory = |id| RelativePath::new(id, "");
        match request {
            R::RemoveFile(asked) => order("remove", Subject::Path(asked.at.clone())),
            R::RemoveDirectory(asked) => {
                order("remove_directory", Subject::Path(directory(asked.directory)))
            }
            R::Rename(asked) => {
                order("rename", Subject::Move(asked.from.clone(), asked.to.clone()))
            }
            R::RenameDirectory(asked) => {
                let from = directory(asked.directory);
                order("rename_directory", Subject::Move(from, asked.to.clone()))
            }
            R::ExchangeNames(asked) => {
                let [first, second] = &asked.names;
                order("exchange", Subject::Move(first.at.clone(), second.at.clone()))
            }
            R::SetAttributes(asked) => order("permissions", permissions(asked)?),
            R::OpenExclusive(asked) if asked.takes_over => {
                order("take_over", Subject::Named(format!("file {}", asked.file.0)))
            }
            R::CreatePool(_) | R::SetQuota(_) | R::SetDirectoryQuota(_) | R::OrderRepair(_) | R::RepairNow(_) | R::OrderForm(_) | R::Drain(_) | R::Keep(_)
            | R::Accept(_) => {
                let event = events::order_of(request, quota_directory)?;
                order(event.kind, Subject::Named(event.sentence))
            }
            R::BeginJoin(_) | R::TellChunks(_) | R::SetAside(_) | R::EndJoin(_) | R::Heartbeat(_) | R::EndMembership(_)
            | R::StoreFailed(_) | R::Acquire(_) | R::Settling(_) | R::NoteDegraded(_) | R::NotePhase(_) | R::Group(_)
            | R::CommitPool(_) | R::Suspect(_) | R::ReportDamage(_) | R::Nodes | R::Pools | R::Reserves(_)
            | R::BeginPut(_) | R::ExtendPut(_) | R::PlaceAnew(_) | R::TouchPut(_) | R::CommitPut(_) | R::AbortPut(_)
            | R::Lookup(_) | R::LookupFile(_) | R::List(_) | R::Link(_) | R::Snapshot(_) | R::MakeSymlink(_) | R::ReadLink(_)
            | R::MakeDirectory(_) | R::ReadDirectory(_) | R::LookupInode(_) | R::StatInode(_) | R::DirectoryQuota(_) | R::UserAttributes(_)
            | R::Grow(_) | R::OpenExclusive(_) | R::RenewExclusive(_) | R::CloseExclusive(_) | R::Token(_) | R::Status
            | R::OpenSession | R::RenewSession(_) | R::CloseSession(_) | R::SetLock(_) | R::OpenFile(_) | R::ReportFiles(_)
            | R::Hasten(_) | R::Links | R::ScrubAll | R::WriteInline(_) | R::BeginReplace(_) | R::CommitReplace(_) | R::Ended(_)
            | R::Usage | R::RecentUsage | R::Space | R::Events(_) | R::Changes(_) | R::Recovery(_) => None,
        }
    }

    /// The order as it is recorded.
    pub(crate) async fn record(
        self,
        peer: AuditedPeer,
        coordinator: &Arc<Coordinator<MetadataStore>>,
    ) -> AuditedOrder {
        let (subject, to) = match self.on {
            Subject::Named(name) => (name, None),
            Subject::Path(at) => (path(coordinator, at).await, None),
            Subject::Move(from, to) => {
                let from = path(coordinator, from).await;
                (from, Some(path(coordinator, to).await))
            }
        };
        AuditedOrder {
            peer,
            operation: self.operation.to_owned(),
            subject,
            to,
        }
    }
}

/// A file or directory and its new permissions, if these change.
fn permissions(asked: &ask::SetAttributes) -> Option<Subject> {
    let change = &asked.change;
    let parts = [
        change.mode.map(|mode| format!("mode {mode:04o}")),
        change.owner.map(|owner| format!("owner {owner}")),
        change.group.map(|group| format!("group {group}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let inode = match asked.inode {
        Inode::File(file) => format!("file {}", file.0),
        Inode::Directory(directory) => format!("directory {}", directory.0),
    };
    (!parts.is_empty()).then(|| Subject::Named(format!("{inode}: {}", parts.join(", "))))
}

/// A path from the root on; with the number of the directory in front if that does not exist any more.
async fn path(coordinator: &Arc<Coordinator<MetadataStore>>, at: RelativePath) -> String {
    if at.directory == DirectoryId::ROOT {
        return at.path;
    }
    let known = coordinator.absolute_path(at.clone()).await;
    known.unwrap_or_else(|_| format!("directory {}: {}", at.directory.0, at.path))
}

/// The path of the directory whose quota a request sets; none if it sets none, or if the directory does not exist.
pub(crate) async fn quota_directory(
    coordinator: &Arc<Coordinator<MetadataStore>>,
    request: &CoordinatorRequest,
) -> Option<String> {
    let CoordinatorRequest::SetDirectoryQuota(asked) = request else {
        return None;
    };
    if asked.directory == DirectoryId::ROOT {
        return Some("/".to_owned());
    }
    let at = RelativePath::new(asked.directory, "");
    coordinator.absolute_path(at).await.ok()
}

/// The sender of a connection's requests.
pub(crate) fn peer_of(connection: &Connection) -> AuditedPeer {
    let sender = connection.sender();
    let role = match (sender.role, sender.node) {
        (Role::Client, _) => "client".to_owned(),
        (Role::Operator, _) => "operator".to_owned(),
        (Role::Coordinator, _) => "coordinator".to_owned(),
        (Role::Node, Some(node)) => node.to_string(),
        (Role::Node, None) => "node".to_owned(),
    };
    let serial = connection
        .certified()
        .and_then(|certified| certified.serial);
    AuditedPeer {
        role,
        certificate: serial.map(|serial| serial.to_string()),
        address: connection.remote().map(|address| address.to_string()),
    }
}
