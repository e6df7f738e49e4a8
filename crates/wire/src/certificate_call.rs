//! Requests about certificates, which the wire carries beside the protocol's: the protocol knows no certificates.

use serde::{Deserialize, Serialize};

use crate::body::Rpc;
use crate::frame::Kind;

/// A request to the coordinator about certificates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CertificateRequest {
    /// Sign this key, for the sender's own name. A join token is used up by it; a node that has just joined gets
    /// its id into its name.
    Certify {
        /// The key: an uncompressed point of P-256.
        point: Vec<u8>,
    },
    /// The list of revoked certificates.
    Revoked {
        /// CRC-32C of the list that the sender has.
        known: u32,
    },
}

/// The coordinator's answer to a [`CertificateRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CertificateReply {
    /// The certificate, in PEM.
    Certified {
        /// The certificate.
        certificate: String,
    },
    /// The list of revoked certificates, in PEM; none if the sender has it.
    Revoked {
        /// The list.
        list: Option<String>,
    },
    /// A refusal, with the reason as a sentence.
    Refused(String),
}

impl Rpc for CertificateRequest {
    type Reply = CertificateReply;
    const REQUEST: Kind = Kind::CertificateRequest;
    const REPLY: Kind = Kind::CertificateReply;
}
