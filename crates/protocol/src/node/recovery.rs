//! A node's answers to a coordinator with an earlier copy of the metadata. That coordinator may only look: the answers
//! change nothing, and the node follows none of its starts.

use super::Node;
use crate::locks::lock;
use crate::message::{HELD_ASKED_MAX, HeldScope, KnownCluster, KnownStripe, KnownStripes, Refusal};
use gabion_store::{HeldPage, HeldStripe};

/// Chunks, with their unsettled records, in a page of what the node holds. On a slow disk each takes a read.
const PAGE_COUNT: usize = 512;

impl Node {
    /// What this node knows of its cluster.
    pub(super) fn known_cluster(&self) -> KnownCluster {
        KnownCluster {
            heard: self.participant.heard(),
            nodes: lock(&self.nodes).clone(),
            keys: lock(&self.keyring).told(),
        }
    }

    /// The chunks of some stripes that this node holds.
    pub(super) async fn held(&self, scope: HeldScope) -> Result<KnownStripes, Refusal> {
        let page = match scope {
            HeldScope::Of(stripes) if stripes.len() > HELD_ASKED_MAX => {
                return Err(Refusal::Invalid(format!(
                    "a question about held chunks names {} stripes, and at most {HELD_ASKED_MAX} are allowed",
                    stripes.len()
                )));
            }
            HeldScope::Of(stripes) => {
                let held = self
                    .participant
                    .with_store(move |store| store.held_stripes(&stripes));
                HeldPage {
                    stripes: held.await?,
                    upto: None,
                }
            }
            HeldScope::Behind(after) => {
                let held = self
                    .participant
                    .with_store(move |store| store.held_page(after, PAGE_COUNT));
                held.await?
            }
        };
        Ok(KnownStripes {
            stripes: page.stripes.into_iter().map(known).collect(),
            upto: page.upto,
        })
    }
}

/// A stripe of the store. A chunk with a damaged header is left out.
fn known(held: HeldStripe) -> KnownStripe {
    KnownStripe {
        stripe: held.stripe,
        generation: held.state.generation,
        chunks: held.chunks.into_iter().map(|(index, _)| index).collect(),
    }
}
