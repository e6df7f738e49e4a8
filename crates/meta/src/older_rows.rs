//! Rows as earlier versions of their tables wrote them.

use crate::records::{Phase, PoolRecord, PoolSpec};
use gabion_layout::{Epoch, PoolId, Sequence, Survive, UpdateScheme};
use serde::Deserialize;

/// Reads a pool's row of version 1, from before pools had an update scheme. Such pools use parity
/// logging.
pub(crate) fn read_pool(version: u8, body: &[u8]) -> Option<PoolRecord> {
    #[derive(Deserialize)]
    struct First {
        id: PoolId,
        name: String,
        code: String,
        k: usize,
        m: usize,
        sub_chunks: usize,
        chunk_bytes: u64,
        survive: Survive,
        chunks_per_rack: usize,
    }
    match version {
        1 => {}
        // Older records end before the fields for append phases and lifecycles; missing fields mean
        // that there are none.
        2 => return postcard::from_bytes(&[body, &[0, 0]].concat()).ok(),
        3 => return postcard::from_bytes(&[body, &[0]].concat()).ok(),
        _ => return None,
    }
    let (first, rest) = postcard::take_from_bytes::<First>(body).ok()?;
    let spec = PoolSpec {
        name: first.name,
        code: first.code,
        k: first.k,
        m: first.m,
        sub_chunks: first.sub_chunks,
        chunk_bytes: first.chunk_bytes,
        survive: first.survive,
        chunks_per_rack: first.chunks_per_rack,
        update: UpdateScheme::Pl,
        reserve: None,
        append: None,
    };
    rest.is_empty().then_some(PoolRecord {
        id: first.id,
        spec,
        lifecycle: None,
    })
}

/// Reads a row of an append phase of version 1, which did not say when the phase began: any term may end it.
pub(crate) fn read_phase(version: u8, body: &[u8]) -> Option<Phase> {
    let epoch = Epoch::default();
    let mark = Sequence::default();
    (version == 1 && body.is_empty()).then_some(Phase { epoch, mark })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClusterId, MemoryStore, Meta};

    #[test]
    fn pools_of_before_update_schemes_are_parity_logging() {
        let meta = Meta::create(MemoryStore::new(), ClusterId(1)).unwrap();
        let spec = PoolSpec {
            name: "p".to_owned(),
            code: "rs(2,1)".to_owned(),
            k: 2,
            m: 1,
            sub_chunks: 1,
            chunk_bytes: 4096,
            survive: Survive::Nodes(1),
            chunks_per_rack: 3,
            update: UpdateScheme::Pl,
            reserve: None,
            append: None,
        };
        let record = meta.create_pool(&spec).unwrap();
        // Version 1 lacks the last four fields, version 2 the last two and version 3 the last one:
        // one byte each here.
        let body = postcard::to_allocvec(&record).unwrap();
        let (third, new) = body.split_at(body.len() - 1);
        assert_eq!(new, [0]);
        assert_eq!(read_pool(3, third), Some(record.clone()));
        let (second, new) = third.split_at(third.len() - 1);
        assert_eq!(new, [0]);
        let (first, new) = second.split_at(second.len() - 2);
        assert_eq!(new, [2, 0]);
        assert_eq!(read_pool(1, first), Some(record.clone()));
        assert_eq!(read_pool(2, second), Some(record));
        assert_eq!(read_pool(1, second), None);
        assert_eq!(read_pool(0, first), None);
    }

    #[test]
    fn a_phase_without_a_begin_is_ended_by_any_term() {
        let phase = read_phase(1, &[]).expect("a row of version 1");
        assert_eq!((phase.epoch, phase.mark), (Epoch(0), Sequence(0)));
        assert_eq!(read_phase(1, &[0]), None);
        assert_eq!(read_phase(0, &[]), None);
    }
}
