//! The findings of a recovery, page by page: first every file of the metadata with what its nodes say, then the chunks
//! on each node that no file of the metadata has. Nothing is kept between two pages.

use super::judge::{Told, judge};
use super::survey::{KnownFleet, Survey};
use crate::coordinator::core::{Core, PAGE};
use crate::coordinator::files::lookups::window_of;
use crate::coordinator::pool_facts::Pools;
use crate::message::{
    Denial, FileFinding, FileLayout, KnownStripes, Liveness, RecoveryPage, RecoveryPlace,
    StripeCounts,
};
use gabion_layout::{NodeId, StripeId, StripeRecord};
use gabion_meta::{FileRecord, KeyValue, Meta, MetaError, PutId, StripeStatus};
use std::sync::Arc;

/// Stripes of files after which a page ends.
const STRIPE_COUNT: usize = 1_024;
/// Time in which nodes tell their chunks for a page. The client waits for a minute.
const HELD_LIMIT_MS: u64 = 30_000;

/// A part of a file, and whether the file begins with it.
type Part = (FileLayout, bool);

/// The page of findings at a place.
///
/// # Errors
/// Those of [`Survey::fleet`].
pub(super) async fn page_at<K: KeyValue + Send + Sync + 'static>(
    core: &Core<K>,
    pools: &Arc<Pools>,
    survey: &Survey<K>,
    place: Option<RecoveryPlace>,
) -> Result<RecoveryPage, Denial> {
    let fleet = survey.fleet().await?;
    let mut page = match place {
        Some(RecoveryPlace::Node { node, after }) => {
            strangers_page(core, survey, &fleet, (node, after)).await?
        }
        Some(RecoveryPlace::File { put, offset }) => {
            files_page(core, pools, survey, &fleet, Some((put, offset))).await?
        }
        None => files_page(core, pools, survey, &fleet, None).await?,
    };
    page.silent_nodes.extend(fleet.which(Liveness::Suspect));
    Ok(page)
}

async fn files_page<K: KeyValue + Send + Sync + 'static>(
    core: &Core<K>,
    pools: &Arc<Pools>,
    survey: &Survey<K>,
    fleet: &KnownFleet,
    from: Option<(PutId, u64)>,
) -> Result<RecoveryPage, Denial> {
    let (pools, window_count) = (Arc::clone(pools), core.options.window_stripe_count);
    let read = move |meta: &Meta<K>| parts_from(meta, &pools, window_count, from);
    let (parts, next) = core.with_meta(read).await?;
    let stripes = parts.iter().flat_map(|(layout, _)| &layout.stripes);
    let stripes: Vec<&StripeRecord> = stripes.collect();
    let (told, silent) = survey.held(fleet, &stripes, HELD_LIMIT_MS).await;
    let mut page = RecoveryPage {
        // Behind the last file come the nodes.
        next: next.or_else(|| first_node(fleet, None)),
        silent_nodes: silent.into_iter().collect(),
        ..RecoveryPage::default()
    };
    for (layout, is_first) in &parts {
        let counts = count(layout, &told);
        page.file_count += u64::from(*is_first);
        page.stripes += counts;
        let is_of_metadata = *is_first && is_of_metadata(layout);
        if counts.not_held_count() > 0 || is_of_metadata {
            page.findings.push(FileFinding {
                put: layout.file.put,
                name: layout.file.name.clone(),
                stripes: counts,
                is_of_metadata,
            });
        }
    }
    Ok(page)
}

/// Parts of files from a place on, and the place behind them, if files follow.
fn parts_from<K: KeyValue>(
    meta: &Meta<K>,
    pools: &Pools,
    window_count: u64,
    from: Option<(PutId, u64)>,
) -> Result<(Vec<Part>, Option<RecoveryPlace>), MetaError> {
    let (mut parts, mut stripe_count) = (Vec::new(), 0);
    let mut visit = |file: &FileRecord, mut offset: u64| -> Result<Option<u64>, MetaError> {
        while offset < u64::MAX {
            if stripe_count >= STRIPE_COUNT {
                return Ok(Some(offset));
            }
            let layout = window_of(meta, pools, (file, offset), window_count)?;
            stripe_count += layout.stripes.len();
            let behind = layout.behind.unwrap_or(u64::MAX);
            parts.push((layout, offset == 0));
            offset = behind;
        }
        Ok(None)
    };
    if let Some((put, offset)) = from.filter(|&(_, offset)| offset < u64::MAX)
        && let Some(offset) = visit(&meta.file_of(put)?, offset)?
    {
        return Ok((parts, Some(RecoveryPlace::File { put, offset })));
    }
    let files = meta.files_by_put(from.map(|(put, _)| put), PAGE)?;
    for file in &files {
        let put = file.put;
        if let Some(offset) = visit(file, 0)? {
            return Ok((parts, Some(RecoveryPlace::File { put, offset })));
        }
    }
    let last = files.last().filter(|_| files.len() == PAGE);
    let next = last.map(|file| RecoveryPlace::File {
        put: file.put,
        offset: u64::MAX,
    });
    Ok((parts, next))
}

/// Counts the stripes of a part of a file by what is known of them.
pub(super) fn count(layout: &FileLayout, told: &Told) -> StripeCounts {
    let mut counts = StripeCounts::default();
    for stripe in &layout.stripes {
        counts += judge(stripe, data_count(layout, stripe), told).counted();
    }
    counts
}

/// The data chunks of a stripe.
fn data_count(layout: &FileLayout, stripe: &StripeRecord) -> usize {
    let encoded = layout.encoded.as_ref();
    let encoded = encoded.filter(|pool| pool.id == stripe.pool);
    encoded.unwrap_or(&layout.pool).spec.k
}

/// Whether some bytes of a file are in no stripe.
fn is_of_metadata(layout: &FileLayout) -> bool {
    let file = &layout.file;
    if file.inline.is_some() {
        return true;
    }
    // Files of a pool with a lifecycle have no holes, and a segment of them may have several stripes.
    let segment_count = file.size_bytes.div_ceil(layout.pool.spec.segment_bytes());
    layout.encoded.is_none() && file.symlink.is_none() && file.stripe_count < segment_count
}

/// The first stripes of the node behind one; none if there is none.
fn first_node(fleet: &KnownFleet, last: Option<NodeId>) -> Option<RecoveryPlace> {
    let mut nodes = fleet.which(Liveness::Up);
    let node = nodes.find(|&node| last.is_none_or(|last| node > last))?;
    Some(RecoveryPlace::Node { node, after: None })
}

/// The stripes behind a place on a node that no file of the metadata has.
async fn strangers_page<K: KeyValue + Send + Sync + 'static>(
    core: &Core<K>,
    survey: &Survey<K>,
    fleet: &KnownFleet,
    (node, after): (NodeId, Option<StripeId>),
) -> Result<RecoveryPage, Denial> {
    let Some(held) = survey.behind(node, after).await else {
        return Ok(RecoveryPage {
            silent_nodes: vec![node],
            next: first_node(fleet, Some(node)),
            ..RecoveryPage::default()
        });
    };
    let KnownStripes { stripes, upto } = held;
    let find = move |meta: &Meta<K>| {
        let mut strangers = Vec::new();
        // A node tells no stripe twice, or its answer is not believed.
        for known in stripes.iter().filter(|known| Some(known.stripe) > after) {
            // A put that was under way may have been committed since.
            let status = meta.stripe_status(known.stripe)?;
            if matches!(status, StripeStatus::Unknown | StripeStatus::Pending) {
                strangers.push(known.stripe);
            }
        }
        Ok(strangers)
    };
    let strangers = core.with_meta(find).await?;
    // A node whose answer does not advance would be asked for ever.
    let next = match upto.filter(|_| upto > after) {
        Some(upto) => Some(RecoveryPlace::Node {
            node,
            after: Some(upto),
        }),
        None => first_node(fleet, Some(node)),
    };
    Ok(RecoveryPage {
        strangers: (!strangers.is_empty()).then_some((node, strangers)),
        next,
        ..RecoveryPage::default()
    })
}
