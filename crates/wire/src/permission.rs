//! The table of roles and requests: which process may send what. Every receiving endpoint applies it, with TLS and
//! without.
//!
//! Each request has one row, and a request without a row does not compile. A row names the roles; [`claimed_node`]
//! names the node of whom a request speaks in the first person, which must be the sender. `docs/security.md` has the
//! table.

use gabion_layout::{Epoch, NodeId, Sequence};
use gabion_protocol::message::{CoordinatorRequest, Effect, Flow, NodeRequest, RunPart};
use gabion_protocol::ports::Asker;

use crate::certificate_call::CertificateRequest;
use crate::hello::Hello;
use crate::role::Role;
use crate::trust::Certified;

/// The sender of a request, as the receiver knows it: by its certificate, or without TLS by its own word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// Its role.
    pub role: Role,
    /// Its node id, if it is a node that has one.
    pub node: Option<NodeId>,
    /// Whether it has shown a join token.
    pub is_token: bool,
    /// Whether its certificate says all this.
    pub is_proven: bool,
}

impl Sender {
    pub(crate) fn new(hello: &Hello, certified: Option<&Certified>) -> Self {
        match certified {
            Some(Certified { name, .. }) => Self {
                role: name.role,
                node: name.node,
                is_token: name.is_token,
                is_proven: true,
            },
            None => Self {
                role: hello.role,
                node: hello.identity.node,
                is_token: false,
                is_proven: false,
            },
        }
    }

    /// Returns the sender's relation to a node: whether its requests need tickets.
    pub fn asker(&self) -> Asker {
        if self.column() == NODE || self.column() == COORDINATOR {
            Asker::Member
        } else {
            Asker::User
        }
    }

    /// Whether it is a client or an operator.
    pub(crate) fn is_user(&self) -> bool {
        self.column() == CLIENT || self.column() == OPERATOR
    }

    /// Its column in the table.
    fn column(&self) -> Roles {
        if self.is_token {
            return TOKEN;
        }
        match self.role {
            Role::Client => CLIENT,
            Role::Operator => OPERATOR,
            // A node that does not prove its id may be one that restarts.
            Role::Node if self.node.is_none() && self.is_proven => NEW_NODE,
            Role::Node => NODE,
            Role::Coordinator => COORDINATOR,
        }
    }

    /// The sender in words, to be read after "a".
    fn named(&self) -> &'static str {
        match self.column() {
            CLIENT => "client",
            OPERATOR => "operator",
            NEW_NODE => "node that has not joined",
            NODE => "node",
            COORDINATOR => "coordinator",
            _ => "join token",
        }
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Roles(u8);

const CLIENT: Roles = Roles(1);
const OPERATOR: Roles = Roles(2);
const NODE: Roles = Roles(4);
/// A node that has not joined yet, by its certificate.
const NEW_NODE: Roles = Roles(8);
const COORDINATOR: Roles = Roles(16);
const TOKEN: Roles = Roles(32);
/// Those that read and write files.
const USERS: Roles = CLIENT.and(OPERATOR);
/// Nodes that join.
const JOINERS: Roles = NODE.and(NEW_NODE);
const MEMBERS: Roles = USERS.and(NODE).and(COORDINATOR);

impl Roles {
    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The rows of requests to nodes.
const fn senders_to_node(request: &NodeRequest) -> Roles {
    use NodeRequest as R;
    match request {
        R::Stage(_)
        | R::Unstage(_)
        | R::Update(_)
        | R::Fate(_)
        | R::Mark(_)
        | R::Meter
        | R::StoreCounts
        | R::ReservedBytes(_) => USERS,
        R::RunPart(part) => senders_of_part(part),
        R::Recollect(_) => USERS.and(NODE),
        R::Attest(_) | R::Probe(_) => MEMBERS,
        R::Collect(_) | R::Fence(_) | R::Resolve(_) | R::Scrub(_) => NODE.and(COORDINATOR),
        R::Committed(_) => NODE,
        R::RaiseTokens(_)
        | R::Commit(_)
        | R::Pin(_)
        | R::Unpin(_)
        | R::Missed(_)
        | R::Latest(_)
        | R::Written(_)
        | R::Remove(_)
        | R::Discard(_)
        | R::Reach(_)
        | R::Renew
        | R::Progress(_)
        | R::Cluster
        | R::Held(_) => COORDINATOR,
    }
}

/// The rows of parts of plans. A user reads, and stores new chunks outside of any term; only a primary records
/// updates, and only the coordinator replaces chunks.
const fn senders_of_part(part: &RunPart) -> Roles {
    match part.effect {
        Effect::None => MEMBERS,
        Effect::Install { base: Sequence(0) } if matches!(part.epoch, Epoch(0)) => {
            USERS.and(COORDINATOR)
        }
        Effect::Record { .. } | Effect::Append { .. } => NODE.and(COORDINATOR),
        Effect::Install { .. }
        | Effect::Resume { .. }
        | Effect::Convert { .. }
        | Effect::CatchUp { .. } => COORDINATOR,
    }
}

/// The rows of requests to the coordinator.
#[rustfmt::skip]
const fn senders_to_coordinator(request: &CoordinatorRequest) -> Roles {
    use CoordinatorRequest as R;
    match request {
        // With the answer a new node has an id, and is a node on that connection.
        R::BeginJoin(_) => JOINERS,
        R::TellChunks(_)
        | R::SetAside(_)
        | R::EndJoin(_)
        | R::EndMembership(_)
        | R::StoreFailed(_)
        | R::Heartbeat(_)
        | R::Acquire(_)
        | R::Settling(_)
        | R::NoteDegraded(_)
        | R::NotePhase(_)
        | R::Group(_)
        | R::ReportDamage(_)
        | R::Reserves(_)
        | R::Token(_) => NODE,
        R::Suspect(_) => USERS.and(NODE),
        // A lab that times repairs does the coordinator's work, and asks for its nodes first.
        R::Nodes => USERS.and(COORDINATOR),
        R::Accept(_)
        | R::CommitPool(_)
        | R::CreatePool(_) | R::SetQuota(_) | R::SetDirectoryQuota(_)
        | R::RepairNow(_)
        | R::OrderRepair(_)
        | R::Drain(_)
        | R::Keep(_)
        | R::ScrubAll
        | R::OrderForm(_)
        | R::Events(_)
        | R::Recovery(_) => OPERATOR,
        R::Pools
        | R::BeginPut(_) | R::ExtendPut(_) | R::PlaceAnew(_) | R::TouchPut(_)
        | R::CommitPut(_)
        | R::AbortPut(_)
        | R::Lookup(_)
        | R::LookupFile(_) | R::OpenFile(_) | R::ReportFiles(_)
        | R::List(_)
        | R::Rename(_)
        | R::Link(_)
        | R::Snapshot(_)
        | R::MakeSymlink(_)
        | R::ReadLink(_)
        | R::MakeDirectory(_)
        | R::ReadDirectory(_)
        | R::RemoveDirectory(_)
        | R::RenameDirectory(_)
        | R::ExchangeNames(_)
        | R::LookupInode(_)
        | R::StatInode(_)
        | R::DirectoryQuota(_)
        | R::UserAttributes(_)
        | R::SetAttributes(_)
        | R::Grow(_)
        | R::OpenExclusive(_)
        | R::RenewExclusive(_)
        | R::CloseExclusive(_)
        | R::OpenSession | R::RenewSession(_) | R::CloseSession(_) | R::SetLock(_) | R::Changes(_)
        | R::RemoveFile(_)
        | R::Status
        | R::Hasten(_)
        | R::Links
        | R::WriteInline(_) | R::BeginReplace(_)
        | R::CommitReplace(_)
        | R::Ended(_)
        | R::Usage | R::RecentUsage | R::Space => USERS,
    }
}

/// The rows of requests about certificates.
const fn senders_of_certificate_call(request: &CertificateRequest) -> Roles {
    match request {
        CertificateRequest::Certify { .. } => USERS.and(JOINERS).and(TOKEN),
        CertificateRequest::Revoked { .. } => USERS.and(JOINERS),
    }
}

/// The rows of flow frames.
const fn senders_of_flow(flow: &Flow) -> Roles {
    match flow {
        Flow::Slice { .. } | Flow::Credit { .. } => USERS.and(NODE),
        Flow::Abort { .. } => MEMBERS,
    }
}

/// The node of whom a request to the coordinator speaks in the first person.
fn claimed_node(request: &CoordinatorRequest) -> Option<NodeId> {
    use CoordinatorRequest as R;
    match request {
        R::BeginJoin(join) => join.node.node,
        R::TellChunks(page) => Some(page.session.node),
        R::SetAside(session) => Some(session.node),
        R::EndJoin(end) => Some(end.session.node),
        R::EndMembership(end) => Some(end.session.node),
        R::StoreFailed(failure) => Some(failure.node),
        R::Heartbeat(beat) => Some(beat.node),
        R::Acquire(acquire) => Some(acquire.node),
        R::ReportDamage(report) => Some(report.node),
        _ => None,
    }
}

/// A request, of any kind.
pub(crate) trait Guarded {
    /// The roles that may send it.
    fn may_come_from(&self, sender: &Sender) -> Result<(), String>;
}

impl Guarded for NodeRequest {
    fn may_come_from(&self, sender: &Sender) -> Result<(), String> {
        judge(senders_to_node(self), sender)
    }
}

impl Guarded for CoordinatorRequest {
    fn may_come_from(&self, sender: &Sender) -> Result<(), String> {
        judge(senders_to_coordinator(self), sender)?;
        // Without TLS a node that restarts has no id on its first connection.
        let is_open = !sender.is_proven && sender.node.is_none();
        // The coordinator knows which node has begun to join with a certificate without an id.
        let returns =
            sender.column() == NEW_NODE && matches!(self, CoordinatorRequest::BeginJoin(_));
        match claimed_node(self) {
            Some(claimed) if !is_open && !returns && sender.node != Some(claimed) => Err(format!(
                "{} may not speak for {claimed}",
                sender
                    .node
                    .map_or_else(|| "a new node".to_owned(), |node| node.to_string())
            )),
            _ => Ok(()),
        }
    }
}

impl Guarded for CertificateRequest {
    fn may_come_from(&self, sender: &Sender) -> Result<(), String> {
        if !sender.is_proven {
            return Err("this cluster has no certificates".to_owned());
        }
        judge(senders_of_certificate_call(self), sender)
    }
}

impl Guarded for Flow {
    fn may_come_from(&self, sender: &Sender) -> Result<(), String> {
        judge(senders_of_flow(self), sender)
    }
}

fn judge(roles: Roles, sender: &Sender) -> Result<(), String> {
    if roles.has(sender.column()) {
        return Ok(());
    }
    let operator = if roles.has(OPERATOR) {
        "; an operator may"
    } else {
        ""
    };
    let sender = sender.named();
    Err(format!("a {sender} may not send this request{operator}"))
}

#[cfg(test)]
mod tests;
