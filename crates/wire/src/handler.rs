//! A process's handler of messages.

use gabion_protocol::message::{CoordinatorRequest, Flow, NodeRequest};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

use crate::body::{Frame, Rpc};
use crate::certificate_call::CertificateRequest;
use crate::connection::Connection;
use crate::error::WireError;
use crate::frame::Kind;

/// Receives a process's messages.
///
/// The methods run on the connection's reader, in the order of arrival, and must not block: spawn a task
/// for work that takes time. A blocked method holds back all further messages of the connection. A panic in
/// them closes the connection.
///
/// A process that serves no requests, such as a client, implements [`Handler::flow`] alone.
pub trait Handler: Send + Sync + 'static {
    /// A request to this process as a node.
    fn node_request(
        &self,
        connection: &Arc<Connection>,
        request: NodeRequest,
        responder: Responder<NodeRequest>,
    ) {
        let _ = (connection, request);
        responder.refuse("this process is no node");
    }

    /// A request to this process as the coordinator.
    fn coordinator_request(
        &self,
        connection: &Arc<Connection>,
        request: CoordinatorRequest,
        responder: Responder<CoordinatorRequest>,
    ) {
        let _ = (connection, request);
        responder.refuse("this process is not the coordinator");
    }

    /// A request to this process as the coordinator, about certificates.
    fn certificate_request(
        &self,
        connection: &Arc<Connection>,
        request: CertificateRequest,
        responder: Responder<CertificateRequest>,
    ) {
        let _ = (connection, request);
        responder.refuse("this process is not the coordinator");
    }

    /// A flow frame. The credits that this process gave for a value limit its slices in flight.
    fn flow(&self, connection: &Arc<Connection>, flow: Flow);

    /// The connection is closed; no more frames arrive on it. Called once for each connection.
    fn closed(&self, connection: &Arc<Connection>, reason: &WireError) {
        let _ = (connection, reason);
    }

    /// A request of a peer was refused before it reached this process's role: because of its sender, or because the
    /// peer has too many requests served already.
    fn not_admitted(&self, connection: &Arc<Connection>, refusal: NotAdmitted) {
        let _ = (connection, refusal);
    }

    /// A peer has connected, but its connection could not be set up.
    fn not_accepted(&self, address: SocketAddr, reason: &WireError) {
        let _ = (address, reason);
    }
}

/// Causes for which a request did not reach its role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAdmitted {
    /// The sender may not send it.
    Sender,
    /// As many requests of the peer are served as may be.
    ServedRequests,
}

/// The right and the duty to answer one request.
///
/// Dropping it without an answer, for instance in a panic, tells the peer that no reply will come.
pub struct Responder<R: Rpc> {
    /// Invariant: `Some` until the request is answered.
    owed: Option<Owed>,
    request: PhantomData<fn() -> R>,
}

struct Owed {
    connection: Arc<Connection>,
    id: u64,
    served: Option<OwnedSemaphorePermit>,
}

impl<R: Rpc> Responder<R> {
    /// The responder for request `id`; `served` is its place among those being served.
    pub(crate) fn new(
        connection: Arc<Connection>,
        id: u64,
        served: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            owed: Some(Owed {
                connection,
                id,
                served,
            }),
            request: PhantomData,
        }
    }

    /// Answers. If the connection has closed, the reply is dropped: the peer has seen
    /// the end already. A reply too long for a frame becomes [`Responder::refuse`], and so does one that the
    /// connection's version lacks.
    pub fn reply(mut self, reply: &R::Reply) {
        let owed = self.take();
        let (needed, agreed) = (R::reply_since(reply), owed.connection.version());
        if needed > agreed {
            let why = format!(
                "the answer needs version {needed} of Gabion's protocol and the asker speaks version {agreed}; upgrade \
                the asker"
            );
            return owed.refuse(&why);
        }
        let frame = Frame::message(R::REPLY, owed.id, reply, 128)
            .unwrap_or_else(|error| Frame::words(Kind::NoReply, owed.id, &error.to_string()));
        owed.connection.outbox().send_reply(frame, owed.served);
    }

    /// Refuses to reply, with the reason; the caller gets [`WireError::NoReply`].
    pub fn refuse(mut self, why: &str) {
        self.take().refuse(why);
    }

    fn take(&mut self) -> Owed {
        self.owed
            .take()
            .expect("a responder is consumed by its answer")
    }
}

impl Owed {
    fn refuse(self, why: &str) {
        let frame = Frame::words(Kind::NoReply, self.id, why);
        self.connection.outbox().send_reply(frame, self.served);
    }
}

impl<R: Rpc> Drop for Responder<R> {
    fn drop(&mut self) {
        if let Some(owed) = self.owed.take() {
            owed.refuse("the request was abandoned");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Endpoint, Options};
    use crate::hello::Hello;
    use crate::versions::{FIRST_VERSION, Versions};
    use gabion_protocol::message::NodeReply;
    use serde::{Deserialize, Serialize};
    use std::time::Duration;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    const LATER: u16 = FIRST_VERSION + 1;

    /// A request whose replies have come with a later version.
    #[derive(Serialize, Deserialize)]
    struct Asked;

    impl Rpc for Asked {
        type Reply = NodeReply;
        const REQUEST: Kind = Kind::NodeRequest;
        const REPLY: Kind = Kind::NodeReply;
        fn reply_since(_: &NodeReply) -> u16 {
            LATER
        }
    }

    /// Answers every request with a reply of a later version.
    struct Server;

    impl Handler for Server {
        fn node_request(
            &self,
            _: &Arc<Connection>,
            _: NodeRequest,
            mut responder: Responder<NodeRequest>,
        ) {
            let responder = Responder::<Asked> {
                owed: Some(responder.take()),
                request: PhantomData,
            };
            responder.reply(&NodeReply::Done);
        }

        fn flow(&self, _: &Arc<Connection>, _: Flow) {}
    }

    fn endpoint(newest: u16) -> Arc<Endpoint> {
        let options = Options {
            versions: Versions::between(FIRST_VERSION, newest).unwrap(),
            ..Options::default()
        };
        Endpoint::new(Hello::client(), Arc::new(Server), options, Arc::default())
    }

    #[tokio::test]
    async fn a_reply_that_the_peer_s_version_lacks_is_not_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(endpoint(LATER).serve(listener));
        let asked = async |newest| {
            let connection = Connection::connect(&address, &endpoint(newest)).await;
            let deadline = Instant::now() + Duration::from_mins(1);
            // Clients may send this request to a node.
            let request = gabion_protocol::message::ask::Attest {
                stripe: gabion_layout::StripeId(1),
            };
            connection
                .unwrap()
                .call_node(&NodeRequest::Attest(request), deadline)
                .await
        };
        let refused = asked(FIRST_VERSION).await.unwrap_err().to_string();
        assert!(refused.contains("; upgrade the asker"), "{refused}");
        assert_eq!(asked(LATER).await.unwrap(), NodeReply::Done);
    }
}
