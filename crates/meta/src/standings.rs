//! Durable state of the repair manager: nodes that the cluster no longer waits for, nodes that are
//! leaving, and users' settings. The coordinator acts on it.

use crate::error::MetaError;
use crate::kv::{KeyValue, WriteTxn};
use crate::meta::Meta;
use crate::node_rows::node;
use crate::records::{Departure, RepairSettings, Standing};
use crate::schema::{PENDING, REPAIR_SETTINGS, STANDINGS, STRIPES_ON};
use gabion_layout::{NodeId, StripeId};

impl<K: KeyValue> Meta<K> {
    /// The standings of nodes, by id; nodes that are not listed have [`Standing::default`].
    ///
    /// # Errors
    /// When the store fails or a row is corrupt.
    pub fn standings(&self) -> Result<Vec<(NodeId, Standing)>, MetaError> {
        self.store
            .read(|txn| STANDINGS.scan(txn, &STANDINGS.all(), usize::MAX))
    }

    /// Notes that the cluster no longer waits for a failed node. Has no effect on a node that is
    /// not failed.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn abandon_node(&self, id: NodeId) -> Result<Standing, MetaError> {
        self.change(|txn| {
            let failed = node(txn, id)?.failed;
            change_standing(txn, id, |standing| standing.abandoned |= failed)
        })
    }

    /// Begins a node's departure, which lasts until [`Meta::drained`] or [`Meta::keep`]. A drained
    /// node stays drained.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn drain(&self, id: NodeId) -> Result<Standing, MetaError> {
        self.change(|txn| {
            node(txn, id)?;
            change_standing(txn, id, |standing| {
                if standing.departure == Departure::None {
                    standing.departure = Departure::Draining;
                }
            })
        })
    }

    /// Cancels a node's departure.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn keep(&self, id: NodeId) -> Result<Standing, MetaError> {
        self.change(|txn| {
            node(txn, id)?;
            change_standing(txn, id, |standing| standing.departure = Departure::None)
        })
    }

    /// Completes the departure of a draining node if no stripe and no open put has a chunk on it.
    /// Returns its standing.
    ///
    /// # Errors
    /// [`MetaError::UnknownNode`].
    pub fn drained(&self, id: NodeId) -> Result<Standing, MetaError> {
        self.change(|txn| {
            node(txn, id)?;
            let span = STRIPES_ON.between(&(id, StripeId(0)), &(id, StripeId(u64::MAX)));
            let mut is_empty = STRIPES_ON.scan(txn, &span, 1)?.is_empty();
            if is_empty {
                let pending = PENDING.scan(txn, &PENDING.all(), usize::MAX)?;
                is_empty = !pending.iter().any(|(_, stripe)| stripe.nodes.contains(&id));
            }
            change_standing(txn, id, |standing| {
                if is_empty && standing.departure == Departure::Draining {
                    standing.departure = Departure::Drained;
                }
            })
        })
    }

    /// Users' settings of the repair manager.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn repair_settings(&self) -> Result<RepairSettings, MetaError> {
        let settings = self.store.read(|txn| REPAIR_SETTINGS.get(txn, &()))?;
        Ok(settings.unwrap_or_default())
    }

    /// Changes the settings of the repair manager, and returns all of them.
    ///
    /// # Errors
    /// When the store fails or the row is corrupt.
    pub fn change_repair_settings(
        &self,
        change: impl Fn(&mut RepairSettings),
    ) -> Result<RepairSettings, MetaError> {
        self.change(|txn| {
            let mut settings = REPAIR_SETTINGS.get(txn, &())?.unwrap_or_default();
            change(&mut settings);
            REPAIR_SETTINGS.put(txn, &(), &settings)?;
            Ok(settings)
        })
    }
}

/// Changes a node's standing within a transaction. The default has no row.
pub(crate) fn change_standing(
    txn: &mut dyn WriteTxn,
    id: NodeId,
    change: impl Fn(&mut Standing),
) -> Result<Standing, MetaError> {
    let before = STANDINGS.get(txn, &id)?;
    let mut standing = before.unwrap_or_default();
    change(&mut standing);
    if standing == Standing::default() {
        if before.is_some() {
            STANDINGS.delete(txn, &id)?;
        }
    } else if before != Some(standing) {
        STANDINGS.put(txn, &id, &standing)?;
    }
    Ok(standing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, MemoryStore, Placement, PoolSpec};
    use gabion_layout::{RackId, Survive, UpdateScheme};

    fn cluster(node_count: u32) -> Meta<MemoryStore> {
        let meta = Meta::create(
            MemoryStore::new(),
            ClusterId(1),
            crate::WallClock::stopped(crate::WallTime::default()),
        )
        .unwrap();
        for node in 0..node_count {
            let address = format!("10.0.0.1:{}", 1000 + node);
            meta.join(None, RackId(node), &address, 1, 0).unwrap();
        }
        meta
    }

    #[test]
    fn only_failed_nodes_are_abandoned_and_until_they_return() {
        let meta = cluster(2);
        let node = NodeId(1);
        assert!(!meta.abandon_node(node).unwrap().abandoned);
        meta.declare_failed(node).unwrap();
        assert!(meta.abandon_node(node).unwrap().abandoned);
        let reopened = Meta::open(
            meta.into_store(),
            crate::WallClock::stopped(crate::WallTime::default()),
        )
        .unwrap();
        assert_eq!(reopened.standings().unwrap().len(), 1, "it is durable");
        reopened
            .declare_returned(node, gabion_layout::Start::default(), 0)
            .unwrap();
        assert_eq!(reopened.standings().unwrap(), []);
        assert!(matches!(
            reopened.abandon_node(NodeId(7)),
            Err(MetaError::UnknownNode(_))
        ));
    }

    #[test]
    fn a_node_is_drained_when_nothing_is_left_on_it() {
        let meta = cluster(4);
        let pool = meta
            .create_pool(&PoolSpec {
                name: "p".to_owned(),
                code: "rs(2,1)".to_owned(),
                k: 2,
                m: 1,
                sub_chunks: 1,
                chunk_bytes: 4096,
                survive: Survive::Nodes(1),
                chunks_per_rack: 1,
                update: UpdateScheme::Pl,
                reserve: None,
                append: None,
                inline_bytes: 0,
            })
            .unwrap();
        let placement = Placement {
            chunk_bytes: 4096,
            nodes: [0, 1, 2].map(NodeId).to_vec(),
        };
        let put = meta
            .begin_put(
                ("f", crate::Existing::Stays, crate::NewAttributes::FILE),
                pool.id,
                8192,
                &[placement],
                0,
            )
            .unwrap();
        let node = NodeId(2);
        let departure = |standing: Standing| standing.departure;
        assert_eq!(meta.drained(node).map(departure), Ok(Departure::None));
        assert_eq!(meta.drain(node).map(departure), Ok(Departure::Draining));
        assert_eq!(
            meta.drained(node).map(departure),
            Ok(Departure::Draining),
            "an open put counts"
        );
        meta.commit_put(put.id, 0).unwrap();
        assert_eq!(meta.drained(node).map(departure), Ok(Departure::Draining));
        let stripe = meta.stripes(None, 1).unwrap().remove(0);
        let chunk = stripe.chunk_on(node).unwrap();
        meta.relocate(stripe.id, stripe.generation, chunk, (NodeId(3), None))
            .unwrap();
        assert_eq!(meta.drained(node).map(departure), Ok(Departure::Drained));
        assert_eq!(meta.drain(node).map(departure), Ok(Departure::Drained));
        assert_eq!(meta.keep(node).map(departure), Ok(Departure::None));
        assert_eq!(meta.standings().unwrap(), []);
    }

    #[test]
    fn settings_are_kept() {
        let meta = cluster(1);
        assert_eq!(meta.repair_settings().unwrap(), RepairSettings::default());
        meta.change_repair_settings(|settings| settings.is_paused = true)
            .unwrap();
        let change = |settings: &mut RepairSettings| settings.total_bytes_per_s = Some(7);
        let told = meta.change_repair_settings(change).unwrap();
        assert!(told.is_paused && told.total_bytes_per_s == Some(7));
        let reopened = Meta::open(
            meta.into_store(),
            crate::WallClock::stopped(crate::WallTime::default()),
        )
        .unwrap();
        assert_eq!(reopened.repair_settings().unwrap(), told);
    }
}
