//! Requests and replies as lines of the event log: those that concern the contents of a stripe.

use crate::parties::{Reply, Request};
use gabion_protocol::message::{
    CoordinatorReply, CoordinatorRequest, NodeReply, NodeRequest, RunPart,
};

/// A request, if it is logged.
pub(crate) fn request(request: &Request) -> Option<String> {
    match request {
        Request::Node(_, request) => node_request(request),
        Request::Coordinator(request) => match request {
            CoordinatorRequest::Acquire { .. }
            | CoordinatorRequest::Settling { .. }
            | CoordinatorRequest::NoteDegraded { .. }
            | CoordinatorRequest::NotePhase { .. }
            | CoordinatorRequest::Group { .. }
            | CoordinatorRequest::ReportDamage { .. }
            | CoordinatorRequest::BeginPut { .. }
            | CoordinatorRequest::PlaceAnew { .. }
            | CoordinatorRequest::CommitPut(_)
            | CoordinatorRequest::Rename { .. }
            | CoordinatorRequest::Link { .. }
            | CoordinatorRequest::MakeSymlink { .. }
            | CoordinatorRequest::MakeDirectory { .. }
            | CoordinatorRequest::RemoveDirectory { .. }
            | CoordinatorRequest::SetAttributes { .. }
            | CoordinatorRequest::RenameDirectory { .. }
            | CoordinatorRequest::ExchangeNames { .. }
            | CoordinatorRequest::Grow { .. }
            | CoordinatorRequest::WriteInline { .. }
            | CoordinatorRequest::BeginReplace { .. }
            | CoordinatorRequest::CommitReplace { .. }
            | CoordinatorRequest::AbortPut(_)
            | CoordinatorRequest::BeginJoin { .. }
            | CoordinatorRequest::TellChunks(_)
            | CoordinatorRequest::SetAside(_)
            | CoordinatorRequest::EndJoin(_)
            | CoordinatorRequest::EndMembership { .. }
            | CoordinatorRequest::Accept(_) => Some(format!("{request:?}")),
            _ => None,
        },
    }
}

/// A request to a node, if it is logged.
pub(crate) fn node_request(request: &NodeRequest) -> Option<String> {
    match request {
        NodeRequest::RunPart(part) => Some(run_part(part)),
        NodeRequest::Stage { .. } | NodeRequest::Meter => None,
        other => Some(format!("{other:?}")),
    }
}

fn run_part(part: &RunPart) -> String {
    let RunPart {
        part: steps,
        epoch,
        generation,
        cut,
        effect,
        ..
    } = part;
    let (runs, stripe) = (part.runs(), steps.stripe);
    format!("RunPart {runs:?} of {stripe}, {epoch}, {generation}, {cut:?}, {effect:?}")
}

/// A reply.
pub(crate) fn reply(reply: &Reply) -> String {
    match reply {
        Reply::Node(NodeReply::Scrubbed(found)) => format!("Scrubbed, {:?}", found.damage),
        Reply::Node(other) => format!("{other:?}"),
        Reply::Coordinator(reply) => coordinator_reply(reply),
    }
}

fn coordinator_reply(reply: &CoordinatorReply) -> String {
    match reply {
        CoordinatorReply::Lease(lease) => format!("Lease {}, {:?}", lease.epoch, lease.stripe),
        CoordinatorReply::Joined(joined) => {
            format!("Joined {}, {:?}", joined.node, joined.answer)
        }
        CoordinatorReply::Put(places) => format!("Put {:?}, {:?}", places.put, places.stripes),
        other => format!("{other:?}"),
    }
}
