//! Which node joins with a certificate: a new one, or the one that the certificate names.

use crate::certificates::CertificateOffice;
use crate::metadata::MetadataStore;
use gabion_layout::Start;
use gabion_protocol::coordinator::Coordinator;
use gabion_protocol::message::{Cause, CoordinatorReply, Denial, ask};
use gabion_wire::Connection;
use gabion_wire::trust::TrustError;
use std::sync::Arc;

/// Begins a node's join. A new node's certificate has no id: it admits one node, which may have to begin again before
/// it has a certificate with its id.
pub(crate) async fn begin_join(
    coordinator: &Arc<Coordinator<MetadataStore>>,
    office: Arc<CertificateOffice>,
    connection: &Arc<Connection>,
    mut join: ask::BeginJoin,
) -> Result<CoordinatorReply, Denial> {
    let Some(certified) = connection.certified() else {
        return Ok(coordinator.handle(join.into()).await);
    };
    if let Some(named) = certified.name.node {
        // An earlier start may have got this id, and ended before it could note it: another id would not fit.
        if join.node.node.is_none() {
            match coordinator.admitted_start(named).await {
                Ok(start) if may_be_its_start(start, &join) => join.node.node = Some(named),
                Ok(_) => {
                    let sentence = format!(
                        "this certificate is for {named}, which has been a member, and this directory is not its own; \
                        name the directory of {named}, or make a token for a new node with 'gabion cert token'"
                    );
                    return Err(Denial::new(Cause::Invalid, sentence));
                }
                Err(denial) if denial.cause == Cause::NotFound => {}
                Err(denial) => return Err(denial),
            }
        }
        return Ok(coordinator.handle(join.into()).await);
    }
    let (asked, asking) = (Arc::clone(&office), Arc::clone(connection));
    let admitted = with_office(move || asked.admitted(&asking)).await?;
    match (join.node.node, admitted) {
        (Some(claimed), admitted) if admitted != Some(claimed) => {
            let sentence = format!(
                "this node is {claimed}, but its certificate is not for {claimed}; make one with 'gabion cert issue \
                node --node {}'",
                claimed.0
            );
            return Err(Denial::new(Cause::Invalid, sentence));
        }
        (None, Some(node)) => {
            let start = coordinator.admitted_start(node).await?;
            if !may_be_its_start(start, &join) {
                let why = TrustError::Admitted(node).to_string();
                return Err(Denial::new(Cause::Invalid, why));
            }
            join.node.node = Some(node);
        }
        _ => {}
    }
    let reply = coordinator.handle(join.into()).await;
    if let CoordinatorReply::JoinBegun(begun) = &reply {
        let (node, admitting) = (begun.session.node, Arc::clone(connection));
        with_office(move || office.admit(&admitting, node)).await?;
        // From now on it speaks for itself, and gets a certificate of its own.
        connection.note_joined(node);
    }
    Ok(reply)
}

/// Whether a process without an id may be a start of a node that was `admitted` last by this start, or never.
/// Otherwise a second node would get the name of the first.
fn may_be_its_start(admitted: Option<Start>, join: &ask::BeginJoin) -> bool {
    admitted.is_none_or(|start| start == join.node.start)
}

/// Reads or writes the authority's files.
async fn with_office<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TrustError> + Send + 'static,
) -> Result<T, Denial> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.expect("the office does not panic");
    done.map_err(|error| Denial::new(Cause::Failure, error.to_string()))
}
