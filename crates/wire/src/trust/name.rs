//! The name that a certificate gives its process: the cluster, the role, and the node's id.
//!
//! It is a URI among the certificate's alternative names, `gabion://CLUSTER/ROLE`: CLUSTER is the cluster's id in
//! 32 hexadecimal digits, and ROLE one of `coordinator`, `node/N`, `node` (a new node, without an id yet),
//! `operator` and `client`. A join token has `join/` before the role that it is exchanged for.

use crate::role::Role;
use gabion_layout::{ClusterId, NodeId};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The name that every certificate has, and that every client asks for: TLS wants one. The name of the process is
/// another one.
pub(super) const TLS_NAME: &str = "gabion.internal";
const SCHEME: &str = "gabion://";
const JOIN: &str = "join/";

/// The name that a certificate gives its process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Name {
    /// The cluster.
    pub cluster: ClusterId,
    /// The role.
    pub role: Role,
    /// The node's id; none for other roles and for a node that has never joined.
    pub node: Option<NodeId>,
    /// Whether the certificate is a join token: it can only be exchanged for a certificate of this name.
    pub is_token: bool,
}

/// A text is not the name of a process.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0} is not the name of a process; such a name is {SCHEME}CLUSTER/ROLE")]
pub struct NameError(String);

impl Name {
    /// The name of a process that is no node.
    pub const fn of(cluster: ClusterId, role: Role) -> Self {
        Self {
            cluster,
            role,
            node: None,
            is_token: false,
        }
    }

    /// The name of a node, whose id is absent before it joins.
    pub const fn of_node(cluster: ClusterId, node: Option<NodeId>) -> Self {
        Self {
            node,
            ..Self::of(cluster, Role::Node)
        }
    }

    /// The name of a join token that is exchanged for a certificate of this name.
    #[must_use]
    pub const fn as_token(self) -> Self {
        Self {
            is_token: true,
            ..self
        }
    }

    /// The name of the certificate for which the token is exchanged.
    #[must_use]
    pub const fn without_token(self) -> Self {
        Self {
            is_token: false,
            ..self
        }
    }

    /// The role in words, without the cluster.
    pub fn holder(&self) -> String {
        let join = if self.is_token { JOIN } else { "" };
        match (self.role, self.node) {
            (Role::Coordinator, _) => format!("{join}coordinator"),
            (Role::Operator, _) => format!("{join}operator"),
            (Role::Client, _) => format!("{join}client"),
            (Role::Node, None) => format!("{join}node"),
            (Role::Node, Some(node)) => format!("{join}node/{}", node.0),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{:032x}/{}", self.cluster.0, self.holder())
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parsed = || {
            let (cluster, holder) = text.strip_prefix(SCHEME)?.split_once('/')?;
            let cluster = ClusterId(u128::from_str_radix(cluster, 16).ok()?);
            let (holder, is_token) = match holder.strip_prefix(JOIN) {
                Some(holder) => (holder, true),
                None => (holder, false),
            };
            let name = match holder {
                "coordinator" => Self::of(cluster, Role::Coordinator),
                "operator" => Self::of(cluster, Role::Operator),
                "client" => Self::of(cluster, Role::Client),
                "node" => Self::of_node(cluster, None),
                other => {
                    let node = other.strip_prefix("node/")?.parse().ok()?;
                    Self::of_node(cluster, Some(NodeId(node)))
                }
            };
            let name = Self { is_token, ..name };
            // One name has one form, so that names can be compared as texts too.
            (name.to_string() == text).then_some(name)
        };
        parsed().ok_or_else(|| NameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId(0xfeed);

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let roles = [Role::Coordinator, Role::Operator, Role::Client, Role::Node];
        let names = roles.map(|role| Name::of(CLUSTER, role));
        let node = Name::of_node(CLUSTER, Some(NodeId(12)));
        for name in names.into_iter().chain([node]) {
            for name in [name, name.as_token()] {
                assert_eq!(name.to_string().parse(), Ok(name));
            }
        }
        let text = "gabion://0000000000000000000000000000feed/join/node/12";
        assert_eq!(node.as_token().to_string(), text);
    }

    #[test]
    fn any_other_text_is_no_name() {
        for wrong in [
            "",
            "gabion://",
            "gabion://feed/node/1",
            "https://0000000000000000000000000000feed/client",
            "gabion://0000000000000000000000000000feed/",
            "gabion://0000000000000000000000000000feed/root",
            "gabion://0000000000000000000000000000feed/node/01",
            "gabion://0000000000000000000000000000feed/node/+1",
            "gabion://0000000000000000000000000000feed/node/-1",
            "gabion://0000000000000000000000000000FEED/client",
            "gabion://0000000000000000000000000000feed/join/join/client",
            "gabion://0000000000000000000000000000feed/client/",
        ] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }
}
